"""Putting benchmarks to a model: greedy texts that a judge reads, or the likelihood of each choice.

Multiple choice by likelihood is another protocol than greedy parsing, and so under another name: a task's name and
"_likelihood". It is the usual one of evaluation harnesses: the label whose statement the model finds likeliest (sum of
log-probabilities after the prompt), no text generated.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

from calibudget.errors import InputError
from calibudget.evaluation.benchmarks import Benchmark
from calibudget.evaluation.judge import Judge
from calibudget.evaluation.panel_prompts import NO_REFERENCE
from calibudget.evaluation.results import Prediction
from calibudget.scoring.batches import Progress, measure_all
from calibudget.scoring.scorer import CalibrationItem, Measurement, Scorer
from calibudget.tasks.answers import AnswerSpec

#: What the name of a task by likelihood ends with.
SUFFIX: Final = "_likelihood"
_FORMAT: Final = "Answer format:"
_TOTAL: Final = re.compile(r"(?:\A|, )(\S+) (-?(?:\d[\d.]*(?:e[-+]?\d+)?|inf))(?=, |\Z)")
_UNCHECKED: Final = AnswerSpec(kind="none")


class MakeScorer(Protocol):
    """Makes a scorer of one model for answers of at most so many tokens."""

    def __call__(self, max_new_tokens: int | None, /, *, early_end: bool) -> Scorer:
        """`early_end` False asks for whole texts; None goes by the kind of answer."""
        ...


def scorer_of(make_scorer: MakeScorer, benchmark: Benchmark) -> Scorer:
    """The scorer that a benchmark's texts come from; only parsed answers may end early."""
    return make_scorer(benchmark.task.max_new_tokens, early_end=benchmark.task.check == "answer")


def predict(
    benchmark: Benchmark,
    make_scorer: MakeScorer,
    *,
    judge: Judge | None,
    journal_path: Path | None = None,
    progress: Progress | None = None,
) -> list[Prediction]:
    """Generate and judge all of a benchmark's items, or without a judge choose the likeliest label of each.

    The texts are those of plain greedy decoding, one prompt an item; where the data set has a reference response,
    its NLL is measured by the same forward. Finished batches are kept in the journal and never measured again.

    Raises:
        ScoringError: an item that the model can't be given; it is named.
        ArtefactError: a journal of other work.
    """
    items = choice_items(benchmark) if judge is None else benchmark.items
    measured = measure_all(scorer_of(make_scorer, benchmark), items, journal_path=journal_path, progress=progress)
    if judge is None:
        return likeliest(benchmark, measured)
    unjudged = {
        item.record.record_id: Prediction(
            task=benchmark.name,
            item_id=one.record_id,
            text=one.text or "",
            prediction=None,
            gold=None,
            verdict="deferred",
            nll=None if item.record.completion == NO_REFERENCE else one.nll,
            response_tokens=None if item.record.completion == NO_REFERENCE else one.response_tokens,
        )
        for item, one in zip(benchmark.items, measured, strict=True)
    }
    return judge_again(benchmark, judge, unjudged)


def judge_again(benchmark: Benchmark, judge: Judge, predictions: dict[str, Prediction]) -> list[Prediction]:
    """The same texts, judged anew: verdicts that were deferred, or by newer parsers."""
    judgements = judge.judge(benchmark, {name: one.text for name, one in predictions.items()})
    return [
        replace(
            predictions[item.record.record_id], gold=item.record.answer, **judgements[item.record.record_id]._asdict()
        )
        for item in benchmark.items
    ]


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


def _statement(item: CalibrationItem, label: str) -> CalibrationItem:
    before, found, after = item.record.completion.rpartition(item.record.answer or "")
    if not found:
        raise InputError(f"{item.name}: its reference doesn't spell out its label")
    record = replace(item.record, record_id=_id(item, label), completion=f"{before}{label}{after}")
    return CalibrationItem(record=record, answer=_UNCHECKED)


def likeliest(benchmark: Benchmark, measurements: Sequence[Measurement]) -> list[Prediction]:
    """The predictions by `choice_items`' measurements, which are in the same order; ties go to the first label."""
    nlls = {one.record_id: one.nll * one.response_tokens for one in measurements}
    predictions = []
    for item in benchmark.items:
        totals = {label: nlls[_id(item, label)] for label in choices_of(item)}
        best, gold = min(totals, key=totals.__getitem__), item.record.answer or ""
        made = Prediction(
            task=benchmark.name + SUFFIX,
            item_id=item.record.record_id,
            text="",
            prediction=best,
            gold=gold,
            verdict="right" if best.casefold() == gold.casefold() else "wrong",
            reason=", ".join(f"{label} {-total:.6g}" for label, total in totals.items()),
        )
        predictions.append(made)
    return predictions


def chosen_again(one: Prediction) -> tuple[str | None, str]:
    """Choice and verdict of a prediction by likelihood, from its labels' log-probabilities and its gold answer.

    Of labels whose printed log-probabilities are equal, any may have been the likeliest.
    """
    totals = {label: float(total) for label, total in _TOTAL.findall(one.reason)}
    best = [label for label, total in totals.items() if total == max(totals.values())]
    choice = one.prediction if one.prediction in best else next(iter(best), None)
    return choice, "right" if (choice or "").casefold() == (one.gold or "").casefold() else "wrong"


def _id(item: CalibrationItem, label: str) -> str:
    return f"{item.record.record_id}|{label}"
