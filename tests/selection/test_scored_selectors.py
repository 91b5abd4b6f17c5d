"""Selectors made from a column, from bands of length and perplexity, and from proxy scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from calibudget.errors import ArtefactError, DataError, InputError
from calibudget.records import Message, Record
from calibudget.selection.draw import draw
from calibudget.selection.proxy import ProxyContract, proxy_pool
from calibudget.selection.proxy_checks import check_merged, merge_shards
from calibudget.selection.selectors import Band, column_selector, influence_selector, quality_selector


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


@pytest.mark.parametrize("bad", ["5", True, float("nan"), float("inf"), [5], 10**400])
def test_a_column_value_that_is_no_finite_number_is_refused_by_source_and_record(bad: Any) -> None:
    with pytest.raises(DataError, match="s: 'rating' of record x must be a finite number"):
        column_selector({"s": [*RATED, record("x", rating=bad)]}, "rating")


def test_a_length_band_includes_both_its_ends_and_draws_uniformly_inside() -> None:
    records = [record(f"r{i}", completion="x" * i) for i in range(1, 30)]
    selector = quality_selector(
        {"s": records}, length=lambda one: len(one.completion), length_band=Band(lowest=5, highest=9)
    )
    assert take(selector, records, 5) == {"r5", "r6", "r7", "r8", "r9"}
    inside = [one for one in records if 5 <= len(one.completion) <= 9]
    uniform = set(draw({"s": [one.record_id for one in inside]}, {"s": 3}, selection_seed=1).picks["s"])
    assert take(selector, records, 3) == uniform
    with pytest.raises(InputError, match="the selector quality has 5 of 29 candidates to take 6 from"):
        take(selector, records, 6)


def test_a_perplexity_band_leaves_out_what_has_no_perplexity() -> None:
    perplexities = {"s": {"a": 2.0, "b": 900.0, "c": 30.0}}
    selector = quality_selector({"s": RATED}, perplexities=perplexities, perplexity_band=Band(highest=100))
    assert take(selector, RATED, 2) == {"a", "c"}
    both = quality_selector(
        {"s": RATED},
        length=lambda one: ord(one.record_id),
        length_band=Band(lowest=ord("b")),
        perplexities=perplexities,
        perplexity_band=Band(lowest=2.0, highest=100),
    )
    assert take(both, RATED, 1) == {"c"}
    assert both.describe()["parameters"] == {"length": [98, None], "perplexity": [2.0, 100]}


def test_bands_that_can_not_apply_are_refused() -> None:
    with pytest.raises(InputError, match="length band needs a length function"):
        quality_selector({"s": RATED}, length_band=Band(lowest=1))
    with pytest.raises(InputError, match="perplexity band needs"):
        quality_selector({"s": RATED}, perplexity_band=Band(lowest=1))
    with pytest.raises(InputError, match="the perplexity of record a is NaN"):
        quality_selector({"s": RATED}, perplexities={"s": {"a": float("nan")}})
    with pytest.raises(InputError, match="not 3 to 2"):
        Band(lowest=3, highest=2)
    with pytest.raises(InputError, match="not nan to None"):
        Band(lowest=float("nan"))
    assert 2.0 in Band(lowest=2, highest=2)


POOLS = {"s": [f"s{i}" for i in range(6)], "t": [f"t{i}" for i in range(5)]}
CONTRACT = ProxyContract(subgroups=("x", "y"), shards=2)


def test_influence_takes_the_best_of_each_source(make_shards: Callable[..., Any]) -> None:
    shards = make_shards(POOLS, contract=CONTRACT, means=lambda position, subgroup: position - 3.5 * subgroup)
    merged, pool = merge_shards(shards, contract=CONTRACT), proxy_pool(POOLS)
    selector = influence_selector(merged, pool, contract=CONTRACT)
    selection = draw(POOLS, {"s": 2, "t": 3}, selection_seed=5, selector=selector)
    assert {label: set(ids) for label, ids in selection.picks.items()} == {"s": {"s4", "s5"}, "t": {"t2", "t3", "t4"}}
    assert selection.selector == "influence"
    assert selector.describe()["parameters"] == {
        "pool_sha256": pool.sha256, "subgroups": ["x", "y"], "shards": 2, "provenance": {},
    }  # fmt: skip


def test_influence_of_another_pool_of_unmerged_shards_or_of_another_contract_is_refused(
    make_shards: Callable[..., Any],
) -> None:
    shards = make_shards(POOLS, contract=CONTRACT)
    merged = merge_shards(shards, contract=CONTRACT)
    with pytest.raises(ArtefactError, match="made for another pool"):
        influence_selector(merged, proxy_pool(POOLS | {"t": ["t0"]}), contract=CONTRACT)
    with pytest.raises(ArtefactError, match="merge all shards first"):
        influence_selector(shards[0], proxy_pool(POOLS), contract=CONTRACT)
    with pytest.raises(ArtefactError, match="the subgroups must be arc_challenge"):
        influence_selector(merged, proxy_pool(POOLS))
    check_merged(merged, contract=CONTRACT)
    tampered = replace(merged, records=tuple(replace(one, score=one.score + 1) for one in merged.records))
    with pytest.raises(ArtefactError, match="its largest subgroup mean"):
        influence_selector(tampered, proxy_pool(POOLS), contract=CONTRACT)
