"""The manifest of a run: what an independent rerun has to retain (paper, appendix, practical audit checklist)."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from calibudget.hardware import own_version
from calibudget.pipeline.pools import Pools
from calibudget.pipeline.prepare import Prepared
from calibudget.pipeline.round_ledger import ROUNDS
from calibudget.pipeline.run_directory import RECIPE_NAME
from calibudget.pipeline.run_inputs import Run
from calibudget.pipeline.training_encoding import rendering, taught
from calibudget.recipe.load import resolved_fields
from calibudget.recipe.schema import Recipe
from calibudget.records import AllocationPlan, Score, Statistics
from calibudget.sources.duplicates import Resolved
from calibudget.sources.hygiene.artefact import HYGIENE
from calibudget.store.artefacts import ALLOCATION, SELECTION, STATISTICS, SelectionDigest, ids_sha256, quotas_sha256
from calibudget.store.checksums import file_digest
from calibudget.store.manifest import (
    AllocationEvidence,
    CompanionEvidence,
    Manifest,
    Seeds,
    SelectionEvidence,
    SourceEvidence,
    TokenEvidence,
)
from calibudget.store.scores import SCORES_NAME, ScoreFile, scores_sha256
from calibudget.store.selector_scores import SELECTOR_NAME
from calibudget.store.splits import SPLITS_NAME, SourceIds
from calibudget.store.train_set import HELD_OUT_NAME, train_files
from calibudget.tasks.answers import PARSER_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run came to, made or derived again.

    None stands for what the run doesn't have, and in a verification for what couldn't be derived.
    """

    ids: Mapping[str, SourceIds] = field(default_factory=dict)
    pools: Pools | None = None
    scored: ScoreFile | None = None
    statistics: Statistics | None = None
    plan: AllocationPlan | None = None
    selection: SelectionDigest | None = None


def make_manifest(run: Run, outcome: Outcome, directory: Path, *, given: bool = False) -> Manifest:
    """Gather the evidence of a run whose other artefacts are written already; `given` as in `AllocationEvidence`."""
    recipe, prepared, scored = run.recipe, run.prepared, outcome.scored
    assert outcome.plan is not None and outcome.selection is not None  # noqa: S101, PT018 - a run has them by now
    provenance = None if scored is None else dict(scored.provenance or {})
    tokens = token_evidence(outcome) or {}
    unscored = {"scores_sha256": None, "bootstrap_sd": None}
    sources = {
        label: SourceEvidence(**unscored | read_evidence(label, prepared) | own, tokens=tokens.get(label))
        for label, own in source_evidence(outcome, outcome.ids).items()
    }
    names = artefact_names(recipe, is_scored=scored is not None)
    return Manifest(
        versions=_versions(recipe, provenance),
        recipe={name: value for name, value in resolved_fields(recipe).items() if name != "data_dir"},
        seeds=seeds_of(recipe),
        parser=PARSER_VERSION if scored is not None else None,
        scorer=provenance,
        sources=sources,
        companion=companion_evidence(prepared),
        allocation=allocation_evidence(outcome.plan, given=given),
        selection=selection_evidence(outcome.selection),
        artefacts={name: file_digest(directory / name) for name in sorted(names)},
        token_counter=prepared.token_counter,
        train_set=taught(recipe, rendering(recipe).end),
    )


def artefact_names(recipe: Recipe, *, is_scored: bool) -> list[str]:
    """The files of a run that its manifest binds."""
    names = [RECIPE_NAME, SPLITS_NAME, HYGIENE.name, ALLOCATION.name, SELECTION.name]
    names += train_files(recipe.output.train_name)
    names += [HELD_OUT_NAME] if recipe.evaluation_size else []
    names += [SCORES_NAME, STATISTICS.name] if is_scored else []
    names += [ROUNDS.name] if recipe.rounds is not None else []
    return names + ([SELECTOR_NAME] if recipe.selector.given else [])


def seeds_of(recipe: Recipe) -> Seeds:
    """The seeds that splits, statistics and draws follow from."""
    return Seeds(split=recipe.split_seed, bootstrap=recipe.bootstrap_seed, selection=recipe.selection_seed)


def allocation_evidence(plan: AllocationPlan, *, given: bool) -> AllocationEvidence:
    """What the manifest keeps of an allocation; `given` says that it was handed in."""
    return AllocationEvidence(
        policy=plan.policy,
        unit=plan.unit,
        budget=plan.budget,
        floor=plan.floor,
        exponents=plan.exponents,
        residual_budget=plan.residual_budget,
        given=given,
        quotas_sha256=quotas_sha256(plan.quotas),
    )


