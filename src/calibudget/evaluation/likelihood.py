"""Multiple choice by likelihood: the label whose statement the model finds likeliest, no text generated.

Another protocol than greedy parsing, and so under another name: a task's name and "_likelihood". It is the
usual one of evaluation harnesses (sum of log-probabilities of each choice after the prompt).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from calibudget.errors import InputError
from calibudget.evaluation.benchmarks import Benchmark
from calibudget.evaluation.predictions import Prediction
from calibudget.scoring.scorer import CalibrationItem, Measurement
from calibudget.tasks.answers import AnswerSpec

SUFFIX: Final = "_likelihood"
_FORMAT: Final = "Answer format:"
_TOTAL: Final = re.compile(r"(?:\A|, )(\S+) (-?(?:\d[\d.]*(?:e[-+]?\d+)?|inf))(?=, |\Z)")
_UNCHECKED: Final = AnswerSpec(kind="none")


def choices_of(item: CalibrationItem) -> tuple[str, ...]:
    """The labels that an item offers: those that its prompt's answer format lists, else all of its task.

    Raises:
        InputError: the item is no multiple choice.
    """
    if item.answer.kind != "choice":
        raise InputError(f"{item.name}: has no choices, so it can't be judged by likelihood")
    _, found, listed = item.record.prompt[-1].content.rpartition(_FORMAT)
    offered = {label.strip().casefold() for label in listed.split("/")} if found else set()
    return tuple(label for label in item.answer.labels if label.casefold() in offered) or item.answer.labels


def choice_items(benchmark: Benchmark) -> list[CalibrationItem]:
    """One item a choice, in the order of items and labels: the reference with the gold label exchanged for it."""
    return [_statement(item, label) for item in benchmark.items for label in choices_of(item)]


def likeliest(benchmark: Benchmark, measurements: Sequence[Measurement]) -> list[Prediction]:
    """The predictions by `choice_items`' measurements, which are in the same order; ties go to the first label."""
    nlls = {one.record_id: one.nll * one.response_tokens for one in measurements}
    return [_prediction(benchmark, item, nlls) for item in benchmark.items]


def chosen_again(one: Prediction) -> tuple[str | None, str]:
    """Choice and verdict of a prediction by likelihood, from its labels' log-probabilities and its gold answer.

    Of labels whose printed log-probabilities are equal, any may have been the likeliest.
    """
    totals = {label: float(total) for label, total in _TOTAL.findall(one.reason)}
    best = [label for label, total in totals.items() if total == max(totals.values())]
    choice = one.prediction if one.prediction in best else next(iter(best), None)
    return choice, "right" if (choice or "").casefold() == (one.gold or "").casefold() else "wrong"


def _prediction(benchmark: Benchmark, item: CalibrationItem, nlls: Mapping[str, float]) -> Prediction:
    labels = choices_of(item)
    totals = [nlls[_id(item, label)] for label in labels]
    best = labels[totals.index(min(totals))]
    gold = item.record.answer or ""
    return Prediction(
        task=benchmark.name + SUFFIX,
        item_id=item.record.record_id,
        text="",
        prediction=best,
        gold=gold,
        verdict="right" if best.casefold() == gold.casefold() else "wrong",
        reason=", ".join(f"{label} {-total:.6g}" for label, total in zip(labels, totals, strict=True)),
    )


def _statement(item: CalibrationItem, label: str) -> CalibrationItem:
    before, found, after = item.record.completion.rpartition(item.record.answer or "")
    if not found:
        raise InputError(f"{item.name}: its reference doesn't spell out its label")
    record = replace(item.record, record_id=_id(item, label), completion=f"{before}{label}{after}")
    return CalibrationItem(record=record, answer=_UNCHECKED)


def _id(item: CalibrationItem, label: str) -> str:
    return f"{item.record.record_id}|{label}"
