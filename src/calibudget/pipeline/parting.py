"""Parting one source for this round: what calibrates, what may be drawn, and what earlier rounds have used up."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial

from calibudget.errors import DataError
from calibudget.recipe import Recipe
from calibudget.records import Split
from calibudget.selection import marked
from calibudget.sources import SourceRead, split_source
from calibudget.store import Ledger
from calibudget.wording import counted


def part(recipe: Recipe, read: SourceRead, ledger: Ledger | None) -> Split:
    """The calibration split and the pool of one source.

    A later round uses the calibration records of the last one again (see `reused_calibration`), or draws its own from
    what no round has used, never with a prompt that some round trained on. Whatever was held out once stays out of
    the pool, and a candidate leaves it when its last exposure is spent.

    Raises:
        DataError: too few records, or a calibration record of the last round is gone.
    """
    divide = partial(split_source, split_seed=recipe.split_seed, selection_seed=recipe.selection_seed)
    size = 0 if recipe.calibration == "none" else recipe.calibration.per_source
    if ledger is None:
        return divide(read, calibration_size=size)
    label, ids = read.label, {record.record_id for record in read.records}
    spent, reused = ledger.spent(label), set(reused_calibration(recipe, ledger, label))
    if reused - ids:
        raise DataError(
            f"source {label!r}: its data lacks {len(reused - ids)} of the {counted(len(reused), 'calibration record')} "
            f"of the earlier rounds (the first: {min(reused - ids)}); say `rounds.calibration: fresh` to draw others"
        )
    usable = _without(read, ledger.held_out(label) - reused)
    if reused:
        split = divide(usable, calibration_size=len(reused), barred=ids - reused)
    else:
        split = divide(usable, calibration_size=size, barred=_trained(read, spent))
    left = tuple(record for record in split.candidates if not _is_used_up(record.record_id, recipe.max_repeats, spent))
    known = len(read.records) - len(split.calibration) - split.shared_prompts
    return replace(split, candidates=left, spent=known - len(left))


def reused_calibration(recipe: Recipe, ledger: Ledger, label: str) -> tuple[str, ...]:
    """Calibration records of earlier rounds that a recipe uses again; empty where it draws its own, or none."""
    draws_own = recipe.calibration == "none" or recipe.rounds is None or recipe.rounds.calibration == "fresh"
    return () if draws_own else ledger.calibration(label)


def _without(read: SourceRead, ids: Collection[str]) -> SourceRead:
    return replace(read, records=tuple(record for record in read.records if record.record_id not in ids))


def _trained(read: SourceRead, spent: Collection[str]) -> frozenset[str]:
    """Records that were trained on, and those with the prompt of one."""
    prompts = {record.prompt_hash for record in read.records if record.record_id in spent}
    return frozenset(record.record_id for record in read.records if record.prompt_hash in prompts)


def _is_used_up(record_id: str, max_repeats: int, spent: Collection[str]) -> bool:
    return all(marked(record_id, number) in spent for number in range(1, max_repeats + 1))
