"""The local scorer against one-by-one forward and `generate` of transformers, on tiny random models."""

from __future__ import annotations

import json
import shutil
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import ScoringError
from calibudget.lm.loading import LanguageModel, load_model
from calibudget.scoring.batches import measure_all
from calibudget.scoring.local import LocalScorer
from calibudget.scoring.scorer import ScorerSettings
from calibudget.tasks.answers import AnswerSpec, parse_answer
from tests.conftest import model_of, record_of, tokenizer_with
from tests.scoring.conftest import items_of

NONE = AnswerSpec(kind="none")


@pytest.fixture(scope="module")
def language_model(tiny_directory: Path) -> Any:
    return load_model(str(tiny_directory), device="cpu")


def plain(language_model: Any, item: Any, limit: Any, template: str = "alpaca") -> Any:
    """NLL and greedy text of one item by a plain forward and `generate`."""
    import torch

    model, tokenizer = language_model.model, language_model.tokenizer
    example = language_model.encoder(template).encode(item.record)
    ids = torch.tensor([example.prompt_ids + example.response_ids])
    with torch.no_grad():
        scores = model(ids, use_cache=False).logits[0, len(example.prompt_ids) - 1 : -1].double().log_softmax(-1)
        prompt = ids[:, : len(example.prompt_ids)]
        made = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=limit, pad_token_id=2
        )
    nll = -scores[range(len(scores)), list(example.response_ids)].mean().item()
    return nll, tokenizer.decode(made[0, prompt.shape[1] :], skip_special_tokens=True)


@pytest.mark.parametrize("template", ["alpaca", "chat"])
def test_scores_are_those_of_one_by_one(language_model: Any, template: str) -> None:
    items = items_of(4)
    scorer = LocalScorer(language_model, ScorerSettings(template=template, max_new_tokens=16))  # type: ignore[arg-type]
    for item, found in zip(items, measure_all(scorer, items), strict=True):
        nll, text = plain(language_model, item, 16, template)
        assert found.nll == pytest.approx(nll, abs=2e-5)
        assert parse_answer(item.answer, found.text) == parse_answer(item.answer, text)  # type: ignore[arg-type]
        assert text.startswith(found.text)


