"""Warm-ups from the recipe to the verified run: trained, scored, resumed, made elsewhere, and refused."""

import json
import math
import os
import shutil
import signal

import numpy as np
import pytest

from calibudget.errors import (
    AllocationError,
    ArtefactError,
    InterruptedRunError,
    RecipeError,
    TrainingError,
)
from calibudget.pipeline import dry_run, run, score, show_curves, verify, warm_up
from calibudget.recipe import load_recipe
from calibudget.store import (
    extend_sums,
    read_curves,
    read_manifest,
    read_statistics,
    read_sums,
    read_warm_ups,
    write_warm_ups,
)

RECIPE = """
model: {model}
budget: 60
floor: 16
policy: learning-curve
warm_up:
  training: {{rank: 4, scaling: 8, batch_size: 4, epochs: 2, learning_rate: 0.004, max_length: 256, device: cpu,
             deterministic: true, warmup_fraction: 0.0}}
data_dir: {data}
calibration: {{per_source: 30, resamples: 20}}
error: nll
sources:
  apples: {{path: apples.jsonl, answer: none}}
  pears: {{path: pears.jsonl, answer: none}}
companion: {{path: companion.jsonl, answer: none}}
"""


def texts(label, count):
    """Answers to apples are always alike, those to pears can't be known."""
    for number in range(count):
        answer = "the answer is answer1" if label == "apples" else f"the answer is {number * 7919 % 97:b} {number % 5}"
        yield {"prompt": f"How many {label} are {number} and {number + 1}?", "completion": answer}


@pytest.fixture(scope="session")
def folder(tmp_path_factory, tiny_directory):
    """Sources, and a recipe of them for the tiny model."""
    root = tmp_path_factory.mktemp("warm-ups")
    for label, count in (("apples", 80), ("pears", 80), ("companion", 3)):
        rows = "".join(json.dumps(row) + "\n" for row in texts(label, count))
        (root / f"{label}.jsonl").write_text(rows)
    (root / "recipe.yaml").write_text(RECIPE.format(model=tiny_directory, data=root))
    return root


def recipe_of(folder, *overrides):
    return load_recipe(folder / "recipe.yaml", overrides)


@pytest.fixture(scope="session")
def warmed(folder):
    """A finished run with its warm-ups beside it; to be copied, never changed."""
    run(recipe_of(folder), folder / "run")
    return folder / "run"


@pytest.fixture
def run_dir(warmed, tmp_path):
    return shutil.copytree(warmed, tmp_path / "run")


def differences(directory):
    return [str(one) for one in verify(directory).differences]


@pytest.mark.slow
def test_a_run_warms_up_fits_allocates_and_verifies(warmed):
    assert differences(warmed) == []
    made = read_warm_ups(warmed / "warm-ups.parquet")
    assert {label: list(made.exposures(label).values()) for label in made.labels} == {
        "apples": [8, 16],
        "pears": [8, 16],
    }
    assert [(run.examples, run.steps) for run in made.runs] == [(16, 8), (32, 16)]
    slopes = {label: row.slope for label, row in read_statistics(warmed / "statistics.json").sources.items()}
    report = read_curves(warmed / "curves.json")
    assert slopes == {label: curve.slope for label, curve in report.curves.items()}
    means = {label: [sum(nll.values()) / 30 for nll in made.of(label).values()] for label in made.labels}
    for label, (half, whole) in means.items():
        assert report.sources[label].fit.raw_slope == pytest.approx(half - whole)
    manifest = read_manifest(warmed / "manifest.json")
    assert (manifest.warm_ups.count, manifest.warm_ups.examples) == (2, 48)
    assert manifest.warm_ups.seconds == pytest.approx(sum(run.seconds for run in made.runs))
    allocation = json.loads((warmed / "allocation.json").read_text())["sources"]
    assert {label: row["utility"] for label, row in allocation.items()} == slopes
    assert sum(row["quota"] for row in allocation.values()) == 60


@pytest.mark.slow
def test_warm_ups_are_runs_of_their_own_and_part_of_the_selection(warmed):
    rows = [json.loads(line) for line in (warmed / "train.jsonl").read_text().splitlines()]
    selected = {(row["source"], row["record_id"]) for row in rows}
    earlier = set()
    for number in (1, 2):
        directory = warmed.with_name("run.warm-ups") / str(number)
        assert differences(directory) == []
        own = [json.loads(line) for line in (directory / "train.jsonl").read_text().splitlines()]
        assert all(row["role"] == "source" for row in own)
        ids = {(row["source"], row["record_id"]) for row in own}
        assert earlier < ids < selected
        earlier = ids


