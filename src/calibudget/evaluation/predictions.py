"""`predictions.parquet`: what the model wrote on each item, what was read from it, and the verdict."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

import pyarrow as pa

from calibudget.errors import ArtefactError
from calibudget.store.parquet import read_table, write_table

PREDICTIONS_NAME: Final = "predictions.parquet"
_SCHEMA: Final = "calibudget.predictions/1"
#: What no float32 logits give, so that sums of NLLs can't overflow.
_MOST_NLL: Final = 1e100

#: How an item was judged. Only "right" is right; "deferred" waits for a machine with a sandbox, and "unchecked" is what
#: has no answer that could be judged.
ItemVerdict = Literal["right", "wrong", "unparsable", "timeout", "deferred", "unchecked"]

_COLUMNS: Final = pa.schema(
    [
        pa.field("task", pa.string(), nullable=False),
        pa.field("item_id", pa.string(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("prediction", pa.string()),
        pa.field("gold", pa.string()),
        pa.field("verdict", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("nll", pa.float64()),
        pa.field("response_tokens", pa.int64()),
    ]
)


#: Verdicts that leave open what a task's score is.
OPEN: Final = frozenset({"deferred", "unchecked"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One item's outcome.

    Attributes:
        text: the model's text as it stands, cut only where nothing after it could change the parsed answer.
        prediction: the parsed answer, None where nothing could be parsed or the task has its own checker.
        gold: the gold answer, None where the task has its own checker.
        reason: why, where the verdict alone doesn't say; else empty.
        nll: mean NLL of the reference response, nats a token; None where the data set has none.
        response_tokens: tokens that the NLL is over, None where there is none.
    """

    task: str
    item_id: str
    text: str
    prediction: str | None
    gold: str | None
    verdict: ItemVerdict
    reason: str = ""
    nll: float | None = None
    response_tokens: int | None = None


def answer_nll(one: Prediction) -> float | None:
    """NLL of the whole reference response, nats; None where there is none, or nobody knows how long it is."""
    return None if one.nll is None or not one.response_tokens else one.nll * one.response_tokens


def write_predictions(path: Path, predictions: Iterable[Prediction]) -> None:
    """Write `predictions.parquet`, atomically, ordered by task and item id; same predictions, same bytes."""
    ordered = sorted(predictions, key=lambda one: (one.task, one.item_id))
    columns = {name: [getattr(one, name) for one in ordered] for name in _COLUMNS.names}
    write_table(path, pa.table(columns, schema=_COLUMNS), {"schema": _SCHEMA}, dictionary=["task", "verdict"])


def read_predictions(path: Path) -> tuple[Prediction, ...]:
    """Read `predictions.parquet`.

    Raises:
        ArtefactError: the file is missing or damaged, or a row isn't what it should be; it is named.
    """
    table, metadata = read_table(path, _COLUMNS)
    if metadata.get("schema") != _SCHEMA:
        raise ArtefactError(f"{path.name}: schema: expected {_SCHEMA!r}, found {metadata.get('schema')!r}")
    rows: list[dict[str, Any]] = table.to_pylist()
    for number, row in enumerate(rows, start=1):
        if row["verdict"] not in get_args(ItemVerdict):
            raise ArtefactError(f"{path.name}, row {number}: verdict: {row['verdict']!r} is none")
        if row["nll"] is not None and not math.fabs(row["nll"]) <= _MOST_NLL:
            raise ArtefactError(f"{path.name}, row {number}: nll: {row['nll']!r} is no NLL of a token")
    if len({(row["task"], row["item_id"]) for row in rows}) != len(rows):
        raise ArtefactError(f"{path.name}: an item stands there twice")
    return tuple(Prediction(**row) for row in rows)
