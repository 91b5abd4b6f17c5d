from __future__ import annotations

import pytest

from calibudget.training.order import rate_factor, warmup_steps


@pytest.mark.parametrize("schedule", ["cosine", "linear", "constant"])
@pytest.mark.parametrize("total", [1, 2, 7, 100, 941])
def test_the_factors_are_transformers_own(schedule: str, total: int) -> None:
    """People compare loss curves with transformers' Trainer, so every step has its rate."""
    import torch
    from transformers import get_scheduler

    warmup = warmup_steps(total, 0.03)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    name = {"constant": "constant_with_warmup"}.get(schedule, schedule)
    reference = get_scheduler(name, optimizer, num_warmup_steps=warmup, num_training_steps=total)
    for step in range(total):
        assert rate_factor(step, total, warmup, schedule) == pytest.approx(reference.get_last_lr()[0], abs=1e-12)  # type: ignore[arg-type]
        optimizer.step()
        reference.step()


def test_the_warm_up_is_rounded_up() -> None:
    assert warmup_steps(100, 0.03) == 3
    assert warmup_steps(101, 0.03) == 4
    assert warmup_steps(10, 0.0) == 0