@pytest.mark.slow
def test_the_curves_are_shown_beside_the_outcome(warmed, folder, tmp_path):
    view = show_curves(warmed)
    assert view.outcome_nll is None
    assert view.report.predicted_nll == pytest.approx(
        sum(curve.nll(view.quotas[label]) for label, curve in view.report.curves.items()) / 2
    )
    adapter = warmed.with_name("run.warm-ups") / "2" / "adapter"
    after = recipe_of(folder, f"calibration.adapter={adapter}", "policy=calibudget", "warm_up=null")
    score(after, output=tmp_path / "after.parquet")
    seen = show_curves(warmed, tmp_path / "after.parquet")
    made = read_warm_ups(warmed / "warm-ups.parquet")
    for label in made.labels:
        assert seen.outcome[label] == pytest.approx(sum(made.of(label)[2].values()) / 30, rel=1e-5)
    assert seen.outcome_nll == pytest.approx(sum(seen.outcome.values()) / 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "change", "expected"),
    [
        ("statistics.json", lambda body: body["sources"]["pears"].update(slope=0.5), "sources.pears.slope"),
        ("curves.json", lambda body: body["sources"]["pears"].update(raw_slope=0.5), "sources.pears.raw_slope"),
        ("curves.json", lambda body: body.update(predicted_nll=1.5), "predicted_nll"),
        ("curves.json", lambda body: body["sources"]["apples"].update(quota_interval=[1, 2]), "quota_interval"),
        ("manifest.json", lambda body: body["warm_ups"].update(examples=1), "warm_ups.examples"),
    ],
)
def test_an_edit_shows(run_dir, name, change, expected):
    body = json.loads((run_dir / name).read_text())
    change(body)
    (run_dir / name).write_text(json.dumps(body))
    extend_sums(run_dir, list(read_sums(run_dir)))
    assert any(one.startswith(name) and expected in one for one in differences(run_dir))


@pytest.mark.slow
def test_an_nll_that_was_edited_shows_in_everything_after_it(run_dir):
    from dataclasses import replace

    made = read_warm_ups(run_dir / "warm-ups.parquet")
    nlls = [replace(one, nll=one.nll + 1) if one.exposure == 8 else one for one in made.nlls]
    write_warm_ups(run_dir / "warm-ups.parquet", replace(made, nlls=tuple(nlls)))
    extend_sums(run_dir, list(read_sums(run_dir)))
    files = {one.split(":")[0] for one in differences(run_dir)}
    assert {"manifest.json", "statistics.json", "curves.json"} <= files | {"manifest.json"}
    swapped = replace(made, runs=(replace(made.runs[0], selected_sha256="0" * 64), made.runs[1]))
    write_warm_ups(run_dir / "warm-ups.parquet", swapped)
    assert any("runs[0].selected_sha256" in one for one in differences(run_dir))


@pytest.mark.slow
def test_warm_ups_made_elsewhere_give_the_same_run(warmed, folder, tmp_path):
    made = warm_up(recipe_of(folder), tmp_path / "warm-ups.parquet")
    own = read_warm_ups(warmed / "warm-ups.parquet")
    assert made.nlls == own.nlls
    assert [run.adapter_sha256 for run in made.runs] == [run.adapter_sha256 for run in own.runs]
    run(recipe_of(folder), tmp_path / "again", warm_ups=warmed / "warm-ups.parquet", scores=warmed / "scores.parquet")
    for name in ("statistics.json", "allocation.json", "curves.json", "selection.json", "train.jsonl"):
        assert (tmp_path / "again" / name).read_bytes() == (warmed / name).read_bytes()
    assert differences(tmp_path / "again") == []
    lines = [{"source": n.source, "exposure": n.exposure, "record_id": n.record_id, "nll": n.nll} for n in own.nlls]
    (tmp_path / "w.jsonl").write_text("".join(json.dumps(line) + "\n" for line in reversed(lines)))
    result = run(recipe_of(folder), tmp_path / "told", warm_ups=tmp_path / "w.jsonl", scores=warmed / "scores.parquet")
    assert result.plan.quotas == show_curves(warmed).quotas
    assert read_manifest(tmp_path / "told" / "manifest.json").warm_ups is None
    assert differences(tmp_path / "told") == []


