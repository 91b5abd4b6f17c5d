"""Putting benchmarks to a model: greedy texts from the scoring engine, then the judge."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Protocol

from calibudget.evaluation.benchmarks import Benchmark
from calibudget.evaluation.judge import Judge
from calibudget.evaluation.likelihood import choice_items, likeliest
from calibudget.evaluation.panel_prompts import NO_REFERENCE
from calibudget.evaluation.predictions import Prediction
from calibudget.scoring.batches import Progress, measure_all
from calibudget.scoring.scorer import CalibrationItem, Scorer


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
    judge: Judge,
    journal_path: Path | None = None,
    progress: Progress | None = None,
) -> list[Prediction]:
    """Generate and judge all of a benchmark's items.

    The texts are those of plain greedy decoding, one prompt an item; where the data set has a reference response,
    its NLL is measured by the same forward. Finished batches are kept in the journal and never generated again.

    Raises:
        ScoringError: an item that the model can't be given; it is named.
        ArtefactError: a journal of other work.
    """
    scorer = scorer_of(make_scorer, benchmark)
    measured = measure_all(scorer, benchmark.items, journal_path=journal_path, progress=progress)
    judgements = judge.judge(benchmark, {one.record_id: one.text or "" for one in measured})
    return [
        Prediction(
            task=benchmark.name,
            item_id=one.record_id,
            text=one.text or "",
            gold=item.record.answer,
            **judgements[one.record_id]._asdict(),
            nll=one.nll if _has_reference(item) else None,
            response_tokens=one.response_tokens if _has_reference(item) else None,
        )
        for item, one in zip(benchmark.items, measured, strict=True)
    ]


def predict_by_likelihood(
    benchmark: Benchmark,
    make_scorer: MakeScorer,
    *,
    journal_path: Path | None = None,
    progress: Progress | None = None,
) -> list[Prediction]:
    """Choose the likeliest label of each item; see `calibudget.evaluation.likelihood`."""
    scorer = make_scorer(benchmark.task.max_new_tokens, early_end=True)
    measured = measure_all(scorer, choice_items(benchmark), journal_path=journal_path, progress=progress)
    return likeliest(benchmark, measured)


def judge_again(benchmark: Benchmark, judge: Judge, predictions: dict[str, Prediction]) -> list[Prediction]:
    """The same texts, judged anew: verdicts that were deferred, or by newer parsers."""
    judgements = judge.judge(benchmark, {name: one.text for name, one in predictions.items()})
    return [
        replace(
            predictions[item.record.record_id], gold=item.record.answer, **judgements[item.record.record_id]._asdict()
        )
        for item in benchmark.items
    ]


def _has_reference(item: CalibrationItem) -> bool:
    return item.record.completion != NO_REFERENCE
