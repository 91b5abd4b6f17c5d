"""Parting one source for this round: what calibrates, what may be drawn, and what earlier rounds have used up."""

from __future__ import annotations

from calibudget.recipe import Recipe
from calibudget.records import Split
from calibudget.selection import marked, unmarked
from calibudget.sources import Barred, Earlier, Resolved, part_source
from calibudget.store import Ledger


def part(recipe: Recipe, source: Resolved, ledger: Ledger | None, barred: Barred | None = None) -> Split:
    """The calibration split and the pool of one source.

    A later round uses the calibration records of the last one again (see `reused_calibration`), or draws its own from
    what no round has used, never with a prompt that some round trained on. Whatever was held out once stays out of
    the pool, and a candidate leaves it when its last exposure is spent.

    Raises:
        DataError: too few records, or a calibration record of the last round is gone.
    """
    size = 0 if recipe.calibration == "none" else recipe.calibration.per_source
    earlier = None if ledger is None else _earlier(recipe, ledger, source.scan.spec.label)
    return part_source(source, split_seed=recipe.split_seed, calibration_size=size, earlier=earlier, barred=barred)


def _earlier(recipe: Recipe, ledger: Ledger, label: str) -> Earlier:
    spent = ledger.spent(label)
    drawn = {unmarked(one)[0] if recipe.max_repeats > 1 else one for one in spent}
    numbers = range(1, recipe.max_repeats + 1)
    return Earlier(
        held_out=frozenset(ledger.held_out(label)),
        calibration=frozenset(reused_calibration(recipe, ledger, label)),
        trained=frozenset(spent),
        used_up=frozenset(one for one in drawn if all(marked(one, number) in spent for number in numbers)),
    )


def reused_calibration(recipe: Recipe, ledger: Ledger, label: str) -> tuple[str, ...]:
    """Calibration records of earlier rounds that a recipe uses again; empty where it draws its own, or none."""
    draws_own = recipe.calibration == "none" or recipe.rounds is None or recipe.rounds.calibration == "fresh"
    return () if draws_own else ledger.calibration(label)
