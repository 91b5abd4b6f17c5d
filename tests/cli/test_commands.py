"""Every command on small files: exit codes, tables, `--json`, and messages that name what to do."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from calibudget.cli.main import _COMMANDS
from calibudget.store.artefacts import STATISTICS

RECIPE = """\
engine: fake
budget: 12
floor: 3
calibration: {per_source: 4, resamples: 5}
sources:
  a: {path: a.jsonl, answer: {kind: choice, labels: ["yes", "no"]}}
  b: {path: b.jsonl, answer: number}
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Any:
    for name, answers in (("a", ("yes", "no")), ("b", ("1", "2"))):
        rows = ({"prompt": f"{name} {n}?", "completion": f"the answer is {answers[n % 2]}"} for n in range(20))
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    return tmp_path / "recipe.yaml"


def test_statistics_and_allocate_from_scores_made_elsewhere(calibudget: Any, tmp_path: Path) -> None:
    scores = tmp_path / "scores.jsonl"
    rows = [{"source": source, "nll": 1 + n / 50, "correct": n % 3 == 0} for source in "ab" for n in range(40)]
    scores.write_text("".join(json.dumps(row) + "\n" for row in rows))
    outcome = calibudget("statistics", scores, "--pool-sizes", "a=100", "--pool-sizes", "b=50")
    assert outcome.code == 0
    statistics = STATISTICS.parse(json.loads(outcome.out), "stdout")
    assert statistics.sources["a"].pool_size == 100
    assert calibudget("statistics", scores, "--pool-sizes", "a=100 b=50").out == outcome.out
    assert calibudget("statistics", scores, "--pool-sizes", "a=100 b=50 a=9").code == 2
    for sizes, words in (
        ("a=100", "--pool-sizes: lacks 'b', which scores.jsonl has scores of; add b=<its size>"),
        ("a=100 b=50 c=1", "scores.jsonl: has no scores of 'c', which --pool-sizes names; score it, or leave it out"),
    ):
        refused = calibudget("statistics", scores, "--pool-sizes", sizes)
        assert (refused.code, words in refused.err) == (2, True), refused.err
    (tmp_path / "statistics.json").write_text(outcome.out)
    compared = calibudget(
        "allocate", tmp_path / "statistics.json", "--budget", 60, "--floor", 10, "--compare", "--json"
    )
    quotas = json.loads(compared.out)["quotas"]
    assert set(quotas) == {
        "calibudget", "need", "need-availability", "need-reliability", "val-error-floor", "floor-sqrt", "equal",
        "proportional",
    }  # fmt: skip
    assert all(sum(row.values()) == 60 for row in quotas.values())


def test_run_verify_select_and_score_belong_together(calibudget: Any, recipe: Any, tmp_path: Path) -> None:
    ran = calibudget("run", recipe, "--output-dir", tmp_path / "run", "--json")
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    assert sum(told["quotas"].values()) == told["count"] == 12
    assert calibudget("verify", tmp_path / "run", "--data-dir", tmp_path).code == 0
    given = tmp_path / "run" / "allocation.json"
    drawn = calibudget("select", recipe, "--allocation", given, "--output-dir", tmp_path / "drawn", "--json")
    assert json.loads(drawn.out)["selected_sha256"] == told["selected_sha256"]
    assert (tmp_path / "drawn" / "train.jsonl").read_bytes() == (tmp_path / "run" / "train.jsonl").read_bytes()
    assert calibudget("score", recipe, "--output", tmp_path / "scores.parquet").code == 0
    again = calibudget(
        "run", recipe, "--scores", tmp_path / "scores.parquet", "--output-dir", tmp_path / "again", "--json"
    )
    assert json.loads(again.out)["manifest_sha256"] == told["manifest_sha256"]


def test_a_run_shows_what_its_sources_share_and_ends_with_2_where_that_is_refused(
    calibudget: Any, recipe: Any, tmp_path: Path
) -> None:
    (tmp_path / "exam.jsonl").write_text('{"prompt": "A 3?", "completion": "no"}\n')
    exam = "hygiene.evaluation={exam: {path: exam.jsonl, answer: none}}"
    ran = calibudget("run", recipe, exam, "--output-dir", tmp_path / "run")
    assert ran.code == 0, ran.err
    table, _, _ = ran.out.partition("calibudget: 12 examples")
    assert re.search(r"a +│ +1 │ with a prompt of the evaluation set exam \(1 different one there\) +│ left out", table)
    again = calibudget("run", recipe, exam, "--resume", "--output-dir", tmp_path / "run")
    assert again.out.startswith(table)
    refused = calibudget("run", recipe, exam, "hygiene.evaluation_prompts=refuse", "--output-dir", tmp_path / "refused")
    assert refused.code == 2
    assert "a.jsonl:4 has a prompt of the evaluation set 'exam'; leave those out, or say" in " ".join(
        refused.err.split()
    )
    assert not (tmp_path / "refused").exists()


def test_verify_exits_with_1_and_names_the_file(calibudget: Any, recipe: Any, tmp_path: Path) -> None:
    calibudget("run", recipe, "--output-dir", tmp_path / "run")
    allocation = tmp_path / "run" / "allocation.json"
    allocation.write_bytes(allocation.read_bytes().replace(b'"budget":12', b'"budget":13'))
    outcome = calibudget("verify", tmp_path / "run")
    assert outcome.code == 1
    assert "allocation.json" in outcome.out


