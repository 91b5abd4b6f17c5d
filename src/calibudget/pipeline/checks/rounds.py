"""Do the splits keep clear of what earlier rounds used, and is the ledger that of their directories?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from calibudget.pipeline.checks.findings import Findings
from calibudget.pipeline.parting import reused_calibration
from calibudget.recipe import Recipe
from calibudget.selection import marked
from calibudget.store import ROUNDS_NAME, SPLITS_NAME, Ledger, SourceIds, SplitIds, ledger_to_json


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


def check_previous(findings: Findings, ledger: Ledger, previous: Ledger) -> None:
    """Compare the ledger with the one that the earlier rounds' directories give."""
    findings.compare(ROUNDS_NAME, ledger_to_json(previous), ledger_to_json(ledger))
    findings.checked.append("rounds: the ledger, from the directories of the earlier rounds")


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
