"""Which layers of a model get factors: its attention and MLP projections (paper 2.4), by family."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from calibudget.errors import TrainingError

_GATED: Final = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_FUSED: Final = ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")
_NEOX: Final = ("query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h")

#: Attention and MLP projections by transformers' `model_type`.
PROJECTIONS: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "granite"), _GATED),
    **dict.fromkeys(("cohere", "cohere2", "olmo", "olmo2", "olmo3", "smollm3", "stablelm", "helium", "glm4"), _GATED),
    **dict.fromkeys(("phi3", "glm"), _FUSED),
    **dict.fromkeys(("gpt_neox", "falcon", "bloom"), _NEOX),
    "phi": ("q_proj", "k_proj", "v_proj", "dense", "fc1", "fc2"),
    "starcoder2": ("q_proj", "k_proj", "v_proj", "o_proj", "c_fc", "c_proj"),
    "opt": ("q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"),
    "gptj": ("q_proj", "k_proj", "v_proj", "out_proj", "fc_in", "fc_out"),
    "gpt2": ("c_attn", "c_proj", "c_fc"),
}


def target_modules(model: Any, asked: Sequence[str] | None = None) -> tuple[str, ...]:
    """Names of the layers of a model's language model that get factors, sorted.

    Args:
        model: a transformers causal language model.
        asked: names given by the user, None for the family's projections.

    Raises:
        TrainingError: an unknown family, a name that no layer of the model has, or the output head.
    """
    linear = linear_names(model)
    family = model.config.get_text_config().model_type
    names = tuple(asked) if asked is not None else PROJECTIONS.get(family)
    if names is None:
        raise TrainingError(
            f"target_modules: no projections are known for the model family {family!r}; "
            f"name some of its linear layers: {', '.join(linear)}"
        )
    unknown = sorted(set(names) - set(linear))
    head = model.get_output_embeddings()
    if unknown and any(getattr(module, unknown[0], None) is head for module in model.modules()):
        raise TrainingError(f"target_modules: {unknown[0]!r} is the output head, which takes no factors; leave it out")
    if unknown:
        raise TrainingError(f"target_modules: the model has no linear layer {unknown[0]!r}; it has {', '.join(linear)}")
    return tuple(sorted(set(names)))


def linear_names(model: Any) -> tuple[str, ...]:
    """Last parts of the names of the linear layers of a model's language model, the output head left out, sorted."""
    head = model.get_output_embeddings()
    found = (name for name, module in _linear_layers(model.get_decoder()) if module is not head)
    return tuple(sorted({name.rpartition(".")[2] for name in found}))


def outside_language_model(model: Any, targets: Collection[str]) -> str | None:
    """A pattern of every name outside a model's language model, if layers there are named as the targets; else None."""
    decoder = model.get_decoder()
    inside = next(name for name, module in model.named_modules() if module is decoder)
    outside = [name for name, _ in _linear_layers(model) if inside and not name.startswith(f"{inside}.")]
    has_targets = any(name.rpartition(".")[2] in targets for name in outside)
    return rf"(?!{re.escape(inside)}\.).*" if has_targets else None


def frozen_experts(model: Any) -> tuple[str, ...]:
    """Names of the modules that hold their experts as stacked matrices, which take no factors; sorted, often none."""
    stacked = (name for name, weight in model.named_parameters() if "expert" in name and weight.dim() == 3)
    return tuple(sorted({name.rpartition(".")[0] for name in stacked}))


def _linear_layers(model: Any) -> Iterator[tuple[str, Any]]:
    from torch import nn
    from transformers.pytorch_utils import Conv1D

    return ((name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear | Conv1D))
