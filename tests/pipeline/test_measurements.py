"""Warm-ups that a run is given: those of this recipe are taken, and others refused before anything is written."""

import json
from dataclasses import replace
from functools import partial

import pytest

from calibudget.errors import ArtefactError, RecipeError
from calibudget.pipeline import dry_run, run, verify
from calibudget.pipeline.exposures import drawn_sha256, exposures_of, warm_up_quotas
from calibudget.pipeline.pools import pools_of_run
from calibudget.pipeline.prepare import prepare
from calibudget.pipeline.selectors import joined, selector_parts
from calibudget.pipeline.training_options import warm_up_training
from calibudget.recipe import load_recipe
from calibudget.store import (
    WarmUpFile,
    WarmUpNll,
    WarmUpRun,
    extend_sums,
    read_sums,
    read_warm_ups,
    write_warm_ups,
)

RECIPE = """\
engine: fake
budget: 40
floor: 8
policy: learning-curve
warm_up: {training: {rank: 16}}
error: nll
calibration: {per_source: 30, resamples: 8}
sources:
  a: {path: a.jsonl, answer: none}
  b: {path: b.jsonl, answer: none}
companion: {path: companion.jsonl, answer: none}
"""
CHECKPOINTS = ("warm_up.read=checkpoints", "warm_up.training.epochs=1")


@pytest.fixture
def recipe_of(tmp_path):
    for name in ("a", "b", "companion"):
        rows = ({"prompt": f"{name} {n}?", "completion": f"the answer is {n}", "n": n * 37 % 80} for n in range(80))
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    return lambda *overrides: load_recipe(tmp_path / "recipe.yaml", overrides)


def warm_ups_of(recipe, **changes):
    """Warm-ups as they are trained under a recipe, with planted NLLs."""
    prepared = prepare(recipe, None)
    pools, selector = pools_of_run(recipe, prepared), joined(recipe, selector_parts(recipe, prepared))
    quotas = warm_up_quotas(recipe, exposures_of(recipe, pools))
    nlls = [
        WarmUpNll(
            source=label,
            warm_up=number,
            exposure=units[label],
            record_id=record.record_id,
            nll=2.0 + place / 50 - 0.3 * number,
        )
        for number, units in enumerate(quotas, start=1)
        for label, split in prepared.splits.items()
        for place, record in enumerate(split.calibration)
    ]
    runs = [
        WarmUpRun(
            examples=sum(units.values()),
            steps=1,
            seconds=0.0,
            selected_sha256=drawn_sha256(recipe, pools, selector, units),
            adapter_sha256="0" * 64,
            training=warm_up_training(recipe) | changes,
        )
        for units in quotas
    ]
    return WarmUpFile(nlls=tuple(sorted(nlls)), runs=tuple(runs))


@pytest.fixture
def given(tmp_path, recipe_of):
    """A function from overrides to a run that is given a file's warm-ups, and the file."""

    def go(warm_ups, *overrides, work=run):
        file = tmp_path / "warm-ups.parquet"
        write_warm_ups(file, warm_ups)
        recipe = recipe_of(*overrides)
        return work(recipe, warm_ups=file) if work is dry_run else work(recipe, tmp_path / "run", warm_ups=file)

    return go


@pytest.fixture
def refused(tmp_path, given):
    """A function from overrides to the words in which a run, and a dry one, refuses; nothing is left of either."""

    def go(warm_ups, *overrides):
        told = []
        for work in (run, dry_run):
            with pytest.raises(ArtefactError) as caught:
                given(warm_ups, *overrides, work=work)
            told.append(str(caught.value))
            assert not (tmp_path / "run").exists()
        assert told[0] == told[1]
        return told[0]

    return go


@pytest.mark.parametrize("overrides", [(), CHECKPOINTS, ("warm_up.read=mixtures", "warm_up.exposures=[2, 4, 8]")])
def test_warm_ups_of_the_recipe_are_taken(given, recipe_of, tmp_path, overrides):
    made = warm_ups_of(recipe_of(*overrides))
    given(replace(made, mixtures="mixtures" in str(overrides)), *overrides)
    assert verify(tmp_path / "run").differences == ()


