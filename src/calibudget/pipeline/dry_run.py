"""`calibudget run --dry-run`: counts, tokens and the time expected, with nothing written."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from calibudget.pipeline.calibration import calibration_items
from calibudget.pipeline.prepare import Prepared, with_tokens
from calibudget.pipeline.progress import Progress, silent
from calibudget.pipeline.run_inputs import Run
from calibudget.pipeline.score import check_scorer, read_given, scorer_for
from calibudget.pipeline.shared_resources import read_sources
from calibudget.recipe.schema import Recipe
from calibudget.records import Unit
from calibudget.scoring.batches import measure_all
from calibudget.scoring.scorer import Scorer


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRunSource:
    """What one source would bring.

    `pool_tokens` are the tokens of its candidates, None where the budget counts examples; `tokens` those of its
    calibration records, None where none are scored. `floor_quota` is in the budget's unit. `evaluation` and
    `evaluation_twins` are None where the recipe holds nothing out for evaluation.
    """

    read: int
    duplicates: int
    skipped: int
    shared_prompts: int
    calibration: int
    pool_size: int
    pool_tokens: int | None
    floor_quota: int
    tokens: int | None
    evaluation: int | None = None
    evaluation_twins: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """What a run would do.

    `seconds_expected` of scoring is measured on one batch of it; None where nothing is scored.
    """

    unit: Unit
    budget: int
    floor_total: int
    residual_budget: int
    sources: Mapping[str, DryRunSource]
    companion_count: int
    seconds_expected: float | None

    def to_json(self) -> dict[str, Any]:
        """The `--json` output of `calibudget run --dry-run`."""
        fields = asdict(self)
        for row in fields["sources"].values():
            if row["evaluation"] is None:
                del row["evaluation"], row["evaluation_twins"]
        return {"schema": "calibudget.dry-run/1", **fields}


def dry_run(
    recipe: Recipe,
    *,
    scores: str | Path | Sequence[str | Path] | None = None,
    verdict: str | None = None,
    progress: Progress = silent,
) -> DryRun:
    """Read the sources, check that the budget can be met, and time one batch of scoring.

    Raises:
        InputError: whatever `run` would refuse before its first artefact.
    """
    given = read_given(recipe, scores, verdict)
    needs_scores = given is None and recipe.calibration != "none"
    if needs_scores:
        check_scorer(recipe)
    prepared = with_tokens(recipe, read_sources(recipe, None, progress=progress), progress=progress)
    run = Run(recipe=recipe, prepared=prepared)
    floors, sizes = run.floors(), run.pools.sizes
    if given is not None:
        given.check(prepared.splits)
    tokens: dict[str, int] = {}
    seconds = None
    if needs_scores:
        with scorer_for(recipe, None, progress) as scorer:
            tokens, seconds = _expected(scorer, recipe, prepared)
    return DryRun(
        unit=recipe.unit,
        budget=recipe.budget_total,
        floor_total=sum(floors.values()),
        residual_budget=recipe.budget_total - sum(floors.values()),
        sources={
            label: DryRunSource(
                read=split.read,
                duplicates=split.duplicates,
                skipped=split.skipped,
                shared_prompts=split.shared_prompts,
                calibration=len(split.calibration),
                pool_size=split.pool_size,
                pool_tokens=sizes[label] if recipe.unit == "tokens" else None,
                floor_quota=floors[label],
                tokens=tokens.get(label),
                evaluation=len(split.evaluation) if recipe.evaluation_size else None,
                evaluation_twins=split.evaluation_twins if recipe.evaluation_size else None,
            )
            for label, split in prepared.splits.items()
        },
        companion_count=0 if prepared.companion is None else len(prepared.companion.records),
        seconds_expected=seconds,
    )


def _expected(scorer: Scorer, recipe: Recipe, prepared: Prepared) -> tuple[dict[str, int], float]:
    """Tokens by source, and seconds for all of them if each worker has the rate of one with the plan's middle batch."""
    items = calibration_items(recipe, prepared.splits.values())
    lengths = scorer.lengths(items)
    tokens: dict[str, int] = {}
    for item, length in zip(items, lengths, strict=True):
        tokens[item.record.source] = tokens.get(item.record.source, 0) + length
    batches = scorer.batches(items)
    probe = batches[len(batches) // 2]
    started = time.perf_counter()
    measure_all(scorer, [items[i] for i in probe])
    elapsed = time.perf_counter() - started
    return tokens, elapsed * sum(lengths) / sum(lengths[i] for i in probe) / min(recipe.scorers, len(batches))
