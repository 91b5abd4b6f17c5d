from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from calibudget.errors import InputError, InputTypeError
from calibudget.keys import order_key
from calibudget.records import Message, Selection
from calibudget.selection.train_rows import train_row, train_rows
from tests.conftest import record_of


def make_record(source: Any, record_id: Any, *turns: Any, completion: str = "answer") -> Any:
    prompt = tuple(Message(role=role, content=text) for role, text in turns) or "ask"
    original = {"source": "clash", "prompt": None}
    return record_of(source, record_id=record_id, prompt=prompt, completion=completion, original=original)


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


def test_a_plain_row_keeps_the_original_apart() -> None:
    assert train_row(PLAIN, "source") == {
        "source": "a",
        "record_id": "1",
        "role": "source",
        "prompt": "ask",
        "completion": "answer",
        "original": {"source": "clash", "prompt": None},
    }


def test_a_row_of_turns_ends_with_the_answer() -> None:
    assert train_row(SYSTEM, "companion", layout="messages")["messages"] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "ask"},
        {"role": "assistant", "content": "answer"},
    ]


@pytest.mark.parametrize("record", [SYSTEM, TOOLS])
def test_a_record_that_texts_cant_hold_is_refused_by_name(record: Any) -> None:
    with pytest.raises(
        InputError, match=f"source 'a', record {record.record_id}: has several turns or tools.* say `output.layout`"
    ):
        train_row(record, "source", layout="completion")


def test_rendered_texts_hold_every_record() -> None:
    row = train_row(TOOLS, "source", layout="rendered", rendered=lambda record: ("<u>1+2?", record.completion + "<e>"))
    assert (row["prompt"], row["completion"]) == ("<u>1+2?", "answer<e>")
    assert "tools" not in row


def test_prompt_and_completion_can_be_turns() -> None:
    row = train_row(SYSTEM, "source", layout="turns")
    assert row["prompt"] == [{"role": "system", "content": "be brief"}, {"role": "user", "content": "ask"}]
    assert row["completion"] == [{"role": "assistant", "content": "answer"}]


def test_tools_and_their_calls_stand_in_the_row_as_they_are() -> None:
    row = train_row(TOOLS, "source", layout="messages")
    assert row["tools"] == [{"type": "function", "function": {"name": "add"}}]
    assert row["messages"][1] == {"role": "assistant", "content": "", "tool_calls": [CALL]}  # type: ignore[index]
    assert row["messages"][2] == {"role": "tool", "content": "3", "tool_call_id": "x"}  # type: ignore[index]
    assert "tools" not in train_row(PLAIN, "source", layout="messages")
    selection = Selection(seed=42, selector="uniform", picks={"a": ("4",)})
    assert train_rows(selection, {"a": [TOOLS]}, layout="turns").tools
    assert not train_rows(SELECTION, CANDIDATES, COMPANION, layout="turns").tools


def test_rows_of_every_layout_keep_their_original_and_role() -> None:
    texts = {"rendered": lambda record: (f"<{record.record_id}>", "end")}
    for layout in ("rendered", "turns", "messages", "completion"):
        rows = list(train_rows(SELECTION, CANDIDATES, COMPANION, layout=layout, rendered=texts.get(layout)).rows)
        assert [row["original"] for row in rows] == [PLAIN.original] * 8
        assert sorted(str(row["role"]) for row in rows) == ["companion"] * 3 + ["source"] * 5
        record = next(one for one in CANDIDATES["a"] if one.record_id == "a5")
        own = next(row for row in rows if row["record_id"] == "a5")
        assert own == train_row(record, "source", layout=layout, rendered=texts.get(layout))
    assert next(iter(train_rows(SELECTION, CANDIDATES).rows)).keys() == train_row(PLAIN, "source").keys()
    selection = Selection(seed=42, selector="uniform", picks={"a": ("4",)})
    assert train_rows(selection, {"a": [TOOLS]}, layout="messages").tools


def ids(order: Any) -> Any:
    rows = train_rows(SELECTION, CANDIDATES, COMPANION, order=order).rows
    return [(row["source"], row["record_id"], row["role"]) for row in rows]


def test_source_order_is_code_points_then_picks_then_the_companion_as_read() -> None:
    assert [record_id for _, record_id, _ in ids("source")] == ["a5", "a8", "a0", "b7", "b2", "c3", "c1", "c2"]


def test_shuffled_order_is_keyed_over_all_rows() -> None:
    shuffled = ids("shuffled")
    assert sorted(shuffled) == sorted(ids("source"))
    default = train_rows(SELECTION, CANDIDATES, COMPANION).rows
    assert [row["record_id"] for row in default] == [record_id for _, record_id, _ in shuffled]
    keys = [order_key("order", 42, source, record_id) for source, record_id, _ in shuffled]
    assert keys == sorted(keys)
    assert {role for source, _, role in shuffled if source == "companion"} == {"companion"}


def test_a_pick_that_is_no_candidate_is_refused() -> None:
    selection = Selection(seed=42, selector="uniform", picks={"a": ("a1", "gone")})
    for candidates, missing in [(CANDIDATES, "gone"), ({}, "a1")]:
        with pytest.raises(InputError, match=f"the pick '{missing}' is no candidate of the source 'a'"):
            train_rows(selection, candidates)
    with pytest.raises(InputTypeError, match=r"^the layout 'rendered' needs the template that renders it$"):
        train_row(PLAIN, "source", layout="rendered")