@pytest.mark.parametrize("made_under", [(), CHECKPOINTS])
@pytest.mark.parametrize("override", ["selection_seed=77", "selector={scores: {column: n}}"])
def test_warm_ups_that_trained_on_other_examples_are_refused(refused, recipe_of, made_under, override):
    told = refused(warm_ups_of(recipe_of(*made_under)), *made_under, override)
    last = 1 if made_under else 0
    assert f"warm-ups.parquet: runs[{last}].selected_sha256: warm-up {last + 1} trained on other examples" in told
    assert "`selection_seed`" in told
    assert "make them again (`calibudget warm-up`)" in told


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("warm_up.training.rank=4", "warm_up.training.rank 16, but the recipe says 4"),
        ("warm_up.training.learning_rate=1", "warm_up.training.learning_rate 2e-05, but the recipe says 1.0"),
        ("warm_up.training.target_modules=[q]", 'target_modules null, but the recipe says ["q"]'),
        ("warm_up.training={}", "warm_up.training.rank 16, but the recipe says 128"),
        ("warm_up.training.max_length=512", "warm_up.training.max_length 1024, but the recipe says 512"),
        ("training_seed=7", "say warm_up.training.seed=42, or make the warm-ups again"),
        ("template=chat", 'template "alpaca", but the recipe says "chat"'),
        ("warm_up.companion=true", "warm_up.companion false, but the recipe says true"),
    ],
)
def test_warm_ups_of_another_training_are_refused(refused, given, recipe_of, override, words):
    told = refused(warm_ups_of(recipe_of()), override)
    assert "runs[0].training: warm-up 1 was trained with " in told
    assert words in told
    if override == "training_seed=7":  # the way out that is told
        given(warm_ups_of(recipe_of()), override, "warm_up.training.seed=42")


def test_a_length_that_isnt_given_may_be_the_models_context(refused, given, recipe_of):
    made = partial(warm_ups_of, recipe_of())
    assert "max_length 256, but the recipe says 512" in refused(made(max_length=256), "warm_up.training.max_length=512")
    assert "max_length 2048, but the recipe says 1024" in refused(made(max_length=2048))
    given(made(max_length=256))


def test_what_a_file_doesnt_tell_isnt_compared(given, recipe_of, tmp_path):
    made = warm_ups_of(recipe_of())
    bare = replace(made, runs=tuple(replace(one, training={"rank": 16}) for one in made.runs))
    given(bare, "template=chat", "training_seed=7", work=dry_run)
    lines = [{"source": n.source, "exposure": n.exposure, "record_id": n.record_id, "nll": n.nll} for n in made.nlls]
    (tmp_path / "w.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    recipe = recipe_of("selection_seed=77", "warm_up.training.rank=4")
    run(recipe, tmp_path / "told", warm_ups=tmp_path / "w.jsonl")
    assert verify(tmp_path / "told").differences == ()


def test_checkpoints_of_another_last_exposure_are_refused(refused, given, recipe_of):
    made = warm_ups_of(recipe_of(*CHECKPOINTS, "warm_up.exposures=[3, 5, 8]"))
    assert "warmed 'a' up on [8] examples, but the recipe says [10]" in refused(made, *CHECKPOINTS, "floor=10")
    given(made, *CHECKPOINTS)  # how many lie on the way is the training's


def test_warm_ups_of_another_model_are_refused_before_anything_is_scored(given, recipe_of, tmp_path):
    made = warm_ups_of(recipe_of())
    with pytest.raises(ArtefactError, match="the warm-ups are of another model than the scores"):
        given(replace(made, model={"name": "other"}))
    assert not (tmp_path / "run").exists()
    given(replace(made, model={"name": "fake"}))


def test_a_policy_without_curves_takes_no_warm_ups(given, recipe_of):
    with pytest.raises(RecipeError, match="reads no learning curves"):
        given(warm_ups_of(recipe_of()), "policy=calibudget", "warm_up=null")


def test_verify_shows_another_training_and_more_checkpoints_than_the_recipe_has(given, recipe_of, tmp_path):
    given(warm_ups_of(recipe_of()))
    file = tmp_path / "run" / "warm-ups.parquet"

    def shows(changed):
        write_warm_ups(file, changed)
        extend_sums(tmp_path / "run", list(read_sums(tmp_path / "run")))
        return [str(one) for one in verify(tmp_path / "run").differences]

    made = read_warm_ups(file)
    other = tuple(replace(one, training=one.training | {"rank": 8}) for one in made.runs)
    (first, second) = [one for one in shows(replace(made, runs=other)) if ".training" in one]
    assert first == "warm-ups.parquet: runs[0].training: expected warm_up.training.rank 16, found 8"
    assert "runs[1].training" in second
    assert not [one for one in shows(made) if ".training" in one]
    more = warm_ups_of(recipe_of("warm_up.exposures=[2, 4, 8]"))
    assert any("source a: exposures" in one for one in shows(more))
