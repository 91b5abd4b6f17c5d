from __future__ import annotations

from calibudget.scoring.batches import measure_all
from calibudget.scoring.fake import FakeScorer
from calibudget.scoring.scorer import to_scores
from tests.scoring.conftest import items_of


def test_it_depends_on_records_alone() -> None:
    items = items_of()
    measured = {one.record_id: one for one in measure_all(FakeScorer(), items)}
    again = {one.record_id: one for one in measure_all(FakeScorer(batch_size=3), items[::-1])}
    assert measured == again
    assert measured != {one.record_id: one for one in measure_all(FakeScorer(seed=1), items)}


def test_some_answers_are_right_and_some_wrong_and_sources_differ() -> None:
    scores = to_scores(items := items_of(60), measure_all(FakeScorer(), items), "nll+wrong")
    assert {score.correct for score in scores} == {True, False}
    means = {source: [s.nll for s in scores if s.source == source] for source in ("apples", "pears")}
    assert abs(sum(means["apples"]) - sum(means["pears"])) > 1
    assert all(0 < score.nll < 5 for score in scores)
