"""Norms as one kernel against the models' own code."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import model_of

#: Settings of families with other fields; the last two have norms that take a gate besides the state.
MORE: dict[str, dict[str, Any]] = {
    "gpt2": {},
    "mamba2": {"num_heads": 4, "head_dim": 32, "n_groups": 1, "state_size": 8},
    "qwen3_next": {
        "layer_types": ["linear_attention", "full_attention"],
        "num_experts": 0,
        "linear_num_value_heads": 2,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
    },
}


@pytest.mark.parametrize(
    ("family", "joined"),
    [("llama", 5), ("qwen3", 9), ("mistral", 5), ("gemma2", 0), ("gpt2", 0), ("mamba2", 3), ("qwen3_next", 0)],
    ids=str,
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_model_gives_the_same_with_its_norms_joined(family: str, joined: int, dtype: str) -> None:
    import torch

    from calibudget.lm.norms import join_norms

    more = MORE.get(family, {"num_key_value_heads": 2, "head_dim": 16})
    model: Any = model_of(family, **more).to(getattr(torch, dtype))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.add_(torch.linspace(-0.3, 0.3, parameter.numel(), dtype=parameter.dtype))
        ids = torch.arange(5, 60)[None]
        before = model(input_ids=ids).logits.double()
        join_norms(model)
        after = model(input_ids=ids).logits.double()
    assert sum("forward" in vars(module) for module in model.modules()) == joined
    assert (after - before).norm() <= {"float32": 1e-6, "bfloat16": 2e-2}[dtype] * before.norm()
