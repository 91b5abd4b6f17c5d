"""The main job: split, score, allocate, select, and leave the evidence, in one run directory."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from calibudget.allocation import summarise
from calibudget.errors import ArtefactError, CheckFailedError
from calibudget.pipeline.allocating import feasible_floors, plan_recipe
from calibudget.pipeline.boundary import boundary_notes
from calibudget.pipeline.evidence import make_manifest
from calibudget.pipeline.notes import run_notes
from calibudget.pipeline.pools import pools_of_run
from calibudget.pipeline.preparing import Prepared
from calibudget.pipeline.progress import Progress, silent
from calibudget.pipeline.rundir import JOURNAL_NAME, check_usable, is_finished, open_run
from calibudget.pipeline.scoring import score_splits, scorer_for, scores_made_elsewhere
from calibudget.pipeline.selectors import Parts, joined, selector_parts, write_parts
from calibudget.pipeline.shared import Shared, read_sources
from calibudget.pipeline.tokens import with_tokens
from calibudget.pipeline.verify import verify
from calibudget.recipe import Recipe, resolved_yaml
from calibudget.records import AllocationPlan, Record, Selection, Split, Statistics
from calibudget.selection import train_rows, unmarked
from calibudget.sources import chosen_records
from calibudget.store import (
    ALLOCATION_NAME,
    MANIFEST_NAME,
    ROUNDS_NAME,
    SCORES_NAME,
    SELECTION_NAME,
    SPLITS_NAME,
    STATISTICS_NAME,
    ScoreFile,
    read_allocation,
    read_object,
    read_rounds,
    read_selection,
    write_allocation,
    write_manifest,
    write_rounds,
    write_scores,
    write_selection,
    write_splits,
    write_statistics,
    write_sums,
    write_train,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """A finished and verified run.

    Attributes:
        directory: the run directory.
        train_file: the train set.
        plan: the allocation, with every factor.
        count: source examples selected.
        tokens: their tokens, None where the budget counts examples.
        companion_count: companion records joined.
        selected_sha256: digest of the selected ids.
        manifest_sha256: digest that the manifest ends with.
        notes: what a person should know about this run.
    """

    directory: Path
    train_file: Path
    plan: AllocationPlan
    count: int
    tokens: int | None
    companion_count: int
    selected_sha256: str
    manifest_sha256: str
    notes: tuple[str, ...] = ()

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
            "verified": True,
        }


def run(
    recipe: Recipe,
    output_dir: str | Path,
    *,
    resume: bool = False,
    scores: str | Path | None = None,
    shared: Shared | None = None,
    progress: Progress = silent,
) -> RunResult:
    """Turn a recipe into exactly its budget of training examples, with the evidence.

    Args:
        recipe: what `load_recipe` returned.
        output_dir: the run directory; new, empty, or an unfinished run of this recipe.
        resume: go on with an unfinished run; scores that it finished are not made again.
        scores: scores made elsewhere for the same calibration splits, instead of a model.
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
        return _verified(directory)
    prepared = with_tokens(recipe, read_sources(recipe, shared, progress=progress), progress=progress)
    pools = pools_of_run(recipe, prepared)
    floors = feasible_floors(recipe, pools)
    parts = selector_parts(recipe, prepared)
    pools.require_eligible(joined(recipe, parts), floors)
    made = None if scores is None else scores_made_elsewhere(Path(scores), recipe, prepared.splits)
    needs_scores = made is None and recipe.calibration != "none"
    with ExitStack() as stack:
        scorer = stack.enter_context(scorer_for(recipe, shared)) if needs_scores else None
        stack.enter_context(open_run(directory, resolved, resume=resume))
        write_inputs(recipe, prepared, directory)
        journal = directory / JOURNAL_NAME
        if scorer is not None:
            made = score_splits(recipe, prepared.splits, scorer, journal_path=journal, progress=progress)
        statistics, warned = _write_statistics(recipe, prepared, made, directory)
        plan = plan_recipe(recipe, pools, statistics)
        write_allocation(directory / ALLOCATION_NAME, plan)
        selection = write_selected(recipe, prepared, plan, parts, directory)
        manifest = make_manifest(recipe, prepared, made, plan, selection, statistics, directory)
        write_manifest(directory / MANIFEST_NAME, manifest)
        journal.unlink(missing_ok=True)
        write_sums(directory, [*manifest.artefacts, MANIFEST_NAME])
    progress("verifying", 0, 1)
    close = boundary_notes(recipe, pools, statistics, plan, made.provenance or {}) if made is not None else ()
    result = _verified(directory, (*prepared.notes, *run_notes(recipe, plan, selection, manifest), *warned, *close))
    progress("verifying", 1, 1)
    return result


