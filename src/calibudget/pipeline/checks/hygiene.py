"""Does `hygiene.json` say what recipe, manifest and splits say; and, with the data at hand, what the sources show?"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace

from calibudget.pipeline.checks.findings import Findings, RunFiles
from calibudget.pipeline.prepare import hygiene_rules
from calibudget.sources.hygiene.artefact import HYGIENE, NAMED_IDS, Checks, Found, Hygiene, SourceHygiene
from calibudget.sources.spec import HygieneRules
from calibudget.store.artefacts import ids_sha256


def has_hygiene(recipe_fields: Mapping[str, object]) -> bool:
    """Whether a run of this resolved recipe reports its hygiene; those of earlier versions didn't."""
    part = recipe_fields.get("hygiene")
    return isinstance(part, Mapping) and "contamination" in part


def check_hygiene(findings: Findings, files: RunFiles) -> Hygiene | None:
    """Compare what follows from the other files, and what the report says of itself."""
    recipe, manifest, splits = files.recipe, files.manifest, files.splits
    hygiene = findings.read(HYGIENE.name, HYGIENE.read)
    if hygiene is None:
        return None
    rules = recipe.hygiene
    findings.compare(HYGIENE.name, hygiene_rules(recipe), hygiene.rules, field="rules")
    findings.compare(HYGIENE.name, list(recipe.specs), list(hygiene.sources), field="sources")
    findings.compare(HYGIENE.name, sorted(recipe.hygiene.evaluation), list(hygiene.evaluation), field="evaluation")
    findings.compare(HYGIENE.name, recipe.companion is not None, hygiene.companion is not None, field="companion")
    for label, row in hygiene.sources.items():
        place = f"sources.{label}"
        _check_self(findings, row, place)
        if manifest is not None and label in manifest.sources:
            names = ("duplicates", "barred", "shared_prompts", "pool_size")
            evidence = {name: getattr(manifest.sources[label], name) for name in names}
            findings.compare(HYGIENE.name, evidence, {name: getattr(row, name) for name in names}, field=place)
        for field, check, one in _checks(row.checks, place):
            _check_found(findings, field, rules, check, one)
            if splits is not None and label in splits.sources and rules.action(check) == "drop":
                ids = splits.sources[label]
                left = {*ids.calibration, *ids.candidates}.intersection(one.record_ids)
                findings.compare(HYGIENE.name, [], sorted(left), field=f"{field}.record_ids")
    for field, check, one in () if hygiene.companion is None else _checks(hygiene.companion.checks, "companion"):
        _check_found(findings, field, rules, check, one)
    findings.checked.append("hygiene: rules, counts, and that what was to leave isn't in the splits")
    return hygiene


def check_hygiene_sources(findings: Findings, again: Hygiene) -> None:
    """Compare the whole report with what the sources show when they are read again."""
    stored = findings.read(HYGIENE.name, HYGIENE.read)
    if stored is not None:
        sets = {
            name: replace(row, columns_not_used=None)
            if name in stored.evaluation and stored.evaluation[name].columns_not_used is None
            else row
            for name, row in again.evaluation.items()
        }  # older reports don't tell them
        companion = again.companion
        if companion is not None and stored.companion is not None and stored.companion.files is None:
            companion = replace(companion, files=None)
        again = replace(again, evaluation=sets, companion=companion)
        expected, found = (json.loads(json.dumps(HYGIENE.to_json(one))) for one in (again, stored))
        findings.compare(HYGIENE.name, expected, found)
        findings.checked.append("hygiene: every count and digest, from the sources and evaluation sets")


def _checks(checks: Checks, place: str) -> Iterator[tuple[str, str, Found]]:
    for check, by_other in checks.items():
        for other, one in by_other.items():
            yield f"{place}.checks.{check}.{other}", check, one


def _check_found(findings: Findings, field: str, rules: HygieneRules, check: str, one: Found) -> None:
    if rules.action(check) not in ("drop", "keep"):  # what is refused leaves no run behind
        findings.add(HYGIENE.name, field, "nothing, since the recipe doesn't look for it or refuses it", "records")
    findings.compare(HYGIENE.name, min(one.records, NAMED_IDS), len(one.record_ids), field=f"{field}.record_ids")
    if one.records == len(one.record_ids):
        digest = ids_sha256(one.record_ids)
        findings.compare(HYGIENE.name, digest, one.record_ids_sha256, field=f"{field}.record_ids_sha256")


def _check_self(findings: Findings, row: SourceHygiene, place: str) -> None:
    """What the fields of one source say of each other."""
    answers = sum(row.answers.values())
    majority = max(row.answers.values()) / answers if answers else None
    findings.compare(HYGIENE.name, majority, row.majority, field=f"{place}.majority")
    for name, count in (("answers", answers), ("repeated_prompts", row.repeated_prompts)):
        if count > row.pool_size:
            findings.add(HYGIENE.name, f"{place}.{name}", f"at most the pool's {row.pool_size}", str(count))
