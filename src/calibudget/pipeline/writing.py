"""Writing what a run is made of and what it draws: splits, earlier rounds, the selection, the train set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from calibudget.errors import ArtefactError
from calibudget.pipeline.pools import pools_of_run
from calibudget.pipeline.preparing import Prepared, hygiene_of
from calibudget.pipeline.rundir import RECIPE_NAME
from calibudget.pipeline.selectors import Parts, joined, write_parts
from calibudget.recipe import Recipe, resolved_yaml
from calibudget.records import AllocationPlan, Record, Selection, Split
from calibudget.selection import train_rows, unmarked
from calibudget.sources import chosen_records
from calibudget.store import (
    HYGIENE_NAME,
    ROUNDS_NAME,
    SELECTION_NAME,
    SPLITS_NAME,
    read_rounds,
    write_atomic,
    write_hygiene,
    write_rounds,
    write_selection,
    write_splits,
    write_train,
)


def write_inputs(recipe: Recipe, prepared: Prepared, directory: Path) -> None:
    """Write the resolved recipe, `splits.parquet`, `hygiene.json`, and `rounds.json` where there were rounds before.

    Raises:
        ArtefactError: the directory was begun after other rounds.
    """
    write_atomic(directory / RECIPE_NAME, resolved_yaml(recipe))
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
    write_hygiene(directory / HYGIENE_NAME, hygiene_of(recipe, prepared))


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
    output, chat = recipe.output, recipe.template == "chat"
    made = train_rows(selection, candidates, companion, order=output.order, chat=chat, asked=output.layout)
    write_train(directory / output.train_name, made.rows, layout=made.layout, tools=made.tools)
    return selection


def _picked(split: Split, picks: Sequence[str], recipe: Recipe) -> Sequence[Record]:
    """The picked candidates, each under the id of its exposure."""
    own = {pick: unmarked(pick)[0] if recipe.max_repeats > 1 else pick for pick in picks}
    records = chosen_records(split.candidates, frozenset(own.values()))
    known = ((pick, records[name]) for pick, name in own.items() if name in records)
    return [record if record.record_id == pick else replace(record, record_id=pick) for pick, record in known]