def test_a_dry_run_counts_and_writes_nothing(calibudget: Any, recipe: Any, tmp_path: Path) -> None:
    outcome = calibudget("run", recipe, "--output-dir", tmp_path / "run", "--dry-run", "--json")
    assert outcome.code == 0, outcome.err
    told = json.loads(outcome.out)
    assert told["residual_budget"] == 6
    assert told["sources"]["a"]["pool_size"] == 16
    assert told["sources"]["a"]["tokens"] > 0
    assert told["seconds_expected"] >= 0
    assert not (tmp_path / "run").exists()


def test_init_writes_a_recipe_that_loads(calibudget: Any, recipe: Any, tmp_path: Path) -> None:
    (tmp_path / "c.test.jsonl").write_text('{"prompt": "held out", "completion": "x"}\n')
    (tmp_path / "a.test.jsonl").write_text('{"prompt": "A 3?", "completion": "x"}\n')
    written = tmp_path / "drafted.yaml"
    assert calibudget("init", tmp_path, "--output", written).code == 0
    text = written.read_text()
    assert text.startswith("# yaml-language-server: $schema=drafted.schema.json\n")
    assert json.loads((tmp_path / "drafted.schema.json").read_text())["title"] == "Recipe"
    assert "a.jsonl" in text
    assert "    # c_test: {path: c.test.jsonl}" in text
    assert "# left out: no source above is named c\n" in text
    assert "    a_test: {path: a.test.jsonl" in text
    ran = calibudget("run", written, "engine=fake", "budget=10", "floor=2", "calibration.per_source=4", "--dry-run")
    assert ran.code == 0, ran.err
    assert calibudget("init", tmp_path, "--output", written).code == 2
    assert written.read_text() == text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "none.yaml"], "no such recipe"),
        (["run", "{recipe}", "bugdet=3"], "bugdet: unknown field"),
        (["run", "{recipe}", "budget=3"], "above the budget 3"),
        (["allocate", "--budget", "10"], "STATISTICS"),
        (["allocate", "--sizes", "a=1O", "--budget", "1"], "'1O' isn't an integer"),
        (["allocate", "--sizes", "a=5", "--budget", "1.5"], "'1.5' isn't an integer"),
        (["allocate", "--sizes", "a=5", "--budget", "-1", "--policy", "equal"], "negative"),
        (["allocate", "--sizes", "a=5", "--budget", "9" * 5000, "--policy", "equal"], "isn't an integer"),
        (["allocate", "--sizes", "a=5", "--budget", "1", "--floor=--1", "--policy", "floor-sqrt"], "can't be read"),
        (["allocate", "--sizes", "a=5", "--budget", "6", "--policy", "equal"], "max_repeats"),
        (["allocate", "--sizes", "a=5", "--budget", "1"], "needs statistics"),
        (["verify", "nowhere"], "no such run directory"),
        (["init", "nowhere"], "no such folder"),
        (["frobnicate"], "frobnicate"),
    ],
)
def test_wrong_input_exits_with_2_and_says_what(calibudget: Any, recipe: Any, arguments: Any, message: str) -> None:
    outcome = calibudget(*(argument.format(recipe=recipe) for argument in arguments))
    assert outcome.code == 2
    assert message in outcome.err
    assert "Traceback" not in outcome.err


def test_a_bug_exits_with_4(calibudget: Any, recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_arguments: object, **_options: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr("calibudget.pipeline.verify.verify", broken)
    outcome = calibudget("verify", recipe.parent)
    assert outcome.code == 4
    assert "this is a bug" in outcome.err


def test_import_and_help_load_no_model_library() -> None:
    script = (
        "import sys, calibudget, calibudget.cli.entry, calibudget.cli.main\n"
        "heavy = {'torch', 'transformers', 'datasets', 'pyarrow', 'numpy', 'pydantic'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def _told_and_loaded(*arguments: str) -> tuple[str, str]:
    """What Python says that a command loads, before its first word and after it."""
    script = "import sys; from calibudget.cli.entry import entry; sys.argv[0] = 'calibudget'; entry()"
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", script, *arguments], capture_output=True, text=True
    )
    before, _, after = done.stderr.partition("calibudget: starting ...")
    return before, after


def test_the_first_word_comes_before_the_libraries() -> None:
    before, after = _told_and_loaded("run", "nowhere.yaml")
    assert " numpy\n" in after
    assert not re.search(r" (numpy|pyarrow|calibudget\.recipe)\n", before)


def test_allocate_loads_neither_recipes_nor_what_reads_data() -> None:
    loaded, _ = _told_and_loaded("allocate", "--sizes", "a=3 b=5", "--budget", "4", "--policy", "equal")
    assert " numpy\n" in loaded
    assert not re.search(r" (yaml|pyarrow|calibudget\.(recipe|sources|lm))\n", loaded)


def test_every_command_has_help(calibudget: Any) -> None:
    for one in chain.from_iterable(_COMMANDS.values()):
        command = getattr(one, "__name__", None) or one.info.name
        assert "Usage" in calibudget(command, "--help").out
