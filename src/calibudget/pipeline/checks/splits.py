"""Do the splits follow from the recipe, and are the scores those of the calibration splits?

Is the selector of the evidence the one that the recipe names, and does it know only the pool's candidates?
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from calibudget.keys import order_keys
from calibudget.messages import counted
from calibudget.pipeline.checks.findings import Findings
from calibudget.pipeline.prepare import Prepared
from calibudget.pipeline.run_selector import RecipeSelector, joined, read_parts, recipe_parameters, selector_parts
from calibudget.recipe.schema import Recipe
from calibudget.selection.proxy import proxy_pool
from calibudget.selection.selectors import Scored
from calibudget.sources.spec import SourceSpec
from calibudget.store.scores import SCORES_NAME, ScoreFile
from calibudget.store.selector_scores import SELECTOR_NAME
from calibudget.store.splits import SPLITS_NAME, SourceIds, SplitIds

#: What `duplicates: keep` appends to the id of a record's copies.
COPY_MARK: Final = re.compile(r"#[1-9][0-9]*$")


def check_splits(findings: Findings, recipe: Recipe, splits: SplitIds) -> None:
    """Compare seeds, sources, split sizes, and that nothing in a pool should have calibrated instead."""
    given = {"split_seed": splits.split_seed, "selection_seed": splits.selection_seed}
    seeds = {"split_seed": recipe.split_seed, "selection_seed": recipe.selection_seed}
    findings.compare(SPLITS_NAME, seeds, given)
    specs = recipe.specs
    if not findings.compare(SPLITS_NAME, sorted(specs), sorted(splits.sources), field="source"):
        return
    for label, ids in splits.sources.items():
        # A later round may use an earlier one's split again; `check_ledger` compares it.
        if recipe.rounds is None:
            own, place = len(ids.calibration), f"source {label}: calibration records"
            findings.compare(SPLITS_NAME, recipe.calibration_size, own, field=place)
            _check_boundary(findings, specs[label], splits.split_seed, ids, "calibration")
        own = len(ids.evaluation)
        findings.compare(SPLITS_NAME, recipe.evaluation_size, own, field=f"source {label}: evaluation records")
        _check_boundary(findings, specs[label], splits.split_seed, ids, "evaluation")
        _check_counted(findings, recipe, specs[label], ids)
    _check_held_out(findings, specs, splits)
    findings.checked.append("splits: keys, roles, and that the calibration split comes first under its key")
    if recipe.evaluation_size:
        findings.checked.append(
            "splits: that the evaluation split comes first under its key, and no source draws of it"
        )


def check_scored_records(findings: Findings, recipe: Recipe, splits: SplitIds, scored: ScoreFile) -> None:
    """Compare the error rule, and the scored records with the calibration splits."""
    findings.compare(SCORES_NAME, recipe.error, scored.error, field="error rule")
    wanted = {(label, record_id) for label, ids in splits.sources.items() for record_id in ids.calibration}
    given = {(score.source, score.record_id) for score in scored.scores}
    for label, record_id in sorted(wanted - given)[:1]:
        found = f"{len(wanted - given)} of them missing"
        findings.add(SCORES_NAME, f"source {label}: {record_id}", "a score of every calibration record", found)
    for label, record_id in sorted(given - wanted)[:1]:
        found = counted(len(given - wanted), "other")
        findings.add(SCORES_NAME, f"source {label}: {record_id}", "scores of calibration records only", found)
    findings.checked.append("scores: one for each calibration record, errors by the rule")


def _check_counted(findings: Findings, recipe: Recipe, spec: SourceSpec, ids: SourceIds) -> None:
    """Tokens are counted of every record under a token budget (`on_error: skip` may lack some), and else of none."""
    records = len(ids.calibration) + len(ids.candidates)
    field = f"source {spec.label}: records with counted tokens"
    if recipe.unit == "examples":
        findings.compare(SPLITS_NAME, 0, len(ids.tokens), field=field)
    elif spec.on_error == "refuse":
        findings.compare(SPLITS_NAME, records, len(ids.tokens), field=field)


def _check_boundary(
    findings: Findings,
    spec: SourceSpec,
    split_seed: int,
    ids: SourceIds,
    role: Literal["calibration", "evaluation"],
) -> None:
    """No candidate precedes the last held-out record under the key of its role; kept copies can't be held out."""
    held_out: Sequence[str] = getattr(ids, role)
    if not held_out:
        return
    key = order_keys(role, split_seed, spec.label)
    last = key(held_out[-1])
    for record_id in ids.candidates:
        is_copy = spec.duplicates == "keep" and COPY_MARK.search(record_id)
        if not is_copy and key(record_id) < last:
            field = f"source {spec.label}: {record_id}"
            article = "an" if role == "evaluation" else "a"
            findings.add(SPLITS_NAME, field, f"{article} {role} record, by its key", "a candidate")
            return


