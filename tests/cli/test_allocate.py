"""`calibudget allocate` and `whatif` with groups and in tokens: what a recipe's run gives, without the recipe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from calibudget.pipeline.run import run
from calibudget.recipe.load import load_recipe
from calibudget.store.artefacts import ALLOCATION

SIZES = ["--sizes", "a=1000 b=2000 c=500"]
GROUPS = "{x: {sources: [a], cap: 45% of budget}, y: {sources: [b, c], floor: 100}}"
RECIPE = f"""
engine: fake
calibration: {{per_source: 5, resamples: 4}}
error: nll
budget: {{tokens: 400}}
floor: 60
groups: {GROUPS}
sources:
  a: {{path: a.jsonl, answer: none}}
  b: {{path: b.jsonl, answer: none}}
  c: {{path: c.jsonl, answer: none}}
"""
LENGTHS = {"a": [150, *[9] * 60], "b": [4 + i % 7 for i in range(80)], "c": [300, *[7 + i % 3 for i in range(40)]]}


@pytest.fixture(scope="module")
def token_run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run with a budget of tokens, groups, and an example that is longer than its source's quota."""
    root = tmp_path_factory.mktemp("tokens")
    for label, counts in LENGTHS.items():
        rows = [{"prompt": f"{label}{i}", "completion": " ".join([f"w{i}"] * (n - 2))} for i, n in enumerate(counts)]
        (root / f"{label}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (root / "recipe.yaml").write_text(RECIPE)
    return run(load_recipe(root / "recipe.yaml"), root / "run")


def plan_of(outcome: Any) -> Any:
    assert outcome.code == 0, outcome.err
    return ALLOCATION.parse(json.loads(outcome.out), "stdout")


def test_the_files_of_a_run_in_tokens_give_its_allocation_again(calibudget: Any, token_run: Any) -> None:
    directory = token_run.directory
    arguments = [directory / "statistics.json", "--splits", directory / "splits.parquet", "--unit", "tokens"]
    arguments += ["--budget", 400, "--floor", 60, "--groups", GROUPS]
    told = json.loads(calibudget("allocate", *arguments, "--json").out)
    assert told == json.loads((directory / "allocation.json").read_bytes())
    assert told["sources"]["c"]["pool_size"] < 300  # the example of 300 tokens left
    grid = json.loads(calibudget("whatif", *arguments, "--json").out)
    assert grid["unit"] == "tokens"
    assert grid["points"][0]["quotas"] == token_run.plan.quotas
    compared = json.loads(calibudget("allocate", *arguments, "--compare", "--json").out)
    assert compared["unit"] == "tokens"
    assert "pooled" not in compared["quotas"]  # it knows no groups
    assert all(sum(quotas.values()) == 400 for quotas in compared["quotas"].values())


def test_groups_written_out_and_in_files_say_the_same(calibudget: Any, tmp_path: Path) -> None:
    (tmp_path / "groups.yaml").write_text(
        "x:\n  sources: [a]\n  cap: 10% of pool\ny: {sources: [b, c], floor: 30% of budget}\n"
    )
    (tmp_path / "groups.json").write_text(
        json.dumps({"x": {"sources": ["a"], "cap": "10% of pool"}, "y": {"sources": ["b", "c"], "floor": 240}})
    )
    inline = "{x: {sources: [a], cap: 100}, y: {sources: [b, c], floor: 30% of budget}}"
    arguments = ["allocate", *SIZES, "--budget", 800, "--policy", "equal", "--json"]
    plans = [
        plan_of(calibudget(*arguments, "--groups", given))
        for given in (inline, tmp_path / "groups.yaml", tmp_path / "groups.json")
    ]
    assert plans[0] == plans[1] == plans[2]
    assert plans[0].quotas == {"a": 100, "b": 350, "c": 350}
    grid = json.loads(calibudget("whatif", *arguments[1:], "--groups", inline).out)
    assert grid["points"][0]["quotas"] == plans[0].quotas
    shown = calibudget(*arguments[:-1], "--groups", inline).out
    assert "group x: 100 (floor 0, cap 100)" in shown


def test_a_floor_that_the_policy_does_not_know_is_told(calibudget: Any) -> None:
    outcome = calibudget("allocate", *SIZES, "--budget", 30, "--floor", 10, "--policy", "equal", "--json")
    assert "the policy 'equal' knows no floor: it isn't used, and counts as 0" in " ".join(outcome.err.split())
    assert json.loads(outcome.out)["floor"] == 0
    grid = calibudget("whatif", *SIZES, "--budget", 30, "--floor", 10, "--policy", "equal")
    assert "the policy 'equal' knows no floor" in " ".join(grid.err.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--unit", "words", *SIZES], "'words' is not one of 'examples', 'tokens'"),
        (["--unit", "tokens"], "with --unit tokens give --sizes label=tokens or --splits FILE, one of the two"),
        (["--unit", "tokens", *SIZES, "--splits", "{run}/splits.parquet"], "one of the two"),
        (["--unit", "tokens", "--splits", "{run}/scores.parquet"], "scores.parquet"),
        ([*SIZES, "--splits", "{run}/splits.parquet"], "has other pools than the rest ('"),
        ([*SIZES, "--groups", "{{x: {{sources: [a]}}, x: {{sources: [b, c]}}}}"], "--groups:1: duplicate key 'x'"),
        ([*SIZES, "--groups", "{{x: {{sources: [a]}}"], "--groups:1: not valid YAML"),
        ([*SIZES, "--groups", "\ud800"], "can't be read as UTF-8 text"),
        ([*SIZES, "--groups", "x.yaml"], "x.yaml: no such file; --groups takes a file, or a mapping written out"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told(calibudget: Any, token_run: Any, arguments: Any, message: str) -> None:
    given = [argument.format(run=token_run.directory) for argument in arguments]
    outcome = calibudget("allocate", "--budget", 100, "--policy", "equal", *given)
    assert outcome.code == 2
    assert message in outcome.err


def test_splits_without_counts_tell_no_tokens(calibudget: Any, tmp_path: Path, token_run: Any) -> None:
    recipe = load_recipe(token_run.directory.parent / "recipe.yaml", ["budget=40", "floor=5", "groups=null"])
    run(recipe, tmp_path / "run")
    arguments = ["--splits", tmp_path / "run" / "splits.parquet", "--budget", 40, "--policy", "pooled"]
    outcome = calibudget("allocate", *arguments, "--unit", "tokens")
    assert outcome.code == 2
    assert "splits.parquet: counts no tokens" in outcome.err
    examples = plan_of(calibudget("allocate", tmp_path / "run" / "statistics.json", *arguments, "--json"))
    assert sum(examples.quotas.values()) == 40


def test_integers_that_json_cant_hold_are_named_and_told_in_a_table(calibudget: Any) -> None:
    arguments = ["allocate", "--policy", "equal", "--budget", 10, "--sizes", f"a=5 b={10**30}"]
    refused = calibudget(*arguments, "--json")
    assert refused.code == 2
    told = f"--json: sources.b.pool_size is {10**30}, beyond 2**53 - 1, where JSON's integers end; without --json"
    assert told in refused.err
    assert f"{10**30:,}" in calibudget(*arguments).out


def test_a_token_budget_below_the_shortest_example_is_refused(calibudget: Any, token_run: Any) -> None:
    files = ["--splits", token_run.directory / "splits.parquet", "--unit", "tokens", "--policy", "floor-sqrt"]
    refused = calibudget("allocate", *files, "--budget", 3)
    assert refused.code == 2
    assert "3 tokens is below the shortest example of all sources, which has 4" in refused.err
    too_little = calibudget("allocate", *files, "--budget", 4)
    assert too_little.code == 2
    assert "b: longer than 1 token," in too_little.err
    assert "a larger budget, or fewer sources, lets longer ones fit" in too_little.err
    grid = json.loads(calibudget("whatif", *files, "--budget", "3,400", "--json").out)
    assert "below the shortest example" in grid["points"][0]["refusal"]
    assert sum(grid["points"][1]["quotas"].values()) == 400


def test_labels_follow_their_option(calibudget: Any, tmp_path: Path) -> None:
    """`--sizes a=1 b=2` as people write it; what isn't label=value, or is a file, belongs to no option before it."""
    sizes = ["--sizes", "a=50", "b=70", "--caps", "b=3"]
    outcome = calibudget("allocate", *sizes, "--policy", "equal", "--budget", 9, "--json")
    assert plan_of(outcome).quotas == {"a": 6, "b": 3}
    rows = [{"source": label, "nll": 1.0 + n / 40, "correct": n % 3 > 0} for label in "ab" for n in range(40)]
    (tmp_path / "x=1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = calibudget("statistics", "--pool-sizes", "a=90", "b=80", tmp_path / "x=1.jsonl")
    assert {label: row["pool_size"] for label, row in json.loads(made.out)["sources"].items()} == {"a": 90, "b": 80}
    refused = calibudget("allocate", tmp_path / "x=1.jsonl", "--budget", 3)
    assert refused.code == 2
    assert "scores become statistics first: `calibudget statistics x=1.jsonl" in refused.err


def test_a_run_directory_says_statistics_budget_and_floor(calibudget: Any, tmp_path: Path) -> None:
    for label in "ab":
        rows = ({"prompt": f"{label} {n}?", "completion": "true" if n % 3 else "false"} for n in range(90))
        (tmp_path / f"{label}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "recipe.yaml").write_text(
        "engine: fake\nbudget: 60\nfloor: 10\ncaps: {a: 20}\ncalibration: {per_source: 30, resamples: 20}\n"
        "sources:\n  a: {path: a.jsonl, answer: true_false}\n  b: {path: b.jsonl, answer: true_false}\n"
    )
    made = calibudget("run", tmp_path / "recipe.yaml", "--output-dir", tmp_path / "run")
    assert "note: engine: fake: the scores are hashes" in made.out
    assert "cap reached: a" in made.out
    again = calibudget("allocate", tmp_path / "run", "--caps", "a=20", "--json")
    assert plan_of(again).quotas == {"a": 20, "b": 40}
    assert "its own caps aren't taken over" in again.err
    scored = calibudget("score", tmp_path / "recipe.yaml", "--output", tmp_path / "scores.parquet", "--json")
    assert all(
        "the scores are hashes" in shown.err for shown in (again, scored, calibudget("explain", tmp_path / "run", "a"))
    )
    points = json.loads(calibudget("whatif", tmp_path / "run", "--floor", "0,10", "--json").out)["points"]
    assert [(point["budget"], point["floor"]) for point in points] == [(60, 0), (60, 10)]
    meant = calibudget(
        "allocate", "--sizes", "boolq=5", "piqa=5", "--policy", "equal", "--budget", 3, "--caps", "bolq=1"
    )
    assert "caps names 'bolq', but the sources are 'boolq', 'piqa'; did you mean 'boolq'?" in meant.err
    (tmp_path / "run" / "SHA256SUMS.tsv").unlink()
    unfinished = calibudget("verify", tmp_path / "run")
    assert unfinished.code == 1
    assert "this run is unfinished" in unfinished.out
    assert json.loads(calibudget("verify", tmp_path / "run", "--json").out)["unfinished"]
