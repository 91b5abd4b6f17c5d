"""Rounds: what earlier run directories have spent, taken from them only after they verify."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from calibudget.errors import ArtefactError, RecipeError
from calibudget.pipeline.pools import pools_of
from calibudget.pipeline.round_ledger import ROUNDS, Ledger, Round, RoundSource, picked_twice
from calibudget.pipeline.run_directory import RECIPE_NAME
from calibudget.pipeline.run_selector import selector_of_run
from calibudget.pipeline.verify import Found, verified
from calibudget.recipe.load import load_recipe
from calibudget.recipe.schema import Recipe
from calibudget.store.splits import SPLITS_NAME, read_splits


def earlier_rounds(recipe: Recipe) -> Ledger | None:
    """The ledger of the rounds that a recipe names, and of those before them; None in a first round.

    Raises:
        RecipeError: a round's budget counts in another unit.
    """
    if recipe.rounds is None:
        return None
    ledger = ledger_of(recipe.previous_rounds)
    for each in ledger.rounds:
        if each.unit != recipe.unit:
            raise RecipeError(
                f"budget: counts {recipe.unit}, but an earlier round counts {each.unit}; rounds of one unit only"
            )
    return ledger


def ledger_of(directories: Iterable[Path]) -> Ledger:
    """The rounds of these run directories and those in their own ledgers, oldest first, each once.

    Raises:
        ArtefactError: a directory isn't a finished run that verifies, or two rounds picked one example.
    """
    rounds: dict[str, Round] = {}
    for directory in directories:
        for each in _rounds_of(directory, verified(directory, "it can't be an earlier round")):
            rounds.setdefault(each.manifest_sha256, each)
    ledger = Ledger(rounds=tuple(rounds.values()))
    label = picked_twice(ledger)
    if label is not None:
        raise ArtefactError(
            f"two of the earlier rounds picked the same examples of {label!r}; each must name those before it"
        )
    return ledger


def _rounds_of(directory: Path, found: Found) -> tuple[Round, ...]:
    """What a verified run's own ledger holds, and the run itself."""
    recipe = load_recipe(directory / RECIPE_NAME)
    splits, plan = read_splits(directory / SPLITS_NAME), found.plan
    ledger = None if recipe.rounds is None else ROUNDS.read(directory / ROUNDS.name)
    selection = pools_of(recipe, splits.sources, ledger).draw(plan, selector_of_run(recipe, directory))
    sources = {
        label: RoundSource(
            units=len(picks) if selection.tokens is None else selection.tokens[label].taken,
            record_ids=picks,
            calibration_ids=splits.sources[label].calibration,
        )
        for label, picks in selection.picks.items()
    }
    this = Round(
        manifest_sha256=found.manifest_sha256,
        policy=plan.policy,
        unit=plan.unit,
        budget=plan.budget,
        sources=sources,
    )
    return (*(() if ledger is None else ledger.rounds), this)