def _check_held_out(findings: Findings, specs: Mapping[str, SourceSpec], splits: SplitIds) -> None:
    """No source has a candidate that another evaluates, as far as their ids follow from their texts."""
    derived = {label: ids for label, ids in splits.sources.items() if specs[label].id_field is None}
    evaluated = {one: label for label, ids in derived.items() for one in ids.evaluation}
    for label, ids in derived.items() if evaluated else ():
        for record_id in ids.candidates:
            if record_id in evaluated:
                field = f"source {label}: {record_id}"
                findings.add(SPLITS_NAME, field, f"a record that {evaluated[record_id]} evaluates", "a candidate")
                break


def derive_selector(findings: Findings, recipe: Recipe, splits: SplitIds) -> RecipeSelector | None:
    """The selector from recipe and `selector.parquet`, parameters and candidates compared; None where it can't be."""
    if not recipe.selector.given:
        return joined(recipe, {})
    parts = findings.read(SELECTOR_NAME, read_parts)
    if parts is None:
        return None
    if not findings.compare(SELECTOR_NAME, sorted(recipe.selector.given), sorted(parts), field="selectors"):
        return None
    for name, expected in recipe_parameters(recipe).items():
        own = {key: parts[name].parameters.get(key) for key in expected}
        findings.compare(SELECTOR_NAME, expected, own, field=f"{name}: parameters")
        _check_candidates(findings, parts[name], splits)
    if "influence" in parts:
        pool = proxy_pool({label: ids.candidates for label, ids in splits.sources.items()})
        found = parts["influence"].parameters.get("pool_sha256")
        findings.compare(SELECTOR_NAME, pool.sha256, found, field="influence: pool_sha256")
    findings.checked.append("selector: its parameters by the recipe, and that it scores candidates only")
    return joined(recipe, parts)


def check_selector_sources(findings: Findings, recipe: Recipe, prepared: Prepared) -> None:
    """Make again what a selector took from the data alone: a column, or a band of lengths."""
    quality, scores = recipe.selector.quality, recipe.selector.scores
    from_data = {
        "quality": quality is not None,
        "scores": scores is not None and scores.column is not None,
    }
    names = [name for name, derivable in from_data.items() if derivable]
    if not names:
        return
    stored = findings.read(SELECTOR_NAME, read_parts) or {}
    made = (
        findings.derive(SELECTOR_NAME, "data that can be selected by", lambda: selector_parts(recipe, prepared, names))
        or {}
    )
    for name in sorted({*made} & {*stored}):
        findings.compare(SELECTOR_NAME, made[name].scores, stored[name].scores, field=f"{name}: scores")
    findings.checked.append(f"selector: {' and '.join(names)}, from the sources again")


def _check_candidates(findings: Findings, part: Scored, splits: SplitIds) -> None:
    """Nothing but candidates of the pool is scored."""
    for source, scores in part.scores.items():
        known = set(splits.sources[source].candidates) if source in splits.sources else set()
        strays = sorted(set(scores) - known)
        if strays:
            findings.add(SELECTOR_NAME, f"{part.name}: {source}", "scores of candidates", f"{len(strays)}: {strays[0]}")
