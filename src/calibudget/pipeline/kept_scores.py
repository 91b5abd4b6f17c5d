"""Measurements that an earlier run left in the cache: a model is asked about the same records once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, Literal

from pydantic import TypeAdapter

from calibudget.scoring.scorer import CalibrationItem, Measurement, Scorer, item_to_json, measurement_to_json
from calibudget.sources.cache_files import keep, kept_path, read_kept

_SCHEMA: Final = "calibudget.measurements/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """A file of measurements, and its own name, by which a copy of another is told."""

    schema: Literal["calibudget.measurements/1"]
    name: str
    measurements: list[Measurement]


@cache
def _files() -> TypeAdapter[_Kept]:
    return TypeAdapter(_Kept)


def kept_measurements(
    folder: Path | None,
    scorer: Scorer,
    items: Sequence[CalibrationItem],
    measure: Callable[[], list[Measurement]],
) -> tuple[list[Measurement], bool]:
    """What a scorer says of all items: what is kept of an earlier time, or what it says now, which is then kept.

    It follows from all that the scorer says it depends on (model, precision, device, versions), from the items in their
    order and from this code. Budgets, floors, policies and the seeds of later stages play no part.

    Args:
        folder: the cache, None to neither look nor keep.
        scorer: describes itself.
        items: each record once.
        measure: asks the scorer about all of them.

    Returns:
        One measurement an item, in their order, and whether they were found.
    """
    if folder is None:
        return measure(), False
    path = kept_path(folder, "measurements", _SCHEMA, dict(scorer.describe()), [item_to_json(item) for item in items])
    kept = read_kept(path, _files())
    if kept is not None:
        return kept.measurements, True
    made = measure()
    keep(path, {"schema": _SCHEMA, "measurements": [measurement_to_json(one) for one in made]})
    return made, False
