from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import ArtefactError, ScoringError
from calibudget.scoring.batches import measure_all
from calibudget.scoring.fake import FakeScorer
from tests.scoring.conftest import items_of


class Counting(FakeScorer):
    """Counts batches and can be stopped before one of them."""

    def __init__(self, *, stop_at: Any = None, nll: Any = None, **settings: Any) -> None:
        super().__init__(batch_size=4, **settings)
        self.measured = []  # type: ignore[var-annotated]
        self._stop_at = stop_at
        self._nll = nll

    def measure(self, items: Any) -> Any:
        if len(self.measured) == self._stop_at:
            raise KeyboardInterrupt
        self.measured.append([item.record.record_id for item in items])
        found = super().measure(items)
        return found if self._nll is None else [replace(found[0], nll=self._nll), *found[1:]]


@pytest.mark.parametrize("stop_at", [0, 3])
def test_an_interrupted_scoring_resumes_without_rescoring(tmp_path: Path, stop_at: int) -> None:
    items, path = items_of(), tmp_path / "scoring.journal"
    whole = measure_all(FakeScorer(batch_size=4), items)
    first, second = Counting(stop_at=stop_at), Counting()
    with pytest.raises(KeyboardInterrupt):
        measure_all(first, items, journal_path=path)
    assert measure_all(second, items, journal_path=path) == whole
    assert len(first.measured) == stop_at
    assert sorted(first.measured + second.measured) == sorted(Counting_batches(items))


def Counting_batches(items: Any) -> Any:  # noqa: N802
    scorer = Counting()
    measure_all(scorer, items)
    return scorer.measured


def test_progress_counts_items_journalled_ones_included(tmp_path: Path) -> None:
    items, path, told = items_of(), tmp_path / "j", []
    with pytest.raises(KeyboardInterrupt):
        measure_all(Counting(stop_at=2), items, journal_path=path)
    measure_all(Counting(), items, journal_path=path, progress=lambda done, total: told.append((done, total)))
    assert told == [(8, 20), (12, 20), (16, 20), (20, 20)]


@pytest.mark.parametrize("change", ["scorer", "text", "fewer"])
def test_a_journal_of_other_work_is_refused(tmp_path: Path, change: str) -> None:
    items, path, scorer = items_of(), tmp_path / "j", FakeScorer()
    measure_all(scorer, items, journal_path=path)
    if change == "scorer":
        scorer = FakeScorer(seed=9)
    elif change == "text":
        items[0] = replace(items[0], record=replace(items[0].record, completion="another"))
    else:
        items = items[:-1]
    with pytest.raises(ArtefactError, match="another run"):
        measure_all(scorer, items, journal_path=path)


@pytest.mark.parametrize("nll", [float("nan"), float("inf")])
def test_an_nll_that_is_no_number_names_the_record_and_is_not_journalled(tmp_path: Path, nll: Any) -> None:
    items, path = items_of(), tmp_path / "j"
    with pytest.raises(ScoringError, match="source 'apples', record apples-0000"):
        measure_all(Counting(nll=nll), items, journal_path=path)
    assert measure_all(Counting(), items, journal_path=path) == measure_all(FakeScorer(), items)


def test_a_record_given_twice_is_refused() -> None:
    items = items_of()
    with pytest.raises(ScoringError, match="given twice"):
        measure_all(FakeScorer(), [*items, items[3]])


def test_a_scorer_that_answers_for_others_is_refused() -> None:
    scorer = FakeScorer()
    scorer.measure = lambda items: FakeScorer().measure(items[::-1])  # type: ignore[method-assign]
    with pytest.raises(ScoringError, match="another record"):
        measure_all(scorer, items_of())
