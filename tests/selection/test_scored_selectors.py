"""Selectors made from a column, from bands of length and perplexity, and from proxy scores."""

from __future__ import annotations

from typing import Any

import pytest

from calibudget.errors import DataError, InputError
from calibudget.records import Message, Record
from calibudget.selection.draw import draw
from calibudget.selection.selectors import column_selector


def record(record_id: str, source: str = "s", completion: str = "yes", **original: object) -> Record:
    return Record(
        source=source,
        record_id=record_id,
        prompt_hash="0" * 64,
        prompt=(Message(role="user", content="q"),),
        completion=completion,
        answer=None,
        original=original,
    )


def take(selector: Any, records: list[Record], quota: int) -> set[str]:
    pool = [one.record_id for one in records]
    return set(draw({"s": pool}, {"s": quota}, selection_seed=1, selector=selector).picks["s"])


RATED = [record("a", rating=3), record("b", rating=5.5), record("c", rating=-1), record("d"), record("e", rating=None)]


def test_a_column_orders_descending_or_ascending_and_gaps_have_no_score() -> None:
    assert take(column_selector({"s": RATED}, "rating"), RATED, 2) == {"a", "b"}
    assert take(column_selector({"s": RATED}, "rating", descending=False), RATED, 2) == {"a", "c"}
    with pytest.raises(InputError, match=r"has 3 of 5 candidates with a number in the column 'rating' to take 4 from"):
        take(column_selector({"s": RATED}, "rating"), RATED, 4)


def test_a_column_is_recorded_with_its_direction_and_digest() -> None:
    down = column_selector({"s": RATED}, "rating").describe()
    up = column_selector({"s": RATED}, "rating", descending=False).describe()
    assert down["parameters"] == {"column": "rating", "descending": True}
    assert down["scores_sha256"] != up["scores_sha256"]
    assert column_selector({"s": RATED[::-1]}, "rating").describe() == down


def test_a_column_that_no_record_has_is_refused() -> None:
    with pytest.raises(DataError, match=r"no row has the column 'ratings' to select by; did you mean 'rating'\?$"):
        column_selector({"s": RATED}, "ratings")
    with pytest.raises(DataError, match=r"no row has the column 'zzz' to select by; the columns are "):
        column_selector({"s": RATED}, "zzz")
    assert column_selector({"s": []}, "rating").scores == {"s": {}}


def test_a_column_value_that_is_no_finite_number_is_refused_by_source_and_record(subtests: pytest.Subtests) -> None:
    for bad in ["5", True, float("nan"), float("inf"), [5], 10**400]:
        with (
            subtests.test(bad=bad),
            pytest.raises(DataError, match="s: 'rating' of record x must be a finite number"),
        ):
            column_selector({"s": [*RATED, record("x", rating=bad)]}, "rating")


POOLS = {"s": [f"s{i}" for i in range(6)], "t": [f"t{i}" for i in range(5)]}