@pytest.fixture(scope="module")
def spelling_model() -> Any:
    """A model that says capital letters only, so that its text has one tokenisation."""
    import torch

    model, tokenizer = model_of(num_key_value_heads=2), tokenizer_with()
    letters = tokenizer.convert_tokens_to_ids(list("ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
    head = torch.nn.Linear(64, 320)
    with torch.no_grad():
        head.weight.copy_(model.lm_head.weight)
        head.bias.fill_(-1e4)
        head.bias[letters] = 0
    model.lm_head = head
    return LanguageModel(model=model, tokenizer=tokenizer, identity={}, context_length=512)


def with_reference(item: Any, text: Any) -> Any:
    return replace(item, record=replace(item.record, completion=text))


def test_an_agreeing_reference_is_not_decoded(spelling_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    items = items_of(4)
    texts = [plain(spelling_model, item, 20)[1] for item in items]
    monkeypatch.setattr("calibudget.scoring.local.continue_greedily", None)
    found = LocalScorer(spelling_model, ScorerSettings(max_new_tokens=8)).measure(
        list(map(with_reference, items, texts))
    )
    assert [one.text for one in found] == [text[:8] for text in texts]


@pytest.mark.parametrize("agreed", [0, 7, 20])
def test_decoding_goes_on_from_the_first_disagreement(spelling_model: Any, agreed: int) -> None:
    items = items_of(4)
    texts = [plain(spelling_model, item, 32)[1] for item in items]
    wrong = ["A" if text[agreed] != "A" else "B" for text in texts]
    items = [
        with_reference(item, f"{text[:agreed]}{letter}") for item, text, letter in zip(items, texts, wrong, strict=True)
    ]
    assert [one.text for one in LocalScorer(spelling_model).measure(items)] == texts


def tied(language_model: Any, one: Any, other: Any) -> Any:
    """The letter `other` all but ties with `one` wherever that is chosen, and packed arithmetic prefers it."""
    import torch

    tying = replace(language_model, model=deepcopy(language_model.model))
    model, plainly = tying.model, language_model.model.config._attn_implementation
    first, second = tying.tokenizer.convert_tokens_to_ids([one, other])

    class Head(torch.nn.Linear):
        def forward(self, hidden: Any) -> Any:
            logits = super().forward(hidden)
            logits[..., second] += 0.0 if model.config._attn_implementation == plainly else 1e-4
            return logits

    head = Head(64, 320)
    head.load_state_dict(model.lm_head.state_dict())
    with torch.no_grad():
        head.weight[second] = head.weight[first]
        head.bias[first] += 5e-5
    model.lm_head = head
    return tying


@pytest.mark.parametrize("agreed", [0, 20])
def test_near_ties_are_decided_as_plain_decoding_does(
    spelling_model: Any, monkeypatch: pytest.MonkeyPatch, agreed: int
) -> None:
    """In what agrees with the reference, and in what is decoded; without the defence packed arithmetic decides."""
    item = items_of(1)[0]
    text = plain(spelling_model, item, 32)[1]
    one = text[4] if agreed else next(letter for letter in text[2:] if letter != text[0])
    model = tied(spelling_model, one, next(letter for letter in "ABCDEFG" if letter not in text))
    assert plain(model, item, 32)[1] == text
    items = [with_reference(item, f"{text[:agreed]}{'Y' if text[agreed] == 'Z' else 'Z'}")]
    assert [found.text for found in LocalScorer(model).measure(items)] == [text]
    monkeypatch.setattr("calibudget.lm.forward._TIE", -1.0)
    assert [found.text for found in LocalScorer(model).measure(items)] != [text]


@pytest.mark.parametrize("batch_tokens", [1, 200])
def test_results_hardly_move_with_the_batch_size(language_model: Any, batch_tokens: int) -> None:
    items = items_of(6)
    whole = measure_all(LocalScorer(language_model, ScorerSettings(max_new_tokens=6)), items)
    small = measure_all(LocalScorer(language_model, ScorerSettings(max_new_tokens=6, batch_tokens=batch_tokens)), items)
    assert [one.nll for one in small] == pytest.approx([one.nll for one in whole], abs=1e-5)
    assert [one.text for one in small] == [one.text for one in whole]


def test_results_are_the_same_bits_in_any_order_of_items(language_model: Any) -> None:
    items, scorer = items_of(8), LocalScorer(language_model, ScorerSettings(batch_tokens=500, max_new_tokens=6))
    one = {m.record_id: m for m in measure_all(scorer, items)}
    other = {m.record_id: m for m in measure_all(scorer, items[::-1])}
    assert one == other


def test_a_family_that_cannot_be_packed_scores_one_by_one() -> None:
    loaded = LanguageModel(
        model=model_of("mamba"), tokenizer=tokenizer_with(), identity={"name": "mamba"}, context_length=512
    )
    scorer = LocalScorer(loaded, ScorerSettings(max_new_tokens=4))
    assert scorer.describe()["forward"] == "plain"
    items = items_of(2)
    for item, found in zip(items, scorer.measure(items), strict=True):
        nll, text = plain(loaded, item, 4)
        assert found.nll == pytest.approx(nll, abs=2e-5)
        assert found.text == text


def test_exact_answers_are_decoded_a_little_beyond_the_reference(language_model: Any) -> None:
    (item,) = items_of(1, ("apples",), AnswerSpec(kind="exact"))
    (found,) = LocalScorer(language_model).measure([item])
    limit = len(language_model.encoder("alpaca").encode(item.record).response_ids) + 8
    assert found.text == plain(language_model, item, limit)[1]


def test_decoding_stays_within_the_context() -> None:
    (item,) = items_of(1, ("apples",))
    model = model_of(max_position_embeddings=110)
    loaded = LanguageModel(model=model, tokenizer=tokenizer_with(), identity={}, context_length=None)
    example = loaded.encoder("alpaca").encode(item.record)
    bounded = replace(loaded, context_length=example.total_length)
    (found,) = LocalScorer(bounded, ScorerSettings(max_new_tokens=500)).measure([item])
    assert found.text == plain(loaded, item, len(example.response_ids))[1]


def test_a_prompt_over_the_context_is_refused_before_anything_is_scored(language_model: Any) -> None:
    items = [*items_of(1), replace(items_of(1)[0], record=record_of(number=7, prompt="river " * 600))]
    scorer = LocalScorer(language_model)
    scorer.measure = None  # type: ignore[assignment, method-assign]
    with pytest.raises(ScoringError, match=r"record apples-0007: .*context of 512"):
        measure_all(scorer, items)


@pytest.mark.parametrize("fault", [float("nan")])
def test_logits_that_are_no_number_name_the_record(fault: Any) -> None:
    import torch

    model = model_of()
    with torch.no_grad():
        model.lm_head.weight[9] = fault
    loaded = LanguageModel(model=model, tokenizer=tokenizer_with(), identity={}, context_length=512)
    with pytest.raises(ScoringError, match=r"record apples-0000: .*NLL of nan"):
        measure_all(LocalScorer(loaded), items_of(1, ("apples",)))


@pytest.mark.parametrize("packs", [True, False])
def test_logits_that_are_no_number_while_an_answer_is_decoded_name_the_record(spelling_model: Any, packs: bool) -> None:
    """The NLL of the reference is a number; only the answer's own letters lead to what isn't."""
    import torch

    item = items_of(1)[0]
    text = plain(spelling_model, item, 32)[1]
    broken = replace(spelling_model, model=deepcopy(spelling_model.model))
    with torch.no_grad():
        broken.model.get_input_embeddings().weight[broken.tokenizer.convert_tokens_to_ids(text[0])] = float("nan")
    scorer = LocalScorer(broken)
    scorer._packs = packs
    other = next(letter for letter in "ABC" if letter != text[0])
    with pytest.raises(ScoringError, match=f"record {item.record.record_id}: .*no numbers while it answers"):
        measure_all(scorer, [with_reference(item, other)])


def test_a_batch_that_does_not_fit_is_halved_and_recorded(language_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from calibudget.scoring import local

    forward = local.teacher_forced  # type: ignore[attr-defined]

    def small_memory(model: Any, examples: Any, **settings: Any) -> Any:
        if len(examples) > 3:
            raise torch.OutOfMemoryError("no room")
        return forward(model, examples, **settings)

    items = items_of(5)
    whole = measure_all(LocalScorer(language_model), items)
    monkeypatch.setattr(local, "teacher_forced", small_memory)
    split = measure_all(LocalScorer(language_model), items)
    assert {one.batch_splits for one in whole} == {0}
    assert {one.batch_splits for one in split} == {2}
    assert [one.nll for one in split] == pytest.approx([one.nll for one in whole], abs=1e-5)
    assert [one.text for one in split] == [one.text for one in whole]


def test_one_record_that_does_not_fit_is_named(language_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    def no_memory(model: Any, examples: Any, **settings: Any) -> None:
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr("calibudget.scoring.local.teacher_forced", no_memory)
    with pytest.raises(ScoringError, match="record apples-0000: out of GPU memory"):
        LocalScorer(language_model).measure(items_of(2, ("apples",)))


#: Settings of a generation configuration that bend decoding away from the tiny model's first choices.
BENDING = [
    {"num_beams": 4},
    {"do_sample": True, "temperature": 9.0},
    {"repetition_penalty": 9.0},
    {"suppress_tokens": list(range(3, 320, 2))},
    {"sequence_bias": [[[8], 90.0]]},
]


@pytest.mark.parametrize("settings", BENDING, ids=lambda settings: "-".join(settings))
def test_greedy_is_the_first_choice_whatever_the_generation_config_says(
    tiny_directory: Path, tmp_path: Path, settings: Any
) -> None:
    import torch
    from transformers import GenerationConfig

    directory = shutil.copytree(tiny_directory, tmp_path / "bent")
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 5]} | settings))
    loaded = load_model(str(directory), device="cpu")
    assert loaded.stop_ids == {2, 5}
    (item,) = items_of(1, ("apples",), AnswerSpec(kind="regex", pattern="never"))
    expected = first_choices(loaded, item, 12)
    said = loaded.encoder("alpaca").decode([token for token in expected if token not in loaded.stop_ids])
    for packs in (True, False):
        scorer = LocalScorer(loaded, ScorerSettings(max_new_tokens=12), early_end=False)
        scorer._packs = packs
        assert scorer.measure([item])[0].text == said
    torch.manual_seed(0)
    prompt = torch.tensor([loaded.encoder("alpaca").encode(item.record).prompt_ids])
    loaded.model.generation_config = GenerationConfig.from_pretrained(directory)
    bent = loaded.model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=12)
    assert bent[0, prompt.shape[1] :].tolist() != expected  # so the setting does bend


