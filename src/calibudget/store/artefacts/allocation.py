"""`allocation.json`: the quotas of a policy and everything they were made from (paper 2.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Final, cast

from calibudget.errors import ArtefactError
from calibudget.records import AllocationPlan, Exponents, SourceAllocation, Unit
from calibudget.store.artefacts.fields import Fields, open_artefact
from calibudget.store.atomic import write_atomic
from calibudget.store.canonical import canonical_json, read_object

ALLOCATION_NAME: Final = "allocation.json"
_SCHEMA: Final = "calibudget.allocation/1"


def allocation_to_json(plan: AllocationPlan) -> dict[str, object]:
    """The `allocation.json` object of a plan."""
    return {
        "schema": _SCHEMA,
        "policy": plan.policy,
        "unit": plan.unit,
        "budget": plan.budget,
        "floor": plan.floor,
        "floors": _plain(plan.floors),
        "caps": _plain(plan.caps),
        "groups": _plain(plan.groups),
        "exponents": asdict(plan.exponents),
        "need_transform": plan.need_transform,
        "epsilon": plan.epsilon,
        "statistics_sha256": plan.statistics_sha256,
        "residual_budget": plan.residual_budget,
        "sources": {label: asdict(row) for label, row in sorted(plan.sources.items())},
    }


def write_allocation(path: Path, plan: AllocationPlan) -> None:
    """Write `allocation.json`, atomically.

    Raises:
        InputError: a value has no canonical JSON form, such as an integer beyond 2**53 - 1.
        ArtefactError: the file can't be written.
    """
    write_atomic(path, canonical_json(allocation_to_json(plan)))


def read_allocation(path: Path) -> AllocationPlan:
    """Read `allocation.json`; types and ranges are checked, the arithmetic is `verify`'s.

    Raises:
        ArtefactError: the file is missing or torn, or a field isn't what it should be; both are named.
    """
    return parse_allocation(read_object(path), path.name)


def parse_allocation(value: object, name: str) -> AllocationPlan:
    """A plan from the `allocation.json` object; `name` is what errors call it.

    Raises:
        ArtefactError: a field isn't what it should be.
    """
    root = open_artefact(value, name, _SCHEMA)
    plan = AllocationPlan(
        policy=root.text("policy"),
        unit=cast(Unit, root.one_of("unit", "examples", "tokens")),
        budget=root.integer("budget"),
        floor=root.integer("floor"),
        floors=root.nullable("floors", root.integers_by_label),
        caps=root.nullable("caps", root.integers_by_label),
        groups=root.nullable("groups", root.mapping),
        exponents=parse_exponents(root.child("exponents")),
        need_transform=root.nullable("need_transform", root.text),
        epsilon=root.number("epsilon", minimum=0.0),
        statistics_sha256=root.nullable("statistics_sha256", root.digest),
        residual_budget=root.integer("residual_budget"),
        sources={label: _parse_source(row) for label, row in root.by_label("sources").items()},
    )
    root.finish()
    if not plan.sources:
        raise ArtefactError(f"{name}: sources: is empty")
    return plan


def _plain(value: Mapping[str, object] | None) -> dict[str, object] | None:
    return None if value is None else dict(value)


def parse_exponents(row: Fields) -> Exponents:
    """The exponents of an allocation or a manifest."""
    exponents = Exponents(
        need=row.number("need"), availability=row.number("availability"), reliability=row.number("reliability")
    )
    row.finish()
    return exponents


def _parse_source(row: Fields) -> SourceAllocation:
    source = SourceAllocation(
        pool_size=row.integer("pool_size"),
        floor_quota=row.integer("floor_quota"),
        residual_capacity=row.integer("residual_capacity"),
        need=row.nullable("need", lambda name: row.number(name, minimum=0.0)),
        availability=row.nullable("availability", lambda name: row.number(name, minimum=0.0)),
        reliability=row.nullable("reliability", lambda name: row.number(name, minimum=0.0, maximum=1.0)),
        utility=row.number("utility", minimum=0.0),
        share=row.number("share", minimum=0.0),
        residual_quota=row.integer("residual_quota"),
        quota=row.integer("quota"),
        interval=row.nullable("interval", lambda name: _parse_interval(row, name)),
    )
    row.finish()
    return source


def _parse_interval(row: Fields, name: str) -> tuple[int, int]:
    low_high = row.integers(name, length=2)
    if low_high[0] > low_high[1]:
        row.refuse(name, "[lowest, highest]", list(low_high))
    return low_high[0], low_high[1]
