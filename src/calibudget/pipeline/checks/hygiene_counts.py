"""Do the counts of `hygiene.json` agree with one another, with the manifest and with the train set?

What a directory doesn't fix (how many records of a source repeat a prompt, what an evaluation set holds) is held
within the bounds that the other counts leave; `--data-dir` counts it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations
from typing import NamedTuple

from calibudget.pipeline.checks.findings import Findings
from calibudget.pipeline.checks.train import TrainIds
from calibudget.recipe import COMPANION, Recipe
from calibudget.sources import SourceSpec
from calibudget.store import HYGIENE_NAME, Checks, Hygiene, Manifest, Overlap, SourceEvidence, SourceHygiene


class _Set(NamedTuple):
    """A source, or the companion set.

    Attributes:
        place: where it stands in the report.
        prompts: what it shares.
        checks: what was found in it.
        size: records that `prompts` is said of.
        repeated: how many of those repeat an earlier prompt, at most.
        records: records that `checks` are said of.
        repeats: how many of those repeat an earlier prompt, at most.
        calibrates: whether some of its records calibrate.
        keeps: whether records with an evaluation set's prompt stay in it.
    """

    place: str
    prompts: Overlap
    checks: Checks
    size: int
    repeated: int
    records: int
    repeats: int
    calibrates: bool
    keeps: bool


def check_counts(
    findings: Findings, recipe: Recipe, manifest: Manifest, hygiene: Hygiene, train: TrainIds | None
) -> None:
    """Compare every count with what the others leave for it."""
    rules = recipe.hygiene_rules
    specs = {spec.label: spec for spec in recipe.source_specs()}
    sets: dict[str, _Set] = {}
    for label in sorted(specs.keys() & hygiene.sources.keys() & manifest.sources.keys()):
        row, evidence = hygiene.sources[label], manifest.sources[label]
        dropped = _dropped(specs[label], row.duplicates)
        _check_source(findings, f"sources.{label}", row, evidence, dropped)
        left = [one.records for check, by in row.checks.items() if rules.action(check) == "drop" for one in by.values()]
        _within(findings, f"sources.{label}.barred", max(left, default=0), row.barred, sum(left))
        sets[label] = _Set(
            place=f"sources.{label}",
            prompts=row.prompts,
            checks=row.checks,
            size=row.pool_size,
            repeated=row.repeated_prompts,
            records=row.records,
            repeats=row.repeats - dropped,
            calibrates=evidence.calibration_size > 0,
            keeps=rules.evaluation_prompts != "drop",
        )
    if hygiene.companion is not None and manifest.companion is not None:
        count = manifest.companion.count
        repeats = count if train is None else count - len(train.companion_prompts)
        sets[COMPANION] = _Set(
            place="companion",
            prompts=hygiene.companion.prompts,
            checks=hygiene.companion.checks,
            size=count,
            repeated=repeats,
            records=count,
            repeats=repeats,
            calibrates=False,
            keeps=True,
        )
    for label, other in permutations(sets, 2):
        _check_shared(findings, sets[label], other, _shared(sets[other].prompts, label), sets[other].repeated)
    for label, one in sets.items():
        _check_named(findings, one, {name: each for name, each in sets.items() if name != label})
        _check_evaluation(findings, one, hygiene)
        _check_found(findings, one, hygiene)
    for name, known in hygiene.evaluation.items():
        _within(findings, f"evaluation.{name}.repeated_prompts", 0, known.repeated_prompts, max(known.records - 1, 0))


def _dropped(spec: SourceSpec, duplicates: int) -> int:
    return duplicates if spec.duplicates == "drop" else 0


def _check_source(findings: Findings, place: str, row: SourceHygiene, evidence: SourceEvidence, dropped: int) -> None:
    """The records of a source are somewhere, and each repeats a prompt or brings one that calibrates, waits or left."""
    apart = evidence.calibration_size + row.shared_prompts + row.barred + (evidence.spent or 0)
    findings.compare(HYGIENE_NAME, row.pool_size + apart, row.records, field=f"{place}.records")
    fewest = dropped + row.shared_prompts + row.repeated_prompts
    most = dropped + row.repeated_prompts + apart - (evidence.calibration_size > 0)
    _within(findings, f"{place}.repeats", max(row.duplicates, fewest), row.repeats, most)


def _shared(prompts: Overlap, label: str) -> int:
    return prompts.companion if label == COMPANION else prompts.candidates.get(label, 0)


def _check_shared(findings: Findings, one: _Set, other: str, there: int, repeated: int) -> None:
    """Two sets hold the same prompts in common, whichever is looked at; each may hold one several times."""
    field = f"{one.place}.prompts." + ("companion" if other == COMPANION else f"candidates.{other}")
    most = min(there + one.repeated, one.size) if there else 0
    _within(findings, field, max(1, there - repeated) if there else 0, _shared(one.prompts, other), most)


def _check_named(findings: Findings, one: _Set, others: Mapping[str, _Set]) -> None:
    """Nothing is shared with sets that aren't there."""
    unknown = sorted(one.prompts.candidates.keys() - others.keys())
    findings.compare(HYGIENE_NAME, [], unknown, field=f"{one.place}.prompts.candidates")
    if COMPANION not in others:
        findings.compare(HYGIENE_NAME, 0, one.prompts.companion, field=f"{one.place}.prompts.companion")
    for label, count in one.prompts.calibration.items():
        most = one.size if label in others and others[label].calibrates else 0
        _within(findings, f"{one.place}.prompts.calibration.{label}", 0, count, most)


def _check_evaluation(findings: Findings, one: _Set, hygiene: Hygiene) -> None:
    """What stays with an evaluation set's prompt is what was found, less what left."""
    met = one.checks.get("evaluation_prompts", {})
    for name in sorted({*hygiene.evaluation, *one.prompts.evaluation}):
        found = met[f"evaluation {name}"].records if one.keeps and f"evaluation {name}" in met else 0
        fewest, most = max(0, found - (one.records - one.size)), min(found, one.size)
        _within(findings, f"{one.place}.prompts.evaluation.{name}", fewest, one.prompts.evaluation.get(name, 0), most)


def _check_found(findings: Findings, one: _Set, hygiene: Hygiene) -> None:
    sizes = {
        "evaluation": {name: known.records for name, known in hygiene.evaluation.items()},
        "source": {label: known.records for label, known in hygiene.sources.items()},
    }
    for check, by_other in one.checks.items():
        for other, found in by_other.items():
            place = f"{one.place}.checks.{check}.{other}"
            kind, _, name = other.partition(" ")
            known = sizes.get(kind, {})
            if name not in known:
                findings.add(HYGIENE_NAME, place, "a set of the recipe", repr(other))
                continue
            _within(findings, f"{place}.records", 1, found.records, one.records)
            if check == "contamination":  # one text may meet any number of others
                continue
            # Prompts and texts are counted once each in both sets; records that are nearly alike may meet one other.
            fewest = 1 if check == "near_duplicates" else max(1, found.records - one.repeats)
            _within(findings, f"{place}.others", fewest, found.others, min(found.records, known[name]))


def _within(findings: Findings, field: str, fewest: int, count: int, most: int) -> None:
    if not fewest <= count <= most:
        expected = str(fewest) if fewest == most else f"from {fewest} to {most}, as the other counts allow"
        findings.add(HYGIENE_NAME, field, expected, str(count))
