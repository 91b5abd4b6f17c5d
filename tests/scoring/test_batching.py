from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibudget.lm.encoding import Encoded
from calibudget.scoring.local import cut, plan_batches
from calibudget.scoring.scorer import CalibrationItem, Work
from calibudget.tasks.answers import AnswerSpec
from tests.conftest import record_of


def load(tokens: int, limit: int = 32, name: int = 0, response_tokens: int = 1) -> Work:
    record = record_of(record_id=f"{name:05d}")
    example = Encoded(prompt_ids=(1,) * (tokens - response_tokens), response_ids=(1,) * response_tokens)
    item = CalibrationItem(record=record, answer=AnswerSpec(kind="exact"))
    return Work(item=item, example=example, limit=limit, opened="")


def test_items_decoded_equally_far_go_together() -> None:
    loads = [load(10, 512, 0), load(10, 32, 1), load(10, 512, 2), load(10, 32, 3)]
    assert plan_batches(loads, 20) == [(1, 3), (0, 2)]


def test_rows_of_logits_are_bounded_too() -> None:
    loads = [load(20, name=i, response_tokens=15) for i in range(4)]
    assert plan_batches(loads, 120) == [(0, 1), (2, 3)]


@given(st.lists(st.tuples(st.integers(1, 300), st.sampled_from([0, 32, 512])), max_size=60), st.integers(1, 500))
def test_batches_part_the_items_and_ignore_their_order(shapes: Any, bound: Any) -> None:
    loads = [load(tokens, limit, i) for i, (tokens, limit) in enumerate(shapes)]
    batches = plan_batches(loads, bound)
    assert sorted(i for batch in batches for i in batch) == list(range(len(loads)))
    assert all(len(batch) == 1 or sum(loads[i].example.total_length for i in batch) <= bound for batch in batches)
    order = sorted(range(len(loads)), key=lambda i: i * 7919 % 61)
    again = plan_batches([loads[i] for i in order], bound)
    assert [tuple(order[i] for i in batch) for batch in again] == batches


@pytest.mark.parametrize(
    ("weights", "runs"), [([5, 5, 5], [range(2), range(2, 3)]), ([20, 1], [range(1), range(1, 2)]), ([3], [range(1)])]
)
def test_runs_are_cut_at_the_bound(weights: Any, runs: Any) -> None:
    assert cut([(weight,) for weight in weights], (10,)) == runs
