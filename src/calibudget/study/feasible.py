"""Whether the points of a study can be met by its pools, told before anything is frozen or run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from calibudget.errors import AllocationError, StudyError
from calibudget.pipeline.allocating import feasible_floors
from calibudget.pipeline.pools import pools_of_run
from calibudget.pipeline.progress import Progress
from calibudget.pipeline.shared import Shared, read_sources
from calibudget.recipe import Recipe, resolved_fields
from calibudget.store import canonical_json
from calibudget.study.records import Cell
from calibudget.study.settings import CellSettings

#: Fields of a recipe that bounds don't go by. Seeds move a pool by a few examples at most: by those that share a prompt
#: with a calibration record.
_APART: Final = ("model", "seed", "split_seed", "bootstrap_seed", "selection_seed", "training_seed")


def check_feasible(settings: Mapping[Cell, CellSettings], shared: Shared, progress: Progress) -> None:
    """Refuse points whose budget, floors or caps no quotas over their pools can meet.

    Of cells that differ by seeds and models alone the first is looked at. A budget of tokens is left to the cells: its
    pools are known once the model's tokenizer has counted them.

    Args:
        settings: of every cell.
        shared: keeps the sources that were read.
        progress: told how far reading is.

    Raises:
        StudyError: each such point is named, with the numbers.
        DataError: the sources can't be read or parted.
    """
    refused: dict[str, str] = {}
    for cell, recipe in _first_of_each(settings).items():
        if recipe.unit == "tokens" or cell.point in refused:
            continue
        try:
            feasible_floors(recipe, pools_of_run(recipe, read_sources(recipe, shared, progress=progress)))
        except AllocationError as error:
            refused[cell.point] = f"points.{cell.point}: cell {cell.name}: {error}"
    if refused:
        raise StudyError("\n".join(refused.values()))


def _first_of_each(settings: Mapping[Cell, CellSettings]) -> dict[Cell, Recipe]:
    """Of cells with equal bounds the first; those of one split follow one another, so that it is read once."""
    first: dict[bytes, Cell] = {}
    for cell, one in settings.items():
        bounds = {name: value for name, value in resolved_fields(one.recipe).items() if name not in _APART}
        first.setdefault(canonical_json([cell.point, bounds]), cell)
    ordered = sorted(first.values(), key=lambda cell: (cell.split_seed, cell.selection_seed))
    return {cell: settings[cell].recipe for cell in ordered}
