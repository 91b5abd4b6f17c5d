from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from calibudget.errors import TrainingError
from calibudget.training.config import TrainingConfig
from calibudget.training.layers import factor_names, flatten_factors
from calibudget.training.optimizer_step import make_optimizer


class Layer(nn.Module):
    def __init__(self, dtype: Any = torch.float32) -> None:
        super().__init__()
        self.lora_A = nn.ModuleDict({"default": nn.Linear(5, 3, bias=False, dtype=dtype)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(3, 7, bias=False, dtype=dtype)})


def test_every_trainable_tensor_is_in_exactly_one_group() -> None:
    model = nn.ModuleList([Layer(), Layer()])
    parted = factor_names(name for name, _ in model.named_parameters())
    assert {factor: len(names) for factor, names in parted.items()} == {"A": 2, "B": 2}
    factors = flatten_factors(model)
    optimizer = make_optimizer(factors, TrainingConfig(weight_decay=0.1))
    assert [len(group["params"]) for group in optimizer.param_groups] == [1, 1]
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.1, 0.1]


def test_groups_that_dont_part_are_refused(subtests: pytest.Subtests) -> None:
    for names, message in [
        (["x.lora_A.default.weight"], "of the B factors is empty"),
        ([], "of the A factors is empty"),
        (["x.lora_A.default.weight", "x.lora_B.default.weight", "lm_head.weight"], r"lm_head\.weight belongs to 0"),
        (["x.lora_A.y.lora_B.default.weight"], "belongs to 2"),
    ]:
        with subtests.test(message=message), pytest.raises(TrainingError, match=message):
            factor_names(names)


def test_parameters_and_gradients_are_views_of_the_flat_vectors() -> None:
    model = nn.ModuleList([Layer(), Layer()])
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    factors = flatten_factors(model)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name])
    model[0].lora_B["default"](model[0].lora_A["default"](torch.ones(2, 5))).sum().backward()  # type: ignore[index, operator]
    for factor in factors:
        name = next(iter(factor.offsets))
        parameter = dict(model.named_parameters())[name]
        assert parameter.grad.abs().sum() > 0  # type: ignore[union-attr]
        assert torch.equal(factor.gradient[: parameter.numel()], parameter.grad.flatten())  # type: ignore[union-attr]
        factor.values.data.zero_()
        assert not parameter.any()
        assert all(offset % 64 == 0 for offset in factor.offsets.values())
