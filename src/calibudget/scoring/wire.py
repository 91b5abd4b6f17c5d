"""Items and measurements as JSON, for the journal and between processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from calibudget.records import Message, Record
from calibudget.scoring.items import CalibrationItem, Measurement
from calibudget.tasks import AnswerSpec


def item_to_json(item: CalibrationItem) -> dict[str, object]:
    """All of an item that its score depends on (a record's original fields stay behind)."""
    record, answer = item.record, item.answer
    return {
        "source": record.source,
        "record_id": record.record_id,
        "prompt": [turn.fields for turn in record.prompt],
        "tools": list(record.tools),
        "completion": record.completion,
        "answer": record.answer,
        "kind": answer.kind,
        "labels": list(answer.labels),
        "pattern": answer.pattern,
    }


def item_from_json(value: Mapping[str, Any]) -> CalibrationItem:
    """The item that `item_to_json` gave, without the fields that no score depends on.

    Raises:
        KeyError, TypeError, ValueError: it isn't one.
    """
    record = Record(
        source=value["source"],
        record_id=value["record_id"],
        prompt_hash="",
        prompt=tuple(map(Message.of, value["prompt"])),
        tools=tuple(value["tools"]),
        completion=value["completion"],
        answer=value["answer"],
        original={},
    )
    answer = AnswerSpec(kind=value["kind"], labels=tuple(value["labels"]), pattern=value["pattern"])
    return CalibrationItem(record=record, answer=answer)


def measurement_to_json(measurement: Measurement) -> dict[str, object]:
    """A measurement as a JSON object; its NLL must be finite."""
    return asdict(measurement)


def measurement_from_json(value: Mapping[str, Any]) -> Measurement:
    """The measurement that `measurement_to_json` gave.

    Raises:
        KeyError, TypeError, ValueError: it isn't one.
    """
    return Measurement(**{**value, "nll": float(value["nll"])})
