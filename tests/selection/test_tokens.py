"""Token draws on small cases worked out by hand; the laws are in tests/property."""

from __future__ import annotations

from typing import Any

import pytest

from calibudget.errors import InputError
from calibudget.selection.draw import draw_tokens
from calibudget.selection.selectors import Scored


def queue(label: Any, *lengths: Any) -> Any:
    """A queue of examples of these lengths, and its tokens."""
    names = [f"{label}{i}" for i in range(len(lengths))]
    return names, dict(zip(names, lengths, strict=True))


def drawn(quotas: Any, **lengths: Any) -> Any:
    queues = {label: queue(label, *counts)[0] for label, counts in lengths.items()}
    tokens = {label: queue(label, *counts)[1] for label, counts in lengths.items()}
    selection = draw_tokens(queues, quotas, tokens=tokens, selection_seed=1)
    for label, use in selection.tokens.items():  # type: ignore[union-attr]
        picks = selection.picks[label]
        assert picks == tuple(queues[label][: len(picks)])
        assert use.taken == sum(tokens[label][one] for one in picks)
    return {label: use.taken for label, use in selection.tokens.items()}  # type: ignore[union-attr]


def test_a_deficit_is_filled_where_it_pays_for_most_of_the_next_example() -> None:
    # First pass: a 6 of 9 (next 4), b 5 of 9 (next 5), 7 left; b's deficit pays for 4/5 of its next, a's for 3/4.
    assert drawn({"a": 9, "b": 9}, a=[6, 4], b=[5, 5]) == {"a": 6, "b": 10}


def test_what_is_left_may_be_used_up_and_a_pool_may_be_taken_whole() -> None:
    # First pass: a 6 (next 4), b 5 (next 5), 4 left; a's deficit pays for 2/4, b's for 2/5, and a uses all 4.
    assert drawn({"a": 8, "b": 7, "c": 3}, a=[6, 4, 9], b=[5, 5], c=[1, 2]) == {"a": 10, "b": 5, "c": 3}


def test_a_source_takes_no_later_example_that_would_fit() -> None:
    # Key order decides, not length: the 1 after the 8 isn't drawn in its place.
    assert drawn({"a": 5, "b": 4}, a=[2, 8, 1], b=[4, 4]) == {"a": 2, "b": 4}


def test_a_quota_above_its_pool_is_refused() -> None:
    with pytest.raises(InputError, match="the quota of 'a' is 8 tokens, but its pool holds 7 tokens"):
        drawn({"a": 8}, a=[3, 4])


def test_a_token_draw_records_its_seed_its_selector_and_its_quotas() -> None:
    scored = Scored(name="scores", scores={"a": {"x": 1.0, "y": 2.0, "z": 0.0}, "b": {"u": 1.0}})
    tokens = {"a": {"x": 3, "y": 4, "z": 9}, "b": {"u": 2}}
    queues = {label: list(own) for label, own in tokens.items()}
    selection = draw_tokens(queues, {"a": 7, "b": 1}, tokens=tokens, selection_seed=5, selector=scored)
    assert (selection.seed, selection.selector, selection.details) == (5, "scores", scored.describe())
    assert selection.picks == {"a": ("x", "y"), "b": ()}  # the quota of a is met exactly, so nothing is missing there
    assert {label: (use.quota, use.taken) for label, use in selection.tokens.items()} == {"a": (7, 7), "b": (1, 0)}  # type: ignore[union-attr]
    assert draw_tokens(queues, {"a": 7, "b": 2}, tokens=tokens, selection_seed=5).details is None
