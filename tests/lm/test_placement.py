"""A model over several devices says what it says on one, and memory that lacks is told before anything is loaded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from calibudget.errors import ScoringError
from calibudget.lm.loading import check_loadable, load_model
from calibudget.lm.placement import OffloadWarning, hand_on, memory_for, parts_of, split_memory, weight_bytes
from calibudget.scoring.batches import measure_all
from calibudget.scoring.local import LocalScorer
from calibudget.scoring.scorer import CalibrationItem, ScorerSettings
from calibudget.tasks.answers import AnswerSpec
from tests.conftest import record_of

GB = 10**9


@pytest.fixture
def items() -> list[CalibrationItem]:
    answer = AnswerSpec(kind="choice", labels=("answer1", "answer2"))
    return [CalibrationItem(record=record_of(number=number), answer=answer) for number in range(9)]


def in_two_parts(model: Any, folder: Path) -> Any:
    """The model with its second layer and all after it brought to the CPU by accelerate's hooks when they are used."""
    from accelerate import dispatch_model  # type: ignore[import-untyped]

    later = ("model.layers.1", "model.norm", "lm_head")
    here = ("model.embed_tokens", "model.rotary_emb", "model.layers.0")
    return dispatch_model(model, {**dict.fromkeys(here, "cpu"), **dict.fromkeys(later, "disk")}, offload_dir=folder)


def test_a_model_in_two_parts_scores_as_one(tiny_directory: Path, tmp_path: Path, items: list[CalibrationItem]) -> None:
    whole, other = (load_model(str(tiny_directory), device="cpu") for _ in range(2))
    split = replace(other, model=in_two_parts(other.model, tmp_path))
    assert parts_of(split.model) == {"cpu": 3, "disk": 3}
    assert split.model.lm_head.weight.device.type == "meta"
    scorer = LocalScorer(split, ScorerSettings(max_new_tokens=12))
    assert scorer.describe()["forward"] == "packed"
    expected = measure_all(LocalScorer(whole, ScorerSettings(max_new_tokens=12)), items)
    found = measure_all(scorer, items)
    assert [one.nll for one in found] == pytest.approx([one.nll for one in expected], abs=1e-5)
    assert [one.text for one in found] == [one.text for one in expected]


@pytest.mark.parametrize("cards", [2, 3, 8])
def test_a_batch_read_in_pieces_is_scored_as_one(
    tiny_directory: Path, items: list[CalibrationItem], monkeypatch: pytest.MonkeyPatch, cards: int
) -> None:
    """Over several cards a batch is read in pieces, whose keys and values are joined for decoding."""
    scorer = LocalScorer(load_model(str(tiny_directory), device="cpu"), ScorerSettings(max_new_tokens=12))
    expected = scorer.measure(items)
    monkeypatch.setattr("calibudget.lm.forward.cards_of", lambda _: cards)
    found = scorer.measure(items)
    assert [one.nll for one in found] == pytest.approx([one.nll for one in expected], abs=1e-5)
    assert [one.text for one in found] == [one.text for one in expected]


def test_what_all_layers_are_given_crosses_to_another_device_once(tiny_directory: Path) -> None:
    """Between two cards each copy makes both wait; accelerate's hooks make some for every layer."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Copies(TorchDispatchMode):  # type: ignore[no-untyped-call]
        """Notes the shape of what is copied to the second device."""

        def __init__(self) -> None:
            super().__init__()  # type: ignore[no-untyped-call]
            self.shapes: list[tuple[int, ...]] = []

        def __torch_dispatch__(self, function: Any, _types: Any, values: Any = (), named: Any = None) -> Any:
            result = function(*values, **(named or {}))
            if function is torch.ops.aten._to_copy.default and result.device.type == "meta":
                self.shapes.append(tuple(result.shape))
            return result

    model = load_model(str(tiny_directory), device="cpu").model
    layers = model.config.num_hidden_layers
    placed = {"model.embed_tokens": "cpu", "model.rotary_emb": "cpu"}
    placed |= {f"model.layers.{layer}": "meta" for layer in range(layers)} | {"model.norm": "meta", "lm_head": "meta"}
    for name, device in placed.items():
        model.get_submodule(name).to(device)
    hand_on(model, placed)
    assert parts_of(model) == {"cpu": 2, "meta": layers + 2}
    ids = torch.arange(9)[None]
    head = model.config.hidden_size // model.config.num_attention_heads
    for _ in range(2):  # a second forward brings its own
        with Copies() as copies:
            logits = model(input_ids=ids, position_ids=ids, use_cache=False).logits
        assert logits.device.type == "meta"  # and doesn't come back by itself
        assert copies.shapes.count((1, 9, model.config.hidden_size)) == 1
        assert copies.shapes.count((1, 9, head)) == 2  # cosines and sines
        assert len(copies.shapes) <= 4 < 2 * layers + 1  # and positions


def test_the_fewest_cards_that_hold_the_weights_take_part() -> None:
    cards = [68 * GB] * 4
    assert split_memory("m", 100 * GB, cards, 0) == {0: 68 * GB, 1: 68 * GB, "cpu": 0}
    assert split_memory("m", 140 * GB, cards, 0) == {0: 68 * GB, 1: 68 * GB, 2: 68 * GB, "cpu": 0}
    assert split_memory("m", 10 * GB, cards, 0, least=2) == {0: 68 * GB, 1: 68 * GB, "cpu": 0}  # as it is asked for


def test_what_no_card_holds_waits_in_memory_with_a_warning_or_is_refused_with_the_numbers() -> None:
    with pytest.warns(OffloadWarning, match=r"140\.0 GB.*68\.0 GB \+ 60\.0 GB on 2 GPU.*slower by 10 to 100"):
        found = split_memory("m", 140 * GB, [68 * GB, 60 * GB], 40 * GB)
    assert found == {0: 68 * GB, 1: 60 * GB, "cpu": 40 * GB}
    with pytest.raises(ScoringError, match=r"'m': its weights take 140\.0 GB.*68\.0 GB on 1 GPU.*40\.0 GB in the mach"):
        split_memory("m", 140 * GB, [68 * GB], 40 * GB)


def test_a_model_that_one_card_holds_is_not_split(tiny_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = weight_bytes(tiny_directory, 2)
    assert needed == 2 * load_model(str(tiny_directory), device="cpu").identity["parameters"]  # type: ignore[operator]
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda _: (2 * needed, 3 * needed))
    assert memory_for("m", needed) is None
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda _: (needed, 3 * needed))
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    share = int(0.85 * needed)
    assert memory_for("m", needed) == {0: share, 1: share, "cpu": 0}
    with pytest.raises(ScoringError, match="gpus: 3 for each worker, and a worker sees 2"):
        memory_for("m", needed, gpus=3)


def test_several_gpus_for_a_model_on_a_cpu_are_refused(tiny_directory: Path) -> None:
    for load in (load_model, check_loadable):
        with pytest.raises(ScoringError, match="gpus: 2 for each worker, and the device is cpu"):
            load(str(tiny_directory), device="cpu", gpus=2)
