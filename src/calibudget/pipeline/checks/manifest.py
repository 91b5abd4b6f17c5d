"""Manifest, allocation and rounds: does each follow from the files beside it?

The manifest must say what the other files say and bind them. The quotas must follow from recipe, pools and statistics.
The splits must keep clear of what earlier rounds used.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict

from calibudget.allocation.check import check_plan
from calibudget.errors import InputError
from calibudget.pipeline.allocate import plan_recipe, read_plan
from calibudget.pipeline.checks.findings import Findings, RunFiles, equal
from calibudget.pipeline.checks.train import TrainIds
from calibudget.pipeline.pools import Pools
from calibudget.pipeline.prepare import reused_calibration
from calibudget.pipeline.round_ledger import ROUNDS, Ledger
from calibudget.pipeline.run_manifest import (
    Outcome,
    allocation_evidence,
    seeds_of,
    selection_evidence,
    source_evidence,
    token_evidence,
)
from calibudget.pipeline.training_encoding import counted_by, is_earlier, taught
from calibudget.recipe.schema import Recipe
from calibudget.records import AllocationPlan, Exponents, Statistics
from calibudget.selection.draw import marked
from calibudget.sources.spec import SourceSpec
from calibudget.store.artefacts import ALLOCATION, ids_sha256, quotas_sha256, stated_quotas_sha256
from calibudget.store.checksums import file_digest
from calibudget.store.files import confined
from calibudget.store.manifest import MANIFEST, CompanionEvidence, Manifest, SourceEvidence
from calibudget.store.splits import SPLITS_NAME, SplitIds
from calibudget.tasks.answers import EARLIER_PARSERS, PARSER_VERSION


def check_bindings(findings: Findings, manifest: Manifest, names: Iterable[str]) -> None:
    """Compare the artefacts' lengths and digests with those that the manifest binds."""
    for name in sorted(set(names) - set(manifest.artefacts)):
        findings.add(MANIFEST.name, f"artefacts.{name}", "its bytes and digest", "nothing")
    for name, bound in manifest.artefacts.items():
        try:
            found = file_digest(confined(findings.directory, name))
        except InputError as error:
            findings.add(name, "", "the file that the manifest binds", str(error))
            continue
        findings.compare(name, asdict(bound), asdict(found))
    findings.checked.append("manifest: its self digest, and the length and digest of every artefact")


def check_manifest(
    findings: Findings, files: RunFiles, manifest: Manifest, outcome: Outcome, train: TrainIds | None
) -> None:
    """Compare every field of the manifest that follows from the other files."""
    recipe, found = files.recipe, MANIFEST.to_json(manifest)
    for section, expected in _sections(files, manifest, outcome).items():
        findings.compare(MANIFEST.name, expected, found[section], field=section)
    counter = {name: value for name, value in (manifest.token_counter or {}).items() if name != "tokenizer_sha256"}
    findings.compare(MANIFEST.name, counted_by(recipe) or {}, counter, field="token_counter")
    if not is_earlier(manifest):
        end = (manifest.train_set or {}).get("end")
        told = taught(recipe, end if isinstance(end, str) else None)
        findings.compare(MANIFEST.name, told, manifest.train_set, field="train_set")
    if files.splits is not None:
        findings.compare(MANIFEST.name, sorted(files.splits.sources), sorted(manifest.sources), field="sources")
    wanted = "an allocation of these pools"
    tokens = findings.derive(ALLOCATION.name, wanted, lambda: token_evidence(outcome))
    for label, expected in source_evidence(outcome, manifest.sources).items():
        if tokens is not None:
            expected["tokens"] = asdict(tokens[label]) if label in tokens else None
        row = manifest.sources[label]
        stated = asdict(row)
        findings.compare(MANIFEST.name, expected, {name: stated[name] for name in expected}, field=f"sources.{label}")
        _check_counts(findings, recipe, label, row)
    _check_companion(findings, recipe, manifest.companion, train)
    findings.checked.append("manifest: recipe, seeds, counts, statistics, quotas and digests")


def _sections(files: RunFiles, manifest: Manifest, outcome: Outcome) -> dict[str, object]:
    """The sections of the manifest that follow as a whole."""
    scored = outcome.scored
    sections: dict[str, object] = {
        "recipe": {name: value for name, value in files.fields.items() if name != "data_dir"},
        "seeds": asdict(seeds_of(files.recipe)),
    }
    if scored is not None or not files.is_scored:
        sections["scorer"] = None if scored is None else scored.provenance
        parser = manifest.parser if manifest.parser in EARLIER_PARSERS else PARSER_VERSION
        sections["parser"] = None if scored is None else parser
    if outcome.plan is not None:
        own = asdict(allocation_evidence(outcome.plan, given=files.is_given))
        if manifest.allocation.quotas_sha256 is None:  # a run of an earlier version
            del own["quotas_sha256"]
        sections["allocation"] = own
    if outcome.selection is not None:
        drawn = asdict(selection_evidence(outcome.selection))
        sections["selection"] = {name: value for name, value in drawn.items() if value is not None}
    return sections


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
            MANIFEST.name, f"sources.{label}.spent", "a count in a later round, and only there", str(row.spent)
        )
    findings.compare(MANIFEST.name, accounted, row.read, field=f"sources.{label}.read")
    _check_left_out(findings, recipe, spec, row, f"sources.{label}")


