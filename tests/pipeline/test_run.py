"""The main job with the fake scorer: the same bytes whatever the order of things, and clean refusals."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import AllocationError, ArtefactError, DataError, InputError, RecipeError
from calibudget.lm.encoding import Encoder
from calibudget.lm.loading import load_tokenizer
from calibudget.pipeline.prepare import prepare
from calibudget.pipeline.run import run
from calibudget.pipeline.run_directory import JOURNAL_NAME
from calibudget.pipeline.verify import verify
from calibudget.recipe.load import load_recipe
from calibudget.store.canonical import read_object
from calibudget.store.splits import read_splits
from tests.conftest import bytes_in
from tests.pipeline.conftest import rows_of


def test_a_run_selects_exactly_the_budget_and_joins_the_companion(make_recipe: Any, tmp_path: Path) -> None:
    result = run(load_recipe(make_recipe()), tmp_path / "run")
    selected = [row for row in rows_of(tmp_path / "run") if row["role"] == "source"]
    companion = [row for row in rows_of(tmp_path / "run") if row["role"] == "companion"]
    assert len(selected) == result.count == result.plan.budget == 24
    assert sum(result.plan.quotas.values()) == 24
    assert len(companion) == result.companion_count == 9  # companion rows are joined unchanged, repeats included
    per_source = {label: sum(row["source"] == label for row in selected) for label in result.plan.quotas}
    assert per_source == result.plan.quotas
    splits = read_splits(tmp_path / "run" / "splits.parquet")
    for label, ids in splits.sources.items():
        drawn = {row["record_id"] for row in selected if row["source"] == label}
        assert not set(ids.calibration) & {*ids.candidates, *drawn}
    assert all(row["original"]["meta"]["n"] > 2**60 for row in selected if row["original"]["meta"]["n"] % 2)


def test_two_runs_and_shuffled_input_files_give_the_same_bytes(make_recipe: Any, tmp_path: Path) -> None:
    recipe = make_recipe()
    run(load_recipe(recipe), tmp_path / "first")
    run(load_recipe(recipe), tmp_path / "second")
    assert bytes_in(tmp_path / "first") == bytes_in(tmp_path / "second")
    for file in (tmp_path / "data").iterdir():
        lines = file.read_text().splitlines(keepends=True)
        if file.name != "math.jsonl":
            random.Random(1).shuffle(lines)  # noqa: S311
        file.write_text("".join(lines))
    run(load_recipe(recipe), tmp_path / "third")
    first, third = bytes_in(tmp_path / "first"), bytes_in(tmp_path / "third")
    for name in (
        "splits.parquet",
        "scores.parquet",
        "statistics.json",
        "allocation.json",
        "selection.json",
        "train.jsonl",
    ):
        assert first[name] == third[name], name


@pytest.mark.parametrize(
    ("override", "error", "message"),
    [
        ("budget=1000", AllocationError, "above all pools together"),
        ("floor=20", AllocationError, "above the budget 24"),
        ("floor.piqa=30", InputError, "isn't a mapping"),
        (
            "calibration.per_source=31",
            DataError,
            "the calibration split needs 31 records that differ, but there are only 30",
        ),
        (
            "exponents.availability=999.0",
            AllocationError,
            r"exponents\.availability: of 'boolq', .* too large a number",
        ),
        (
            "exponents.availability=-999.0",
            AllocationError,
            r"exponents\.availability: of 'boolq', .* too small a number",
        ),
        ("sources.boolq.path=none.jsonl", DataError, "none.jsonl"),
        ("sources.boolq.path=piqa.jsonl", DataError, "piqa.jsonl"),
        ("budget={tokens: 8}", AllocationError, "8 tokens is below the shortest example of all sources, which has 9"),
        ("budget={tokens: 1000000}", AllocationError, "above all pools together"),
    ],
)
def test_what_can_t_be_met_is_refused_and_leaves_nothing(
    make_recipe: Any, tmp_path: Path, override: str, error: Any, message: str
) -> None:
    with pytest.raises(error, match=message):
        run(load_recipe(make_recipe(), [override]), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_directory_of_other_things_or_another_recipe_is_refused(make_recipe: Any, tmp_path: Path) -> None:
    recipe = make_recipe()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "diary.txt").write_text("mine")
    with pytest.raises(ArtefactError, match="holds other files"):
        run(load_recipe(recipe), tmp_path / "full", resume=True)
    run(load_recipe(recipe), tmp_path / "run")
    with pytest.raises(ArtefactError, match="a finished run of this recipe"):
        run(load_recipe(recipe), tmp_path / "run")
    with pytest.raises(ArtefactError, match=r"differs in .*seed\b"):
        run(load_recipe(recipe, ["seed=43"]), tmp_path / "run", resume=True)
    assert run(load_recipe(recipe), tmp_path / "run", resume=True).count == 24
    assert (tmp_path / "full" / "diary.txt").read_text() == "mine"


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_exits_with_3_and_resumes_to_the_same_bytes(
    make_recipe: Any, tmp_path: Path, stop: Any
) -> None:
    recipe = make_recipe()
    run(load_recipe(recipe), tmp_path / "whole")
    script = tmp_path / "interrupted.py"
    script.write_text(
        "import os, sys\n"
        "from calibudget.scoring.fake import FakeScorer\n"
        "make, measure, batches = FakeScorer.__init__, FakeScorer.measure, []\n"
        "def small(self, **options): make(self, batch_size=2)\n"
        "def stopped(self, items):\n"
        "    batches.append(items)\n"
        f"    if len(batches) == 3 and '--resume' not in sys.argv: os.kill(os.getpid(), {int(stop)})\n"
        "    return measure(self, items)\n"
        "FakeScorer.__init__, FakeScorer.measure = small, stopped\n"
        "from calibudget.cli.entry import entry\nentry()\n"
    )
    command = [sys.executable, str(script), "run", str(recipe), "--output-dir", str(tmp_path / "run")]
    interrupted = subprocess.run(command, capture_output=True, text=True)
    journal = tmp_path / "run" / JOURNAL_NAME
    assert interrupted.returncode == 3
    assert "--resume" in interrupted.stderr
    assert journal.read_bytes().count(b"\n") == 3  # the header and two batches
    resumed = subprocess.run([*command, "--resume"], capture_output=True, text=True)
    assert resumed.returncode == 0, resumed.stderr
    same = ("splits.parquet", "allocation.json", "selection.json", "train.jsonl")
    whole, again = bytes_in(tmp_path / "whole"), bytes_in(tmp_path / "run")
    assert {name: again[name] for name in same} == {name: whole[name] for name in same}
    assert not journal.exists()


def test_too_long_skip_leaves_longer_records_before_anything_is_drawn(
    tmp_path: Path, make_recipe: Callable[..., Path], tiny_directory: Path
) -> None:
    path = make_recipe()
    path.write_text(path.read_text().replace("engine: fake", f"model: {tiny_directory}\nerror: nll"))
    encoder = Encoder("alpaca", load_tokenizer(str(tiny_directory)))
    everything = prepare(load_recipe(path))
    assert everything.companion is not None
    records = [record for split in everything.splits.values() for record in (*split.calibration, *split.candidates)]
    lengths = {one.record_id: encoder.encode(one).total_length for one in (*records, *everything.companion.records)}
    limit = sorted(lengths.values())[-4] - 1
    longer = {name for name, length in lengths.items() if length > limit}
    assert longer & {one.record_id for one in records}
    overrides = [f"calibration.max_length={limit}", "calibration.too_long=skip"]
    found = run(load_recipe(path, overrides), tmp_path / "run")
    assert not longer & {str(row["record_id"]) for row in rows_of(tmp_path / "run")}
    manifest: Any = read_object(tmp_path / "run" / "manifest.json")
    told = [int(note.split(": ")[1].split()[0]) for note in found.notes if "skipped: longer than `max_length`" in note]
    assert sum(row["skipped"] for row in manifest["sources"].values()) == len(
        longer & {one.record_id for one in records}
    )
    assert sum(told) == len(longer)
    assert verify(tmp_path / "run", data_dir=tmp_path / "data", model=str(tiny_directory)).differences == ()
    for refused, words in (
        (["calibration.too_long=skip"], "name that too"),
        ([*overrides, "engine=fake"], "tokenizer"),
    ):
        with pytest.raises(RecipeError, match=words):
            load_recipe(path, refused)
