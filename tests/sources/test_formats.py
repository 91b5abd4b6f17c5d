from __future__ import annotations

import pytest

from calibudget.errors import DataError
from calibudget.records import Message
from calibudget.sources import Format, detect_format, identify, read_example

USER = {"role": "user", "content": "a"}
ASSISTANT = {"role": "assistant", "content": "b"}


def turns(*pairs: tuple[str, str]) -> tuple[Message, ...]:
    return tuple(Message(role=role, content=content) for role, content in pairs)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"instruction": "a", "input": "", "output": "b"}, "alpaca"),
        ({"instruction": "a", "input": "", "output": "b", "answer": "c"}, "alpaca"),
        ({"instruction": None, "output": None}, "alpaca"),  # a null-first row shows its names all the same
        ({"prompt": "a", "completion": "b"}, "prompt-completion"),
        ({"question": "a", "answer": "b"}, "prompt-completion"),
        ({"prompt": "a"}, "prompt-completion"),  # half a pair: its reader says what is missing
        ({"messages": []}, "messages"),
        ({"prompt": "a", "prompt_id": 1, "messages": []}, "messages"),
        ({"conversations": []}, "sharegpt"),
    ],
)
def test_field_names_show_the_format(fields: dict[str, object], expected: Format) -> None:
    assert detect_format(fields) == expected


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"text": "a"}, r"no known format \(text\); name format, preset or columns"),
        ({}, "no known format"),
        ({"messages": [], "prompt": "a", "completion": "b"}, "messages and prompt-completion"),
        ({"messages": [], "conversations": []}, "messages and sharegpt"),
    ],
)
def test_unknown_and_ambiguous_fields_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        detect_format(fields)


CASES: list[tuple[Format, dict[str, object], tuple[Message, ...], str]] = [
    ("alpaca", {"instruction": " a  b ", "input": "", "output": " c "}, turns(("user", "a  b")), "c"),
    ("alpaca", {"instruction": "a", "input": " b ", "output": "c"}, turns(("user", "a\n b")), "c"),
    ("alpaca", {"instruction": "a", "output": "c", "system": "s"}, turns(("system", "s"), ("user", "a")), "c"),
    ("alpaca", {"instruction": "a", "output": 42}, turns(("user", "a")), "42"),
    ("prompt-completion", {"prompt": "a\n", "completion": "\tb"}, turns(("user", "a")), "b"),
    (
        "prompt-completion",
        {"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "assistant", "content": "b"}]},
        turns(("user", "a")),
        "b",
    ),
    (
        "messages",
        {"messages": [{"role": "user", "content": " a "}, {"role": "assistant", "content": "b "}]},
        turns(("user", "a")),
        "b",
    ),
    (
        "messages",
        {"messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": "c", "tool_calls": None},
            {"role": "user", "content": "d"},
            {"role": "assistant", "content": "e"},
        ]},
        turns(("system", "s"), ("user", "a\nb"), ("assistant", "c"), ("user", "d")),
        "e",
    ),
    (
        "messages",
        {"messages": [{"role": "system", "content": " "}, USER, ASSISTANT]},
        turns(("user", "a")),
        "b",
    ),
    (
        "sharegpt",
        {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}], "system": "s"},
        turns(("system", "s"), ("user", "a")),
        "b",
    ),
    (
        "sharegpt",
        {"conversations": [
            {"from": "system", "value": "s"}, {"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}
        ]},
        turns(("system", "s"), ("user", "a")),
        "b",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("format_name", "fields", "prompt", "completion"), CASES)
def test_each_format_gives_the_text_as_it_stands(
    format_name: Format, fields: dict[str, object], prompt: tuple[Message, ...], completion: str
) -> None:
    example = read_example(fields, format_name)
    assert example.prompt == prompt
    assert example.completion == completion


def test_one_exchange_has_one_id_in_every_format() -> None:
    exchange: list[tuple[Format, dict[str, object]]] = [
        ("alpaca", {"instruction": "a b", "output": "c"}),
        ("prompt-completion", {"prompt": "a  b", "completion": "c\n"}),
        ("messages", {"messages": [{"role": "user", "content": "a b"}, {"role": "assistant", "content": "c"}]}),
        ("sharegpt", {"conversations": [{"from": "human", "value": "a\nb"}, {"from": "gpt", "value": " c"}]}),
    ]
    examples = [read_example(fields, name) for name, fields in exchange]
    assert len({identify(example.prompt, example.completion) for example in examples}) == 1


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        (None, "'messages' must hold a nonempty list of turns"),
        ([], "nonempty list"),
        ("user: a", "nonempty list"),
        ([USER], "the last turn of 'messages' must be the assistant's"),
        ([ASSISTANT], "no user turn"),
        ([{"role": "system", "content": "s"}, ASSISTANT], "no user turn"),
        ([USER, "b"], "turn 2 must be an object"),
        ([USER, {"role": "wizard", "content": "b"}], "turn 2 has the role 'wizard'"),
        ([USER, {"content": "b"}], "turn 2 has the role None"),
        ([USER, {"role": "assistant", "content": None}], "turn 2 must be text, not NoneType"),
        ([USER, {"role": "assistant", "content": " "}], "turn 2 is empty"),
        ([USER, {"role": "assistant", "content": None, "tool_calls": [{"id": "x"}]}], "turn 2 holds tool calls"),
        ([{"role": "user", "content": [{"type": "image_url"}]}, ASSISTANT], "turn 1 holds 'image_url'; only text"),
        ([{"role": "user", "content": ["a"]}, ASSISTANT], "turn 1 holds 'str'; only text"),
    ],
)
def test_a_conversation_that_cannot_be_taught_is_refused(messages: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_example({"messages": messages}, "messages")
