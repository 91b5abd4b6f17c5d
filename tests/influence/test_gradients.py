"""Single examples' gradients against one backward pass an example."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from calibudget.influence.gradients import ExampleGradients
from calibudget.lm.loading import load_model
from calibudget.training.config import Execution
from calibudget.training.optimizer_step import Learner
from tests.conftest import model_of
from tests.influence.conftest import Whole

NEEDS_A_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")


def together(gradients: Any, examples: Any) -> Any:
    sink = Whole(len(examples), gradients.size, gradients.device)
    gradients(examples, sink)
    return sink.gradients / torch.tensor([[float(example.response_length)] for example in examples])


@pytest.mark.parametrize("pack", [True, False], ids=["packed", "padded"])
def test_a_batch_gives_what_one_backward_an_example_gives(
    learner_of: Callable[..., Any], one_by_one: Any, examples: Any, pack: bool
) -> None:
    learner = learner_of(pack=pack)
    expected = one_by_one(learner, examples)
    found = together(ExampleGradients(learner), examples)
    assert (expected.norm(dim=1) > 0).all()
    cosines = torch.nn.functional.cosine_similarity(found.double(), expected.double(), dim=1)
    assert (1.0 - cosines).abs().max() < 1e-5
    assert ((found - expected).norm(dim=1) / expected.norm(dim=1)).max() < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("pack", [True, False], ids=["packed", "padded"])
def test_no_example_sees_its_neighbours(learner_of: Callable[..., Any], examples: Any, pack: bool) -> None:
    gradients = ExampleGradients(learner_of(pack=pack))
    alone = torch.cat([together(gradients, [example]) for example in examples])
    among = together(gradients, examples)
    assert ((alone - among).norm(dim=1) / alone.norm(dim=1)).max() < 1e-5
    other = together(gradients, [examples[0], examples[4]])
    assert (other[0] - among[0]).norm() / among[0].norm() < 1e-5
    # the control: gradients of two examples are nothing alike
    assert (among[0] - among[4]).norm() / among[0].norm() > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("family", ["qwen2", "gemma2", "phi3", "gpt_neox"])
def test_other_families_give_what_one_backward_an_example_gives(config: Any, examples: Any, family: str) -> None:
    """Biases, soft caps, fused projections: the same learner's own gradient of one example is the oracle."""
    extra = {"num_key_value_heads": 2, "head_dim": 16} if family != "gpt_neox" else {}
    execution = Execution(device="cpu", batch_tokens=4096, fuse=False)
    learner = Learner(model_of(family, **extra), "tiny", config, execution)
    learner.factors[1].values.data.copy_(torch.randn(learner.factors[1].values.shape) * 0.05)
    expected = []
    for index, example in enumerate(examples):
        learner.gradients(learner.batches(examples, [index]), example.response_length)
        expected.append(torch.cat([factor.gradient for factor in learner.factors]))
    expected = torch.stack(expected)  # type: ignore[assignment]
    found = together(ExampleGradients(learner), examples)
    assert ((found - expected).norm(dim=1) / expected.norm(dim=1)).max() < 1e-4  # type: ignore[attr-defined]


@pytest.mark.parametrize("second", ["cpu", pytest.param("cuda:0", marks=NEEDS_A_GPU)])
@pytest.mark.parametrize("pack", [True, False], ids=["packed", "padded"])
def test_a_model_in_parts_gives_what_one_in_one_piece_gives(
    learner_of: Callable[..., Any], tiny_directory: Path, examples: Any, config: Any, second: str, pack: bool
) -> None:
    """accelerate's hooks carry what passes between two parts; only with a GPU are these on two devices."""
    from accelerate.hooks import AlignDevicesHook, add_hook_to_module  # type: ignore[import-untyped]

    whole = learner_of(pack=pack)
    model = load_model(str(tiny_directory), device="cpu").model
    inner = model.model
    model.hf_device_map = {"first": "cpu", "second": second}
    for device, modules in {
        "cpu": (inner.embed_tokens, inner.rotary_emb, inner.layers[0]),
        second: (inner.layers[1], inner.norm, model.lm_head),
    }.items():
        for module in modules:
            add_hook_to_module(module, AlignDevicesHook(execution_device=device, place_submodules=True))
    learner = Learner(model, "tiny", config, Execution(device="cpu", batch_tokens=4096, pack=pack))
    learner.load(whole.tensors(), 3)
    expected = together(ExampleGradients(whole), examples)
    found = together(ExampleGradients(learner), examples)
    assert ((found - expected).norm(dim=1) / expected.norm(dim=1)).max() < 1e-4