def first_choices(language_model: Any, item: Any, limit: Any) -> Any:
    """The ids of a model's first choices, one forward a token, up to and with its end."""
    import torch

    ids, prompt = [], list(language_model.encoder("alpaca").encode(item.record).prompt_ids)  # type: ignore[var-annotated]
    while len(ids) < limit and not language_model.stop_ids.intersection(ids):
        with torch.inference_mode():
            ids.append(int(language_model.model(input_ids=torch.tensor([prompt + ids])).logits[0, -1].argmax()))
    return ids


def test_reasoning_that_the_prompt_opens_is_no_answer() -> None:
    """Its mark stands in the prompt, so the text that follows would be read as the answer without it."""
    tokenizer = tokenizer_with()
    tokenizer.chat_template = (
        "{% for turn in messages %}<|im_start|>{{ turn.role }}\n"
        "{% if turn.role == 'assistant' %}<think>\n{% endif %}{{ turn.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
    )
    loaded = LanguageModel(model=model_of(num_key_value_heads=2), tokenizer=tokenizer, identity={}, context_length=512)
    (item,) = items_of(1, ("apples",))
    (found,) = LocalScorer(loaded, ScorerSettings(template="chat", max_new_tokens=12)).measure([item])
    assert found.text.startswith("<think>")  # type: ignore[union-attr]
    assert parse_answer(item.answer, found.text) is None  # type: ignore[arg-type]
