"""Low-rank factors on a model, through peft: put on, started from the seed, saved."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any, Final

import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from torch import nn
from transformers.pytorch_utils import Conv1D

from calibudget.keys import torch_seed
from calibudget.training.config import TrainingConfig
from calibudget.training.layers import ADAPTER
from calibudget.training.targets import outside_language_model, target_modules

WEIGHTS_NAME: Final = "adapter_model.safetensors"
CONFIG_NAME: Final = "adapter_config.json"


def add_adapter(model: Any, config: TrainingConfig, name: str) -> PeftModel:
    """Freeze a model and put factors on the target layers of its language model, and of no other part of it.

    A starts uniform as peft has it, but from a generator of its own for each layer, so that it depends on the seed
    and the layer's name alone; B starts at zero.

    Args:
        model: a transformers causal language model, in evaluation mode.
        config: rank, scaling, dropout, layers and seed.
        name: what the model is called, for `base_model_name_or_path`.

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
    save_file(weights, directory / WEIGHTS_NAME, metadata={"format": "pt"})
    fields = model.peft_config[ADAPTER].to_dict() | {"inference_mode": True}
    plain = {name: sorted(value) if isinstance(value, set) else value for name, value in fields.items()}
    (directory / CONFIG_NAME).write_text(json.dumps(plain, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    # as any other file: safetensors lets its owner alone read it
    (directory / WEIGHTS_NAME).chmod((directory / CONFIG_NAME).stat().st_mode & 0o777)
