from __future__ import annotations

from typing import Any

import pytest

from calibudget.errors import ScoringError, TrainingError
from calibudget.lm.encoding import Encoder
from calibudget.training.data import encode_examples
from tests.conftest import record_of, tokenizer_with
from tests.training.conftest import rows_of


def encode(encoder: Any, rows: Any, **options: Any) -> Any:
    return encode_examples(rows, encoder, **({"max_length": 256, "too_long": "refuse"} | options))  # type: ignore[arg-type]


def test_examples_are_the_encoders_own_ids(encoder: str) -> None:
    record = record_of(number=3)
    row = {
        "source": record.source,
        "record_id": record.record_id,
        "role": "source",
        "prompt": record.prompt[0].content,
        "completion": record.completion,
        "original": {},
    }
    example = encode(encoder, [row])[0]
    encoded = encoder.encode(record)
    assert tuple(example.ids) == encoded.prompt_ids + encoded.response_ids  # type: ignore[attr-defined]
    assert example.prompt_length == len(encoded.prompt_ids)  # type: ignore[attr-defined]
    assert example.response_length == len(encoded.response_ids)  # type: ignore[attr-defined]
    assert example.ids[-1] == encoder.end_id  # type: ignore[attr-defined]


TURNS = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "2+2?"},
    {"role": "assistant", "content": "4"},
    {"role": "user", "content": "3+3?"},
    {"role": "assistant", "content": "6"},
]


@pytest.mark.parametrize("template", ["alpaca", "chat"])
def test_of_several_turns_the_last_alone_is_taught(template: str) -> None:
    tokenizer = tokenizer_with()
    encoder = Encoder(template, tokenizer)  # type: ignore[arg-type]
    identity = {"source": "a", "record_id": "1", "role": "source", "original": {}}
    parts = {"prompt": TURNS[:-1], "completion": TURNS[-1:]}
    whole, parted = encode(encoder, [identity | {"messages": TURNS}])[0], encode(encoder, [identity | parts])[0]
    assert list(whole.ids) == list(parted.ids)
    assert whole.prompt_length == parted.prompt_length
    assert tokenizer.decode(whole.ids[whole.prompt_length :]) == "6<|im_end|>"
    prompt = tokenizer.decode(whole.ids[: whole.prompt_length])
    assert all(turn["content"] in prompt for turn in TURNS[:-1])


def test_tools_of_a_row_reach_the_template() -> None:
    tokenizer = tokenizer_with(
        chat_template="{{ tools | tojson }}"
        "{% for turn in messages %}{{ turn.content }}{{ turn.tool_calls }}<|im_end|>{% endfor %}"
    )
    calling = {"role": "assistant", "content": "", "tool_calls": [{"id": "x"}]}
    row = {"source": "a", "record_id": "1", "role": "source", "original": {}, "tools": [{"name": "f"}]}
    example = encode(Encoder("chat", tokenizer), [row | {"messages": [TURNS[1], calling, *TURNS[3:]]}])[0]
    text = tokenizer.decode(example.ids)
    assert text.startswith('[{"name": "f"}]2+2?<|im_end|>')
    assert "'id': 'x'" in text


@pytest.mark.parametrize("pad", [None, "<|im_end|>"])
def test_a_tokenizer_without_padding_or_with_it_as_the_end_keeps_the_end(pad: str | None) -> None:
    encoder = Encoder("alpaca", tokenizer_with(pad=pad))
    assert all(example.ids[-1] == encoder.end_id for example in encode(encoder, rows_of(3)))


def test_long_rows_are_refused_by_name_or_cut_in_the_prompts_middle(encoder: Any) -> None:
    row = rows_of(1)[0] | {"prompt": " ".join(str(i) for i in range(200))}
    whole = encode(encoder, [row], max_length=4096)[0]
    with pytest.raises(TrainingError, match=r"apples/id-0000.*too_long: cut"):
        encode(encoder, [row])
    with pytest.warns(UserWarning, match="1 prompt lost the middle, since max_length is"):
        cut = encode(encoder, [row], too_long="cut")[0]
    assert cut.length == 256
    assert cut.response_length == whole.response_length
    assert list(cut.ids[:60]) == list(whole.ids[:60])
    assert list(cut.ids[-100:]) == list(whole.ids[-100:])


def test_a_response_that_leaves_no_room_is_refused_even_when_cutting(encoder: Any) -> None:
    row = rows_of(1)[0] | {"completion": "the correct answer is answer1 " * 60}
    with pytest.raises(TrainingError, match=r"id-0000.*too little"):
        encode(encoder, [row], too_long="cut")


def test_a_row_without_response_or_answer_is_refused(encoder: Any) -> None:
    with pytest.raises(ScoringError, match="response is empty"):
        encode(encoder, [rows_of(1)[0] | {"completion": "  "}])
    row = {"source": "a", "record_id": "b", "role": "source", "messages": [{"role": "user", "content": "?"}]}
    with pytest.raises(TrainingError, match="assistant"):
        encode(encoder, [row])
