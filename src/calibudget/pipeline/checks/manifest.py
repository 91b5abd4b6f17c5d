"""Manifest, allocation and rounds: does each follow from the files beside it?

The manifest must say what the other files say and bind them. The quotas must follow from recipe, pools and statistics.
The splits must keep clear of what earlier rounds used.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from calibudget.allocation.check import check_plan
from calibudget.errors import InputError
from calibudget.pipeline.allocate import plan_recipe, read_plan
from calibudget.pipeline.checks.findings import Findings, equal
from calibudget.pipeline.checks.train import TrainIds
from calibudget.pipeline.pools import Pools
from calibudget.pipeline.prepare import reused_calibration
from calibudget.pipeline.rendered_texts import is_earlier, taught
from calibudget.pipeline.round_ledger import ROUNDS_NAME, Ledger
from calibudget.pipeline.run_manifest import (
    allocation_evidence,
    quota_evidence,
    seeds_of,
    selection_evidence,
    splits_evidence,
    token_evidence,
)
from calibudget.pipeline.training_tokens import counted_by
from calibudget.recipe.schema import Recipe
from calibudget.records import AllocationPlan, Exponents, Selection, Statistics
from calibudget.selection.draw import marked
from calibudget.sources.spec import SourceSpec
from calibudget.store.artefacts import (
    ALLOCATION,
    ALLOCATION_NAME,
    digest_selection,
    ids_sha256,
    quotas_sha256,
    stated_quotas_sha256,
)
from calibudget.store.checksums import file_digest
from calibudget.store.files import confined
from calibudget.store.manifest import (
    MANIFEST,
    MANIFEST_NAME,
    CompanionEvidence,
    Manifest,
    SourceEvidence,
    TokenEvidence,
)
from calibudget.store.scores import ScoreFile, scores_sha256
from calibudget.store.splits import SPLITS_NAME, SourceIds, SplitIds
from calibudget.tasks.answers import EARLIER_PARSERS, PARSER_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """What a verification re-derived; None where something before it couldn't be."""

    recipe: Recipe
    recipe_fields: Mapping[str, object]
    splits: SplitIds | None
    pools: Pools | None
    scored: ScoreFile | None
    statistics: Statistics | None
    plan: AllocationPlan | None
    selection: Selection | None
    train: TrainIds | None


def check_bindings(findings: Findings, manifest: Manifest, names: Iterable[str]) -> None:
    """Compare the artefacts' lengths and digests with those that the manifest binds."""
    for name in sorted(set(names) - set(manifest.artefacts)):
        findings.add(MANIFEST_NAME, f"artefacts.{name}", "its bytes and digest", "nothing")
    for name, bound in manifest.artefacts.items():
        try:
            found = file_digest(confined(findings.directory, name))
        except InputError as error:
            findings.add(name, "", "the file that the manifest binds", str(error))
            continue
        findings.compare(name, asdict(bound), asdict(found))
    findings.checked.append("manifest: its self digest, and the length and digest of every artefact")


def check_manifest(findings: Findings, manifest: Manifest, derived: Derived) -> None:
    """Compare every field of the manifest that follows from the other files."""
    found = MANIFEST.to_json(manifest)
    for section, expected in _sections(derived, manifest).items():
        findings.compare(MANIFEST_NAME, expected, found[section], field=section)
    counter = {name: value for name, value in (manifest.token_counter or {}).items() if name != "tokenizer_sha256"}
    findings.compare(MANIFEST_NAME, counted_by(derived.recipe) or {}, counter, field="token_counter")
    if not is_earlier(manifest):
        end = (manifest.train_set or {}).get("end")
        told = taught(derived.recipe, end if isinstance(end, str) else None)
        findings.compare(MANIFEST_NAME, told, manifest.train_set, field="train_set")
    if derived.splits is not None:
        findings.compare(MANIFEST_NAME, sorted(derived.splits.sources), sorted(manifest.sources), field="sources")
    tokens = _tokens(findings, derived)
    for label, row in manifest.sources.items():
        expected = _source(derived, label)
        if tokens is not None:
            expected["tokens"] = asdict(tokens[label]) if label in tokens else None
        stated = asdict(row)
        findings.compare(MANIFEST_NAME, expected, {name: stated[name] for name in expected}, field=f"sources.{label}")
        _check_counts(findings, derived.recipe, label, row)
    _check_companion(findings, manifest, derived)
    findings.checked.append("manifest: recipe, seeds, counts, statistics, quotas and digests")


