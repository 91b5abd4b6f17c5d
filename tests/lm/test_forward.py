"""Packed reading against each family's own plain forward, computed here with other code."""

from __future__ import annotations

from typing import Any

import pytest

from calibudget.lm.encoding import Encoded
from tests.conftest import model_of

#: Low enough for the scores of a tiny model to feel it.
SOFTCAP = {"query_pre_attn_scalar": 16, "attn_logit_softcapping": 0.5}
FAMILIES: dict[str, Any] = {
    "llama": {"num_key_value_heads": 2},
    "qwen2": {"num_key_value_heads": 2, "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
    "qwen3": {"num_key_value_heads": 2, "head_dim": 16},
    "gemma": {"num_key_value_heads": 1, "head_dim": 16},
    "gemma2": {"num_key_value_heads": 2, "head_dim": 16, "sliding_window": 8} | SOFTCAP,
    "gemma3_text": {"num_key_value_heads": 2, "head_dim": 16, "sliding_window": 8},
    "mistral": {"num_key_value_heads": 2, "sliding_window": 8},
    "phi": {},
    "phi3": {"num_key_value_heads": 2},
    "gpt2": {"n_embd": 64, "n_layer": 2, "n_head": 4},
    "granite": {"num_key_value_heads": 2, "logits_scaling": 3.0},
}
UNPACKABLE: dict[str, Any] = {
    "bloom": {"n_layer": 2, "n_head": 4},
    "gpt_oss": {"num_key_value_heads": 2, "head_dim": 16, "num_local_experts": 2, "num_experts_per_tok": 1},
    "mamba": {},
    "lfm2": {"num_key_value_heads": 2, "layer_types": ["conv", "full_attention"]},
}


def make_examples(shared: int = 5) -> Any:
    """Prompts and responses of many lengths, the prompts with a common beginning."""
    start = tuple(range(3, 3 + shared))
    return [
        Encoded(
            prompt_ids=(*start, *((7 * i * j + 11 * j + i) % 300 + 10 for j in range(1 + 3 * i))),
            response_ids=tuple((5 * i + 13 * j) % 300 + 10 for j in range(1 + 2 * i)),
        )
        for i in range(6)
    ]


def plain_reading(model: Any, example: Any) -> Any:
    """NLL and first disagreement from full logits of one sequence, in float64."""
    import torch

    ids = torch.tensor([example.prompt_ids + example.response_ids])
    with torch.no_grad():
        logits = model(ids, use_cache=False).logits[0].double()
    scores = logits.log_softmax(-1)[len(example.prompt_ids) - 1 : -1]
    targets = torch.tensor(example.response_ids)
    nll = -scores[torch.arange(len(targets)), targets].mean().item()
    wrong = (scores.argmax(-1) != targets).nonzero()
    agreed = int(wrong[0]) if len(wrong) else len(targets)
    return nll, agreed, int(scores.argmax(-1)[agreed]) if len(wrong) else None


@pytest.mark.parametrize(
    "family", [pytest.param(family, marks=[] if family == "llama" else pytest.mark.slow) for family in FAMILIES]
)
def test_packed_reading_is_plain_reading(family: Any) -> None:
    from calibudget.lm.forward import can_pack, teacher_forced

    model = model_of(family, **FAMILIES[family])
    assert can_pack(model)
    examples = make_examples()
    for example, result in zip(examples, teacher_forced(model, examples)[0], strict=True):
        nll, agreed, next_id = plain_reading(model, example)
        assert result.nll == pytest.approx(nll, abs=2e-5)
        assert (result.agreed, result.next_id) == (agreed, next_id)


@pytest.mark.parametrize(
    ("family", "block_tokens"),
    [("llama", 1), ("qwen2", 60), ("gemma2", 60), ("gemma3_text", 2**16), ("gpt2", 60)],
)
def test_reading_in_blocks_is_plain_reading(family: str, block_tokens: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a GPU reads where the variable-length kernel is missing."""
    from calibudget.lm import attention
    from calibudget.lm.forward import can_pack, teacher_forced

    monkeypatch.setattr(attention.Packed, "_attend_by_parts", attention.Packed._attend_in_blocks)
    monkeypatch.setattr(attention, "_BLOCK_TOKENS", block_tokens)
    model, examples = model_of(family, **FAMILIES[family]), make_examples(20)
    assert can_pack(model)
    results, layout = teacher_forced(model, examples)
    assert (len(layout._blocks) == 1) == (block_tokens == 2**16)
    for example, result in zip(examples, results, strict=True):
        nll, agreed, next_id = plain_reading(model, example)
        assert result.nll == pytest.approx(nll, abs=2e-5)
        assert (result.agreed, result.next_id) == (agreed, next_id)


@pytest.mark.parametrize("family", UNPACKABLE)
def test_families_that_cannot_be_packed_are_found_out(family: Any) -> None:
    from calibudget.lm.forward import can_pack, plain_forward

    model = model_of(family, **UNPACKABLE[family])
    assert not can_pack(model)
    for example in make_examples():
        assert plain_forward(model, example).nll == pytest.approx(plain_reading(model, example)[0], abs=2e-5)


def test_positions_that_depend_on_the_batch_are_not_packed() -> None:
    from calibudget.lm.forward import can_pack

    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    assert not can_pack(model_of("llama", rope_parameters=rope))


def test_the_probe_sees_contamination(monkeypatch: pytest.MonkeyPatch) -> None:
    """A packed forward whose sequences see each other must not pass."""
    from calibudget.lm import attention
    from calibudget.lm.forward import can_pack

    model = model_of()
    assert can_pack(model)
    seen = attention.Packed._seen
    monkeypatch.setattr(attention.Packed, "_seen", lambda self, states, number: seen(self, states.roll(1, -2), number))
    assert not can_pack(model)


@pytest.mark.parametrize(
    ("family", "bound"),
    [
        ("gemma2", "softcap"),
        ("gemma2", "window"),
        ("qwen2", "window"),
        ("granite", "scale"),
    ],
)
def test_a_family_read_without_its_own_bounds_would_be_found_out(
    family: str, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bounds matter on these models, so that the equalities above show that they are kept."""
    from calibudget.lm import attention
    from calibudget.lm.forward import can_pack

    bounds: Any = attention.Bounds
    model = model_of(family, **FAMILIES[family] | ({"attention_multiplier": 2.0} if bound == "scale" else {}))
    assert can_pack(model)
    monkeypatch.setattr(attention, "Bounds", lambda *own: bounds(*own)._replace(**{bound: None}))
    assert not can_pack(model)


def test_logits_that_are_no_number_are_told() -> None:
    import math

    import torch

    from calibudget.lm.forward import teacher_forced

    model = model_of()
    with torch.no_grad():
        model.lm_head.weight[100] = float("nan")
    assert all(math.isnan(result.nll) for result in teacher_forced(model, make_examples())[0])
