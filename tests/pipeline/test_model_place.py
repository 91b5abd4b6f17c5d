"""A model's directory in the evidence: its name and its digest, wherever it lies."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import InputError, ScoringError
from calibudget.lm.model_files import portable_model
from calibudget.pipeline.evaluate import EvaluationRequest, evaluate
from calibudget.pipeline.run import run
from calibudget.pipeline.train import train
from calibudget.pipeline.verify import verify
from calibudget.recipe.load import load_recipe
from tests.conftest import bytes_in, fruit_recipe, model_of

OPTIONS = ("rank=2", "scaling=4", "batch_size=4", "epochs=1", "max_length=256", "device=cpu")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def make_run(folder: Path, model: str) -> Path:
    folder.mkdir(parents=True)
    run(load_recipe(fruit_recipe(folder, model=model, template="chat")), folder / "run")
    return folder / "run"


def test_the_same_run_elsewhere_has_the_same_bytes(
    tiny_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = (shutil.copytree(tiny_directory, tmp_path / place / "tiny") for place in ("here", "there"))
    first = make_run(tmp_path / "first", str(here))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    second = make_run(tmp_path / "second", "../there/tiny")
    assert bytes_in(first) == bytes_in(second)
    model = json.loads((first / "manifest.json").read_text())["scorer"]["model"]
    assert (model["name"], model["kind"]) == ("tiny", "directory")
    assert all(str(tmp_path).encode() not in data for data in bytes_in(first).values())
    shutil.rmtree(there)  # a copy that leaves doesn't take the other one's place along
    assert not any("aren't rendered again" in line for line in verify(second).checked)


def test_the_model_of_a_run_is_found_where_it_was_or_where_it_is_said_to_lie(
    tiny_directory: Path, tmp_path: Path, cache: Path
) -> None:
    model = shutil.copytree(tiny_directory, tmp_path / "models" / "tiny")
    made = make_run(tmp_path / "first", str(model))
    assert not any("aren't rendered again" in line for line in verify(made).checked)
    trained = train(made, OPTIONS, output_dir=tmp_path / "trained")
    shutil.rmtree(cache)
    assert any("aren't rendered again" in line for line in verify(made).checked)
    assert verify(made, data_dir=made.parent, model=str(model), sample=2).differences == ()
    with pytest.raises(ScoringError, match="say where it lies"):
        train(made, OPTIONS, output_dir=tmp_path / "again")
    train(made, OPTIONS, output_dir=tmp_path / "again", model=str(model))
    names = ["adapter_model.safetensors", "adapter_config.json"]
    assert [(tmp_path / "again" / "adapter" / name).read_bytes() for name in names] == [
        (trained.adapter / name).read_bytes() for name in names
    ]

    rows = [{"instruction": f"{i}?", "answer": "true", "output": "true"} for i in range(2)]
    (tmp_path / "boolq.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asking = EvaluationRequest(tasks=(f"boolq={tmp_path / 'boolq.jsonl'}",))
    with pytest.raises(ScoringError, match="say where it lies"):
        evaluate(made, asking)
    other = tmp_path / "other" / "tiny"
    shutil.copytree(tiny_directory, other)
    model_of(num_key_value_heads=4).save_pretrained(other)
    with pytest.raises(ScoringError, match="isn't the one that scored this run"):
        evaluate(made, asking, model=str(other))
    moved = model.rename(tmp_path / "renamed")
    evaluate(made, asking, model=str(moved))
    assert verify(made).differences == ()
    with pytest.raises(InputError, match="leave out --model"):
        evaluate(str(moved), asking, model="embedded", output_dir=tmp_path / "out")


def test_names_of_the_hub_stay_and_paths_lose_their_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owner" / "local").mkdir(parents=True)
    names = ["embedded", "gpt2", "owner/name", "owner/local", "/a/b", "~/b", "../b", "a/b.gguf", "./b"]
    expected = ["embedded", "gpt2", "owner/name", "./local", "./b", "./b", "./b", "./b.gguf", "./b"]
    assert list(map(portable_model, names)) == expected
    assert list(map(portable_model, expected)) == expected
