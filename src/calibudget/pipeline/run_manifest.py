"""The manifest of a run: what an independent rerun has to retain (paper, appendix, practical audit checklist)."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from calibudget.hardware import own_version
from calibudget.pipeline.pools import Pools
from calibudget.pipeline.prepare import Prepared
from calibudget.pipeline.rendered_texts import rendering, taught
from calibudget.pipeline.round_ledger import ROUNDS_NAME
from calibudget.pipeline.run_directory import RECIPE_NAME
from calibudget.pipeline.run_inputs import Run
from calibudget.recipe.load import resolved_fields
from calibudget.recipe.schema import Recipe
from calibudget.records import AllocationPlan, Score, Selection, SourceAllocation, Statistics
from calibudget.sources.duplicates import Resolved
from calibudget.sources.hygiene.artefact import HYGIENE_NAME
from calibudget.store.artefacts import (
    ALLOCATION_NAME,
    SELECTION_NAME,
    STATISTICS_NAME,
    SelectionDigest,
    SourceDigest,
    digest_selection,
    ids_sha256,
    quotas_sha256,
)
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


def make_manifest(
    run: Run,
    made: ScoreFile | None,
    plan: AllocationPlan,
    selection: Selection,
    statistics: Statistics | None,
    directory: Path,
    *,
    allocation_given: bool = False,
) -> Manifest:
    """Gather the evidence of a run whose other artefacts are written already."""
    recipe, prepared = run.recipe, run.prepared
    provenance = None if made is None else dict(made.provenance or {})
    digests = digest_selection(selection)
    names = artefact_names(recipe, is_scored=made is not None)
    scores: dict[str, list[Score]] = {}
    for score in made.scores if made is not None else ():
        scores.setdefault(score.source, []).append(score)
    sources = {
        label: _source(label, ids, prepared, plan, statistics, scores.get(label), digests.sources[label])
        for label, ids in prepared.ids.items()
    }
    for label, tokens in token_evidence(run.pools, prepared.pool_sizes, plan, digests).items():
        sources[label] = replace(sources[label], tokens=tokens)
    return Manifest(
        versions=_versions(recipe, provenance),
        recipe={name: value for name, value in resolved_fields(recipe).items() if name != "data_dir"},
        seeds=seeds_of(recipe),
        parser=PARSER_VERSION if made is not None else None,
        scorer=provenance,
        sources=sources,
        companion=companion_evidence(prepared),
        allocation=allocation_evidence(plan, given=allocation_given),
        selection=selection_evidence(digests),
        artefacts={name: file_digest(directory / name) for name in sorted(names)},
        token_counter=prepared.token_counter,
        train_set=taught(recipe, rendering(recipe).end),
    )


def artefact_names(recipe: Recipe, *, is_scored: bool) -> list[str]:
    """The files of a run that its manifest binds."""
    names = [RECIPE_NAME, SPLITS_NAME, HYGIENE_NAME, ALLOCATION_NAME, SELECTION_NAME]
    names += train_files(recipe.output.train_name)
    names += [HELD_OUT_NAME] if recipe.evaluation_size else []
    names += [SCORES_NAME, STATISTICS_NAME] if is_scored else []
    names += [ROUNDS_NAME] if recipe.rounds is not None else []
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


def splits_evidence(ids: SourceIds) -> dict[str, Any]:
    """What the manifest keeps of a source's split, by field; None for an evaluation split that there isn't."""
    return {
        "calibration_size": len(ids.calibration),
        "pool_size": len(ids.candidates),
        "calibration_sha256": ids_sha256(ids.calibration),
        "candidates_sha256": ids_sha256(ids.candidates),
        "evaluation_size": len(ids.evaluation) or None,
        "evaluation_sha256": ids_sha256(ids.evaluation) if ids.evaluation else None,
    }


def quota_evidence(row: SourceAllocation) -> dict[str, Any]:
    """What the manifest keeps of a source's row of the allocation, by field."""
    return {"need": row.need, "share": row.share, "quota": row.quota}


def token_evidence(
    pools: Pools, candidates: Mapping[str, int], plan: AllocationPlan, digest: SelectionDigest
) -> dict[str, TokenEvidence]:
    """What each source brought to a token budget; empty where the budget counts examples."""
    if pools.tokens is None:
        return {}
    fitting = pools.of_plan(plan)
    return {
        label: TokenEvidence(
            too_long=candidates[label] - fitting.candidates(label),
            pool=plan.sources[label].pool_size,
            count=digest.sources[label].count or 0,
            taken=digest.sources[label].tokens or 0,
        )
        for label in fitting.queues
    }


def _source(
    label: str,
    ids: SourceIds,
    prepared: Prepared,
    plan: AllocationPlan,
    statistics: Statistics | None,
    scores: Sequence[Score] | None,
    digest: SourceDigest,
) -> SourceEvidence:
    return SourceEvidence(
        **read_evidence(label, prepared),
        **splits_evidence(ids),
        **quota_evidence(plan.sources[label]),
        scores_sha256=None if scores is None else scores_sha256(scores),
        bootstrap_sd=None if statistics is None else statistics.sources[label].bootstrap_sd,
        record_ids_sha256=digest.record_ids_sha256,
    )


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