def _check_left_out(
    findings: Findings, recipe: Recipe, spec: SourceSpec, row: SourceEvidence | CompanionEvidence, place: str
) -> None:
    """Rows leave a set only in ways that the recipe opens."""
    skips = spec.on_error == "skip" or recipe.skips_beyond is not None
    ways = {"skipped": skips, "filtered": bool(spec.where), "duplicates": spec.duplicates != "refuse"}
    for name, is_open in ways.items():
        if not is_open:
            findings.compare(MANIFEST.name, 0, getattr(row, name) or 0, field=f"{place}.{name}")


def _check_companion(findings: Findings, recipe: Recipe, row: CompanionEvidence | None, train: TrainIds | None) -> None:
    spec = recipe.companion_spec
    if spec is None or row is None:
        findings.compare(MANIFEST.name, spec is not None, row is not None, field="companion")
        return
    if row.filtered is not None:  # `read` counts what `where` left out
        accounted = row.filtered + row.skipped + (row.duplicates if spec.duplicates == "drop" else 0) + row.count
        findings.compare(MANIFEST.name, accounted, row.read, field="companion.read")
    _check_left_out(findings, recipe, spec, row, "companion")
    if train is not None:
        ids = sorted(train.companion)
        expected = {"count": len(ids), "record_ids_sha256": ids_sha256(ids)}
        found = {name: getattr(row, name) for name in expected}
        findings.compare(MANIFEST.name, expected, found, field="companion")


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
        ALLOCATION.name,
        "an allocation that recipe, pools and statistics allow",
        lambda: plan_recipe(recipe, pools, statistics),
    )
    stored = _consistent_plan(findings)
    if stored is None or plan is None:
        return plan
    same = equal if recipe.exponents == Exponents() else _nearly_equal
    agree = findings.compare(ALLOCATION.name, ALLOCATION.to_json(plan), ALLOCATION.to_json(stored), same=same)
    findings.checked.append("allocation: need, availability, reliability, utilities, shares, quotas and intervals")
    return stored if agree else plan


def given_plan(findings: Findings, pools: Pools) -> AllocationPlan | None:
    """The `allocation.json` that was handed in, its numbers and its pool sizes checked; None where it can't be read."""
    stored = _consistent_plan(findings)
    if stored is not None:
        findings.derive(ALLOCATION.name, "an allocation of these pools", lambda: pools.of_plan(stored))
        findings.checked.append("allocation: given; its numbers follow from one another and fit the pools")
    return stored


def _consistent_plan(findings: Findings) -> AllocationPlan | None:
    stored = findings.read(ALLOCATION.name, read_plan)
    if stored is None:
        return None
    for finding in check_plan(stored):
        findings.add(ALLOCATION.name, "", "numbers that follow from one another", finding)
    stated = findings.read(ALLOCATION.name, stated_quotas_sha256)
    if stated is not None:
        findings.compare(ALLOCATION.name, quotas_sha256(stored.quotas), stated, field="quotas_sha256")
    return stored


def _nearly_equal(expected: object, found: object) -> bool:
    if isinstance(expected, float) and isinstance(found, float):
        return math.isclose(expected, found, rel_tol=_PLATFORM_TOLERANCE)
    return equal(expected, found)


def check_ledger(findings: Findings, recipe: Recipe, ledger: Ledger, splits: SplitIds) -> None:
    """Compare the splits with what the ledger says was trained on and held out."""
    for each in ledger.rounds:
        name = f"of round {each.manifest_sha256[:12]}"
        findings.compare(ROUNDS.name, recipe.unit, each.unit, field=f"unit {name}")
        for label, used in each.sources.items() if each.unit == "examples" else ():
            findings.compare(ROUNDS.name, len(used.record_ids), used.units, field=f"units of {label!r} {name}")
    if not ledger.rounds:
        findings.add(ROUNDS.name, "rounds", "at least one earlier round", "none")
    for label, ids in splits.sources.items():
        spent = ledger.spent(label)
        field = f"source {label}"
        used_up = spent & {marked(one, recipe.max_repeats) for one in ids.candidates}
        _check_apart(findings, field, "no example that an earlier round used up", used_up)
        _check_apart(findings, field, "no calibration record that was trained on", spent & set(ids.calibration))
        held_out = ledger.held_out(label) & set(ids.candidates)
        _check_apart(findings, field, "no candidate that an earlier round held out", held_out)
        reused = reused_calibration(recipe, ledger, label)
        expected, found = (
            (sorted(reused), sorted(ids.calibration)) if reused else (recipe.calibration_size, len(ids.calibration))
        )
        findings.compare(SPLITS_NAME, expected, found, field=f"{field}: calibration records")
    findings.checked.append("rounds: nothing is drawn or calibrates that an earlier round used")


def _check_apart(findings: Findings, field: str, expected: str, shared: Iterable[str]) -> None:
    for record_id in sorted(shared)[:1]:
        findings.add(SPLITS_NAME, field, expected, record_id)
