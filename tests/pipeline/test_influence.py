"""Influence from a recipe to merged proxy scores, and on into a selection."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import ArtefactError, InputError, RecipeError, TrainingError
from calibudget.influence.scorer import InfluenceScorer
from calibudget.pipeline.influence import influence, influence_config
from calibudget.pipeline.proxy_files import check_proxy_files, read_proxy_file, read_proxy_pool
from calibudget.pipeline.run import run
from calibudget.pipeline.verify import verify
from calibudget.recipe.load import load_recipe
from calibudget.selection.proxy import ProxyContract
from calibudget.store.canonical import read_object
from calibudget.training.config import Execution

CPU = Execution(device="cpu", batch_tokens=512)
WARM_UP = ("epochs=1", "rank=4", "scaling=4", "batch_size=8", "learning_rate=0.001", "max_length=256")
CONTRACT = ProxyContract(subgroups=("boolq", "piqa"), shards=2)


@pytest.fixture
def recipe_file(tmp_path: Path, make_recipe: Any, tiny_directory: Path) -> Any:
    text = make_recipe().read_text().replace("engine: fake", f"model: {tiny_directory}")
    (tmp_path / "recipe.yaml").write_text(text)
    return tmp_path / "recipe.yaml"


def score(
    recipe_file: Path,
    output: Any,
    *,
    overrides: Any = (),
    warm_up: Any = WARM_UP,
    only: Any = (),
    run_dir: Any = None,
    **given: Any,
) -> Any:
    recipe = load_recipe(recipe_file, overrides)
    settings: dict[str, Any] = {"warm_up_share": 0.3, "dimension": 512, "shards": 2} | given
    config = influence_config(recipe, warm_up, **settings)
    return influence(recipe, output, config, execution=CPU, only=only, run_dir=run_dir)


@pytest.mark.slow
def test_scores_are_valid_shards_that_merge_and_select(tmp_path: Path, recipe_file: Path, finished: Path) -> None:
    result = score(recipe_file, tmp_path / "influence", run_dir=finished / "run")
    pool = read_proxy_pool(finished / "run")
    assert [path.name for path in result.shards] == ["influence-0-of-2.jsonl", "influence-1-of-2.jsonl"]
    check_proxy_files(result.shards, contract=CONTRACT, pool=pool)
    check_proxy_files([result.merged], contract=CONTRACT, pool=pool)
    assert sorted(path.name for path in (tmp_path / "influence").iterdir() if path.suffix != ".lock") == [
        "influence-0-of-2.jsonl",
        "influence-1-of-2.jsonl",
        "influence.jsonl",
        "warm-up",
    ]
    merged = read_proxy_file(result.merged)
    assert len(merged.records) == pool.size == 60
    assert all(-1.0 <= mean <= 1.0 for record in merged.records for mean in record.subgroup_means)
    assert len({record.score for record in merged.records}) > 50
    provenance = merged.header.provenance
    assert provenance["sketch"] == {"dimension": 512, "seed": 42}
    assert provenance["warm_up"]["rank"] == 4  # type: ignore[index]
    assert provenance["warm_up"]["steps"] == result.warm_up_steps == 3  # type: ignore[index]
    selector = "{influence: {file: influence/influence.jsonl, shards: 2}}"
    text = recipe_file.read_text().replace(f"model: {provenance['model']['name']}", "engine: fake")  # type: ignore[index]
    (tmp_path / "second.yaml").write_text(text + f"selector: {selector}\n")
    run(load_recipe(tmp_path / "second.yaml", ["engine=fake"]), tmp_path / "selected")
    assert verify(tmp_path / "selected").differences == ()
    details = read_object(tmp_path / "selected" / "selection.json")["details"]
    assert details["parameters"]["provenance"] == json.loads(json.dumps(provenance))  # type: ignore[index]


@pytest.mark.slow
def test_interrupted_and_parted_work_gives_the_same_bytes(
    tmp_path: Path, recipe_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calibudget.pipeline.proxy_files._CHUNK", 8)
    whole = score(recipe_file, tmp_path / "whole")
    calls: list[Any] = []
    plain = InfluenceScorer.__call__

    def stops(self: Any, rows: Any) -> Any:
        if len(calls) == 2:
            raise KeyboardInterrupt
        calls.append(len(rows))
        return plain(self, rows)

    monkeypatch.setattr(InfluenceScorer, "__call__", stops)
    with pytest.raises(KeyboardInterrupt):
        score(recipe_file, tmp_path / "parted", only=[1])
    seen = []
    monkeypatch.setattr(InfluenceScorer, "__call__", lambda self, rows: (seen.append(len(rows)), plain(self, rows))[1])  # type: ignore[func-returns-value]
    part = score(recipe_file, tmp_path / "parted", only=[1])
    assert sum(seen) == 30 - 16  # two chunks of eight were kept
    assert part.merged is None
    rest = score(recipe_file, tmp_path / "parted", only=[0])
    for name in ("influence-0-of-2.jsonl", "influence-1-of-2.jsonl", "influence.jsonl"):
        assert (tmp_path / "parted" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert rest.merged is not None
    seen.clear()
    left = tmp_path / "whole" / ".shard-0"  # which a disk refused to remove; it is no work any more
    left.mkdir()
    (left / "journal").write_bytes(b"anything")
    (tmp_path / "whole" / ".calibudget-0123456789abcdef.tmp").write_bytes(b"half of a merge")
    monkeypatch.setattr(InfluenceScorer, "calibrate", lambda *_: pytest.fail("everything is there"))
    score(recipe_file, tmp_path / "whole")
    assert seen == []
    assert {path.name for path in (tmp_path / "whole").iterdir()} == {
        *("influence-0-of-2.jsonl", "influence-1-of-2.jsonl", "influence.jsonl", "warm-up", ".calibudget.lock")
    }
    assert whole.merged.exists()


@pytest.mark.slow
def test_work_of_another_configuration_pool_or_run_is_refused(
    tmp_path: Path, recipe_file: Path, finished: Path
) -> None:
    again = partial(score, recipe_file, tmp_path / "influence")
    again()
    words = "its training is finished, and had another model, train set or configuration; give the same ones to use it"
    with pytest.raises(ArtefactError, match=words):
        again(warm_up=(*WARM_UP[:-1], "max_length=200"))
    with pytest.raises(ArtefactError, match=r"influence-0-of-2.jsonl: was made of another pool, model or config"):
        again(dimension=256)
    with pytest.raises(ArtefactError, match="its candidates aren't those that these sources give"):
        again(overrides=["split_seed=9"], run_dir=finished / "run")
    again()  # the control


@pytest.mark.slow
def test_a_record_without_a_gradient_is_refused_by_name(
    tmp_path: Path, recipe_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from calibudget.influence.scorer import Sketches

    plain = Sketches.finish
    monkeypatch.setattr(Sketches, "finish", lambda self: plain(self) * torch.tensor(0.0))
    with pytest.raises(InputError, match=r"boolq/[0-9a-f]{64}: its gradient is zero"):
        score(recipe_file, tmp_path / "influence")


@pytest.mark.slow
def test_two_processes_share_the_work(tmp_path: Path, recipe_file: Path) -> None:
    """torchrun with two ranks: one warm-up, a shard each, the same scores but for rounding."""
    script = tmp_path / "program.py"
    script.write_text(
        "import sys, torch; torch.set_num_threads(1)\n"
        "from calibudget.pipeline.influence import influence, influence_config\n"
        "from calibudget.recipe.load import load_recipe\n"
        "from calibudget.training.config import Execution\n"
        "recipe = load_recipe(sys.argv[1])\n"
        "config = influence_config(recipe, sys.argv[3:], warm_up_share=0.3, dimension=512, shards=2)\n"
        "influence(recipe, sys.argv[2], config, execution=Execution(device='cpu', batch_tokens=512))\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    subprocess.run([*command, str(recipe_file), str(tmp_path / "two"), *WARM_UP], check=True)
    one = read_proxy_file(score(recipe_file, tmp_path / "one").merged)
    two = read_proxy_file(tmp_path / "two" / "influence.jsonl")
    assert two.header == one.header
    means = {record.position: record.subgroup_means for record in one.records}
    for record in two.records:
        assert record.subgroup_means == pytest.approx(means[record.position], abs=0.02)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["policy=equal", "calibration=none"], "measured on the calibration splits"),
        (["engine=fake"], "takes gradients of a model"),
        (["calibration.adapter=adapter"], "warms up an adapter of its own"),
    ],
)
def test_recipes_without_gradients_are_refused(tmp_path: Path, recipe_file: Path, overrides: Any, words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        score(recipe_file, tmp_path / "influence", overrides=overrides)
    assert not (tmp_path / "influence").exists()


@pytest.mark.parametrize(
    ("warm_up", "given", "error", "words"),
    [
        (("luck=1",), {}, TrainingError, "luck"),
        (("dropout=0.1",), {}, InputError, "dropout must be 0"),
        ((), {"warm_up_share": 0.0}, InputError, "above 0 and at most 1"),
        ((), {"shards": 0}, InputError, "at least 1 shard"),
    ],
)
def test_configurations_that_mean_nothing_are_refused(
    recipe_file: Path, warm_up: Any, given: Any, error: Any, words: str
) -> None:
    with pytest.raises(error, match=words):
        influence_config(load_recipe(recipe_file), warm_up, **given)
