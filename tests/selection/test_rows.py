from dataclasses import replace

import pytest

from calibudget.errors import InputError
from calibudget.keys import order_key
from calibudget.records import Message, Record, Selection
from calibudget.selection import train_layout, train_row, train_rows


def make_record(source, record_id, *turns, completion="answer"):
    prompt = tuple(Message(role=role, content=text) for role, text in turns) or (Message(role="user", content="ask"),)
    return Record(
        source=source,
        record_id=record_id,
        prompt_hash="",
        prompt=prompt,
        completion=completion,
        answer=None,
        original={"source": "clash", "prompt": None},
    )


PLAIN = make_record("a", "1")
SYSTEM = make_record("a", "2", ("system", "be brief"), ("user", "ask"))
CALL = {"id": "x", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
TOOLS = replace(
    make_record("a", "4"),
    prompt=(
        Message(role="user", content="1+2?"),
        Message(role="assistant", content="", more={"tool_calls": [CALL]}),
        Message(role="tool", content="3", more={"tool_call_id": "x"}),
    ),
    tools=({"type": "function", "function": {"name": "add"}},),
)
CANDIDATES = {label: [make_record(label, f"{label}{i}") for i in range(9)] for label in ("a", "b")}
COMPANION = [make_record("companion", f"c{i}") for i in (3, 1, 2)]
SELECTION = Selection(
    seed=42, selector="uniform", picks={"b": ("b7", "b2"), "a": ("a5", "a8", "a0")}, companion_count=3
)


def test_a_plain_row_keeps_the_original_apart():
    assert train_row(PLAIN, "source") == {
        "source": "a",
        "record_id": "1",
        "role": "source",
        "prompt": "ask",
        "completion": "answer",
        "original": {"source": "clash", "prompt": None},
    }


def test_a_row_of_turns_ends_with_the_answer():
    assert train_row(SYSTEM, "companion", layout="messages")["messages"] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "ask"},
        {"role": "assistant", "content": "answer"},
    ]


def test_turns_dont_fit_prompt_and_completion():
    with pytest.raises(InputError, match="a: record 2 has several turns"):
        train_row(SYSTEM, "source")


@pytest.mark.parametrize(
    ("records", "chat", "layout"),
    [
        ([PLAIN, PLAIN], False, "completion"),
        ([PLAIN, SYSTEM], False, "messages"),
        ([PLAIN], True, "messages"),
        ([make_record("a", "3", ("assistant", "hello"))], False, "messages"),
        ([], False, "completion"),
    ],
)
def test_one_layout_for_all_rows(records, chat, layout):
    assert train_layout(records, chat=chat) == layout


@pytest.mark.parametrize(
    ("records", "asked", "layout"),
    [
        ([PLAIN], "messages", "messages"),
        ([PLAIN], "completion", "completion"),
        ([PLAIN, SYSTEM], "completion", "turns"),
        ([TOOLS], "completion", "turns"),
        ([], "messages", "messages"),
    ],
)
@pytest.mark.parametrize("chat", [False, True])
def test_a_recipe_may_ask_for_a_layout(records, asked, layout, chat):
    assert train_layout(records, chat=chat, asked=asked) == layout


def test_prompt_and_completion_are_turns_where_texts_cant_hold_them():
    row = train_row(SYSTEM, "source", layout="turns")
    assert row["prompt"] == [{"role": "system", "content": "be brief"}, {"role": "user", "content": "ask"}]
    assert row["completion"] == [{"role": "assistant", "content": "answer"}]


def test_tools_and_their_calls_stand_in_the_row_as_they_are():
    row = train_row(TOOLS, "source", layout="messages")
    assert row["tools"] == [{"type": "function", "function": {"name": "add"}}]
    assert row["messages"][1] == {"role": "assistant", "content": "", "tool_calls": [CALL]}
    assert row["messages"][2] == {"role": "tool", "content": "3", "tool_call_id": "x"}
    assert "tools" not in train_row(PLAIN, "source", layout="messages")
    selection = Selection(seed=42, selector="uniform", picks={"a": ("4",)})
    assert train_rows(selection, {"a": [TOOLS]}).tools
    assert not train_rows(SELECTION, CANDIDATES, COMPANION).tools


def ids(order):
    rows = train_rows(SELECTION, CANDIDATES, COMPANION, order=order).rows
    return [(row["source"], row["record_id"], row["role"]) for row in rows]


def test_source_order_is_code_points_then_picks_then_the_companion_as_read():
    assert [record_id for _, record_id, _ in ids("source")] == ["a5", "a8", "a0", "b7", "b2", "c3", "c1", "c2"]


def test_shuffled_order_is_keyed_over_all_rows():
    shuffled = ids("shuffled")
    assert sorted(shuffled) == sorted(ids("source"))
    keys = [order_key("order", 42, source, record_id) for source, record_id, _ in shuffled]
    assert keys == sorted(keys)
    assert {role for source, _, role in shuffled if source == "companion"} == {"companion"}


def test_shuffled_order_doesnt_depend_on_the_order_of_candidates_or_companion():
    backwards = {label: list(reversed(records)) for label, records in reversed(CANDIDATES.items())}
    rows = train_rows(SELECTION, backwards, list(reversed(COMPANION))).rows
    assert [row["record_id"] for row in rows] == [record_id for _, record_id, _ in ids("shuffled")]


def test_a_pick_that_is_no_candidate_is_refused():
    selection = Selection(seed=42, selector="uniform", picks={"a": ("a1", "gone")})
    with pytest.raises(InputError, match="the pick 'gone' is no candidate of the source 'a'"):
        train_rows(selection, CANDIDATES)
