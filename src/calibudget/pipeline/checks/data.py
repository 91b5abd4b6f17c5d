"""With the data at hand: do the splits and the counts follow from the sources' own files?

With the model at hand too: does it say again of some calibration records what the scores say of them?
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final

from calibudget.errors import InputError
from calibudget.keys import order_key
from calibudget.messages import counted
from calibudget.pipeline.calibration import calibration_items, settings_of
from calibudget.pipeline.checks.findings import Findings, RunFiles
from calibudget.pipeline.checks.hygiene import check_hygiene_sources
from calibudget.pipeline.checks.splits import check_selector_sources
from calibudget.pipeline.checks.train import unrepeated_id
from calibudget.pipeline.prepare import Prepared, hygiene_of, prepare, with_tokens
from calibudget.pipeline.run_directory import RECIPE_NAME
from calibudget.pipeline.run_manifest import companion_evidence, read_evidence
from calibudget.pipeline.run_notes import COARSE, TOLERANCE
from calibudget.pipeline.training_encoding import token_counter
from calibudget.recipe.load import load_recipe
from calibudget.recipe.schema import Recipe
from calibudget.records import Record, Score
from calibudget.scoring.batches import measure_all
from calibudget.scoring.scorer import to_scores
from calibudget.scoring.settings import make_scorer
from calibudget.sources.candidates import chosen_records
from calibudget.sources.hygiene.artefact import HYGIENE
from calibudget.store.canonical import plain_json
from calibudget.store.manifest import MANIFEST, CompanionEvidence, Manifest, SourceEvidence
from calibudget.store.scores import SCORES_NAME, ScoreFile, read_scores
from calibudget.store.splits import SPLITS_NAME, SplitIds
from calibudget.store.train_set import read_train

#: The batches are others than the run's: single NLLs may move this many times as far as was measured of them.
_ROOM: Final = 10
#: What manifests of earlier versions don't tell.
_LATER: Final = ("barred", "filtered", "columns_not_used", "evaluation_twins")


def check_sources(findings: Findings, files: RunFiles, data_dir: Path) -> Prepared | None:
    """Read the sources again and compare files, counts, splits, companion and the originals of the train set.

    Returns:
        The sources; None, and a difference, where they can't be read.
    """
    override = f"data_dir={json.dumps(str(data_dir.absolute()), ensure_ascii=False)}"
    recipe = load_recipe(findings.directory / RECIPE_NAME, [override, "cache=false"])  # what was kept proves nothing
    recipe = recipe.model_copy(update={"model": files.recipe.model})  # for tokens to be counted again
    wanted = f"sources that can be read below {data_dir}"
    prepared = findings.derive(RECIPE_NAME, wanted, lambda: prepare(recipe, files.ledger, is_finished=True))
    if prepared is None:
        return None
    if files.manifest is not None:
        _check_evidence(findings, prepared, files.manifest)
    if files.splits is not None:
        _check_ids(findings, prepared, files.splits)
        _check_tokens(findings, recipe, prepared, files.splits)
    check_selector_sources(findings, recipe, prepared)
    if files.manifest is not None and HYGIENE.name in files.manifest.artefacts:
        check_hygiene_sources(findings, hygiene_of(recipe, prepared))
    findings.read(recipe.output.train_name, lambda path: _check_originals(findings, recipe, prepared, path))
    findings.checked.append("sources: files, counts, splits and originals, read again")
    return prepared


def check_rescored(findings: Findings, prepared: Prepared, model: str, sample: int) -> None:
    """Score a sample of the calibration records again and compare NLLs within a tolerance, and answers.

    The sample is the first so many records under a key of their own, over all sources. In another precision than
    float32 an answer may differ where two tokens nearly tie, so there only NLLs are compared; likewise where a server
    scored, whose weights have no digest.

    Raises:
        InputError: the model can't be found, loaded or used.
    """
    scored = findings.read(SCORES_NAME, read_scores)
    if scored is None:
        return
    overrides = ["engine=local", "workers=1", "server={}", f"model={json.dumps(model)}"]
    recipe = load_recipe(findings.directory / RECIPE_NAME, overrides)
    items = calibration_items(recipe, prepared.splits.values())
    items.sort(key=lambda item: order_key("rescoring", 0, item.record.source, item.record.record_id))
    ran = scored.model
    is_plain = "quantised" not in ran  # else the recipe's own dtype, or the model's files, say how
    if recipe.calibration != "none" and is_plain and ran.get("dtype") in ("float32", "bfloat16", "float16"):
        calibration = recipe.calibration.model_copy(update={"dtype": ran["dtype"]})
        recipe = recipe.model_copy(update={"calibration": calibration})
    chosen = items[:sample]
    scorer = make_scorer(settings_of(recipe))
    found = scorer.describe().get("model")
    again = to_scores(chosen, measure_all(scorer, chosen), recipe.error)
    if ran.get("kind") != "server":
        sha256 = found.get("sha256") if isinstance(found, Mapping) else None
        findings.compare(SCORES_NAME, sha256, ran.get("sha256"), field="model.sha256")
    is_exact = ran.get("dtype") == "float32" and is_plain
    tolerance = _ROOM * (TOLERANCE.get(str(ran.get("dtype")), COARSE) if is_plain else COARSE)
    _compare_scores(findings, scored, again, tolerance, with_answers=is_exact)
    findings.checked.append(
        f"scores: {len(again)} calibration records scored again, NLLs within {tolerance:g} nats"
        + ("" if is_exact else "; their answers aren't compared in this precision")
    )


def _compare_scores(
    findings: Findings, scored: ScoreFile, again: Sequence[Score], tolerance: float, *, with_answers: bool
) -> None:
    by_record = {(score.source, score.record_id): score for score in scored.scores}
    for score in again:
        place = f"{score.source}.{score.record_id}"
        own = by_record.get((score.source, score.record_id))
        if own is None:
            findings.add(SCORES_NAME, place, "a score of this calibration record", "none")
            continue
        if not abs(score.nll - own.nll) <= tolerance:
            findings.add(SCORES_NAME, f"{place}.nll", f"{score.nll:.9g} within {tolerance:g}", f"{own.nll:.9g}")
        if with_answers:
            expected, stored = ([one.response_tokens, one.correct, one.prediction] for one in (score, own))
            findings.compare(SCORES_NAME, expected, stored, field=f"{place}.answer")


def _check_evidence(findings: Findings, prepared: Prepared, manifest: Manifest) -> None:
    for label in sorted(prepared.splits.keys() & manifest.sources.keys()):
        _compare(findings, read_evidence(label, prepared), manifest.sources[label], f"sources.{label}")
    read = companion_evidence(prepared)
    if read is not None and manifest.companion is not None:
        made = {one.name: getattr(read, one.name) for one in fields(read)}
        _compare(findings, made, manifest.companion, "companion")


def _compare(
    findings: Findings, made: Mapping[str, Any], stated: SourceEvidence | CompanionEvidence, field: str
) -> None:
    """Compare what the sources show with the manifest; those of earlier versions lack some fields."""
    lacking = {name for name in _LATER if getattr(stated, name, None) is None}
    lacking |= {"files_not_read"} if stated.columns_not_used is None else set()
    expected = {name: value for name, value in made.items() if name not in lacking}
    expected["files"] = [asdict(file) for file in made["files"]]
    found = {name: value for name, value in asdict(stated).items() if name in expected}
    findings.compare(MANIFEST.name, expected, found, field=field)


def _check_ids(findings: Findings, prepared: Prepared, splits: SplitIds) -> None:
    own = prepared.ids
    for label in sorted(own.keys() & splits.sources.keys()):
        for role in ("calibration", "evaluation", "candidates"):
            expected, ids = (getattr(one[label], role) for one in (own, splits.sources))
            if len(expected) != len(ids) or any(one != other for one, other in zip(expected, ids, strict=True)):
                place = f"source {label}: {role}"
                first = next((one for one, other in zip(expected, ids, strict=False) if one != other), "the count")
                findings.add(
                    SPLITS_NAME, place, f"{counted(len(expected), 'record')}, as the files give", f"{len(ids)}: {first}"
                )


def _check_tokens(findings: Findings, recipe: Recipe, prepared: Prepared, splits: SplitIds) -> None:
    """Count the tokens again, if the tokenizer is at hand."""
    if recipe.unit == "examples":
        return
    try:
        counter = token_counter(recipe)
    except InputError as error:
        findings.checked.append(f"tokens: not counted again ({error})")
        return
    again = findings.derive(SPLITS_NAME, "records that can be encoded", lambda: with_tokens(recipe, prepared, counter))
    counted = {} if again is None else again.tokens or {}
    for label, ids in splits.sources.items():
        expected = {one: tuple(count) for one, count in counted.get(label, {}).items()}
        found = {one: tuple(count) for one, count in ids.tokens.items()}
        findings.compare(SPLITS_NAME, expected, found, field=f"source {label}: tokens")
    findings.checked.append("tokens: counted again")


def _check_originals(findings: Findings, recipe: Recipe, prepared: Prepared, path: Path) -> None:
    wanted: dict[str, set[str]] = {}
    for row in read_train(path):
        wanted.setdefault(str(row["source"]), set()).add(unrepeated_id(recipe, row))
    originals = {(record.source, record.record_id): record.original for record in _records(prepared, wanted)}
    for number, row in enumerate(read_train(path), start=1):
        original = originals.get((str(row["source"]), unrepeated_id(recipe, row)))
        if original is not None:
            findings.compare(path.name, plain_json(original), row["original"], field=f"row {number}: original")


def _records(prepared: Prepared, wanted: Mapping[str, Collection[str]]) -> Iterator[Record]:
    for label, split in prepared.splits.items():
        yield from chosen_records(split.candidates, wanted.get(label, ())).values()
    if prepared.companion is not None:
        yield from prepared.companion.records
