"""Several rounds on one set of sources: nothing is drawn twice, floors are counted once, the ledger verifies."""

from __future__ import annotations

import json
import shutil
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import ArtefactError, DataError, RecipeError
from calibudget.pipeline.prepare import prepare
from calibudget.pipeline.round_ledger import ROUNDS
from calibudget.pipeline.rounds import ledger_of
from calibudget.pipeline.run import run
from calibudget.pipeline.verify import verify
from calibudget.recipe.load import load_recipe, resolved_yaml
from calibudget.store.canonical import canonical_json
from calibudget.store.manifest import MANIFEST
from calibudget.store.splits import read_splits
from tests.pipeline.conftest import forge, picks


@pytest.fixture
def play(make_recipe: Any, tmp_path: Path) -> Any:
    """Runs one round after others: a name, the names of the rounds before, overrides; returns its result."""

    def round_(name: Any, *before: Any, overrides: Any = (), **options: Any) -> Any:
        previous = [f"rounds.previous=[{', '.join(str(tmp_path / one) for one in before)}]"] if before else []
        return run(load_recipe(make_recipe(**options), [*previous, *overrides]), tmp_path / name)

    return round_


@pytest.mark.parametrize(
    "overrides",
    [["policy=equal"], pytest.param(["policy=weights", "weights={boolq: 1, piqa: 2}"], marks=pytest.mark.slow)],
)
def test_two_rounds_of_b_hold_the_examples_of_one_round_of_2b(play: Any, tmp_path: Path, overrides: Any) -> None:
    # hiyouga/LlamaFactory #10672: two rounds: new rows, same quotas, both replayable.
    overrides = [*overrides, "floor=0"]
    first = play("first", overrides=[*overrides, "budget=12"])
    second = play("second", "first", overrides=[*overrides, "budget=12"])
    whole = play("whole", overrides=[*overrides, "budget=24"])
    assert first.plan.quotas == second.plan.quotas
    assert not picks(tmp_path / "first") & picks(tmp_path / "second")
    assert picks(tmp_path / "first") | picks(tmp_path / "second") == picks(tmp_path / "whole")
    assert {label: 2 * quota for label, quota in first.plan.quotas.items()} == whole.plan.quotas
    again = play("again", "first", overrides=[*overrides, "budget=12"])
    assert again.manifest_sha256 == second.manifest_sha256


def test_a_later_round_counts_the_floors_that_were_spent(play: Any, tmp_path: Path) -> None:
    play("first", overrides=["floor=8", "budget=20"])
    second = play("second", "first", overrides=["floor=15", "budget=20"])
    spent = {
        label: source.units
        for label, source in ROUNDS.read(tmp_path / "second" / "rounds.json").rounds[0].sources.items()
    }
    assert sum(spent.values()) == 20
    for label, row in second.plan.sources.items():
        assert row.floor_quota == max(0, 15 - spent[label])
        assert row.pool_size == {"boolq": 25, "piqa": 35}[label] - spent[label]
        evidence = MANIFEST.read(tmp_path / "second" / "manifest.json").sources[label]
        assert evidence.spent == spent[label]
        assert spent[label] + row.quota >= 15


@pytest.mark.parametrize("before", [["second"], pytest.param(["first", "second"], marks=pytest.mark.slow)])
def test_the_ledger_of_the_last_round_holds_the_earlier_ones(play: Any, tmp_path: Path, before: Any) -> None:
    play("first")
    play("second", "first", overrides=["budget=10"])
    play("third", *before, overrides=["budget=9"])
    ledger = ROUNDS.read(tmp_path / "third" / "rounds.json")
    assert [each.budget for each in ledger.rounds] == [24, 10]
    assert len(picks(tmp_path / "first") | picks(tmp_path / "second") | picks(tmp_path / "third")) == 43
    previous = ledger_of([tmp_path / "first", tmp_path / "second"])
    found = verify(tmp_path / "third", data_dir=tmp_path / "data", previous=previous)
    assert found.differences == ()
    assert "rounds: the ledger, from the directories of the earlier rounds" in found.checked


