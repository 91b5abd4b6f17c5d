from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from calibudget.errors import ScoringError
from calibudget.lm.encoding import Encoder
from calibudget.records import Message
from tests.conftest import record_of, tokenizer_with

ALPACA = (
    "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n"
    "### Instruction:\n{}\n\n### Response:\n"
)


def turns(record: Any, *pairs: Any) -> Any:
    return replace(record, prompt=tuple(Message(role=role, content=content) for role, content in pairs))


@pytest.fixture
def tokenizer() -> Any:
    return tokenizer_with()


def test_alpaca_is_the_design_s_text_to_the_character(tokenizer: Any) -> None:
    record = record_of(prompt="How many apples {are} 12?", completion="345")
    encoded = Encoder("alpaca", tokenizer).encode(record)
    assert tokenizer.decode(encoded.prompt_ids) == ALPACA.format("How many apples {are} 12?")
    assert encoded.response_ids == (*tokenizer("345").input_ids, 2)
    assert encoded.total_length == len(encoded.prompt_ids) + len(encoded.response_ids)


@pytest.mark.parametrize("template", ["alpaca", "chat"])
@pytest.mark.parametrize("adds_bos", [False, True])
def test_one_bos_if_the_tokenizer_adds_one(template: str, adds_bos: bool) -> None:
    tokenizer = tokenizer_with(adds_bos=adds_bos)
    ids = Encoder(template, tokenizer).encode(record_of()).prompt_ids  # type: ignore[arg-type]
    chat_turns = 2 if template == "chat" else 0
    assert ids.count(1) == chat_turns or (adds_bos and template == "alpaca" and ids.count(1) == 1)
    assert (ids[0] == 1) == (adds_bos or template == "chat")
    assert ids[:2] != (1, 1)


@pytest.mark.parametrize("template", ["alpaca", "chat"])
def test_prompt_ids_are_the_same_in_scoring_and_generation(tokenizer: Any, template: str) -> None:
    encoder = Encoder(template, tokenizer)  # type: ignore[arg-type]
    numbers = [0, 1, 2, 1, 3, 0]  # prompts and responses that repeat are tokenised once
    records = [record_of(number=n, prompt=f"question {n}. Answer: ", completion=f" {n % 3} ") for n in numbers]
    encoded = encoder.encode_all(records)
    assert [one.prompt_ids for one in encoded] == encoder.prompt_ids(records)
    assert encoded == [encoder.encode(record) for record in records]
    assert all(len(one.response_ids) > 1 for one in encoded)


def test_special_tokens_spelled_out_in_data_are_text(tokenizer: Any) -> None:
    record = record_of(prompt="what is <|im_end|>?", completion="a <|im_end|> mark <|im_start|>")
    encoded = Encoder("alpaca", tokenizer).encode(record)
    assert 2 not in encoded.prompt_ids
    assert encoded.response_ids.count(2) == 1
    assert encoded.response_ids[-1] == 2


def test_a_system_turn_stands_before_the_first_instruction(tokenizer: Any) -> None:
    record = turns(record_of(), ("system", "Be brief."), ("user", "2+2?"))
    ids = Encoder("alpaca", tokenizer).encode(record).prompt_ids
    assert tokenizer.decode(ids) == ALPACA.format("Be brief.\n\n2+2?")


@pytest.mark.parametrize("pairs", [[("user", "a"), ("tool", "b")], [("user", "a"), ("assistant", "b")]])
def test_turns_that_alpaca_cannot_hold_are_refused(tokenizer: Any, pairs: Any) -> None:
    with pytest.raises(ScoringError, match="record apples-0000"):
        Encoder("alpaca", tokenizer).encode(turns(record_of(), *pairs))


def test_the_turn_end_may_differ_from_eos() -> None:
    template = "{% for m in messages %}{{ m['content'] }}<|endoftext|>{% endfor %}"
    encoder = Encoder("chat", tokenizer_with(chat_template=template))
    assert encoder.end_id == 0
    assert encoder.encode(record_of()).response_ids[-1] == 0


def test_chat_templates_see_a_fixed_day() -> None:
    template = "{{ strftime_now('%d %b %Y') }}{% for m in messages %}{{ m['content'] }}{% endfor %}"
    tokenizer = tokenizer_with(chat_template=template)
    ids = Encoder("chat", tokenizer).encode(record_of(prompt="?")).prompt_ids
    assert tokenizer.decode(ids) == "26 Jul 2024?"


def test_max_length_cuts_the_response_and_reports_what_survives(tokenizer: Any) -> None:
    record = record_of(completion="one two three four five six seven")
    whole = Encoder("alpaca", tokenizer).encode(record)
    cut = Encoder("alpaca", tokenizer, whole.total_length - 2).encode(record)
    assert cut.prompt_ids == whole.prompt_ids
    assert cut.response_ids == whole.response_ids[:-2]


def test_no_surviving_response_token_is_refused_with_its_id(tokenizer: Any) -> None:
    length = len(Encoder("alpaca", tokenizer).encode(record_of()).prompt_ids)
    assert len(Encoder("alpaca", tokenizer, length + 1).encode(record_of()).response_ids) == 1
    with pytest.raises(ScoringError, match=r"record apples-0000: .*no response token"):
        Encoder("alpaca", tokenizer, length).encode(record_of())


def test_a_record_over_the_context_is_refused_with_its_id(tokenizer: Any) -> None:
    total = Encoder("alpaca", tokenizer).encode(record_of()).total_length
    assert Encoder("alpaca", tokenizer, context_length=total).encode(record_of()).total_length == total
    with pytest.raises(ScoringError, match=f"record apples-0000: {total} tokens are more than the model's context"):
        Encoder("alpaca", tokenizer, context_length=total - 1).encode(record_of())


def test_a_maximum_over_the_context_is_refused(tokenizer: Any) -> None:
    with pytest.raises(ScoringError, match="context of 100"):
        Encoder("alpaca", tokenizer, 101, context_length=100)


def test_alpaca_doesnt_drop_tools_in_silence(tokenizer: Any) -> None:
    with pytest.raises(ScoringError, match="source 'apples', record apples-0000: the alpaca template knows no tools"):
        Encoder("alpaca", tokenizer).encode(replace(record_of(), tools=({"function": {"name": "add"}},)))


@pytest.mark.parametrize("where", ["prompt", "completion"])
def test_an_id_beyond_the_embedding_is_refused_with_record_token_and_size(where: str) -> None:
    tokenizer = tokenizer_with()
    tokenizer.add_tokens(["wombat"])
    record = (
        replace(record_of(), completion="a wombat sleeps") if where == "completion" else record_of(prompt="a wombat")
    )
    assert Encoder("alpaca", tokenizer, embedding_size=321).encode(record)
    with pytest.raises(ScoringError, match=r"apples-0000: its token 'wombat' has the id 320 and .* embeds 320 ids"):
        Encoder("alpaca", tokenizer, embedding_size=320).encode(record)
