from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from calibudget.errors import TrainingError
from calibudget.training.config import Execution, TrainingConfig
from calibudget.training.optimizer_step import Learner
from tests.conftest import model_of
from tests.training.conftest import plain_loss, reference_of

PACKED = Execution(device="cpu", batch_tokens=4096, pack=True)
PADDED = Execution(device="cpu", batch_tokens=4096, pack=False)
FUSED = Execution(device="cpu", batch_tokens=4096, pack=True, fuse=True)


def gradients_of(learner: Any, examples: Any, members: Any = None) -> Any:
    members = range(len(examples)) if members is None else members
    tokens = sum(examples[i].response_length for i in members)
    loss = learner.gradients(learner.batches(examples, members), tokens)
    named = learner.model.named_parameters()
    return loss.item(), {name: p.grad.clone() for name, p in named if p.requires_grad}


def reference_gradients(reference: Any, examples: Any) -> Any:
    tokens = sum(example.response_length for example in examples)
    total = 0.0
    for example in examples:
        loss = plain_loss(reference, example) / tokens
        loss.backward()
        total += loss.item()
    return total, {name: p.grad for name, p in reference.named_parameters() if p.requires_grad}


def assert_close(one: Any, other: Any, tolerance: float = 1e-5) -> None:
    assert one.keys() == other.keys()
    for name in one:
        scale = other[name].norm()
        assert scale > 0
        assert (one[name] - other[name]).norm() <= tolerance * scale, name


@pytest.mark.parametrize("execution", [PACKED, PADDED, FUSED], ids=["packed", "padded", "fused"])
def test_gradients_are_those_of_the_plain_reference(
    learner_of: Callable[..., Any], language_model: Any, examples: Any, execution: Any
) -> None:
    learner = learner_of(execution=execution)
    assert learner.packs_sequences is execution.pack
    reference = reference_of(learner, language_model.model, TrainingConfig(rank=4, scaling=8.0))
    loss, found = gradients_of(learner, examples)
    expected_loss, expected = reference_gradients(reference, examples)
    assert loss == pytest.approx(expected_loss, rel=1e-6)
    assert_close(found, expected)


def test_a_sum_per_example_is_the_papers_equation(learner_of: Callable[..., Any], examples: Any) -> None:
    """-E sum_t log p(y_t | x, y_<t): the mean over examples of each one's own sum (paper 2.4)."""
    members = [0, 1, 2]
    learner = learner_of(loss="sum_per_example")
    config = TrainingConfig(loss="sum_per_example")
    tokens = [examples[index].response_length for index in members]
    assert len(set(tokens)) > 1
    sums = []
    for index, count in zip(members, tokens, strict=True):
        mean = learner.gradients(learner.batches(examples, [index]), TrainingConfig().loss_unit(1, count))
        sums.append((count * mean.item(), [count * factor.gradient.clone() for factor in learner.factors]))
    loss = learner.gradients(learner.batches(examples, members), config.loss_unit(3, sum(tokens)))
    assert loss.item() == pytest.approx(sum(one for one, _ in sums) / 3, rel=1e-5)
    for place, factor in enumerate(learner.factors):
        torch.testing.assert_close(factor.gradient, sum(own[place] for _, own in sums) / 3, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_the_update_is_loraplus_by_hand(learner_of: Callable[..., Any], examples: Any, decay: float) -> None:
    """First step of AdamW: p - rate * (decay * p + g / (|g| + eps)), with A and B at their own rates.

    Both factors carry the decay (axolotl-ai-cloud/axolotl #4010).
    """
    learner = learner_of(weight_decay=decay, max_grad_norm=None)
    rates = TrainingConfig(learning_rate=1e-3).factor_rates(1e-3)
    assert rates == pytest.approx((1e-3 / 8**0.5, 1e-3 * 8**0.5))
    _, gradients = gradients_of(learner, examples)
    before = {name: p.detach().clone() for name, p in learner.model.named_parameters() if p.requires_grad}
    learner.update(rates)
    for name, parameter in learner.model.named_parameters():
        if parameter.requires_grad:
            rate = rates[0] if ".lora_A." in name else rates[1]
            old, gradient = before[name].double(), gradients[name].double()
            expected = old * (1 - rate * decay) - rate * gradient / (gradient.abs() + 1e-8)
            torch.testing.assert_close(parameter.double(), expected, atol=1e-7, rtol=1e-5)


def test_large_gradients_are_scaled_to_the_norm_asked(learner_of: Callable[..., Any], examples: Any) -> None:
    learner = learner_of(max_grad_norm=0.01)
    gradients_of(learner, examples)
    before = [factor.gradient.clone() for factor in learner.factors]
    norm = learner.update((0.0, 0.0))
    assert norm == pytest.approx(torch.cat(before).norm().item(), rel=1e-5)
    assert torch.cat([factor.gradient for factor in learner.factors]).norm() == pytest.approx(0.01, rel=1e-3)


def test_a_learner_goes_on_from_its_tensors(learner_of: Callable[..., Any], examples: Any) -> None:
    one = learner_of()
    for _ in range(3):
        gradients_of(one, examples)
        one.update((1e-3, 1e-2))
    other = learner_of(trained=False)
    other.load({name: value.clone() for name, value in one.tensors().items()}, 3)
    for learner in (one, other):
        gradients_of(learner, examples)
        learner.update((1e-3, 1e-2))
    for name, value in one.tensors().items():
        assert torch.equal(value, other.tensors()[name]), name


def test_checkpointing_and_compiling_change_nothing(
    learner_of: Callable[..., Any], examples: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "compile", lambda forward, **_: forward)  # what is compiled, not the compiler
    plain = gradients_of(learner_of(), examples)
    execution = Execution(device="cpu", gradient_checkpointing=True, compile=True, fuse=True)
    assert_close(gradients_of(learner_of(execution=execution), examples)[1], plain[1])


def test_a_model_that_cant_be_packed_is_padded_or_refused() -> None:
    config = TrainingConfig(rank=4, max_length=64)
    shape: dict[str, Any] = {"num_key_value_heads": 2, "head_dim": 16, "attn_logit_softcapping": 0.5}
    assert not Learner(model_of("gemma2", **shape), "tiny", config, Execution(device="cpu")).packs_sequences
    with pytest.raises(TrainingError, match="pack: a gemma2 model"):
        Learner(model_of("gemma2", **shape), "tiny", config, PACKED)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")  # torch's compiler warns of its own doings
def test_layers_compile_once_for_all_lengths(
    learner_of: Callable[..., Any], all_examples: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One graph for the first layer, whose input needs no gradient, one for all others, one for the loss."""
    from torch._dynamo.testing import CompileCounterWithBackend
    from torch._dynamo.utils import counters

    compile_with, backend = torch.compile, CompileCounterWithBackend("aot_eager")
    monkeypatch.setattr(torch, "compile", lambda f, dynamic: compile_with(f, dynamic=dynamic, backend=backend))
    torch._dynamo.reset()
    counters.clear()
    learner = learner_of(execution=Execution(device="cpu", pack=True, compile=True, fuse=True))
    for count in (3, 12, 5):
        gradients_of(learner, all_examples, range(count))
    # dynamo hands over an empty graph too
    assert len([graph for graph in backend.graphs if len(graph.graph.nodes)]) == 3
    assert not counters["graph_break"]
