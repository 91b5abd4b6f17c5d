"""The main job: split, score, allocate, select, and leave the evidence, in one run directory."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from calibudget.errors import CheckFailedError
from calibudget.pipeline.allocate import plan_recipe
from calibudget.pipeline.prepare import Prepared, with_tokens
from calibudget.pipeline.progress import Progress, silent, whole
from calibudget.pipeline.run_directory import JOURNAL_NAME, check_usable, is_finished, open_run
from calibudget.pipeline.run_inputs import Run
from calibudget.pipeline.run_notes import boundary_notes, length_notes, noticed, run_notes
from calibudget.pipeline.score import GivenScores, check_scorer, read_given, score_splits, scorer_for
from calibudget.pipeline.select import check_unchanged, write_inputs, write_outcome
from calibudget.pipeline.shared_resources import Shared, read_sources
from calibudget.pipeline.statistics import statistics_of
from calibudget.pipeline.verify import verify
from calibudget.recipe.load import resolved_yaml
from calibudget.recipe.schema import Recipe
from calibudget.records import AllocationPlan, Statistics
from calibudget.sources.hygiene.artefact import Hygiene
from calibudget.store.artefacts import STATISTICS
from calibudget.store.scores import SCORES_NAME, ScoreFile, write_scores


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """A finished and verified run.

    Attributes:
        count: source examples selected.
        tokens: their tokens, None where the budget counts examples.
        manifest_sha256: digest that the manifest ends with.
        train_set: its layout, the field of a row that is taught, and the text that ends it or None.
        hygiene: what its sources repeat and share; None in a run of a version that didn't say.
    """

    directory: Path
    train_file: Path
    plan: AllocationPlan
    count: int
    tokens: int | None
    companion_count: int
    selected_sha256: str
    manifest_sha256: str
    train_set: Mapping[str, object]
    notes: tuple[str, ...] = ()
    hygiene: Hygiene | None = None

    def to_frame(self) -> Any:
        """The quotas as a pandas data frame, see `AllocationPlan.to_frame`."""
        return self.plan.to_frame()

    def _repr_html_(self) -> str:
        """The quotas as a table, and where the train set lies, for notebooks."""
        noted = [] if self.hygiene is None else [one.line for one in noticed(self.hygiene)]
        notes = "".join(f"<li>{escape(note)}</li>" for note in (*noted, *self.notes))
        counted = f"{self.count:,} examples, {self.companion_count:,} of the companion set, verified"
        return f"{self.plan._repr_html_()}<p>{counted}: <code>{escape(str(self.train_file))}</code></p><ul>{notes}</ul>"

    def to_json(self) -> dict[str, Any]:
        """The `--json` output of `calibudget run`."""
        return {
            "schema": "calibudget.run/1",
            "policy": self.plan.policy,
            "unit": self.plan.unit,
            "budget": self.plan.budget,
            "count": self.count,
            "tokens": self.tokens,
            "companion_count": self.companion_count,
            "quotas": self.plan.quotas,
            "selected_sha256": self.selected_sha256,
            "manifest_sha256": self.manifest_sha256,
            "train_set": dict(self.train_set),
            "verified": True,
        }


def run(
    recipe: Recipe,
    output_dir: str | Path,
    *,
    resume: bool = False,
    scores: str | Path | Sequence[str | Path] | None = None,
    verdict: str | None = None,
    shared: Shared | None = None,
    progress: Progress = silent,
) -> RunResult:
    """Turn a recipe into exactly its budget of training examples, with the evidence.

    Args:
        recipe: what `load_recipe` returned.
        output_dir: the run directory; new, empty, or an unfinished run of this recipe.
        resume: go on with an unfinished run; scores that it finished are not made again.
        scores: scores made elsewhere for the same calibration splits, instead of a model; several files are joined.
        verdict: the metric or scorer of their logs that says what is right; else their texts are judged here.
        shared: what this run has in common with others in this process; None reads and loads for itself.
        progress: told how far the stages are.

    Raises:
        InputError: recipe, data, model, budget or directory can't be used; nothing half-written stays behind.
        CheckFailedError: the finished directory doesn't verify.
    """
    directory = Path(output_dir)
    resolved = resolved_yaml(recipe)
    check_usable(directory, resolved, resume=resume)
    if resume and is_finished(directory):
        return _verified(directory, ("this run was finished before: its data wasn't read again, nor its model used",))
    given = read_given(recipe, scores, verdict)
    if recipe.calibration != "none" and given is None and shared is None:
        with whole(progress, "looking for the model"):
            check_scorer(recipe)
    with open_run(directory, resolved, resume=resume):
        notes = _make(recipe, directory, given, shared, progress)
    with whole(progress, "verifying"):
        return _verified(directory, notes)


def _make(
    recipe: Recipe,
    directory: Path,
    given: GivenScores | None,
    shared: Shared | None,
    progress: Progress,
) -> tuple[str, ...]:
    """Make every artefact of a run in its directory, which is held; returns what a person should know."""
    prepared = with_tokens(recipe, read_sources(recipe, shared, progress=progress), progress=progress)
    run = Run(recipe=recipe, prepared=prepared)
    check_unchanged(run, directory)
    run.floors()  # what can't be met is refused before anything is scored
    made = None if given is None else given.check(prepared.splits)
    journal = directory / JOURNAL_NAME
    needs_scores = made is None and recipe.calibration != "none"
    with scorer_for(recipe, shared, progress) if needs_scores else nullcontext() as scorer:
        write_inputs(run, directory)
        if scorer is not None:
            made = score_splits(recipe, prepared.splits, scorer, journal_path=journal, progress=progress)
    statistics, warned = _statistics(recipe, prepared, made, directory)
    plan = plan_recipe(recipe, run.pools, statistics)
    selection = run.draw(plan)
    manifest = write_outcome(run, plan, selection, directory, scored=made, statistics=statistics)
    told = boundary_notes(recipe, run.pools, statistics, plan, (made and made.provenance) or {})
    lengths = () if made is None else length_notes(made.scores, made.error)
    return (*prepared.notes, *run_notes(recipe, selection, manifest), *lengths, *warned, *told)


def _statistics(
    recipe: Recipe, prepared: Prepared, made: ScoreFile | None, directory: Path
) -> tuple[Statistics | None, tuple[str, ...]]:
    if made is None or recipe.calibration == "none":
        return None, ()
    write_scores(directory / SCORES_NAME, made.scores, error=made.error, provenance=made.provenance or {})
    resamples, seed = recipe.calibration.resamples, recipe.bootstrap_seed
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        statistics = statistics_of(made, prepared.pool_sizes, resamples=resamples, bootstrap_seed=seed)
    STATISTICS.write(directory / STATISTICS.name, statistics)
    return statistics, tuple(str(warning.message) for warning in caught)


def _verified(directory: Path, notes: tuple[str, ...] = ()) -> RunResult:
    verification = verify(directory)
    if verification.differences:
        listed = "\n".join(f"  {difference}" for difference in verification.differences)
        raise CheckFailedError(f"{directory}: doesn't verify:\n{listed}")
    found = verification.found
    assert found is not None  # noqa: S101 - without differences everything was read
    selection = found.manifest.selection
    return RunResult(
        directory=directory,
        train_file=next(path for path in sorted(directory.glob("train.*"))),
        plan=found.plan,
        count=selection.count,
        tokens=found.tokens,
        companion_count=selection.companion_count,
        selected_sha256=selection.selected_sha256,
        manifest_sha256=found.manifest_sha256,
        train_set=found.manifest.train_set or {},
        notes=notes,
        hygiene=found.hygiene,
    )
