from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import ArtefactError, DependencyError, RecipeError, TrainingError
from calibudget.pipeline.run import run
from calibudget.pipeline.train import train, training_options, within_context
from calibudget.pipeline.verify import verify
from calibudget.recipe.load import load_recipe
from calibudget.store.checksums import extend_sums, read_sums
from tests.conftest import model_of, tokenizer_with

OPTIONS = ("rank=2", "scaling=4", "batch_size=4", "epochs=1", "max_length=256", "device=cpu", "deterministic=true")


@pytest.fixture
def run_dir(two_fruits: Path, tmp_path: Path) -> Any:
    import shutil

    return shutil.copytree(two_fruits, tmp_path / "run")


def test_a_run_is_trained_into_its_own_directory_and_still_verifies(run_dir: Path) -> None:
    result = train(run_dir, OPTIONS)
    assert result.steps == 4  # 12 of the sources and 3 companions, in fours
    bound = read_sums(run_dir)
    assert {"adapter/adapter_model.safetensors", "adapter/README.md", "training.jsonl"} <= set(bound)
    card = (run_dir / "adapter" / "README.md").read_text()
    assert json.loads((run_dir / "manifest.json").read_text())["manifest_sha256"] in card
    assert "base_model:" not in card  # of a local directory, which no hub can link
    assert "calibrated_on" not in card
    assert "| target_modules | down_proj, gate_proj," in card
    assert [str(difference) for difference in verify(run_dir).differences] == []


def test_a_training_killed_before_its_sums_is_bound_by_resuming(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: Any) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr("calibudget.pipeline.train.extend_sums", die)
        with pytest.raises(SystemExit):
            train(run_dir, OPTIONS)
    train(run_dir, OPTIONS, resume=True)
    assert not verify(run_dir).differences


def test_a_train_set_that_isnt_the_manifests_is_refused(run_dir: Path) -> None:
    file = run_dir / "train.jsonl"
    file.write_bytes(file.read_bytes().replace(b"answer1", b"answer0", 1))
    extend_sums(run_dir, ["train.jsonl"])  # the sums agree, the manifest doesn't
    with pytest.raises(ArtefactError, match=r"train\.jsonl: isn't the train set of manifest\.json"):
        train(run_dir, OPTIONS)
    assert not (run_dir / "adapter").exists()


def test_another_model_is_refused_unless_told(run_dir: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    model_of(num_key_value_heads=4).save_pretrained(other)
    tokenizer_with().save_pretrained(other)
    with pytest.raises(TrainingError, match="quotas don't carry over"):
        train(run_dir, OPTIONS, model=str(other))
    assert train(run_dir, OPTIONS, model=str(other), allow_other_model=True).steps == 4
    card = (run_dir / "adapter" / "README.md").read_text()
    assert "set by calibudget, calibrated on another model ('" in card


def test_another_tokenizer_than_the_token_budgets_is_refused_unless_told(two_fruits: Path, tmp_path: Path) -> None:
    """No model scored anything: only the budget depends on one."""
    changes = ["budget={tokens: 900}", "policy=equal", "floor=0", "calibration=none"]
    run(load_recipe(two_fruits.parent / "recipe.yaml", changes), tmp_path / "run")
    other = tmp_path / "other"
    tokenizer = tokenizer_with()
    tokenizer.add_tokens(["apples"])
    for part in (model_of(num_key_value_heads=2, vocab_size=321), tokenizer):
        part.save_pretrained(other)
    with pytest.raises(TrainingError, match="token budget was counted with another tokenizer"):
        train(tmp_path / "run", OPTIONS, model=str(other))
    train(tmp_path / "run", OPTIONS, model=str(other), allow_other_model=True)


def test_a_context_shorter_than_the_default_is_taken_and_recorded(run_dir: Path) -> None:
    result = train(run_dir, [option for option in OPTIONS if not option.startswith("max_length")])
    assert result.config.max_length == 512
    assert "| max_length | 512 |" in (run_dir / "adapter" / "README.md").read_text()


def test_options_are_the_papers_with_the_recipes_seed(two_fruits: Path) -> None:
    recipe = load_recipe(two_fruits / "recipe.resolved.yaml", ("training_seed=7",))
    options = training_options(recipe, ("learning_rate=1e-4", "report_to=[wandb]", "pack=false"))
    assert (options.config.seed, options.config.rank, options.config.learning_rate) == (7, 128, 1e-4)
    assert options.execution.report_to == ("wandb",)
    assert options.execution.pack is False
    assert training_options(recipe, ("seed=9",)).config.seed == 9
    for override in ("rank", "rank=four", "device=tpu"):
        with pytest.raises((RecipeError, TrainingError), match=override.partition("=")[0]):
            training_options(recipe, (override,))


@pytest.mark.parametrize(
    ("overrides", "context", "expected"),
    [
        ((), None, 1024),
        (("rank=2",), 256, 256),
        (("max_length=200",), 256, 200),
        (("max_length=2048",), 4096, 2048),
    ],
)
def test_a_length_that_isnt_told_is_the_context_where_that_is_shorter(
    two_fruits: Path, overrides: Any, context: int | None, expected: int
) -> None:
    options = training_options(load_recipe(two_fruits / "recipe.resolved.yaml"), overrides)
    config = within_context(options, context)
    assert config == replace(options.config, max_length=expected)


def test_a_tracker_that_isnt_installed_is_named_with_its_line(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = __import__("importlib.util").util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None if name == "wandb" else find(name, *rest))
    with pytest.raises(DependencyError, match="pip install wandb"):
        train(run_dir, (*OPTIONS, "report_to=[wandb]"))
    assert train(run_dir, OPTIONS).steps == 4  # nothing was left in its way


@pytest.mark.slow
def test_two_processes_train_the_same_adapter(run_dir: Path, tmp_path: Path) -> None:
    """torchrun with two ranks: the same examples a step, the same losses but for rounding (paper 3.1: batch of 32)."""
    import torch
    from safetensors.torch import load_file

    program = (
        "import sys; from calibudget.pipeline.train import train; import torch; torch.set_num_threads(1); "
        "train(sys.argv[1], sys.argv[3:], output_dir=sys.argv[2])"
    )
    script = tmp_path / "program.py"
    script.write_text(program)
    options = (*OPTIONS, "learning_rate=1e-3")
    train(run_dir, options, output_dir=tmp_path / "1")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    subprocess.run([*command, str(run_dir), str(tmp_path / "2"), *options], check=True)
    lines = [
        [json.loads(line) for line in (tmp_path / count / "training.jsonl").read_text().splitlines()] for count in "12"
    ]
    assert len(lines[0]) == len(lines[1]) == 4
    for one, two in zip(*lines, strict=True):
        assert two["loss"] == pytest.approx(one["loss"], rel=1e-5)
        assert {key: two[key] for key in ("examples", "tokens", "learning_rate")} == {
            key: one[key] for key in ("examples", "tokens", "learning_rate")
        }
    weights = [load_file(tmp_path / count / "adapter" / "adapter_model.safetensors") for count in "12"]
    for name, value in weights[0].items():
        assert torch.linalg.vector_norm(weights[1][name] - value) <= 5e-3 * torch.linalg.vector_norm(value), name
