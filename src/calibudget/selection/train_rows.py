"""The rows of a train set: each selected record as a trainer takes it, and the order in which they stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from calibudget.errors import InputError, InputTypeError
from calibudget.keys import order_keys
from calibudget.records import Message, Record, Selection
from calibudget.store.train_set import TrainLayout

#: Where a row comes from: a selected source example, or the companion set.
RowRole = Literal["source", "companion"]
#: Order of a train set: keyed over all rows, or source after source.
RowOrder = Literal["shuffled", "source"]
#: The texts of a record under the recipe's template: its prompt, and its completion with the end.
Texts = Callable[[Record], tuple[str, str]]


class TrainRows(NamedTuple):
    """A train set about to be written."""

    tools: bool
    rows: Iterator[dict[str, object]]


def train_row(
    record: Record, role: RowRole, *, layout: TrainLayout = "completion", rendered: Texts | None = None
) -> dict[str, object]:
    """One row of `train.jsonl` in a layout, the record's own text beside its original fields.

    `rendered` makes the texts of the layout "rendered", which can't do without.

    Raises:
        InputError: a record with a system message, several turns or tools under the layout "completion".
        ScoringError: a record that the template doesn't take.
    """
    row: dict[str, object] = {"source": record.source, "record_id": record.record_id, "role": role}
    prompt = [turn.fields for turn in record.prompt]
    completion = [Message(role="assistant", content=record.completion).fields]
    if layout == "rendered":
        if rendered is None:
            raise InputTypeError("the layout 'rendered' needs the template that renders it")
        row["prompt"], row["completion"] = rendered(record)
        return row | {"original": record.original}
    if layout == "messages":
        row["messages"] = prompt + completion
    elif layout == "turns":
        row |= {"prompt": prompt, "completion": completion}
    elif record.is_plain:
        row |= {"prompt": record.prompt[0].content, "completion": record.completion}
    else:
        raise InputError(
            f"{record.name}: has several turns or tools, which the layout 'completion' "
            "can't hold; say `output.layout`: rendered, turns or messages"
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
    layout: TrainLayout = "completion",
    rendered: Texts | None = None,
) -> TrainRows:
    """All rows of a train set in their order, made one at a time; layout and `rendered` are as of `train_row`.

    `candidates` are every source's, at least those picked, in any order; the companion is joined unchanged. The order
    "shuffled" is ascending under the "order" key of seed, source and record id, companion rows among the others;
    "source" is source after source in code-point order, each in key order, then the companion.

    Raises:
        InputError: a pick is no candidate of its source.
    """
    chosen: list[tuple[Record, RowRole]] = [(record, "source") for record in _picked(selection, candidates)]
    chosen += [(record, "companion") for record in companion]
    if order == "shuffled":
        keys = {label: order_keys("order", selection.seed, label) for label in {record.source for record, _ in chosen}}
        chosen.sort(key=lambda item: keys[item[0].source](item[0].record_id))
    tools = layout in ("turns", "messages") and any(record.uses_tools for record, _ in chosen)
    return TrainRows(tools, (train_row(record, role, layout=layout, rendered=rendered) for record, role in chosen))


def _picked(selection: Selection, candidates: Mapping[str, Sequence[Record]]) -> Iterator[Record]:
    for label, picks in sorted(selection.picks.items()):
        wanted = set(picks)
        records = {record.record_id: record for record in candidates.get(label, ()) if record.record_id in wanted}
        if len(records) != len(wanted):
            raise InputError(f"the pick {min(wanted - set(records))!r} is no candidate of the source {label!r}")
        yield from (records[record_id] for record_id in picks)