def _sections(derived: Derived, manifest: Manifest) -> dict[str, object]:
    """The sections of the manifest that follow as a whole."""
    recipe, is_given = derived.recipe, manifest.allocation.given
    sections: dict[str, object] = {
        "recipe": {name: value for name, value in derived.recipe_fields.items() if name != "data_dir"},
        "seeds": asdict(seeds_of(recipe)),
    }
    if derived.scored is not None or recipe.calibration == "none" or is_given:
        sections["scorer"] = None if derived.scored is None else derived.scored.provenance
        parser = manifest.parser if manifest.parser in EARLIER_PARSERS else PARSER_VERSION
        sections["parser"] = None if derived.scored is None else parser
    if derived.plan is not None:
        own = asdict(allocation_evidence(derived.plan, given=is_given))
        if manifest.allocation.quotas_sha256 is None:  # a run of an earlier version
            del own["quotas_sha256"]
        sections["allocation"] = own
    if derived.selection is not None:
        drawn = asdict(selection_evidence(digest_selection(derived.selection)))
        sections["selection"] = {name: value for name, value in drawn.items() if value is not None}
    return sections


def _source(derived: Derived, label: str) -> dict[str, Any]:
    """The fields of one source's evidence that follow from the other files."""
    fields: dict[str, Any] = {}
    if derived.splits is not None and label in derived.splits.sources:
        fields |= splits_evidence(derived.splits.sources[label])
    if derived.scored is not None:
        own = [score for score in derived.scored.scores if score.source == label]
        fields["scores_sha256"] = scores_sha256(own)
    if derived.statistics is not None and label in derived.statistics.sources:
        fields["bootstrap_sd"] = derived.statistics.sources[label].bootstrap_sd
    if derived.plan is not None and label in derived.plan.sources:
        fields |= quota_evidence(derived.plan.sources[label])
    if derived.selection is not None and label in derived.selection.picks:
        fields["record_ids_sha256"] = ids_sha256(derived.selection.picks[label])
    return fields


def _tokens(findings: Findings, derived: Derived) -> dict[str, TokenEvidence] | None:
    """What each source brought to a token budget; None where that can't be derived."""
    splits, pools, plan, selection = derived.splits, derived.pools, derived.plan, derived.selection
    if splits is None or pools is None or plan is None or selection is None:
        return None
    return findings.derive(
        ALLOCATION_NAME,
        "an allocation of these pools",
        lambda: token_evidence(pools, splits.pool_sizes, plan, digest_selection(selection)),
    )


def _check_counts(findings: Findings, recipe: Recipe, label: str, row: SourceEvidence) -> None:
    """Every record is somewhere: skipped, dropped, held out, in the pool, or out of it (a twin, spent)."""
    if label not in recipe.specs:
        return
    spec = recipe.specs[label]
    dropped = row.duplicates if spec.duplicates == "drop" else 0
    accounted = row.skipped + dropped + row.calibration_size + row.shared_prompts + row.pool_size
    accounted += (row.spent or 0) + (row.barred or 0) + (row.evaluation_size or 0) + (row.evaluation_twins or 0)
    if (recipe.rounds is None) != (row.spent is None):
        findings.add(
            MANIFEST_NAME, f"sources.{label}.spent", "a count in a later round, and only there", str(row.spent)
        )
    findings.compare(MANIFEST_NAME, accounted, row.read, field=f"sources.{label}.read")
    _check_left_out(findings, recipe, spec, row, f"sources.{label}")


def _check_left_out(
    findings: Findings, recipe: Recipe, spec: SourceSpec, row: SourceEvidence | CompanionEvidence, place: str
) -> None:
    """Rows leave a set only in ways that the recipe opens."""
    skips = spec.on_error == "skip" or recipe.skips_beyond is not None
    ways = {"skipped": skips, "filtered": bool(spec.where), "duplicates": spec.duplicates != "refuse"}
    for name, is_open in ways.items():
        if not is_open:
            findings.compare(MANIFEST_NAME, 0, getattr(row, name) or 0, field=f"{place}.{name}")


def _check_companion(findings: Findings, manifest: Manifest, derived: Derived) -> None:
    spec, row = derived.recipe.companion_spec, manifest.companion
    if spec is None or row is None:
        findings.compare(MANIFEST_NAME, spec is not None, row is not None, field="companion")
        return
    if row.filtered is not None:  # `read` counts what `where` left out
        accounted = row.filtered + row.skipped + (row.duplicates if spec.duplicates == "drop" else 0) + row.count
        findings.compare(MANIFEST_NAME, accounted, row.read, field="companion.read")
    _check_left_out(findings, derived.recipe, spec, row, "companion")
    if derived.train is not None:
        ids = sorted(derived.train.companion)
        expected = {"count": len(ids), "record_ids_sha256": ids_sha256(ids)}
        found = {name: getattr(row, name) for name in expected}
        findings.compare(MANIFEST_NAME, expected, found, field="companion")


