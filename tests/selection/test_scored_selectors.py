"""Selectors made from a column, from a band of lengths, and from proxy scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from calibudget.errors import ArtefactError, DataError, InputError
from calibudget.records import Record
from calibudget.selection.draw import draw_queues
from calibudget.selection.proxy import ProxyContract, proxy_pool
from calibudget.selection.proxy_checks import merge_shards
from calibudget.selection.selectors import Scored, column_selector, influence_selector, quality_selector
from tests.conftest import record_of


def record(record_id: str, source: str = "s", completion: str = "yes", **original: object) -> Record:
    return record_of(source, record_id=record_id, completion=completion, original=original)  # type: ignore[no-any-return]


def take(selector: Any, records: list[Record], quota: int) -> set[str]:
    pool = [one.record_id for one in records]
    return set(draw_queues({"s": pool}, {"s": quota}, selection_seed=1, selector=selector).picks["s"])


RATED = [record("a", rating=3), record("b", rating=5.5), record("c", rating=-1), record("d"), record("e", rating=None)]


def test_a_column_orders_descending_or_ascending_and_gaps_have_no_score() -> None:
    assert take(column_selector({"s": RATED}, "rating"), RATED, 2) == {"a", "b"}
    assert take(column_selector({"s": RATED}, "rating", descending=False), RATED, 2) == {"a", "c"}
    with pytest.raises(InputError, match=r"has 3 of 5 candidates with a number in the column 'rating' to take 4 from"):
        take(column_selector({"s": RATED}, "rating"), RATED, 4)


def test_a_column_is_recorded_with_its_direction_and_digest() -> None:
    descending, ascending = (column_selector({"s": RATED}, "rating", descending=best) for best in (True, False))
    down, up = descending.describe(), ascending.describe()
    assert descending.scores == {"s": {"a": 3.0, "b": 5.5, "c": -1.0}}
    assert ascending.scores == {"s": {"a": -3.0, "b": -5.5, "c": 1.0}}
    assert down["name"] == up["name"] == "scores"
    assert down["parameters"] == {"column": "rating", "descending": True}
    assert down["scores_sha256"] != up["scores_sha256"]
    assert column_selector({"s": RATED[::-1]}, "rating").describe() == down


def test_a_column_that_no_record_has_is_refused() -> None:
    with pytest.raises(DataError, match=r"no row has the column 'ratings' to select by; did you mean 'rating'\?$"):
        column_selector({"s": RATED}, "ratings")
    with pytest.raises(DataError, match=r"no row has the column 'zzz' to select by; the columns are "):
        column_selector({"s": RATED}, "zzz")
    similar = record("x", ratinga=1, ratingb=1, ratingc=1, ratingd=1)
    with pytest.raises(DataError, match=r"did you mean '\w+' or '\w+' or '\w+'\?$"):
        column_selector({"s": [similar]}, "rating")
    assert column_selector({"s": []}, "rating").scores == {"s": {}}


def test_a_column_value_that_is_no_finite_number_is_refused_by_source_and_record(subtests: pytest.Subtests) -> None:
    for bad in ["5", True, float("nan"), float("inf"), [5], 10**400]:
        with (
            subtests.test(bad=bad),
            pytest.raises(DataError, match="source 's', record x: 'rating' must be a finite number") as refused,
        ):
            column_selector({"s": [*RATED, record("x", rating=bad)]}, "rating")
        assert str(refused.value).endswith(f"to select by, not {bad!r}")


def test_a_band_keeps_its_ends(subtests: pytest.Subtests) -> None:
    pools = {"s": [record(str(n), completion="x" * n) for n in range(1, 6)], "t": [record("9", "t", "x" * 9)]}
    for band, kept in [((2, 4), "234"), ((4, None), "459"), ((None, 2), "12"), ((None, None), "123459")]:
        with subtests.test(band=band):
            expected = {"s": dict.fromkeys(kept.replace("9", ""), 0.0), "t": dict.fromkeys("9" * kept.count("9"), 0.0)}
            made = quality_selector(pools, length=lambda record: len(record.completion), band=band)
            assert made == Scored(name="quality", scores=expected)


def test_influence_orders_by_merged_scores_of_this_pool_and_says_what_made_them(
    make_shards: Callable[..., Any],
) -> None:
    contract = ProxyContract(subgroups=("one", "two"), shards=1)
    pools = {"a": ["x", "y"], "b": ["x"], "none": []}
    means = [(0.5, -1.0), (-2.0, 3.0), (0.0, 0.25)]
    shard = make_shards(pools, contract=contract, means=lambda at, of: means[at][of], provenance={"model": "m"})[0]
    merged, pool = merge_shards([shard], contract=contract), proxy_pool(pools)
    assert influence_selector(merged, pool, contract=contract) == Scored(
        name="influence",
        scores={"a": {"x": 0.5, "y": 3.0}, "b": {"x": 0.25}, "none": {}},
        parameters={
            "pool_sha256": pool.sha256,
            "subgroups": ["one", "two"],
            "shards": 1,
            "provenance": {"model": "m"},
        },
    )
    for scores, own, said in [
        (merged, proxy_pool({"a": ["x", "z"], "b": ["x"]}), "made for another pool"),
        (shard, pool, "is shard 0 of 1"),
    ]:
        with pytest.raises(ArtefactError, match=f"^proxy scores: {said}"):
            influence_selector(scores, own, contract=contract)
        with pytest.raises(ArtefactError, match=f"^p.jsonl: {said}"):
            influence_selector(scores, own, contract=contract, name="p.jsonl")
    with pytest.raises(ArtefactError, match="subgroups must be arc_challenge"):
        influence_selector(merged, pool)
