"""With the data at hand: do the splits and the counts follow from the sources' own files?"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from calibudget.errors import InputError
from calibudget.messages import counted
from calibudget.pipeline.checks.findings import Findings
from calibudget.pipeline.checks.hygiene import check_hygiene_sources
from calibudget.pipeline.checks.splits import check_selector_sources
from calibudget.pipeline.checks.train import unrepeated_id
from calibudget.pipeline.ledger import Ledger
from calibudget.pipeline.prepare import Prepared, hygiene_of, prepare
from calibudget.pipeline.run_directory import RECIPE_NAME
from calibudget.pipeline.tokens import token_counter, with_tokens
from calibudget.recipe import Recipe, load_recipe
from calibudget.records import Record
from calibudget.sources.hygiene.records import HYGIENE_NAME
from calibudget.sources.pool import chosen_records
from calibudget.store.artefacts import ids_sha256
from calibudget.store.canonical import plain_json
from calibudget.store.manifest import MANIFEST_NAME, Manifest
from calibudget.store.splits import SPLITS_NAME, SplitIds
from calibudget.store.train_set import read_train


def check_sources(
    findings: Findings,
    directory: Path,
    data_dir: Path,
    manifest: Manifest | None,
    splits: SplitIds | None,
    ledger: Ledger | None,
    train: str,
    model: str | None,
) -> None:
    """Read the sources again and compare files, counts, splits, companion and the originals of the train set.

    `model` is where the model lies on this machine, for tokens to be counted again.
    """
    override = f"data_dir={json.dumps(str(data_dir.absolute()), ensure_ascii=False)}"
    recipe = load_recipe(directory / RECIPE_NAME, [override, "cache=false"])  # what was kept proves nothing
    recipe = recipe.model_copy(update={"model": model})
    wanted = f"sources that can be read below {data_dir}"
    prepared = findings.derive(RECIPE_NAME, wanted, lambda: prepare(recipe, ledger, is_finished=True))
    if prepared is None:
        return
    if manifest is not None:
        _check_evidence(findings, prepared, manifest)
    if splits is not None:
        _check_ids(findings, prepared, splits)
        _check_tokens(findings, recipe, prepared, splits)
    check_selector_sources(findings, recipe, prepared)
    if manifest is not None and HYGIENE_NAME in manifest.artefacts:
        check_hygiene_sources(findings, hygiene_of(recipe, prepared))
    findings.read(train, lambda path: _check_originals(findings, recipe, prepared, path))
    findings.checked.append("sources: files, counts, splits and originals, read again")


def _check_evidence(findings: Findings, prepared: Prepared, manifest: Manifest) -> None:
    for label, split in prepared.splits.items():
        if label not in manifest.sources:
            continue
        row = manifest.sources[label]
        counts = {name: getattr(split, name) for name in ("read", "duplicates", "skipped", "shared_prompts")}
        expected = counts | {"files": [asdict(file) for file in prepared.files[label]]}
        found = {name: getattr(row, name) for name in counts} | {"files": [asdict(file) for file in row.files]}
        if prepared.ledger is not None:
            expected, found = expected | {"spent": split.spent}, found | {"spent": row.spent}
        for name in ("barred", "filtered", "columns_not_used", "evaluation_twins"):  # older manifests lack some
            if getattr(row, name) is not None:
                expected, found = expected | {name: getattr(split, name)}, found | {name: getattr(row, name)}
        if row.columns_not_used is not None:  # older manifests tell neither
            expected |= {"files_not_read": prepared.files_not_read[label] or None}
            found |= {"files_not_read": row.files_not_read}
        findings.compare(MANIFEST_NAME, expected, found, field=f"sources.{label}")
    read, companion = prepared.companion, manifest.companion
    if read is not None and companion is not None:
        later = [name for name in ("filtered", "columns_not_used") if getattr(companion, name) is not None]
        names = ("read", "duplicates", "skipped", *later)
        counts = {name: getattr(read, name) for name in names}
        ids = sorted(record.record_id for record in read.records)
        expected = counts | {"count": len(ids), "record_ids_sha256": ids_sha256(ids)}
        expected["files"] = [asdict(file) for file in read.files]
        if companion.columns_not_used is not None:
            expected["files_not_read"] = read.files_not_read or None
        found = {name: getattr(companion, name) for name in expected if name != "files"}
        found["files"] = [asdict(file) for file in companion.files]
        findings.compare(MANIFEST_NAME, expected, found, field="companion")


def _check_ids(findings: Findings, prepared: Prepared, splits: SplitIds) -> None:
    for label, split in prepared.splits.items():
        if label not in splits.sources:
            continue
        found = splits.sources[label]
        for role, expected, ids in (
            ("calibration", tuple(record.record_id for record in split.calibration), found.calibration),
            ("evaluation", tuple(record.record_id for record in split.evaluation), found.evaluation),
            ("candidates", split.candidate_ids, found.candidates),
        ):
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
