"""The calibration split, and which records may have which role."""

from __future__ import annotations

import heapq
import re
from collections.abc import Collection, Mapping
from typing import Final

from calibudget.errors import DataError
from calibudget.keys import order_keys
from calibudget.records import Split
from calibudget.sources.read import SourceRead
from calibudget.wording import counted

_ROLE_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")


def split_source(
    read: SourceRead,
    *,
    split_seed: int,
    selection_seed: int,
    calibration_size: int,
    barred: Collection[str] = frozenset(),
) -> Split:
    """Part a source into its calibration split and its candidate pool.

    The calibration split is the first `calibration_size` distinct records in the order of the "calibration" key;
    then every other record whose prompt hash is that of a calibration record leaves the pool and is counted.

    Under `duplicates: keep` only the record with the bare id can calibrate, so the split holds exactly
    `calibration_size` different examples; its numbered copies have the same prompt, so they leave the pool with
    it and are counted in `shared_prompts`. All records of one id thus serve one role or none.

    Args:
        read: the source.
        split_seed: seed of the "calibration" key.
        selection_seed: seed of the "selection" key that orders the candidates.
        calibration_size: records to hold out, 0 for none.
        barred: ids of records that must not calibrate, since a model was trained on them or on their prompts.

    Raises:
        DataError: the source has fewer distinct records than that.
    """
    distinct = [record for record in read.records if record.record_id not in read.copies]
    distinct = [record for record in distinct if record.record_id not in barred]
    if len(distinct) < calibration_size:
        raise DataError(
            f"source {read.label!r}: the calibration split needs {counted(calibration_size, 'record')} that differ, but"
            f" there are only {len(distinct)} ({read.read} read, {read.filtered} filtered out, {read.skipped} skipped,"
            f" {counted(read.duplicates, 'duplicate')}{f', {len(barred)} barred' if barred else ''})"
        )
    draw = order_keys("calibration", split_seed, read.label)
    calibration = heapq.nsmallest(calibration_size, distinct, key=lambda record: draw(record.record_id))
    prompts = {record.prompt_hash for record in calibration}
    pool = [record for record in read.records if record.prompt_hash not in prompts]
    pick = order_keys("selection", selection_seed, read.label)
    return Split(
        source=read.label,
        calibration=tuple(calibration),
        candidates=tuple(sorted(pool, key=lambda record: pick(record.record_id))),
        read=read.read - read.filtered,
        duplicates=read.duplicates,
        skipped=read.skipped,
        shared_prompts=len(read.records) - len(pool) - len(calibration),
        filtered=read.filtered,
    )


def check_roles(roles: Mapping[str, Collection[str | int]]) -> None:
    """Check that no record has two roles (paper, appendix "Record and Role Integrity").

    Args:
        roles: record ids or indices by role name.

    Raises:
        DataError: no role at all, a name that is no lower-case identifier, a role without records, a record twice
            in one role or in two of them; names and the record are given.
    """
    if not roles:
        raise DataError("there are no roles to check")
    owners: dict[str | int, str] = {}
    for name, members in roles.items():
        if not _ROLE_NAME.fullmatch(name):
            raise DataError(f"the role {name!r} must be a lower-case identifier: a letter, then letters, digits or _")
        if not members:
            raise DataError(f"the role {name!r} has no records")
        for member in members:
            other = owners.get(member)
            if other is not None:
                where = f"twice in the role {name!r}" if other == name else f"in the roles {other!r} and {name!r}"
                raise DataError(f"the record {member!r} is {where}")
            owners[member] = name