def write_inputs(recipe: Recipe, prepared: Prepared, directory: Path) -> None:
    """Write `splits.parquet`, and `rounds.json` where there were rounds before.

    Raises:
        ArtefactError: the directory was begun after other rounds.
    """
    ledger_file = directory / ROUNDS_NAME
    if prepared.ledger is not None:
        if ledger_file.exists() and read_rounds(ledger_file) != prepared.ledger:
            raise ArtefactError(
                f"{directory}: was begun after other rounds than {', '.join(map(str, recipe.previous_rounds))}"
            )
        write_rounds(ledger_file, prepared.ledger)
    write_splits(
        directory / SPLITS_NAME,
        prepared.splits.values(),
        split_seed=recipe.split_seed,
        selection_seed=recipe.selection_seed,
        tokens=prepared.tokens,
    )


def write_selected(
    recipe: Recipe, prepared: Prepared, plan: AllocationPlan, parts: Parts, directory: Path
) -> Selection:
    """Draw a plan's quotas and write `selection.json`, what its selector knows, and the train set."""
    companion = () if prepared.companion is None else prepared.companion.records
    drawn = pools_of_run(recipe, prepared).draw(plan, joined(recipe, parts))
    write_parts(directory, parts)
    selection = replace(drawn, companion_count=len(companion))
    write_selection(directory / SELECTION_NAME, selection)
    candidates = {label: _picked(prepared.splits[label], picks, recipe) for label, picks in selection.picks.items()}
    layout, rows = train_rows(
        selection, candidates, companion, order=recipe.output.order, chat=recipe.template == "chat"
    )
    write_train(directory / f"train.{recipe.output.format}", rows, layout=layout)
    return selection


def _picked(split: Split, picks: Sequence[str], recipe: Recipe) -> Sequence[Record]:
    """The picked candidates, each under the id of its exposure."""
    own = {pick: unmarked(pick)[0] if recipe.max_repeats > 1 else pick for pick in picks}
    records = chosen_records(split.candidates, frozenset(own.values()))
    known = ((pick, records[name]) for pick, name in own.items() if name in records)
    return [record if record.record_id == pick else replace(record, record_id=pick) for pick, record in known]


def _write_statistics(
    recipe: Recipe, prepared: Prepared, made: ScoreFile | None, directory: Path
) -> tuple[Statistics | None, tuple[str, ...]]:
    if made is None or recipe.calibration == "none":
        return None, ()
    provenance = dict(made.provenance or {})
    write_scores(directory / SCORES_NAME, made.scores, error=made.error, provenance=provenance)
    model = provenance["model"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        statistics = summarise(
            made.scores,
            prepared.pool_sizes,
            model=model if isinstance(model, dict) else {},
            error=made.error,
            resamples=recipe.calibration.resamples,
            bootstrap_seed=recipe.bootstrap_seed,
        )
    write_statistics(directory / STATISTICS_NAME, statistics)
    return statistics, tuple(str(warning.message) for warning in caught)


def _verified(directory: Path, notes: tuple[str, ...] = ()) -> RunResult:
    verification = verify(directory)
    if verification.differences:
        listed = "\n".join(f"  {difference}" for difference in verification.differences)
        raise CheckFailedError(f"{directory}: doesn't verify:\n{listed}")
    selection = read_selection(directory / SELECTION_NAME)
    return RunResult(
        directory=directory,
        train_file=next(path for path in sorted(directory.glob("train.*"))),
        plan=read_allocation(directory / ALLOCATION_NAME),
        count=selection.count,
        tokens=selection.tokens,
        companion_count=selection.companion_count,
        selected_sha256=selection.selected_sha256,
        manifest_sha256=str(read_object(directory / MANIFEST_NAME)["manifest_sha256"]),
        notes=notes,
    )
