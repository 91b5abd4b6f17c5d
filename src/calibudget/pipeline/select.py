"""Writing what a run is made of and what it draws: splits, earlier rounds, the selection, the train set.

`calibudget select`: the draw alone, under an allocation that is there already.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

from calibudget.errors import ArtefactError
from calibudget.pipeline.allocate import read_plan
from calibudget.pipeline.prepare import Prepared, hygiene_of, prepare, with_tokens
from calibudget.pipeline.progress import Progress, silent
from calibudget.pipeline.round_ledger import ROUNDS
from calibudget.pipeline.rounds import earlier_rounds
from calibudget.pipeline.run_directory import JOURNAL_NAME, RECIPE_NAME, is_finished, keep_model_place, open_run
from calibudget.pipeline.run_inputs import Run
from calibudget.pipeline.run_manifest import Outcome, make_manifest
from calibudget.pipeline.training_encoding import check_encodable, rendering
from calibudget.recipe.load import resolved_yaml
from calibudget.recipe.schema import Recipe
from calibudget.records import AllocationPlan, Record, Selection, SourceFile, Split, Statistics
from calibudget.selection.draw import unmarked
from calibudget.selection.train_rows import train_row, train_rows
from calibudget.sources.candidates import chosen_records
from calibudget.sources.hygiene.artefact import HYGIENE
from calibudget.store.artefacts import ALLOCATION, SELECTION, digest_selection, quotas_sha256, stated_quotas_sha256
from calibudget.store.checksums import write_sums
from calibudget.store.files import write_atomic
from calibudget.store.manifest import MANIFEST, Manifest
from calibudget.store.scores import SCORES_NAME, ScoreFile
from calibudget.store.selector_scores import SELECTOR_NAME, write_selector
from calibudget.store.splits import SPLITS_NAME, read_splits, write_splits
from calibudget.store.train_set import HELD_OUT_NAME, write_train


def check_unchanged(run: Run, directory: Path) -> None:
    """Refuse other rounds, and sources of other records, than those with which a directory was begun."""
    recipe, prepared = run.recipe, run.prepared
    if prepared.ledger is not None and ROUNDS.of(directory) not in (None, prepared.ledger):
        raise ArtefactError(
            f"{directory}: was begun after other rounds than {', '.join(map(str, recipe.previous_rounds))}"
        )
    begun = HYGIENE.of(directory)
    if begun is not None:
        sets: dict[str, tuple[tuple[SourceFile, ...] | None, tuple[SourceFile, ...]]] = {
            f"evaluation set {name!r}": (one.files, prepared.evaluation[name].scan.files)
            for name, one in begun.evaluation.items()
        }
        if begun.companion is not None and prepared.companion is not None:
            sets["the companion set"] = (begun.companion.files, prepared.companion.files)
        for name, (before, now) in sets.items():
            if before is not None and before != now:
                raise ArtefactError(
                    f"{directory}: {name} has other files than when this run was begun "
                    f"({', '.join(file.name for file in before)}); put them back, or name another directory"
                )
    path = directory / SPLITS_NAME
    own = prepared.ids
    for label, ids in read_splits(path).sources.items() if path.exists() else ():
        if replace(own[label], tokens={}) != replace(ids, tokens={}):
            files = ", ".join(file.name for file in prepared.sources[label].scan.files)
            raise ArtefactError(
                f"{directory}: source {label!r} has other records than when this run was begun, so {files} must have "
                "changed; put its files back, or name another directory"
            )


def write_inputs(run: Run, directory: Path) -> None:
    """Write the resolved recipe, `splits.parquet`, `hygiene.json`, and what else there is before anything is drawn.

    That is `rounds.json` where there were rounds before, and `held-out.jsonl` where records are held out to evaluate.
    """
    recipe, prepared = run.recipe, run.prepared
    rendering(recipe)  # what can't be rendered is refused before anything is scored
    write_atomic(directory / RECIPE_NAME, resolved_yaml(recipe))
    if prepared.ledger is not None:
        ROUNDS.write(directory / ROUNDS.name, prepared.ledger)
    write_splits(
        directory / SPLITS_NAME,
        prepared.splits.values(),
        split_seed=recipe.split_seed,
        selection_seed=recipe.selection_seed,
        tokens=prepared.tokens,
    )
    if recipe.evaluation_size:
        held_out = [record for split in prepared.splits.values() for record in split.evaluation]
        rows = (train_row(record, "source", layout="turns") for record in held_out)
        tools = any(record.uses_tools for record in held_out)
        write_train(directory / HELD_OUT_NAME, rows, layout="turns", tools=tools)
    HYGIENE.write(directory / HYGIENE.name, hygiene_of(recipe, prepared))


def write_outcome(
    run: Run,
    plan: AllocationPlan,
    selection: Selection,
    directory: Path,
    *,
    scored: ScoreFile | None = None,
    statistics: Statistics | None = None,
    given: bool = False,
) -> Manifest:
    """Write a plan, what was drawn by it, and the manifest and sums that end a run."""
    ALLOCATION.write(directory / ALLOCATION.name, plan)
    _write_selected(run, selection, directory)
    digest = digest_selection(selection)
    SELECTION.write(directory / SELECTION.name, digest)
    ids, pools = run.prepared.ids, run.pools
    outcome = Outcome(ids=ids, pools=pools, scored=scored, statistics=statistics, plan=plan, selection=digest)
    manifest = make_manifest(run, outcome, directory, given=given)
    keep_model_place(run.recipe, MANIFEST.write(directory / MANIFEST.name, manifest))
    (directory / JOURNAL_NAME).unlink(missing_ok=True)
    write_sums(directory, [*manifest.artefacts, MANIFEST.name])
    return manifest


def _write_selected(run: Run, selection: Selection, directory: Path) -> None:
    """Write what the selector of a selection knows, and the train set."""
    recipe, prepared = run.recipe, run.prepared
    companion = () if prepared.companion is None else prepared.companion.records
    candidates = {label: _picked(prepared.splits[label], picks, recipe) for label, picks in selection.picks.items()}
    check_encodable(recipe, chain(*candidates.values(), companion), partial(_place_of, prepared))
    if run.parts:
        write_selector(directory / SELECTOR_NAME, run.parts)
    output, render = recipe.output, rendering(recipe)
    if render.texts is not None and render.end is None and recipe.has_tokenizer and recipe.calibration != "none":
        warnings.warn(
            f"the tokenizer of {recipe.model!r} isn't here: responses in the train set have no token that ends them, "
            "and trainers add their own",
            stacklevel=2,
        )
    made = train_rows(selection, candidates, companion, order=output.order, layout=output.layout, rendered=render.texts)
    write_train(directory / output.train_name, made.rows, layout=output.layout, tools=made.tools)


def _place_of(prepared: Prepared, record: Record) -> str | None:
    """Where a drawn record stands, in words."""
    source = prepared.sources.get(record.source)
    return None if source is None else source.place_of(unmarked(record.record_id)[0])


def _picked(split: Split, picks: Sequence[str], recipe: Recipe) -> Sequence[Record]:
    """The picked candidates, each under the id of its exposure."""
    own = {pick: unmarked(pick)[0] if recipe.max_repeats > 1 else pick for pick in picks}
    records = chosen_records(split.candidates, frozenset(own.values()))
    known = ((pick, records[name]) for pick, name in own.items() if name in records)
    return [record if record.record_id == pick else replace(record, record_id=pick) for pick, record in known]


def select(
    recipe: Recipe, allocation_file: str | Path, output_dir: str | Path, *, progress: Progress = silent
) -> Selection:
    """Draw the quotas of an `allocation.json` from a recipe's sources, and write the train set and its evidence.

    What an interrupted draw of this recipe left in the directory is written anew.

    Raises:
        AllocationError: the allocation is of a policy that was removed.
        ArtefactError: the allocation is of other sources or other pools, or the directory can't be used.
        DataError: the sources can't be used.
    """
    directory = Path(output_dir)
    plan = read_plan(Path(allocation_file))
    if stated_quotas_sha256(Path(allocation_file)) not in (None, quotas_sha256(plan.quotas)):
        raise ArtefactError(
            f"{allocation_file}: quotas_sha256: isn't the digest of its quotas, so one was edited; take the field out "
            "if that was meant"
        )
    _refuse_finished_work(directory)
    with open_run(directory, resolved_yaml(recipe), resume=True):
        _refuse_finished_work(directory)  # again, for what another command did meanwhile
        prepared = with_tokens(recipe, prepare(recipe, earlier_rounds(recipe), progress=progress), progress=progress)
        run = Run(recipe=recipe, prepared=prepared)
        check_unchanged(run, directory)
        selection = run.draw(plan)
        write_inputs(run, directory)
        write_outcome(run, plan, selection, directory, given=True)
        return selection


def _refuse_finished_work(directory: Path) -> None:
    if is_finished(directory):
        raise ArtefactError(f"{directory}: is finished already; name another directory")
    if any((directory / name).exists() for name in (JOURNAL_NAME, SCORES_NAME)):
        raise ArtefactError(
            f"{directory}: holds scores of an unfinished run, which `calibudget run --resume` goes on with; "
            "name another directory"
        )
