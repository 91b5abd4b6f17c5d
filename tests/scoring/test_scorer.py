from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from calibudget.errors import ScoringError
from calibudget.scoring.scorer import Measurement, to_scores
from calibudget.tasks.answers import AnswerSpec
from tests.scoring.conftest import items_of


def measurement(item: Any, text: str = "the correct answer is answer1", nll: float = 2.0) -> Any:
    return Measurement(
        source=item.record.source, record_id=item.record.record_id, response_tokens=6, nll=nll, text=text
    )


def test_z_is_the_nll_plus_one_for_a_wrong_answer() -> None:
    items = items_of(2, ("apples",))
    right, wrong = to_scores(items, [measurement(item) for item in items], "nll+wrong")
    assert (right.correct, right.prediction, right.error) == (True, "answer1", 2.0)
    assert (wrong.correct, wrong.prediction, wrong.error) == (False, "answer1", 3.0)


def test_an_answer_that_cannot_be_parsed_is_wrong() -> None:
    (item,) = items_of(1, ("apples",))
    (score,) = to_scores([item], [measurement(item, "no idea")], "nll+wrong")
    assert (score.correct, score.prediction, score.error) == (False, None, 3.0)


def test_under_nll_answers_are_judged_but_do_not_count() -> None:
    answered = items_of(2, ("apples",))
    open_ended = [replace(item, answer=AnswerSpec(kind="none")) for item in items_of(1, ("chat",))]
    items = [*answered, *open_ended]
    texts = ["answer1", "answer1", None]
    scores = to_scores(items, [measurement(i, t) for i, t in zip(items, texts, strict=True)], "nll")  # type: ignore[arg-type]
    assert [score.correct for score in scores] == [True, False, None]
    assert [score.prediction for score in scores] == ["answer1", "answer1", None]
    assert [score.error for score in scores] == [2.0, 2.0, 2.0]


def test_a_source_without_answers_is_refused_under_nll_wrong() -> None:
    (item,) = (replace(one, answer=AnswerSpec(kind="none")) for one in items_of(1, ("chat",)))
    with pytest.raises(ScoringError, match=r"source .chat..*error: nll"):
        to_scores([item], [measurement(item, None)], "nll+wrong")  # type: ignore[arg-type]


def test_an_answered_record_needs_a_gold_and_a_decoded_answer() -> None:
    (item,) = items_of(1, ("apples",))
    with pytest.raises(ScoringError, match="no decoded answer"):
        to_scores([item], [measurement(item, None)], "nll")  # type: ignore[arg-type]
    bare = replace(item, record=replace(item.record, answer=None))
    with pytest.raises(ScoringError, match="no gold answer"):
        to_scores([bare], [measurement(item)], "nll")