@pytest.mark.slow
def test_a_curve_that_falls_below_zero_is_told_of(warmed, folder, tmp_path):
    own = read_warm_ups(warmed / "warm-ups.parquet")
    first = min(own.exposures("apples").values())
    steep = {first: 1.0}
    lines = [
        {
            "source": n.source,
            "exposure": n.exposure,
            "record_id": n.record_id,
            "nll": n.nll if n.source == "pears" else steep.get(n.exposure, 0.2),
        }
        for n in own.nlls
    ]
    (tmp_path / "w.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    scores = warmed / "scores.parquet"
    told = run(recipe_of(folder), tmp_path / "run", warm_ups=tmp_path / "w.jsonl", scores=scores)
    (note,) = [note for note in told.notes if "below 0" in note]
    quota = told.plan.quotas["apples"]
    predicted = read_curves(tmp_path / "run" / "curves.json").sources["apples"].predicted_nll
    assert predicted < 0
    assert note.startswith(f"apples: its curve predicts an NLL of {predicted:.4f} at its quota of {quota}")


@pytest.mark.slow
def test_an_interrupted_warm_up_goes_on(folder, warmed, tmp_path, monkeypatch):
    calls = []

    def stop(report):
        calls.append(report.step)
        if len(calls) == 12:  # in the second warm-up
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(recipe_of(folder), tmp_path / "run", listener=stop)
    assert not (tmp_path / "run" / "allocation.json").exists()
    more = []
    run(recipe_of(folder), tmp_path / "run", resume=True, listener=lambda report: more.append(report.total))
    assert set(more) == {16}
    for name in ("statistics.json", "allocation.json", "curves.json", "train.jsonl"):
        assert (tmp_path / "run" / name).read_bytes() == (warmed / name).read_bytes()


@pytest.mark.slow
def test_a_stop_in_the_last_step_of_a_warm_up_stops_the_run(folder, tmp_path):
    def stop(report):
        if report.step == report.total:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(InterruptedRunError, match="stopped after step"):
        run(recipe_of(folder), tmp_path / "run", listener=stop)
    begun = []
    run(recipe_of(folder), tmp_path / "run", resume=True, listener=lambda report: begun.append(report.step == 1))
    assert sum(begun) == 1


@pytest.mark.slow
def test_curves_are_read_off_checkpoints(folder, tmp_path):
    recipe = recipe_of(folder, "warm_up.read=checkpoints", "warm_up.training.epochs=1")
    result = run(recipe, tmp_path / "run", scores=None)
    assert differences(tmp_path / "run") == []
    made = read_warm_ups(tmp_path / "run" / "warm-ups.parquet")
    assert [(one.examples, one.steps) for one in made.runs] == [(16, 4), (32, 8)]
    early, late = ([made.exposures(label)[number] for label in made.labels] for number in (1, 2))
    assert sum(early) == 16
    assert late == [16, 16]
    assert read_manifest(tmp_path / "run" / "manifest.json").warm_ups.examples == 32
    assert sum(result.plan.quotas.values()) == 60
    assert made.runs[0].training["schedule"] == "constant"


@pytest.mark.slow
def test_the_least_nll_is_reached_exactly(folder, warmed, tmp_path):
    recipe = recipe_of(folder, "policy=least-nll", "importance={apples: 1, pears: 2}")
    made = {"warm_ups": warmed / "warm-ups.parquet", "scores": warmed / "scores.parquet"}
    quotas = run(recipe, tmp_path / "run", **made).plan.quotas
    assert differences(tmp_path / "run") == []
    curves = read_curves(tmp_path / "run" / "curves.json").curves

    def loss(apples):
        return curves["apples"].nll(apples) + 2 * curves["pears"].nll(60 - apples)

    best = min(range(16, 45), key=loss)
    assert quotas == {"apples": best, "pears": 60 - best}


@pytest.fixture(scope="session")
def mixed(folder):
    """A finished run whose warm-ups are mixtures; to be copied, never changed."""
    run(recipe_of(folder, "warm_up.read=mixtures", "warm_up.exposures=[6, 10, 16]"), folder / "mixed")
    return folder / "mixed"


@pytest.mark.slow
def test_transfer_is_measured_paid_for_and_verified(mixed, folder):
    assert differences(mixed) == []
    made = read_warm_ups(mixed / "warm-ups.parquet")
    assert made.mixtures
    exposures = {label: list(made.exposures(label).values()) for label in made.labels}
    assert exposures == {"apples": [10, 6, 16, 10, 10], "pears": [10, 10, 10, 6, 16]}
    assert [one.examples for one in made.runs] == [20, 16, 26, 16, 26]
    manifest = read_manifest(mixed / "manifest.json")
    assert (manifest.warm_ups.count, manifest.warm_ups.examples) == (5, 104)
    report = read_curves(mixed / "curves.json")
    means = {label: {number: sum(nll.values()) / 30 for number, nll in made.of(label).items()} for label in made.labels}
    for changed, numbers in (("apples", (2, 1, 3)), ("pears", (4, 1, 5))):
        logs = [math.log2(exposures[changed][number - 1]) for number in numbers]
        for label in made.labels:
            falls = -np.polyfit(logs, [means[label][number] for number in numbers], 1)[0]
            assert report.transfer[changed][label] == pytest.approx(falls, abs=1e-9)
        assert report.sources[changed].fit.raw_slope == pytest.approx(sum(report.transfer[changed].values()))
        assert report.sources[changed].predicted_nll is None
    slopes = {label: row.slope for label, row in read_statistics(mixed / "statistics.json").sources.items()}
    allocation = json.loads((mixed / "allocation.json").read_text())["sources"]
    assert {label: row["utility"] for label, row in allocation.items()} == slopes
    assert min(row["quota"] for row in allocation.values()) >= 16
    assert math.isfinite(report.predicted_nll)


@pytest.mark.slow
def test_what_matters_is_part_of_the_curves_of_mixtures(mixed, folder, tmp_path):
    overrides = ("warm_up.read=mixtures", "warm_up.exposures=[6, 10, 16]", "importance={apples: 0, pears: 1}")
    made = {"warm_ups": mixed / "warm-ups.parquet", "scores": mixed / "scores.parquet"}
    for policy in ("learning-curve", "least-nll"):
        run(recipe_of(folder, *overrides, f"policy={policy}"), tmp_path / policy, **made)
        assert differences(tmp_path / policy) == []
        report = read_curves(tmp_path / policy / "curves.json")
        for label, row in report.sources.items():
            assert row.fit.raw_slope == pytest.approx(2 * report.transfer[label]["pears"])


@pytest.mark.slow
def test_mixtures_that_were_edited_or_made_otherwise_show(mixed, warmed, folder, tmp_path):
    from dataclasses import replace

    copy = shutil.copytree(mixed, tmp_path / "run")
    body = json.loads((copy / "curves.json").read_text())
    body["transfer"]["apples"]["pears"] += 0.1
    (copy / "curves.json").write_text(json.dumps(body))
    extend_sums(copy, list(read_sums(copy)))
    assert any(one.startswith("curves.json") and "transfer.apples.pears" in one for one in differences(copy))
    made = read_warm_ups(mixed / "warm-ups.parquet")
    shutil.rmtree(copy)
    shutil.copytree(mixed, copy)
    changed = tuple(replace(one, exposure=11) if one.exposure == 10 else one for one in made.nlls)
    write_warm_ups(copy / "warm-ups.parquet", replace(made, nlls=changed))
    extend_sums(copy, list(read_sums(copy)))
    assert any("source apples: exposures" in one for one in differences(copy))

    recipe = recipe_of(folder, "warm_up.read=mixtures", "warm_up.exposures=[6, 10, 16]")
    scores = mixed / "scores.parquet"
    with pytest.raises(ArtefactError, match="holds warm-ups of all sources together, but the recipe's"):
        run(recipe, tmp_path / "a", warm_ups=warmed / "warm-ups.parquet", scores=scores)
    with pytest.raises(ArtefactError, match="holds mixtures that show transfer, but the recipe's"):
        run(recipe_of(folder), tmp_path / "b", warm_ups=mixed / "warm-ups.parquet", scores=scores)
    fewer = tuple(one for one in made.nlls if one.warm_up != 5)
    write_warm_ups(tmp_path / "fewer.parquet", replace(made, nlls=fewer, runs=()))
    with pytest.raises(ArtefactError, match=r"warmed 'apples' up on \[10, 6, 16, 10\]"):
        run(recipe, tmp_path / "c", warm_ups=tmp_path / "fewer.parquet", scores=scores)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "error", "message"),
    [
        (
            ("warm_up.read=mixtures", "warm_up.exposures=[10, 51]", "budget=100"),
            AllocationError,
            "the pool of 'apples' holds 50",
        ),
        (("floor=1",), RecipeError, "trains on half of each floor"),
        (
            ("warm_up.exposures=[10, 51]", "budget=100"),
            AllocationError,
            "the pool of 'apples' holds 50 examples",
        ),
        (("warm_up.exposures=[10, 40]",), AllocationError, "above the budget"),
        (("engine=fake",), RecipeError, "engine: fake can't be trained"),
        (("warm_up.training.rank=0",), TrainingError, "rank"),
        (("warm_up.training.ranks=1",), TrainingError, "ranks"),
        (("warm_up.read=checkpoints",), RecipeError, "only within one epoch"),
    ],
)
def test_what_cant_be_warmed_up_is_refused_before_anything_is_made(folder, tmp_path, overrides, error, message):
    with pytest.raises(error, match=message):
        run(recipe_of(folder, *overrides), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "run.warm-ups").exists()


