"""The rules of a calibration record's error on a real model and real sources: what is generated, and what counts."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from itertools import islice
from math import fsum
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibudget.errors import RecipeError
from calibudget.pipeline.run import RunResult, run
from calibudget.pipeline.score import score
from calibudget.pipeline.verify import verify
from calibudget.recipe.load import load_recipe
from calibudget.recipe.schema import Recipe
from calibudget.scoring import local
from calibudget.store.artefacts import STATISTICS
from calibudget.store.scores import read_scores

pytestmark = [pytest.mark.model, pytest.mark.data, pytest.mark.usefixtures("embedded_once")]


@pytest.fixture
def recipe_of(tmp_path: Path, data_dir: Path) -> Callable[[str], Recipe]:
    """A recipe under an error rule: yes and no questions, whose answers have a few tokens, and worked-out sums."""
    for name, path in (("boolq", "commonsense/boolq.train.jsonl.gz"), ("gsm8k", "math/gsm8k.train.jsonl.gz")):
        with gzip.open(data_dir / path) as rows:
            (tmp_path / f"{name}.jsonl").write_bytes(b"".join(islice(rows, 300)))

    def make(error: str) -> Recipe:
        (tmp_path / "recipe.yaml").write_text(
            f"model: embedded\nbudget: 20\ncache: false\nerror: {error}\n"
            "calibration: {per_source: 2, resamples: 20}\n"
            "sources:\n"
            "  boolq: {path: boolq.jsonl, columns: {output: answer}, answer: true_false}\n"
            "  gsm8k: {path: gsm8k.jsonl, preset: gsm8k}\n"
        )
        return load_recipe(tmp_path / "recipe.yaml")

    return make


class GenerationError(Exception):
    """A token was about to be generated."""


def _refuse(*_: object, **__: object) -> None:
    raise GenerationError


def test_whole_answers_count_up_to_the_cap_and_verify_holds_them_to_it_and_nothing_is_generated(
    recipe_of: Callable[[str], Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "continue_greedily", _refuse)
    by_rule: dict[str, RunResult] = {}
    for error in ("nll", "nll_per_answer"):
        by_rule[error] = run(recipe_of(error), tmp_path / error)
    with pytest.raises(GenerationError):
        score(recipe_of("nll+wrong"))
    assert any("answers differ widely in length" in note for note in by_rule["nll"].notes)
    assert not any("answers differ widely" in note for note in by_rule["nll_per_answer"].notes)
    directory = tmp_path / "nll_per_answer"
    statistics, scores = (
        STATISTICS.read(directory / "statistics.json"),
        read_scores(directory / "scores.parquet").scores,
    )
    assert all(one.correct is None and one.prediction is None for one in scores)
    for label, row in statistics.sources.items():
        own = [one for one in scores if one.source == label]
        whole = [one.response_tokens * one.nll for one in own]
        assert row.mean_error == pytest.approx(fsum(min(nats, 100.0) for nats in whole) / len(own), rel=1e-12)
    assert max(one.response_tokens * one.nll for one in scores) > 100.0 == max(one.error for one in scores)
    ratios = {rule: one.plan.sources["gsm8k"].need / one.plan.sources["boolq"].need for rule, one in by_rule.items()}  # type: ignore[operator]
    assert ratios["nll_per_answer"] > 2 * ratios["nll"]

    path = directory / "scores.parquet"
    table = pq.read_table(path)
    rows = table.to_pylist()
    rows[-1]["error"] += 1.0
    pq.write_table(pa.Table.from_pylist(rows, table.schema), path)
    assert any(
        one.file == "scores.parquet" and "by the rule nll_per_answer" in one.found
        for one in verify(directory).differences
    )


def test_a_policy_by_error_rates_needs_answers(recipe_of: Callable[[str], Recipe], tmp_path: Path) -> None:
    recipe_of("nll")
    with pytest.raises(RecipeError, match=r"no answer is generated.*`signal: z`"):
        load_recipe(tmp_path / "recipe.yaml", ["policy=val-error-floor"])
    assert load_recipe(tmp_path / "recipe.yaml", ["policy=val-error-floor", "signal=z"]).signal == "z"
