from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from transformers import get_scheduler

from calibudget.keys import order_key
from calibudget.training.config import TrainingConfig
from calibudget.training.example_order import packs, plan_steps, rate_factor, rows, share, warmup_steps
from tests.training.conftest import example_of


@pytest.fixture
def small() -> Any:
    own = [example_of(20 + i, 10, number=i) for i in range(7)]
    return [*own, *(example_of(15, 5, source="companion", number=i, role="companion") for i in range(3))]


def test_an_epoch_takes_every_example_once_in_key_order(small: Any) -> None:
    steps = plan_steps(small, TrainingConfig(batch_size=4, epochs=2))
    assert [len(step.members) for step in steps] == [4, 4, 2, 4, 4, 2]
    assert [step.epoch for step in steps] == [1, 1, 1, 2, 2, 2]
    assert {(step.total, step.phase) for step in steps} == {(6, "training")}
    for epoch in (1, 2):
        order = [index for step in steps if step.epoch == epoch for index in step.members]
        keys = [order_key(f"epoch:{epoch}", 42, small[i].source, small[i].record_id) for i in order]
        assert sorted(order) == list(range(10))
        assert keys == sorted(keys)


def test_the_order_depends_on_the_records_and_the_seed_alone(small: Any) -> None:
    def names(examples: Any, **settings: Any) -> Any:
        config = TrainingConfig(batch_size=4, epochs=1, **settings)
        return [[examples[i].name for i in step.members] for step in plan_steps(examples, config)]

    assert names(small) == names(small[::-1])
    assert names(small) != names(small, seed=43)


def test_recovery_follows_on_the_companion_alone(small: Any) -> None:
    steps = plan_steps(small, TrainingConfig(batch_size=2, epochs=1, recovery_steps=3))
    recovery = [step for step in steps if step.phase == "recovery"]
    assert steps[-3:] == tuple(recovery)
    assert [step.index for step in recovery] == [0, 1, 2]
    assert {small[i].role for step in recovery for i in step.members} == {"companion"}
    assert sorted(i for step in recovery[:2] for i in step.members) == [7, 8, 9]


def test_shares_are_a_partition_of_about_equal_tokens(subtests: pytest.Subtests) -> None:
    for parts in [1, 2, 3, 8]:
        with subtests.test(parts=parts):
            lengths = [11, 101, 64, 3, 90, 17, 17]
            members = [4, 0, 6, 1, 2, 3, 5]
            shares = share(members, lengths, parts)
            assert len(shares) == parts
            assert sorted(itertools.chain(*shares)) == sorted(members)
            assert all(part == sorted(part, key=members.index) for part in shares)
            loads = [sum(lengths[i] for i in part) for part in shares]
            assert max(loads) - min(loads) <= max(lengths)


def test_packs_hold_their_limit_and_everything() -> None:
    lengths = [11, 101, 64, 3, 90, 17, 17, 60]
    for limit in (101, 120, 200, 1000):
        found = packs(range(8), lengths, limit)
        assert sorted(itertools.chain(*found)) == list(range(8))
        assert all(sum(lengths[i] for i in pack) <= limit for pack in found)
    assert len(packs(range(8), lengths, 1000)) == 1
    assert packs([], lengths, 100) == []


def test_padded_rows_hold_their_limit_and_everything() -> None:
    lengths = [11, 101, 64, 3, 90, 17, 17, 60]
    found = rows(range(8), lengths, 202)
    assert sorted(itertools.chain(*found)) == list(range(8))
    assert all(len(batch) * max(lengths[i] for i in batch) <= 202 for batch in found)
    assert found[0] == [1, 4]
    assert rows(range(3), [5, 9, 5], 1) == [[1], [0], [2]]
    assert rows([], lengths, 64) == []


@pytest.mark.parametrize("schedule", ["cosine", "linear", "constant"])
def test_the_factors_are_transformers_own(schedule: Any) -> None:
    """People compare loss curves with transformers' Trainer, so every step has its rate."""
    name = {"constant": "constant_with_warmup"}.get(schedule, schedule)
    for total in (1, 2, 7, 100, 941):
        warmup = warmup_steps(total, 0.03)
        assert (total * 0.03) <= warmup < total * 0.03 + 1
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
        reference = get_scheduler(name, optimizer, num_warmup_steps=warmup, num_training_steps=total)
        for step in range(total):
            expected = reference.get_last_lr()[0]
            assert rate_factor(step, total, warmup, schedule) == pytest.approx(expected, abs=1e-12)
            optimizer.step()
            reference.step()
