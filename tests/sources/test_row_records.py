from __future__ import annotations

import json

import pytest

from calibudget.errors import DataError
from calibudget.records import Message
from calibudget.sources.example_formats import detect_format, read_example
from calibudget.sources.field_meanings import Format
from calibudget.sources.identity import identify

USER = {"role": "user", "content": "a"}
ASSISTANT = {"role": "assistant", "content": "b"}
CALLS = [{"id": "x", "type": "function", "function": {"name": "f", "arguments": '{"b": 1, "a":  2}'}}]
CALLING = {"role": "assistant", "content": None, "tool_calls": CALLS}
ANSWER = {"role": "tool", "content": " 3 ", "tool_call_id": "x", "name": "f"}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"z": None, "a": [1.50]}}}]


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
        ({"text": "a"}, r"no known format \(text\); name format, preset, columns or prompt"),
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


def test_a_conversation_that_cannot_be_taught_is_refused(subtests: pytest.Subtests) -> None:
    for messages, message in [
        (None, "'messages' must hold a nonempty list of turns"),
        ([], "nonempty list"),
        ("user: a", "text that is no JSON"),
        ([USER], "the last turn of 'messages' must be the assistant's"),
        ([ASSISTANT], "no user turn"),
        ([{"role": "system", "content": "s"}, ASSISTANT], "no user turn"),
        ([USER, "b"], "turn 2 must be an object"),
        ([USER, {"role": "wizard", "content": "b"}], "turn 2 has the role 'wizard'"),
        ([USER, {"content": "b"}], "turn 2 has the role None"),
        ([USER, {"role": "assistant", "content": None}], "turn 2 must be text, not null"),
        ([USER, {"role": "assistant", "content": " "}], "turn 2 is empty"),
        ([USER, CALLING], "the last turn of 'messages' calls tools; what training teaches must be words"),
        ([USER, {"role": "user", "content": "a", "tool_calls": [{}]}, ASSISTANT], "turn 2 calls tools, which only the"),
        (
            [USER, {"role": "assistant", "content": "", "tool_calls": ["x"]}, ASSISTANT],
            "turn 2: tool_calls must hold a list of objects",
        ),
        (
            [USER, {"role": "assistant", "content": "", "tool_calls": "f("}, ASSISTANT],
            "turn 2: tool_calls holds text that",
        ),
        (
            [USER, {"role": "assistant", "content": "", "function_call": {"name": "f"}}, ASSISTANT],
            "write it as tool_calls",
        ),
        (
            [USER, CALLING, {"role": "tool", "content": "b", "tool_call_id": []}, ASSISTANT],
            "turn 3: tool_call_id must be",
        ),
        ([USER, CALLING, {"role": "tool", "content": {"a": 1}}, ASSISTANT], "turn 3 must be text, not an object"),
        ([{"role": "user", "content": [{"type": "input_audio"}]}, ASSISTANT], "turn 1 holds 'input_audio'; only text"),
        ([{"role": "user", "content": [{"type": "image_url"}]}, ASSISTANT], "turn 1 holds 'image_url'; only text"),
        ([{"role": "user", "content": ["a"]}, ASSISTANT], "turn 1 holds 'str'; only text"),
    ]:
        with subtests.test(messages=messages, message=message), pytest.raises(DataError, match=message):
            read_example({"messages": messages}, "messages")


@pytest.mark.parametrize("tools", [TOOLS, json.dumps(TOOLS)], ids=["a list", "its text"])
def test_tool_use_is_kept_as_it_stands(tools: object) -> None:
    example = read_example({"messages": [USER, CALLING, ANSWER, ASSISTANT], "tools": tools}, "messages")
    assert example.completion == "b"
    assert example.tools == tuple(TOOLS)
    assert [turn.fields for turn in example.prompt] == [
        USER,
        {"role": "assistant", "content": "", "tool_calls": CALLS},
        {"role": "tool", "content": "3", "tool_call_id": "x", "name": "f"},
    ]


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        ("{", "text that is no JSON"),
        ({"name": "f"}, "must hold a list of objects"),
        (["f"], "must hold a list of objects"),
    ],
)
def test_tools_of_another_form_are_refused(tools: object, message: str) -> None:
    with pytest.raises(DataError, match=f"the field 'tools' .*{message}"):
        read_example({"messages": [USER, ASSISTANT], "tools": tools}, "messages")


def test_conversations_that_differ_in_tool_use_alone_are_different_records() -> None:
    other = {**CALLING, "tool_calls": [{**CALLS[0], "id": "y"}]}
    rows: list[dict[str, object]] = [
        {"messages": [USER, CALLING, ANSWER, ASSISTANT]},
        {"messages": [USER, other, ANSWER, ASSISTANT]},
        {"messages": [USER, CALLING, {**ANSWER, "name": "g"}, ASSISTANT]},
        {"messages": [USER, CALLING, ANSWER, ASSISTANT], "tools": TOOLS},
        {"messages": [USER, {"role": "assistant", "content": "c"}, ANSWER, ASSISTANT]},
        {"messages": [USER, ASSISTANT], "tools": TOOLS},
        {"messages": [USER, ASSISTANT]},
    ]
    examples = [read_example(row, "messages") for row in rows]
    found = [identify(example.prompt, example.completion, example.tools) for example in examples]
    assert len({one.record_id for one in found}) == len({one.prompt_hash for one in found}) == len(rows)