@pytest.mark.slow
def test_calibration_records_are_used_again_whatever_the_seed(play: Any, tmp_path: Path) -> None:
    play("first")
    play("second", "first", overrides=["budget=10", "split_seed=7", "calibration.per_source=3"])
    first, second = (read_splits(tmp_path / name / "splits.parquet").sources for name in ("first", "second"))
    for label in first:
        assert set(first[label].calibration) == set(second[label].calibration)
    assert verify(tmp_path / "second", data_dir=tmp_path / "data").differences == ()


@pytest.mark.slow
def test_fresh_calibration_records_are_neither_trained_on_nor_held_out_before(play: Any, tmp_path: Path) -> None:
    play("first")
    play("second", "first", overrides=["budget=10", "rounds.calibration=fresh"])
    play("third", "second", overrides=["budget=5"])
    held = [read_splits(tmp_path / name / "splits.parquet").sources for name in ("first", "second", "third")]
    trained = picks(tmp_path / "first")
    for label in held[0]:
        fresh = set(held[1][label].calibration)
        assert len(fresh) == 5
        assert not fresh & set(held[0][label].calibration)
        assert not {(label, one) for one in fresh} & trained
        assert set(held[2][label].calibration) == fresh
        assert not set(held[2][label].candidates) & set(held[0][label].calibration)
    for name in ("second", "third"):
        assert verify(tmp_path / name, data_dir=tmp_path / "data").differences == ()


@pytest.mark.slow
def test_a_warm_up_without_scores_holds_out_nothing_that_it_trains_on(play: Any, tmp_path: Path) -> None:
    play("warm-up", overrides=["policy=floor-sqrt", "calibration=none"])
    play("rest", "warm-up", overrides=["budget=16"])
    splits = read_splits(tmp_path / "rest" / "splits.parquet").sources
    trained = picks(tmp_path / "warm-up")
    assert not {(label, one) for label, ids in splits.items() for one in ids.calibration} & trained
    assert verify(tmp_path / "rest", data_dir=tmp_path / "data").differences == ()


@pytest.mark.slow
def test_rounds_of_tokens_and_of_repeats_hold(play: Any, tmp_path: Path) -> None:
    tokens = ["budget={tokens: 150}", "policy=equal"]
    play("first", overrides=tokens)
    second = play("second", "first", overrides=tokens)
    assert not picks(tmp_path / "first") & picks(tmp_path / "second")
    assert second.plan.sources["boolq"].pool_size == 25 * 9 - 72
    repeats = ["budget=50", "policy=equal", "max_repeats=2", "floor=0"]
    play("third", overrides=repeats)
    play("fourth", "third", overrides=repeats)
    assert len(picks(tmp_path / "third") | picks(tmp_path / "fourth")) == 100
    for name in ("second", "fourth"):
        assert verify(tmp_path / name, data_dir=tmp_path / "data").differences == ()


@pytest.mark.slow
def test_earlier_rounds_must_be_finished_and_whole_and_of_one_unit(play: Any, tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="no such run directory"):
        play("second", "first")
    play("first")
    with pytest.raises(RecipeError, match="counts tokens, but an earlier round counts examples"):
        play("second", "first", overrides=["budget={tokens: 90}"])
    play("twin")
    shutil.copytree(tmp_path / "first", tmp_path / "other")
    play("parallel", overrides=["budget=25"])
    with pytest.raises(ArtefactError, match="two of the earlier rounds picked the same examples"):
        play("second", "first", "parallel")
    (tmp_path / "first" / "train.jsonl").write_text("")
    with pytest.raises(ArtefactError, match="first: doesn't verify, so it can't be an earlier round"):
        play("second", "first")
    assert not (tmp_path / "second").exists()


