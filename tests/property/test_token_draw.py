"""Token draws: whole examples in key order, within one example of the quotas and of the budget, never above it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibudget.selection.draw import draw_tokens

lengths = st.lists(st.integers(1, 30) | st.sampled_from([1, 1000]), max_size=12)


@st.composite
def cases(draw: Any) -> Any:
    """Queues of lengths by label, and a quota for each that its pool holds."""
    pools = draw(st.dictionaries(st.sampled_from("abcde"), lengths, min_size=1))
    return pools, {label: draw(st.integers(0, sum(pool))) for label, pool in pools.items()}


def take(pools: Any, quotas: Any) -> Any:
    queues = {label: [f"{label}{i}" for i in range(len(pool))] for label, pool in pools.items()}
    tokens = {label: dict(zip(queues[label], pool, strict=True)) for label, pool in pools.items()}
    return draw_tokens(queues, quotas, tokens=tokens, selection_seed=0)


@pytest.mark.slow
@settings(max_examples=150)
@given(cases())
def test_within_one_example_of_every_quota_and_of_the_budget(case: Any) -> None:
    pools, quotas = case
    selection = take(pools, quotas)
    nexts = []
    for label, pool in pools.items():
        count = len(selection.picks[label])
        taken = selection.tokens[label].taken
        assert taken == sum(pool[:count])
        if taken < quotas[label]:
            nexts.append(pool[count])
            assert quotas[label] - taken < pool[count]
        elif taken > quotas[label]:
            assert taken - quotas[label] < pool[count - 1]
    missing = sum(quotas.values()) - sum(use.taken for use in selection.tokens.values())
    assert missing >= 0
    assert missing == 0 or (nexts and missing < min(nexts))


@settings(max_examples=40)
@given(cases(), st.randoms(use_true_random=False))
def test_the_order_of_sources_plays_no_role(case: Any, chance: Any) -> None:
    pools, quotas = case
    shuffled = dict(chance.sample(list(pools.items()), len(pools)))
    assert take(shuffled, quotas) == take(pools, quotas)


@settings(max_examples=40)
@given(cases())
def test_the_first_pass_is_nested_but_for_the_last_example(case: Any) -> None:
    pools, quotas = case
    smaller = take(pools, {label: quota // 2 for label, quota in quotas.items()})
    larger = take(pools, quotas)
    for label, picks in smaller.picks.items():
        kept = picks[:-1]
        assert larger.picks[label][: len(kept)] == kept


@settings(max_examples=40)
@given(st.dictionaries(st.sampled_from("abcde"), st.integers(0, 12), min_size=1), st.integers(1, 9))
def test_examples_of_one_length_are_drawn_as_if_counted(counts: Any, length: Any) -> None:
    pools = {label: [length] * count for label, count in counts.items()}
    quotas = {label: length * (count // 2) for label, count in counts.items()}
    picks = take(pools, quotas).picks
    assert {label: len(taken) for label, taken in picks.items()} == {k: count // 2 for k, count in counts.items()}
