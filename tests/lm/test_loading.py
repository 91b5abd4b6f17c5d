from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from calibudget.errors import ScoringError
from calibudget.lm.loading import context_length, load_model


def test_a_directory_loads_with_a_full_identity(tiny_directory: Path) -> None:
    loaded = load_model(str(tiny_directory), device="cpu")
    assert dict(loaded.identity) == {
        "name": tiny_directory.name,
        "kind": "directory",
        "sha256": loaded.identity["sha256"],
        "revision": None,
        "parameters": 115_008,
        "dtype": "float32",
        "device": "cpu",
    }
    assert loaded.context_length == 512
    assert loaded.stop_ids == {2}
    assert not loaded.model.training


def test_the_context_is_known_without_the_weights(tiny_directory: Path, tmp_path: Path) -> None:
    assert context_length(str(tiny_directory)) == 512
    (tmp_path / "model").mkdir()
    shutil.copy(tiny_directory / "config.json", tmp_path / "model" / "config.json")
    (tmp_path / "model" / "model.safetensors").write_bytes(b"never read")
    assert context_length(str(tmp_path / "model")) == 512
    (tmp_path / "model" / "config.json").write_text('{"model_type": "nonesuch"}')
    with pytest.raises(ScoringError, match="nonesuch"):
        context_length(str(tmp_path / "model"))


def test_identity_changes_with_any_file_that_counts(tiny_directory: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(tiny_directory, copy)
    before = load_model(str(copy), device="cpu").identity["sha256"]
    (copy / "README.md").write_text("a read-me doesn't count")
    assert load_model(str(copy), device="cpu").identity["sha256"] == before
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 1e-5}))
    assert load_model(str(copy), device="cpu").identity["sha256"] != before
