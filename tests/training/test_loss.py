from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F  # noqa: N812

from calibudget.errors import TrainingError
from calibudget.lm.loading import load_model
from calibudget.training import loss as module
from calibudget.training.loss import Head, find_head, response_loss
from tests.conftest import model_of


def case(seed: int = 0, rows: int = 300, states: int = 400, hidden: int = 16, vocabulary: int = 50) -> Any:
    generator = torch.Generator().manual_seed(seed)
    hidden_states = torch.randn(states, hidden, generator=generator)
    weight = torch.randn(vocabulary, hidden, generator=generator)
    bias = torch.randn(vocabulary, generator=generator)
    labels = torch.randint(0, vocabulary, (rows,), generator=generator)
    labels[::7] = -100
    return hidden_states, weight, bias, labels


@pytest.mark.parametrize("chunk", [1, 50 * 130, 1 << 26])
@pytest.mark.parametrize(("factor", "softcap"), [(1.0, None), (0.25, None), (2.0, 3.0)])
def test_loss_and_gradient_are_torchs_own(
    monkeypatch: pytest.MonkeyPatch, chunk: Any, factor: float, softcap: float | None
) -> None:
    monkeypatch.setattr(module, "_CHUNK_ELEMENTS", chunk)
    states, weight, bias, labels = case()
    one, other = states.clone().requires_grad_(), states.clone().requires_grad_()
    head = Head(weight=weight, bias=bias, factor=factor, softcap=softcap)
    rows = torch.randperm(400, generator=torch.Generator().manual_seed(1))[:300]
    found = response_loss(one, rows, head, labels, torch.tensor(1 / 17))
    logits = F.linear(other[rows], weight, bias) * factor
    logits = logits if softcap is None else torch.tanh(logits / softcap) * softcap
    expected = F.cross_entropy(logits, labels, ignore_index=-100, reduction="sum") / 17
    (3 * found).backward()  # type: ignore[no-untyped-call]
    (3 * expected).backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(one.grad, other.grad)


def test_extreme_logits_stay_finite() -> None:
    states, weight, bias, labels = case()
    hidden = (states * 1e4).requires_grad_()
    head = Head(weight=weight, bias=bias, factor=1.0, softcap=None)
    found = response_loss(hidden, torch.arange(300), head, labels, torch.tensor(1.0))
    found.backward()  # type: ignore[no-untyped-call]
    assert torch.isfinite(found)
    assert torch.isfinite(hidden.grad).all()


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("llama", {}),
        ("gemma2", {"final_logit_softcapping": 5.0, "head_dim": 16}),
        ("granite", {"logits_scaling": 4.0}),
        ("cohere", {"logit_scale": 0.125}),
    ],
)
def test_heads_of_families_that_shape_their_logits_are_known(family: str, settings: Any) -> None:
    head = find_head(model_of(family, num_key_value_heads=2, **settings))
    assert head.softcap == settings.get("final_logit_softcapping")
    assert head.factor == settings.get("logit_scale", 1.0) / settings.get("logits_scaling", 1.0)


def test_a_head_that_does_more_is_refused() -> None:
    model = model_of()
    model.config.logit_scale = 2.0  # an attribute that this family's code doesn't look at
    with pytest.raises(TrainingError, match="llama"):
        find_head(model)


def test_layers_that_wait_in_memory_are_refused(tiny_directory: Path, tmp_path: Path) -> None:
    from accelerate import dispatch_model  # type: ignore[import-untyped]

    model = load_model(str(tiny_directory), device="cpu").model
    here = ("model.embed_tokens", "model.rotary_emb", "model.layers.0", "model.norm", "lm_head")
    split = dispatch_model(model, {**dict.fromkeys(here, "cpu"), "model.layers.1": "disk"}, offload_dir=tmp_path)
    with pytest.raises(TrainingError, match=r"layers wait in the machine's memory.*dtype: nf4"):
        find_head(split)