def selection_evidence(digest: SelectionDigest) -> SelectionEvidence:
    """What the manifest keeps of a selection."""
    return SelectionEvidence(
        selector=digest.selector,
        count=digest.count,
        companion_count=digest.companion_count,
        selected_sha256=digest.selected_sha256,
        details=digest.details,
    )


def source_evidence(outcome: Outcome, labels: Iterable[str]) -> dict[str, dict[str, Any]]:
    """What the manifest keeps of each source's split, scores, quota and picks, by field, as far as they are known.

    None is kept for an evaluation split that there isn't.
    """
    scores: dict[str, list[Score]] = {}
    for score in () if outcome.scored is None else outcome.scored.scores:
        scores.setdefault(score.source, []).append(score)
    found: dict[str, dict[str, Any]] = {label: {} for label in labels}
    for label, fields in found.items():
        if label in outcome.ids:
            ids = outcome.ids[label]
            fields |= {
                "calibration_size": len(ids.calibration),
                "pool_size": len(ids.candidates),
                "calibration_sha256": ids_sha256(ids.calibration),
                "candidates_sha256": ids_sha256(ids.candidates),
                "evaluation_size": len(ids.evaluation) or None,
                "evaluation_sha256": ids_sha256(ids.evaluation) if ids.evaluation else None,
            }
        if outcome.scored is not None:
            fields["scores_sha256"] = scores_sha256(scores.get(label, []))
        if outcome.statistics is not None and label in outcome.statistics.sources:
            fields["bootstrap_sd"] = outcome.statistics.sources[label].bootstrap_sd
        if outcome.plan is not None and label in outcome.plan.sources:
            row = outcome.plan.sources[label]
            fields |= {"need": row.need, "share": row.share, "quota": row.quota}
        if outcome.selection is not None and label in outcome.selection.sources:
            fields["record_ids_sha256"] = outcome.selection.sources[label].record_ids_sha256
    return found


def token_evidence(outcome: Outcome) -> dict[str, TokenEvidence] | None:
    """What each source brought to a token budget, nothing where it counts examples; None where that isn't known."""
    pools, plan, selection = outcome.pools, outcome.plan, outcome.selection
    if pools is None or plan is None or selection is None:
        return None
    if pools.tokens is None:
        return {}
    fitting = pools.of_plan(plan)
    return {
        label: TokenEvidence(
            too_long=len(outcome.ids[label].candidates) - fitting.candidates(label),
            pool=plan.sources[label].pool_size,
            count=selection.sources[label].count or 0,
            taken=selection.sources[label].tokens or 0,
        )
        for label in fitting.queues
    }


def read_evidence(label: str, prepared: Prepared) -> dict[str, Any]:
    """What the manifest keeps of how a source was read and of what left it, by field."""
    split = prepared.splits[label]
    return _scan_evidence(prepared.sources[label]) | {
        "read": split.read,
        "skipped": split.skipped,
        "shared_prompts": split.shared_prompts,
        "spent": None if prepared.ledger is None else split.spent,
        "barred": split.barred,
        "evaluation_twins": split.evaluation_twins if split.evaluation else None,
    }


def _scan_evidence(source: Resolved) -> dict[str, Any]:
    """What the manifest keeps of the pass over a source or the companion set, by field."""
    tally = source.scan.tally
    return {
        "files": source.scan.files,
        "files_not_read": source.scan.files_not_read or None,
        "filtered": tally.filtered,
        "duplicates": source.duplicates,
        "columns_not_used": tuple(tally.columns_not_used),
    }


def companion_evidence(prepared: Prepared) -> CompanionEvidence | None:
    """What the manifest keeps of the companion set; None where there is none."""
    read = prepared.companion
    if read is None:
        return None
    return CompanionEvidence(
        **_scan_evidence(read.source),
        read=read.tally.read,
        skipped=read.tally.skipped,
        count=len(read.records),
        record_ids_sha256=ids_sha256(sorted(record.record_id for record in read.records)),
    )


def _versions(recipe: Recipe, provenance: dict[str, object] | None) -> dict[str, str]:
    used = ("numpy", "pyarrow", *(["datasketch"] if recipe.hygiene.near_duplicates is not None else []))
    own = {name: version(name) for name in used}
    own |= {"calibudget": own_version(), "python": platform.python_version()}
    scorer = (provenance or {}).get("versions", {})
    return own | (dict(scorer) if isinstance(scorer, dict) else {})