#: Powers other than square roots may differ by an ulp between platforms, and so may what is made of them.
_PLATFORM_TOLERANCE = 1e-12


def derive_plan(
    findings: Findings,
    recipe: Recipe,
    pools: Pools,
    statistics: Statistics | None,
) -> AllocationPlan | None:
    """The plan as it follows from its inputs, compared with `allocation.json`; None where it can't be made.

    Where only a platform's rounding of powers parts the two, the stored plan is returned: its quotas are exact in
    its own utilities.
    """
    plan = findings.derive(
        ALLOCATION_NAME,
        "an allocation that recipe, pools and statistics allow",
        lambda: plan_recipe(recipe, pools, statistics),
    )
    stored = _consistent_plan(findings)
    if stored is None or plan is None:
        return plan
    same = equal if recipe.exponents == Exponents() else _nearly_equal
    agree = findings.compare(ALLOCATION_NAME, ALLOCATION.to_json(plan), ALLOCATION.to_json(stored), same=same)
    findings.checked.append("allocation: need, availability, reliability, utilities, shares, quotas and intervals")
    return stored if agree else plan


def given_plan(findings: Findings, pools: Pools) -> AllocationPlan | None:
    """The `allocation.json` that was handed in, its numbers and its pool sizes checked; None where it can't be read."""
    stored = _consistent_plan(findings)
    if stored is not None:
        findings.derive(ALLOCATION_NAME, "an allocation of these pools", lambda: pools.of_plan(stored))
        findings.checked.append("allocation: given; its numbers follow from one another and fit the pools")
    return stored


def _consistent_plan(findings: Findings) -> AllocationPlan | None:
    stored = findings.read(ALLOCATION_NAME, read_plan)
    if stored is None:
        return None
    for finding in check_plan(stored):
        findings.add(ALLOCATION_NAME, "", "numbers that follow from one another", finding)
    stated = findings.read(ALLOCATION_NAME, stated_quotas_sha256)
    if stated is not None:
        findings.compare(ALLOCATION_NAME, quotas_sha256(stored.quotas), stated, field="quotas_sha256")
    return stored


def _nearly_equal(expected: object, found: object) -> bool:
    if isinstance(expected, float) and isinstance(found, float):
        return math.isclose(expected, found, rel_tol=_PLATFORM_TOLERANCE)
    return equal(expected, found)


def check_ledger(findings: Findings, recipe: Recipe, ledger: Ledger, splits: SplitIds) -> None:
    """Compare the splits with what the ledger says was trained on and held out."""
    for each in ledger.rounds:
        name = f"of round {each.manifest_sha256[:12]}"
        findings.compare(ROUNDS_NAME, recipe.unit, each.unit, field=f"unit {name}")
        for label, used in each.sources.items() if each.unit == "examples" else ():
            findings.compare(ROUNDS_NAME, len(used.record_ids), used.units, field=f"units of {label!r} {name}")
    if not ledger.rounds:
        findings.add(ROUNDS_NAME, "rounds", "at least one earlier round", "none")
    for label, ids in splits.sources.items():
        spent = ledger.spent(label)
        field = f"source {label}"
        used_up = spent & {marked(one, recipe.max_repeats) for one in ids.candidates}
        _check_apart(findings, field, "no example that an earlier round used up", used_up)
        _check_apart(findings, field, "no calibration record that was trained on", spent & set(ids.calibration))
        held_out = ledger.held_out(label) & set(ids.candidates)
        _check_apart(findings, field, "no candidate that an earlier round held out", held_out)
        _check_calibration(findings, recipe, ids, reused_calibration(recipe, ledger, label), field)
    findings.checked.append("rounds: nothing is drawn or calibrates that an earlier round used")


def _check_calibration(findings: Findings, recipe: Recipe, ids: SourceIds, reused: Sequence[str], field: str) -> None:
    """The calibration records are those used again, or as many new ones as the recipe says."""
    place = f"{field}: calibration records"
    if reused:
        findings.compare(SPLITS_NAME, sorted(reused), sorted(ids.calibration), field=place)
    else:
        size = 0 if recipe.calibration == "none" else recipe.calibration.per_source
        findings.compare(SPLITS_NAME, size, len(ids.calibration), field=place)


def _check_apart(findings: Findings, field: str, expected: str, shared: Iterable[str]) -> None:
    for record_id in sorted(shared)[:1]:
        findings.add(SPLITS_NAME, field, expected, record_id)
