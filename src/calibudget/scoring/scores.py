"""From what the model said to z: parse the answers, judge them, add the errors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from calibudget.errors import ScoringError
from calibudget.records import ErrorRule, Score
from calibudget.scoring.items import CalibrationItem, Measurement
from calibudget.tasks import answers_equal, parse_answer


def to_scores(
    items: Sequence[CalibrationItem], measurements: Iterable[Measurement], error: ErrorRule
) -> tuple[Score, ...]:
    """Judge every measurement (paper 2.2: z is the NLL plus one if the parsed greedy answer is wrong).

    Args:
        items: the calibration items.
        measurements: one for each of them, any order.
        error: "nll+wrong", or "nll" where some source has no checkable answer; answers are judged either way.

    Returns:
        The scores in the order of the items.

    Raises:
        ScoringError: under "nll+wrong" a source without checkable answer; an item without a measurement, or the
            other way round; an NLL that isn't finite; a checkable answer that wasn't decoded.
        DependencyError: answers of kind `math` that need math-verify, which isn't installed.
    """
    found = {(one.source, one.record_id): one for one in measurements}
    scores = []
    for item in items:
        measurement = found.pop((item.record.source, item.record.record_id), None)
        if measurement is None:
            raise ScoringError(f"{item.name}: no measurement, or given twice")
        scores.append(_score(item, measurement, error))
    for source, record_id in found:
        raise ScoringError(f"source {source}, record {record_id}: measured, and no calibration record")
    return tuple(scores)


def _score(item: CalibrationItem, measurement: Measurement, error: ErrorRule) -> Score:
    if not math.isfinite(measurement.nll):
        raise ScoringError(f"{item.name}: its NLL is {measurement.nll}; such a score can't be used")
    correct, prediction = _judge(item, measurement)
    if error == "nll+wrong" and correct is None:
        raise ScoringError(
            f"{item.name}: has no checkable answer, so it would be starved beside sources that have one; "
            "choose error: nll for all sources, or name the source's answer"
        )
    wrong = 1.0 if error == "nll+wrong" and not correct else 0.0
    return Score(
        source=measurement.source,
        record_id=measurement.record_id,
        response_tokens=measurement.response_tokens,
        nll=measurement.nll,
        correct=correct,
        prediction=prediction,
        error=measurement.nll + wrong,
    )


def _judge(item: CalibrationItem, measurement: Measurement) -> tuple[bool | None, str | None]:
    gold = item.record.answer
    if item.answer.kind == "none":
        return None, None
    if gold is None or measurement.text is None:
        missing = "no gold answer" if gold is None else "no decoded answer"
        raise ScoringError(f"{item.name}: {missing}, though its source's answers are of kind {item.answer.kind}")
    prediction = parse_answer(item.answer, measurement.text)
    return answers_equal(item.answer, gold, prediction), prediction