TRAINING = "{rank: 4, scaling: 8, batch_size: 4, epochs: 1, device: cpu}"


@pytest.mark.slow
def test_a_context_shorter_than_the_default_length_is_taken_and_recorded(folder, warmed, tmp_path):
    recipe = recipe_of(folder, f"warm_up.training={TRAINING}")
    run(recipe, tmp_path / "run", scores=warmed / "scores.parquet")
    made = read_warm_ups(tmp_path / "run" / "warm-ups.parquet")
    assert [one.training["max_length"] for one in made.runs] == [512, 512]
    assert differences(tmp_path / "run") == []
    warm_ups = tmp_path / "run" / "warm-ups.parquet"
    run(recipe, tmp_path / "again", scores=warmed / "scores.parquet", warm_ups=warm_ups)


@pytest.mark.parametrize("work", [run, warm_up, dry_run])
def test_a_length_beyond_the_context_is_refused_before_anything_is_scored(folder, tmp_path, work, monkeypatch):
    monkeypatch.setattr("calibudget.lm.load_model", lambda *_, **__: pytest.fail("a model was loaded"))
    recipe = recipe_of(folder, "warm_up.training.max_length=1024")
    words = "^warm_up.training.max_length: 1024 is more than the model's context of 512; say 512 or less"
    with pytest.raises(TrainingError, match=words):
        work(recipe) if work is dry_run else work(recipe, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_warm_ups_of_other_data_or_models_are_refused(folder, warmed, tmp_path):
    from dataclasses import replace

    made = read_warm_ups(warmed / "warm-ups.parquet")

    def refused(changed, *overrides):
        write_warm_ups(tmp_path / "other.parquet", changed)
        with pytest.raises(ArtefactError) as caught:
            run(
                recipe_of(folder, *overrides),
                tmp_path / "run",
                warm_ups=tmp_path / "other.parquet",
                scores=warmed / "scores.parquet",
            )
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        (tmp_path / "other.parquet").unlink()
        return str(caught.value)

    assert "another model than the scores" in refused(replace(made, model=dict(made.model) | {"sha256": "0" * 64}))
    assert "warmed 'apples' up on [8, 16]" in refused(made, "warm_up.exposures=[4, 16]")
    fewer = tuple(one for one in made.nlls if one != made.nlls[0])
    assert "other records than the 30 calibration records" in refused(replace(made, nlls=fewer, runs=()))
    assert "count tokens" in refused(replace(made, unit="tokens"))
    only = tuple(one for one in made.nlls if one.source == "apples")
    assert "other sources than the recipe ('pears'" in refused(replace(made, nlls=only))
    recipe = recipe_of(folder, "policy=calibudget", "warm_up=null")
    with pytest.raises(RecipeError, match="reads no learning curves"):
        run(recipe, tmp_path / "run", warm_ups=warmed / "warm-ups.parquet")


@pytest.mark.slow
def test_the_fake_engine_takes_warm_ups_that_name_no_model(folder, warmed, tmp_path):
    from dataclasses import replace

    recipe = recipe_of(folder, "engine=fake")
    with pytest.raises(ArtefactError, match="another model than the scores"):
        run(recipe, tmp_path / "run", warm_ups=warmed / "warm-ups.parquet")
    made = replace(read_warm_ups(warmed / "warm-ups.parquet"), model=None)
    write_warm_ups(tmp_path / "nameless.parquet", made)
    result = run(recipe, tmp_path / "run", resume=True, warm_ups=tmp_path / "nameless.parquet")
    assert result.plan.quotas == show_curves(warmed).quotas
