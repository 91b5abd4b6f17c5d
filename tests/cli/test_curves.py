"""`calibudget curves`, `warm-up`, and the options that take warm-ups and curves made elsewhere."""

import json
import math
import re
from dataclasses import replace

import pytest

from calibudget.allocation import WarmUps, apportion, fit_curves, minimise_nll
from calibudget.recipe import load_recipe
from calibudget.store import parse_statistics, read_curves, read_splits, read_warm_ups_file, write_warm_ups

RECIPE = """\
engine: fake
budget: 40
floor: 8
policy: learning-curve
error: nll
calibration: {per_source: 30, resamples: 8}
sources:
  a: {path: a.jsonl, answer: none}
  b: {path: b.jsonl, answer: none}
"""
SLOPES = {"a": 0.3, "b": 0.1}


def after(label, exposure, number):
    """The planted NLL of a record: levels differ by record, and the fall a little."""
    return 2.0 + number / 50 - (SLOPES[label] + 0.01 * (number % 3)) * (exposure > 4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A recipe, and warm-ups and scores for its calibration splits."""
    from calibudget.pipeline import run

    root = tmp_path_factory.mktemp("curves")
    for name in SLOPES:
        rows = ({"prompt": f"{name} {n}?", "completion": f"the answer is {n}"} for n in range(80))
        (root / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (root / "recipe.yaml").write_text(RECIPE)
    run(load_recipe(root / "recipe.yaml", ["policy=equal"]), root / "plain")
    lines, scores = [], []
    for label, ids in read_splits(root / "plain" / "splits.parquet").sources.items():
        for number, record_id in enumerate(sorted(ids.calibration)):
            own = {"source": label, "record_id": record_id}
            lines += [{**own, "exposure": e, "nll": after(label, e, number)} for e in (4, 8)]
            scores.append({**own, "nll": after(label, 8, number) - 0.1})
    (root / "warm-ups.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (root / "after.jsonl").write_text("".join(json.dumps(line) + "\n" for line in scores))
    run(load_recipe(root / "recipe.yaml"), root / "run", warm_ups=root / "warm-ups.jsonl")
    return root


@pytest.fixture(scope="module")
def fits():
    warm_ups = {x: WarmUps(exposures=[4, 8], nll=[[after(x, e, n) for n in range(30)] for e in (4, 8)]) for x in SLOPES}
    return fit_curves(warm_ups, resamples=8)


@pytest.mark.slow
def test_a_run_takes_warm_ups_made_elsewhere(calibudget, folder, fits, tmp_path):
    arguments = ("--warm-ups", folder / "warm-ups.jsonl", "--output-dir", tmp_path / "run")
    outcome = calibudget("run", folder / "recipe.yaml", *arguments, "--json")
    assert outcome.code == 0, outcome.err
    expected = apportion(fits.slopes, 40, lower={"a": 8, "b": 8}).quotas
    assert json.loads(outcome.out)["quotas"] == expected
    assert read_curves(tmp_path / "run" / "curves.json").curves == fits.curves
    assert calibudget("verify", tmp_path / "run").code == 0


def test_statistics_get_slopes_and_allocate_goes_by_them(calibudget, folder, fits, tmp_path):
    arguments = ("--pool-sizes", "a=50", "--pool-sizes", "b=50", "--resamples", 8)
    made = calibudget("statistics", folder / "after.jsonl", "--warm-ups", folder / "warm-ups.jsonl", *arguments)
    assert made.code == 0, made.err
    statistics = parse_statistics(json.loads(made.out), "stdout")
    assert {label: row.slope for label, row in statistics.sources.items()} == fits.slopes
    (tmp_path / "statistics.json").write_text(made.out)
    asked = ("--budget", 40, "--floor", 8, "--policy", "learning-curve", "--json")
    outcome = calibudget("allocate", tmp_path / "statistics.json", *asked)
    quotas = {label: row["quota"] for label, row in json.loads(outcome.out)["sources"].items()}
    assert quotas == apportion(fits.slopes, 40, lower={"a": 8, "b": 8}).quotas
    keen = calibudget("allocate", tmp_path / "statistics.json", *asked, "--importance", "a=1 b=4")
    assert json.loads(keen.out)["sources"]["b"]["quota"] > quotas["b"]


def test_allocate_reaches_the_least_nll_of_curves(calibudget, folder, fits):
    asked = ("--sizes", "a=50 b=50", "--budget", 60, "--floor", 10, "--policy", "least-nll", "--json")
    outcome = calibudget("allocate", *asked, "--curves", folder / "run" / "curves.json")
    quotas = {label: row["quota"] for label, row in json.loads(outcome.out)["sources"].items()}
    assert quotas == minimise_nll(fits.curves, 60, lower={"a": 10, "b": 10}, upper={"a": 50, "b": 50})
    refused = calibudget("allocate", *asked)
    assert (refused.code, refused.err) == (2, "calibudget: the policy least-nll needs curves\n")


def test_curves_are_shown_with_the_outcome_beside(calibudget, folder):
    plain = calibudget("curves", folder / "run")
    assert plain.code == 0
    assert "falling" in plain.out
    assert "predicted macro NLL of the calibration split" in plain.out
    beside = calibudget("curves", folder / "run", "--outcome", folder / "after.jsonl", "--json")
    body = json.loads(beside.out)
    means = {x: sum(after(x, 8, n) - 0.1 for n in range(30)) / 30 for x in SLOPES}
    assert body["outcome"] == pytest.approx(means)
    assert body["outcome_nll"] == pytest.approx(sum(means.values()) / 2)
    assert body["curves"]["predicted_nll"] == pytest.approx(
        sum(read_curves(folder / "run" / "curves.json").curves[x].nll(body["quotas"][x]) for x in SLOPES) / 2
    )
    table = calibudget("curves", folder / "run", "--outcome", folder / "after.jsonl")
    assert "measured macro NLL of the calibration split after training" in table.out


def test_what_has_no_curves_is_refused(calibudget, folder, tmp_path):
    refused = calibudget("curves", folder / "plain")
    assert refused.code == 2
    assert "holds no curves.json" in refused.err
    (tmp_path / "other.jsonl").write_text('{"source": "a", "record_id": "x", "nll": 1.0}\n')
    other = calibudget("curves", folder / "run", "--outcome", tmp_path / "other.jsonl")
    assert other.code == 2
    assert "scores other records than the calibration split" in other.err


#: What a doubling of each source gives to each: b does more for a than a itself.
GIVES = {"a": {"a": 0.1, "b": 0.0}, "b": {"a": 0.3, "b": 0.05}}


@pytest.fixture(scope="module")
def mixed(folder, tmp_path_factory):
    """A run from mixtures made elsewhere, and its quotas."""
    from calibudget.pipeline import run

    root = tmp_path_factory.mktemp("mixed")
    mixtures = [{"a": 4, "b": 4}, {"a": 2, "b": 4}, {"a": 8, "b": 4}, {"a": 4, "b": 2}, {"a": 4, "b": 8}]
    lines = [
        {**json.loads(line), "exposure": quotas[label], "warm_up": number, "nll": 2 - fall + 0.01 * (place % 5)}
        for place, line in enumerate((folder / "after.jsonl").read_text().splitlines())
        for label in [json.loads(line)["source"]]
        for number, quotas in enumerate(mixtures, start=1)
        for fall in [sum(GIVES[other][label] * math.log2(quotas[other] / 4) for other in GIVES)]
    ]
    (root / "mixtures.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    recipe = load_recipe(folder / "recipe.yaml", ["warm_up={read: mixtures, exposures: [2, 4, 8], shrink: false}"])
    return root, run(recipe, root / "run", warm_ups=root / "mixtures.jsonl").plan.quotas


def test_a_source_is_paid_for_what_it_gives_to_others(calibudget, mixed):
    root, quotas = mixed
    assert quotas == apportion({"a": 0.1, "b": 0.35}, 40, lower={"a": 8, "b": 8}).quotas
    shown = calibudget("curves", root / "run")
    row = next(line for line in shown.out.splitlines() if "+0.3000" in line)
    assert "+0.0500" in row
    assert "calibration records of all sources" in shown.out
    body = json.loads(calibudget("curves", root / "run", "--json").out)["curves"]
    assert {label: pytest.approx(row, abs=1e-9) for label, row in GIVES.items()} == body["transfer"]
    assert calibudget("verify", root / "run").code == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda line: line | {"exposure": line["exposure"] + 1}, r"warmed 'a' up on \[5, 3, 9, 5, 5\] examples"),
        (lambda line: {key: line[key] for key in line if key != "warm_up"}, "line 1: warm_up: is missing"),
        (lambda line: line | {"warm_up": 1}, "was given at"),
    ],
)
def test_mixtures_of_another_recipe_are_refused(calibudget, folder, mixed, tmp_path, change, message):
    lines = [json.loads(line) for line in (mixed[0] / "mixtures.jsonl").read_text().splitlines()]
    (tmp_path / "w.jsonl").write_text("".join(json.dumps(change(line)) + "\n" for line in lines))
    told = ("warm_up={read: mixtures, exposures: [2, 4, 8]}", "--warm-ups", tmp_path / "w.jsonl")
    outcome = calibudget("run", folder / "recipe.yaml", *told, "--output-dir", tmp_path / "run")
    assert outcome.code == 2
    assert re.search(message, outcome.err)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("fall", "message"),
    [
        (-0.2, "the NLL rises with the exposure, so that the slope counts as 0: 'b'"),
        (0.0, "the slope can't be told from 0 at two standard deviations: 'b'"),
    ],
)
def test_a_curve_that_rises_or_is_flat_is_told_and_gets_little(calibudget, folder, tmp_path, fall, message):
    lines = [json.loads(line) for line in (folder / "warm-ups.jsonl").read_text().splitlines()]
    for number, line in enumerate(lines):
        if line["source"] == "b":
            line["nll"] = 2.0 + 0.05 * (number // 2 % 2 - 0.5) * (line["exposure"] > 4) - fall * (line["exposure"] > 4)
    (tmp_path / "w.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    arguments = ("--warm-ups", tmp_path / "w.jsonl", "--output-dir", tmp_path / "run")
    outcome = calibudget("run", folder / "recipe.yaml", *arguments)
    assert outcome.code == 0
    assert message in " ".join((outcome.out + outcome.err).split())
    quotas = json.loads((tmp_path / "run" / "allocation.json").read_text())["sources"]
    assert quotas["b"]["quota"] == 8


def test_statistics_refuse_warm_ups_of_another_model_or_of_other_records(calibudget, folder, tmp_path):
    asked = ("--pool-sizes", "a=50 b=50", "--resamples", 8)
    lines = (folder / "warm-ups.jsonl").read_text()
    first = json.loads(lines.splitlines()[0])["record_id"]
    (tmp_path / "other.jsonl").write_text(lines.replace(first, "0" * 64))
    scores = folder / "run" / "scores.parquet"
    other = calibudget("statistics", scores, "--warm-ups", tmp_path / "other.jsonl", *asked)
    assert other.code == 2
    assert "measure other records of 'a' than the scores" in other.err
    named = read_warm_ups_file(folder / "warm-ups.jsonl")
    write_warm_ups(tmp_path / "named.parquet", replace(named, model={"name": "another", "sha256": "0" * 64}))
    refused = calibudget("statistics", scores, "--warm-ups", tmp_path / "named.parquet", *asked)
    assert refused.code == 2
    assert "another model than the scores" in refused.err


def test_the_fake_engine_has_nothing_to_warm_up(calibudget, folder, tmp_path):
    outcome = calibudget("warm-up", folder / "recipe.yaml", "--output", tmp_path / "w.parquet")
    assert outcome.code == 2
    assert "engine: fake can't be trained" in outcome.err
    assert list(tmp_path.iterdir()) == []


def test_a_split_that_shows_no_slope_is_refused_with_a_number(calibudget, folder, tmp_path):
    lines = [json.loads(line) for line in (folder / "warm-ups.jsonl").read_text().splitlines()]
    for number, line in enumerate(lines):
        line["nll"] += (number // 2 % 2 - 0.5) * 2.4 * (line["exposure"] > 4)
    (tmp_path / "noisy.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    arguments = ("--warm-ups", tmp_path / "noisy.jsonl", "--output-dir", tmp_path / "run")
    outcome = calibudget("run", folder / "recipe.yaml", *arguments)
    assert outcome.code == 2
    assert "no slope can be told from 0" in outcome.err
    assert "calibration records" in outcome.err


def test_a_dry_run_tells_what_warm_ups_would_train_on(calibudget, folder):
    outcome = calibudget("run", folder / "recipe.yaml", "--dry-run", "--json")
    assert json.loads(outcome.out)["warm_ups"] == [8, 16]
    shown = calibudget("run", folder / "recipe.yaml", "warm_up.exposures=[2, 5, 10]", "--dry-run")
    assert "warm-ups train on 4 and 10 and 20 examples (34 in all) before anything is allocated" in shown.out
    several = calibudget("run", folder / "recipe.yaml", "warm_up={read: mixtures, exposures: [2, 4, 8]}", "--dry-run")
    assert "warm-ups train on 5 warm-ups: 6 to 12 examples (44 in all) before anything is allocated" in several.out
    refused = calibudget("run", folder / "recipe.yaml", "floor=1", "--dry-run")
    assert refused.code == 2
    assert "trains on half of each floor" in refused.err
