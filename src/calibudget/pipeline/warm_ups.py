"""Warm-ups: small trainings on nested parts of every source, and the calibration NLLs that they leave.

Each has a run directory of its own under the work directory, so that it is drawn, trained, resumed and verified like
any run. What a warm-up left is journalled when it is scored; a finished one is never done again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from calibudget.errors import ArtefactError, RecipeError
from calibudget.pipeline.exposures import exposure_shares, exposures_of, warm_up_plan, warm_up_quotas
from calibudget.pipeline.pools import pools_of_run
from calibudget.pipeline.prepare import Prepared
from calibudget.pipeline.progress import Progress, silent
from calibudget.pipeline.resources import Shared, read_sources
from calibudget.pipeline.score import check_scorer
from calibudget.pipeline.tokens import with_tokens
from calibudget.pipeline.training_options import warm_up_options, within_context
from calibudget.pipeline.warming import Task
from calibudget.recipe import Recipe, resolved_yaml
from calibudget.store import (
    Journal,
    WarmUpFile,
    check_writable,
    output_directory,
    sha256_hex,
    write_warm_ups,
)
from calibudget.training import Listener

_SCHEMA: Final = "calibudget.warm-up-journal/1"
_JOURNAL: Final = "journal"


def warm_up(
    recipe: Recipe,
    output: str | Path,
    *,
    shared: Shared | None = None,
    progress: Progress = silent,
    listener: Listener | None = None,
) -> WarmUpFile:
    """Train and score a recipe's warm-ups, and write them to a `warm-ups.parquet` that `run --warm-ups` takes.

    Their run directories, adapters included, lie in a folder beside the output and stay there; what is finished is
    not done again.

    Raises:
        RecipeError: the recipe has no warm-ups, or a scorer that can't be trained.
        ArtefactError: the output exists, or the folder beside it is of another recipe.
        InputError: data, model or options can't be used.
    """
    path = Path(output)
    if path.exists():
        raise ArtefactError(f"{path}: exists already; name another output, or move it away")
    check_trainable(recipe)
    if shared is None:
        check_scorer(recipe)
    check_length(recipe)
    work = path.with_name(f"{path.stem}.work")
    check_writable(work)
    prepared = with_tokens(recipe, read_sources(recipe, shared, progress=progress), progress=progress)
    made = measure_warm_ups(recipe, prepared, work, shared=shared, progress=progress, listener=listener)
    write_warm_ups(path, made)
    return made


def check_trainable(recipe: Recipe) -> None:
    """Refuse a recipe whose warm-ups can't be trained, before anything costly.

    Raises:
        RecipeError: the fake engine, no warm-ups, or nothing to calibrate on.
        TrainingError: training options that can't be used.
    """
    if recipe.warm_up is None or recipe.calibration == "none":
        raise RecipeError("the recipe has no `warm_up`, or no calibration to measure it on")
    if recipe.engine == "fake":
        raise RecipeError("engine: fake can't be trained; give warm-ups that were made elsewhere (--warm-ups)")
    warm_up_options(recipe)


def check_length(recipe: Recipe) -> None:
    """Refuse options of warm-ups that don't fit the model, before anything is scored; no weights are loaded.

    Raises:
        TrainingError: `warm_up.training.max_length` beyond the model's context, or options that can't be used.
        ScoringError, DependencyError: the model can't be found or read.
    """
    if recipe.warm_up is None or recipe.model is None or recipe.engine == "fake":
        return
    options = warm_up_options(recipe)
    if "max_length" in options.given:
        from calibudget.lm.loading import context_length

        within_context(options, context_length(recipe.model), name="warm_up.training.max_length")


def measure_warm_ups(
    recipe: Recipe,
    prepared: Prepared,
    work: Path,
    *,
    shared: Shared | None = None,
    progress: Progress = silent,
    listener: Listener | None = None,
) -> WarmUpFile:
    """Train and score the warm-ups of sources that are read already; see `warm_up`.

    Args:
        recipe: its `warm_up` says what is trained.
        prepared: its sources.
        work: folder of the warm-ups' run directories and of their journal.
        shared: the model that this has in common with runs in this process.
        progress: told how far it is.
        listener: told after each training step.
    """
    check_trainable(recipe)
    pools = pools_of_run(recipe, prepared)
    exposures = exposures_of(recipe, pools)
    shares = exposure_shares(recipe, exposures)
    header = {"schema": _SCHEMA, "recipe_sha256": sha256_hex(resolved_yaml(recipe))}
    with output_directory(work), Journal.open(work / _JOURNAL, header) as journal:
        task = Task(
            recipe=recipe,
            prepared=prepared,
            plans=[warm_up_plan(recipe, pools, quotas) for quotas in warm_up_quotas(recipe, exposures)],
            shares=shares,
            shared=shared or Shared(),
            work=work,
            journal=journal,
            progress=progress,
        )
        trained = task.from_checkpoints(listener) if recipe.reads_checkpoints else task.from_runs(listener)
        scored = [task.scored(number, one) for number, one in enumerate(trained, start=1)]
    return WarmUpFile(
        nlls=tuple(sorted(one for each in scored for one in each.nlls)),
        unit=recipe.unit,
        model=scored[-1].model,
        runs=tuple(each.run for each in scored),
        mixtures=recipe.reads_mixtures,
    )
