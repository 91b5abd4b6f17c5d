"""`calibudget select`: the draw alone, under an allocation that is there already."""

from __future__ import annotations

from pathlib import Path

from calibudget.errors import ArtefactError
from calibudget.pipeline.evidence import make_manifest
from calibudget.pipeline.pools import pools_of_run
from calibudget.pipeline.preparing import Prepared, prepare
from calibudget.pipeline.progress import Progress, silent
from calibudget.pipeline.rounds import earlier_rounds
from calibudget.pipeline.rundir import JOURNAL_NAME, is_finished, open_run
from calibudget.pipeline.selectors import selector_parts
from calibudget.pipeline.tokens import with_tokens
from calibudget.pipeline.writing import write_inputs, write_selected
from calibudget.recipe import Recipe, resolved_yaml
from calibudget.records import AllocationPlan, Selection
from calibudget.store import (
    ALLOCATION_NAME,
    MANIFEST_NAME,
    SCORES_NAME,
    read_allocation,
    write_allocation,
    write_manifest,
    write_sums,
)


def select(
    recipe: Recipe, allocation_file: str | Path, output_dir: str | Path, *, progress: Progress = silent
) -> Selection:
    """Draw the quotas of an `allocation.json` from a recipe's sources, and write the train set and its evidence.

    What an interrupted draw of this recipe left in the directory is written anew.

    Raises:
        ArtefactError: the allocation is of other sources or other pools, or the directory can't be used.
        DataError: the sources can't be used.
    """
    directory = Path(output_dir)
    plan = read_allocation(Path(allocation_file))
    _refuse_finished_work(directory)
    with open_run(directory, resolved_yaml(recipe), resume=True):
        prepared = with_tokens(recipe, prepare(recipe, earlier_rounds(recipe), progress=progress), progress=progress)
        return _write(recipe, prepared, plan, directory)


def select_prepared(
    recipe: Recipe, prepared: Prepared, plan: AllocationPlan, directory: Path, *, resume: bool = False
) -> Selection:
    """Draw a plan's quotas from sources that are read already; see `select`.

    Args:
        recipe: what is resolved into the directory.
        prepared: its sources.
        plan: an allocation of these pools.
        directory: the run directory to make.
        resume: whether an unfinished one may be written anew.
    """
    with open_run(directory, resolved_yaml(recipe), resume=resume):
        return _write(recipe, prepared, plan, directory)


def _refuse_finished_work(directory: Path) -> None:
    if is_finished(directory):
        raise ArtefactError(f"{directory}: is finished already; name another directory")
    if any((directory / name).exists() for name in (JOURNAL_NAME, SCORES_NAME)):
        raise ArtefactError(
            f"{directory}: holds scores of an unfinished run, which `calibudget run --resume` goes on with; "
            "name another directory"
        )


def _write(recipe: Recipe, prepared: Prepared, plan: AllocationPlan, directory: Path) -> Selection:
    pools_of_run(recipe, prepared).of_plan(plan)
    parts = selector_parts(recipe, prepared)
    write_inputs(recipe, prepared, directory)
    write_allocation(directory / ALLOCATION_NAME, plan)
    selection = write_selected(recipe, prepared, plan, parts, directory)
    manifest = make_manifest(recipe, prepared, None, plan, selection, None, directory, allocation_given=True)
    write_manifest(directory / MANIFEST_NAME, manifest)
    write_sums(directory, [*manifest.artefacts, MANIFEST_NAME])
    return selection
