"""The rows of a train set: each selected record as a trainer takes it, and the order in which they stand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from calibudget.errors import InputError
from calibudget.keys import order_keys
from calibudget.records import Message, Record, Selection
from calibudget.store import TrainLayout

#: Where a row comes from: a selected source example, or the companion set.
RowRole = Literal["source", "companion"]
#: Order of a train set: keyed over all rows, or source after source.
RowOrder = Literal["shuffled", "source"]
#: The layout that a recipe asks for.
AskedLayout = Literal["completion", "messages"]


class TrainRows(NamedTuple):
    """A train set about to be written.

    Attributes:
        layout: of all its rows.
        tools: whether some record has tools or calls one.
        rows: the rows in their order, made one at a time.
    """

    layout: TrainLayout
    tools: bool
    rows: Iterator[dict[str, object]]


def train_layout(records: Iterable[Record], *, chat: bool, asked: AskedLayout | None = None) -> TrainLayout:
    """The layout of a train set: one for all its rows, since trainers take the first row's for the whole.

    Args:
        records: every record of the set, the companion included.
        chat: whether the recipe's template is a chat template.
        asked: what the recipe asks for; prompt and completion are lists of turns where a text can't hold them.
    """
    if asked == "messages" or (asked is None and chat):
        return "messages"
    if all(record.is_plain for record in records):
        return "completion"
    return "turns" if asked == "completion" else "messages"


def train_row(record: Record, role: RowRole, *, layout: TrainLayout = "completion") -> dict[str, object]:
    """One row of `train.jsonl`, the record's own text beside its original fields.

    Raises:
        InputError: a record with a system message, several turns or tools under the layout "completion".
    """
    row: dict[str, object] = {"source": record.source, "record_id": record.record_id, "role": role}
    prompt = [turn.fields for turn in record.prompt]
    completion = [Message(role="assistant", content=record.completion).fields]
    if layout == "messages":
        row["messages"] = prompt + completion
    elif layout == "turns":
        row |= {"prompt": prompt, "completion": completion}
    elif record.is_plain:
        row |= {"prompt": record.prompt[0].content, "completion": record.completion}
    else:
        raise InputError(
            f"{record.source}: record {record.record_id} has several turns and needs the layout 'messages'"
        )
    if record.tools:
        row["tools"] = list(record.tools)
    row["original"] = record.original
    return row


def train_rows(
    selection: Selection,
    candidates: Mapping[str, Sequence[Record]],
    companion: Sequence[Record] = (),
    *,
    order: RowOrder = "shuffled",
    chat: bool = False,
    asked: AskedLayout | None = None,
) -> TrainRows:
    """All rows of a train set in their order, made one at a time.

    Args:
        selection: the picks.
        candidates: every source's candidates, at least those picked, in any order.
        companion: the companion records, joined unchanged.
        order: "shuffled" is ascending under the "order" key of seed, source and record id, companion rows among
            the others; "source" is source after source in code-point order, each in key order, then the companion.
        chat: whether the recipe's template is a chat template.
        asked: the layout that the recipe asks for.

    Raises:
        InputError: a pick is no candidate of its source.
    """
    chosen: list[tuple[Record, RowRole]] = [(record, "source") for record in _picked(selection, candidates)]
    chosen += [(record, "companion") for record in companion]
    if order == "shuffled":
        chosen = _shuffled(chosen, selection.seed)
    layout = train_layout((record for record, _ in chosen), chat=chat, asked=asked)
    tools = any(record.uses_tools for record, _ in chosen)
    return TrainRows(layout, tools, (train_row(record, role, layout=layout) for record, role in chosen))


def _picked(selection: Selection, candidates: Mapping[str, Sequence[Record]]) -> Iterator[Record]:
    for label, picks in sorted(selection.picks.items()):
        wanted = set(picks)
        records = {record.record_id: record for record in candidates.get(label, ()) if record.record_id in wanted}
        if len(records) != len(wanted):
            raise InputError(f"the pick {min(wanted - set(records))!r} is no candidate of the source {label!r}")
        yield from (records[record_id] for record_id in picks)


def _shuffled(chosen: Sequence[tuple[Record, RowRole]], seed: int) -> list[tuple[Record, RowRole]]:
    keys = {label: order_keys("order", seed, label) for label in {record.source for record, _ in chosen}}
    return sorted(chosen, key=lambda item: keys[item[0].source](item[0].record_id))
