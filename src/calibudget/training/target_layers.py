"""Which layers of a model get factors: its attention and MLP projections (paper 2.4), by family.

Low-rank factors on a model, through peft: put on, started from the seed, saved.
"""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from torch import nn
from transformers.pytorch_utils import Conv1D

from calibudget.errors import TrainingError
from calibudget.keys import torch_seed
from calibudget.lm.model_digest import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from calibudget.training.config import TrainingConfig
from calibudget.training.layers import ADAPTER

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
    """Sorted names of a language model's layers that get factors: those asked for, or its family's projections.

    Raises:
        TrainingError: an unknown family, a name that no layer of the model has, or the output head.
    """
    linear = linear_names(model)
    family = model.config.get_text_config().model_type
    if not linear:
        method = str(getattr(model, "quantization_method", "") or "such").rpartition(".")[2].lower()
        raise TrainingError(
            f"no factors go over {method} weights; take the model unquantised, with dtype=nf4 if need be"
        )
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
    return ((name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear | Conv1D))


def add_adapter(model: Any, config: TrainingConfig, name: str) -> PeftModel:
    """Freeze a model and put factors on the target layers of its language model, and of no other part of it.

    A starts uniform as peft has it, but from a generator of its own for each layer, so that it depends on the seed
    and the layer's name alone; B starts at zero.

    Raises:
        TrainingError: unknown layers; see `target_modules`.
    """
    scaling = int(config.scaling) if float(config.scaling).is_integer() else config.scaling
    targets = target_modules(model, config.target_modules)
    transposed = any(
        isinstance(module, Conv1D) and key.rpartition(".")[2] in targets for key, module in model.named_modules()
    )
    lora = LoraConfig(
        r=config.rank,
        lora_alpha=scaling,
        lora_dropout=config.dropout,
        target_modules=list(targets),
        exclude_modules=outside_language_model(model, targets),
        fan_in_fan_out=transposed,
        bias="none",
        task_type="CAUSAL_LM",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft's own use of a name that transformers renamed
        adapted = get_peft_model(model, lora)
    lora.base_model_name_or_path = name
    start_factors(adapted, config.seed)
    return adapted


def start_factors(model: PeftModel, seed: int) -> None:
    """Give the factors of a model their start in place: A drawn for each layer from the seed, B zero."""
    for key, parameter in model.named_parameters():
        if ".lora_A." in key:
            _start(parameter, torch_seed("lora", seed, key))
        elif ".lora_B." in key:
            parameter.data.zero_()


def _start(parameter: nn.Parameter, seed: int) -> None:
    generator = torch.Generator("cpu").manual_seed(seed)
    bound = 1.0 / math.sqrt(parameter.shape[1])
    start = torch.empty(parameter.shape, dtype=torch.float32).uniform_(-bound, bound, generator=generator)
    parameter.data.copy_(start)


def save_adapter(model: PeftModel, directory: Path) -> None:
    """Write `adapter_model.safetensors` and `adapter_config.json` as peft, vLLM and llama.cpp's converter read them.

    The bytes depend on the factors and the configuration alone.
    """
    from safetensors.torch import save_file

    # embeddings are never trained, and peft would ask the hub whether they were
    state = get_peft_model_state_dict(model, save_embedding_layers=False)
    weights = {name: value.detach().cpu().contiguous() for name, value in sorted(state.items())}
    save_file(weights, directory / ADAPTER_WEIGHTS, metadata={"format": "pt"})
    fields = model.peft_config[ADAPTER].to_dict() | {"inference_mode": True}
    plain = {name: sorted(value) if isinstance(value, set) else value for name, value in fields.items()}
    (directory / ADAPTER_CONFIG).write_text(json.dumps(plain, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    # as any other file: safetensors lets its owner alone read it
    (directory / ADAPTER_WEIGHTS).chmod((directory / ADAPTER_CONFIG).stat().st_mode & 0o777)
