from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from calibudget.errors import InputError, InputTypeError
from calibudget.keys import order_key
from calibudget.selection.draw import canonical_selected_indices_sha256, draw
from calibudget.selection.selectors import Scored

POOLS = {"piqa": [f"p{i}" for i in range(30)], "boolq": [f"b{i}" for i in range(10)], "empty": []}


def test_picks_are_the_first_of_each_pool_in_key_order() -> None:
    selection = draw(POOLS, {"piqa": 7, "boolq": 10, "empty": 0}, selection_seed=42)
    assert list(selection.picks) == ["boolq", "empty", "piqa"]
    for label, quota in (("piqa", 7), ("boolq", 10), ("empty", 0)):
        in_order = sorted(POOLS[label], key=lambda record_id: order_key("selection", 42, label, record_id))
        assert selection.picks[label] == tuple(in_order[:quota])
    assert (selection.seed, selection.selector, selection.companion_count) == (42, "uniform", 0)


def test_a_pick_isnt_the_head_of_a_sorted_file() -> None:
    # allenai/open-instruct #1019: rows sorted by id, and a 10% pick was the first tenth.
    pool = [f"{i:04d}" for i in range(1000)]
    picks = draw({"a": pool}, {"a": 100}, selection_seed=42).picks["a"]
    assert sum(record_id in set(pool[:100]) for record_id in picks) < 30


def test_a_draw_records_what_its_selector_knows_and_a_uniform_one_nothing() -> None:
    scored = Scored(name="scores", scores={"a": {"x": 1.0, "y": 2.0}}, parameters={"file": "f"})
    selection = draw({"a": ["x", "y", "z"]}, {"a": 1}, selection_seed=0, selector=scored)
    assert (selection.picks, selection.details) == ({"a": ("y",)}, scored.describe())
    assert draw({"a": ["x"]}, {"a": 1}, selection_seed=0).details is None


def test_a_record_that_stands_twice_is_named() -> None:
    with pytest.raises(InputError, match="holds the record 'y' twice"):
        draw({"a": ["x", "y", "z", "y"]}, {"a": 1}, selection_seed=0)
    with pytest.raises(InputError, match="'y' is selected twice"):
        canonical_selected_indices_sha256(["x", "y", "z", "y"])
    for pool in ("xyz", b"xyz", {"x": 1}, 7):
        with pytest.raises(InputTypeError, match="must be a sequence of ids"):
            draw({"a": pool}, {"a": 1}, selection_seed=0)  # type: ignore[dict-item]


def test_draws_that_cant_be_are_refused_with_the_numbers(subtests: pytest.Subtests) -> None:
    for pools, quotas, said in [
        ({"a": ["x"]}, {"a": 2}, "the quota of 'a' is 2, but its pool holds 1"),
        ({"a": ["x"]}, {"a": -1}, "the quota of 'a' is -1"),
        ({"a": ["x"]}, {"a": 1, "b": 0}, "only one of them names b"),
        ({"a": ["x"], "b": []}, {"a": 1}, "only one of them names b"),
    ]:
        with subtests.test(said=said), pytest.raises(InputError, match=said):
            draw(pools, quotas, selection_seed=0)


def test_what_is_of_another_type_is_named(subtests: pytest.Subtests) -> None:
    pool: dict[Any, Any] = {"a": ["x"]}
    counted: Any = np.int64(1)
    assert draw({"a": [np.str_("x")]}, {"a": counted}, selection_seed=counted).picks == {"a": ("x",)}
    cases: list[tuple[Any, Any, Any, str]] = [
        ([("a", ["x"])], {"a": 1}, 0, r"^pools must be a mapping by label, not \["),
        (pool, [("a", 1)], 0, r"^quotas must be a mapping by label, not \["),
        ({3: ["x"]}, {3: 1}, 0, "^a source's label must be a text, not 3"),
        (pool, {"a": 1}, True, "^the selection seed must be an integer, not True"),
        (pool, {"a": 1}, 1.5, r"^the selection seed must be an integer, not 1\.5"),
        ({"a": 7}, {"a": 1}, 0, "^the pool of 'a' must be a sequence of ids, not 7"),
        ({"a": ["x", 1]}, {"a": 1}, 0, "^an id in the pool of 'a' must be a text, not 1"),
        (pool, {"a": 1.0}, 0, r"^the quota of 'a' must be an integer, not 1\.0"),
    ]
    for pools, quotas, seed, said in cases:
        with subtests.test(said=said), pytest.raises(InputTypeError, match=said):
            draw(pools, quotas, selection_seed=seed)
    with pytest.raises(InputError, match="only one of them names 7, b"):
        draw(pool, {"a": 1, 7: 0, "b": 0}, selection_seed=0)  # type: ignore[dict-item]
    with pytest.raises(InputTypeError, match=r"^needs a list or another ordered sequence of ids, not str"):
        canonical_selected_indices_sha256("xyz")
    with pytest.raises(InputTypeError, match=r"^indices must be all integers or all strings, not a mixture$"):
        canonical_selected_indices_sha256([1, "a"])
