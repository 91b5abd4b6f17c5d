from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import ArtefactError
from calibudget.records import Exponents, SourceFile
from calibudget.store.canonical import canonical_json, sha256_hex
from calibudget.store.checksums import FileDigest
from calibudget.store.manifest import (
    MANIFEST,
    AllocationEvidence,
    CompanionEvidence,
    Manifest,
    Seeds,
    SelectionEvidence,
    SourceEvidence,
)

HEX = "0123456789abcdef" * 4


@pytest.fixture
def manifest() -> Any:
    file = SourceFile(name="commonsense/boolq.jsonl", bytes=10, sha256=HEX)
    source = SourceEvidence(
        files=(file,),
        read=15,
        duplicates=1,
        skipped=0,
        shared_prompts=1,
        calibration_size=3,
        pool_size=10,
        calibration_sha256=HEX,
        candidates_sha256=HEX,
        scores_sha256=HEX,
        need=1 / 3,
        bootstrap_sd=5e-324,
        share=1e17,
        quota=4,
        record_ids_sha256=HEX,
    )
    companion: dict[str, Any] = {
        "files": (file,),
        "read": 3,
        "duplicates": 0,
        "skipped": 1,
        "count": 2,
        "record_ids_sha256": HEX,
    }
    return Manifest(
        versions={"calibudget": "0.1.0", "python": "3.11.7"},
        recipe={"budget": 4, "floor": 1e-7, "sources": {"boolq": {"path": ["é"]}}},
        seeds=Seeds(split=42, bootstrap=42, selection=7),
        parser="1",
        scorer={"model": {"name": "fake"}},
        sources={"boolq": source},
        companion=CompanionEvidence(**companion),
        allocation=AllocationEvidence(
            policy="calibudget", unit="examples", budget=4, floor=1, exponents=Exponents(), residual_budget=3
        ),
        selection=SelectionEvidence(selector="uniform", count=4, companion_count=2, selected_sha256=HEX),
        artefacts={"splits.parquet": FileDigest(bytes=3, sha256=HEX), "a/b": FileDigest(bytes=0, sha256=HEX)},
    )


def test_a_manifest_round_trips_and_ends_with_its_own_digest(tmp_path: Path, manifest: Any) -> None:
    path = tmp_path / "manifest.json"
    MANIFEST.write(path, manifest)
    assert MANIFEST.read(path) == manifest
    value = json.loads(path.read_bytes())
    assert path.read_bytes() == canonical_json(MANIFEST.to_json(manifest))
    rest = canonical_json({k: v for k, v in MANIFEST.to_json(manifest).items() if k != "manifest_sha256"})
    assert MANIFEST.read_sealed(path)[1] == value["manifest_sha256"] == sha256_hex(rest)


def test_an_edited_field_is_noticed(tmp_path: Path, manifest: Any) -> None:
    path = tmp_path / "manifest.json"
    MANIFEST.write(path, manifest)
    path.write_bytes(path.read_bytes().replace(b'"quota":4', b'"quota":5'))
    with pytest.raises(ArtefactError, match="manifest_sha256: isn't the digest of the other fields"):
        MANIFEST.read(path)


def test_faults_are_named(tmp_path: Path, manifest: Any, subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ("schema", "calibudget.manifest/9", "schema: must be"),
        ("manifest_sha256", None, "manifest_sha256: must be text"),
        ("sources.boolq.files", {}, "sources.boolq.files: must be a list"),
        ("selection.selected_sha256", "x", "selection.selected_sha256: must be of the form"),
        ("artefacts.a/b", 3, "artefacts.a/b: must be an object"),
    ]
    for path, item, said in cases:
        with subtests.test(path=path):
            value = json.loads(json.dumps(MANIFEST.to_json(manifest)))
            *parents, last = path.split(".")
            inner = value
            for name in parents:
                inner = inner[name]
            inner[last] = item
            (tmp_path / "manifest.json").write_text(json.dumps(value))
            with pytest.raises(ArtefactError, match=r"^manifest\.json: ") as caught:
                MANIFEST.read(tmp_path / "manifest.json")
            assert said in str(caught.value)
