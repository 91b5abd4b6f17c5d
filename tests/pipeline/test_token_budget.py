"""A budget of tokens through the whole pipeline, with words for tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import AllocationError, ArtefactError, ScoringError
from calibudget.pipeline.allocate import plan_recipe
from calibudget.pipeline.pools import Pools
from calibudget.pipeline.prepare import prepare
from calibudget.pipeline.run import run
from calibudget.pipeline.select import select
from calibudget.pipeline.verify import verify
from calibudget.recipe.load import load_recipe
from calibudget.store.artefacts import SELECTION
from calibudget.store.manifest import MANIFEST
from calibudget.store.splits import read_splits
from tests.conftest import record_of

RECIPE = """
engine: fake
policy: equal
calibration: none
budget: {tokens: 1000}
sources:
  a: {path: a.jsonl, answer: none}
  b: {path: b.jsonl, answer: none}
"""


def words(count: Any, start: Any) -> Any:
    return " ".join(f"w{start}" for _ in range(count))


@pytest.fixture
def make(tmp_path: Path) -> Any:
    """Writes sources of these lengths in tokens (words, and one for the end) and a recipe; returns its path."""

    def write(more: str = "", **lengths: Any) -> Any:
        for label, counts in lengths.items():
            # The prompt takes one word, the end one token, the response the rest.
            rows = [{"prompt": f"{label}{i}", "completion": words(n - 2, i)} for i, n in enumerate(counts)]
            (tmp_path / f"{label}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (tmp_path / "recipe.yaml").write_text(RECIPE + more)
        return tmp_path / "recipe.yaml"

    return write


def test_even_tokens_of_long_and_short_examples(make: Any, tmp_path: Path) -> None:
    # axolotl-ai-cloud/axolotl #1508: A 10x100 tokens, B 100x10, 1,000 tokens even -> 500/500.
    result = run(load_recipe(make(a=[100] * 10, b=[10] * 100)), tmp_path / "run")
    assert result.plan.unit == "tokens"
    assert result.plan.quotas == {"a": 500, "b": 500}
    assert (result.count, result.tokens) == (55, 1000)
    found = SELECTION.read(tmp_path / "run" / "selection.json")
    assert {label: (row.quota, row.count, row.tokens) for label, row in found.sources.items()} == {
        "a": (500, 5, 500),
        "b": (500, 50, 500),
    }
    assert found.tokens == 1000
    manifest = MANIFEST.read(tmp_path / "run" / "manifest.json")
    assert manifest.token_counter == {
        "engine": "fake", "template": "alpaca", "max_length": None, "tokenizer_sha256": None,
    }  # fmt: skip
    assert manifest.sources["a"].tokens.pool == 1000  # type: ignore[union-attr]
    assert manifest.sources["a"].pool_size == 10


def test_records_longer_than_their_quota_leave_and_are_counted(make: Any, tmp_path: Path) -> None:
    result = run(load_recipe(make(a=[700, *[20] * 40], b=[10] * 100)), tmp_path / "run")
    # At first both get 500 tokens: the 700 leaves, and 800 in a and 1,000 in b stay.
    assert result.plan.sources["a"].pool_size == 800
    assert result.plan.quotas == {"a": 500, "b": 500}
    assert result.notes == ("a: 1 candidate longer than its quota of 500 tokens left out",)
    evidence = MANIFEST.read(tmp_path / "run" / "manifest.json").sources["a"]
    assert (evidence.pool_size, evidence.tokens.too_long, evidence.tokens.pool) == (41, 1, 800)  # type: ignore[union-attr]
    verification = verify(tmp_path / "run", data_dir=tmp_path)
    assert verification.differences == ()
    assert "tokens: counted again" in verification.checked


def test_what_left_for_its_length_is_told_when_the_rest_is_too_small(make: Any, tmp_path: Path) -> None:
    recipe = load_recipe(make(a=[600, 600], b=[10] * 60))
    with pytest.raises(AllocationError, match=r"had left .a: longer than 500 tokens.*all pools together"):
        run(recipe, tmp_path / "run")


def test_scores_and_a_token_budget_go_together(make: Any, tmp_path: Path) -> None:
    recipe = load_recipe(
        make("error: nll\n", a=[9] * 60, b=[4 + i % 7 for i in range(80)]),
        ["policy=calibudget", "calibration={per_source: 5, resamples: 4}", "budget.tokens=300", "floor=60"],
    )
    result = run(recipe, tmp_path / "run")
    assert sum(result.plan.quotas.values()) == 300
    assert all(row.quota >= 60 and row.interval is not None for row in result.plan.sources.values())
    assert verify(tmp_path / "run", data_dir=tmp_path).differences == ()


def test_a_prompt_without_room_is_refused_or_left_uncounted(make: Any, tmp_path: Path) -> None:
    path = make(a=[9] * 50, b=[8] * 200)
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write(json.dumps({"prompt": words(30, 1), "completion": "x"}) + "\n")
    options = ["policy=floor-sqrt", "calibration={per_source: 5, resamples: 4, max_length: 20}", "error=nll"]
    options += ["budget.tokens=200"]
    with pytest.raises(ScoringError, match="its prompt of 30 words leaves no room within max_length 20"):
        run(load_recipe(path, options), tmp_path / "run")
    run(load_recipe(path, [*options, "on_error=skip", "split_seed=3"]), tmp_path / "skipped")
    tokens = MANIFEST.read(tmp_path / "skipped" / "manifest.json").sources["a"].tokens
    assert tokens.too_long == 1  # type: ignore[union-attr]
    assert verify(tmp_path / "skipped", data_dir=tmp_path).differences == ()


def test_an_allocation_of_tokens_can_be_drawn_again(make: Any, tmp_path: Path) -> None:
    path = make(a=[700, *[20] * 40], b=[10] * 100)
    first = run(load_recipe(path), tmp_path / "run")
    select(load_recipe(path), tmp_path / "run" / "allocation.json", tmp_path / "drawn")
    assert verify(tmp_path / "drawn", data_dir=tmp_path).differences == ()
    assert SELECTION.read(tmp_path / "drawn" / "selection.json").selected_sha256 == first.selected_sha256
    with pytest.raises(ArtefactError, match="the allocation counts tokens, but the budget examples"):
        select(load_recipe(path, ["budget=50"]), tmp_path / "run" / "allocation.json", tmp_path / "other")
    make(a=[700, *[20] * 39], b=[10] * 100)
    with pytest.raises(ArtefactError, match=r"other pools than these .'a': 800 tokens there"):
        select(load_recipe(path), tmp_path / "run" / "allocation.json", tmp_path / "other")


def test_settling_ends_on_pools_that_hold_nothing_longer_than_their_quota(make: Any) -> None:
    recipe = load_recipe(make(a=[5], b=[5]), ["policy=proportional", "budget.tokens=60"])
    tokens = {"a": {f"a{i}": 2 * i + 1 for i in range(12)}, "b": {f"b{i}": i + 1 for i in range(12)}}
    pools = Pools(queues={label: list(counts) for label, counts in tokens.items()}, tokens=tokens, selection_seed=1)
    plan = plan_recipe(recipe, pools, None)
    fitting = pools.of_plan(plan)
    assert sum(plan.quotas.values()) == 60
    assert all(fitting.longest(label) <= quota for label, quota in plan.quotas.items())


def test_a_model_s_own_tokenizer_counts_what_its_encoder_gives(tiny_directory: Path, tmp_path: Path) -> None:
    from calibudget.lm.encoding import Encoder
    from calibudget.lm.loading import load_tokenizer

    records = [record_of("a", number) for number in range(30)]
    rows = [{"prompt": one.prompt[0].content, "completion": one.completion} for one in records]
    for label in ("a", "b"):
        lines = (json.dumps(row | {"prompt": f"{label} {row['prompt']}"}) + "\n" for row in rows)
        (tmp_path / f"{label}.jsonl").write_text("".join(lines))
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    options = ["engine=local", f"model={json.dumps(str(tiny_directory))}", "budget.tokens=2000"]
    recipe = load_recipe(tmp_path / "recipe.yaml", options)
    result = run(recipe, tmp_path / "run")
    counted = read_splits(tmp_path / "run" / "splits.parquet").sources["a"].tokens
    encoder = Encoder("alpaca", load_tokenizer(str(tiny_directory)))
    candidates = prepare(recipe).splits["a"].candidates
    for record, encoded in zip(candidates, encoder.encode_all(candidates), strict=True):
        assert counted[record.record_id] == (len(encoded.prompt_ids), len(encoded.response_ids))
    assert 0 <= 2000 - result.tokens < 200  # type: ignore[operator]
    assert len(str(MANIFEST.read(tmp_path / "run" / "manifest.json").token_counter["tokenizer_sha256"])) == 64  # type: ignore[index]
    assert "tokens: counted again" in verify(tmp_path / "run", data_dir=tmp_path).checked