@pytest.mark.slow
def test_a_calibration_record_that_is_gone_is_refused(play: Any, tmp_path: Path) -> None:
    play("first")
    held_out = read_splits(tmp_path / "first" / "splits.parquet").sources["boolq"].calibration
    file = tmp_path / "data" / "boolq.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    recipe = load_recipe(tmp_path / "recipe.yaml")
    gone = {record.prompt[0].content for record in prepare(recipe).splits["boolq"].calibration}
    file.write_text("".join(json.dumps(row) + "\n" for row in rows if row["instruction"] not in gone))
    with pytest.raises(DataError, match=f"5 of the 5 calibration records .*the first: {min(held_out)}"):
        play("second", "first", overrides=["budget=10"])
    play("second", "first", overrides=["budget=10", "rounds.calibration=fresh"])


FORGERIES: list[tuple[Any, str, str]] = [
    (lambda rounds: rounds[0]["sources"]["boolq"].update(units=19), "allocation.json", "floors.boolq"),
    (lambda rounds: rounds[0]["sources"]["boolq"].update(units=1), "rounds.json", "units of 'boolq'"),
    (lambda rounds: rounds[0]["sources"]["boolq"]["record_ids"].pop(), "rounds.json", "units of 'boolq'"),
    (lambda rounds: rounds.clear(), "rounds.json", "rounds"),
    (lambda rounds: rounds.append(rounds[0]), "rounds.json", ""),
    (lambda rounds: rounds[0].update(unit="tokens"), "rounds.json", "unit of round"),
    (lambda rounds: rounds[0].update(budget=3), "rounds.json", "rounds[0].budget"),
    (lambda rounds: rounds[0]["sources"]["piqa"]["calibration_ids"].pop(), "splits.parquet", "source piqa"),
]


def test_a_forged_ledger_and_an_example_of_an_earlier_round_are_found(
    play: Any, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    play("first")
    play("second", "first", overrides=["budget=20", "floor=20"])
    previous = ledger_of([tmp_path / "first"])
    value = json.loads((tmp_path / "second" / "rounds.json").read_bytes())
    for number, (change, file, field) in enumerate(FORGERIES):
        directory = shutil.copytree(tmp_path / "second", tmp_path / f"forged-{number}")
        forged = deepcopy(value)
        change(forged["rounds"])
        (directory / "rounds.json").write_bytes(canonical_json(forged))
        forge(directory)
        found = verify(directory, data_dir=tmp_path / "data", previous=previous)
        with subtests.test(number=number):
            assert any(one.file == file and one.field.startswith(field) for one in found.differences)
    shutil.copy(tmp_path / "first" / "splits.parquet", tmp_path / "second" / "splits.parquet")
    forge(tmp_path / "second")
    expected = {one.expected for one in verify(tmp_path / "second").differences if one.file == "splits.parquet"}
    assert "no example that an earlier round used up" in expected


@pytest.mark.slow
def test_a_round_begun_after_other_rounds_isn_t_resumed(play: Any, make_recipe: Any, tmp_path: Path) -> None:
    play("first")
    play("second", "first", overrides=["budget=10"])
    (tmp_path / "second" / "SHA256SUMS.tsv").unlink()
    shutil.move(tmp_path / "first", tmp_path / "gone")
    play("first", overrides=["selection_seed=3"])
    recipe = load_recipe(make_recipe(), [f"rounds.previous=[{tmp_path / 'first'}]", "budget=10"])
    with pytest.raises(ArtefactError, match="was begun after other rounds"):
        run(recipe, tmp_path / "second", resume=True)


def test_paths_of_one_machine_stay_out_of_the_evidence(make_recipe: Any, tmp_path: Path) -> None:
    options = [f"rounds.previous=[{tmp_path / 'first'}]", f"calibration.adapter={tmp_path / 'tuned' / 'adapter'}"]
    recipe = load_recipe(make_recipe(), options)
    assert recipe.previous_rounds == (tmp_path / "first",)
    assert recipe.adapter == tmp_path / "tuned" / "adapter"
    assert str(tmp_path).encode() not in resolved_yaml(recipe)
    assert b"first" in resolved_yaml(recipe)
