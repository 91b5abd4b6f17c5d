"""Low-rank factors on a model, through peft: put on, started from the seed, run in the model's precision, saved."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any, Final

import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from peft.tuners.lora import Linear as LoraLinear
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name that every torch program uses
from transformers.pytorch_utils import Conv1D

from calibudget.keys import torch_seed
from calibudget.training.config import TrainingConfig
from calibudget.training.targets import target_modules

WEIGHTS_NAME: Final = "adapter_model.safetensors"
CONFIG_NAME: Final = "adapter_config.json"
_ADAPTER: Final = "default"


class FactorLinear(LoraLinear):  # type: ignore[misc]
    """peft's layer, computed in the precision of its input.

    peft turns the input to float32 for float32 factors; here the factors are rounded to the input's precision
    instead, as automatic mixed precision does, while they, their gradients and the optimizer stay in float32.
    """

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """The layer's output; anything but plain LoRA is left to peft."""
        if args or kwargs or self.disable_adapters or self.merged:
            output: Tensor = super().forward(x, *args, **kwargs)
            return output
        first = self.lora_A[_ADAPTER].weight.to(x.dtype)
        second = self.lora_B[_ADAPTER].weight.to(x.dtype)
        inner = F.linear(self.lora_dropout[_ADAPTER](x), first)
        scaling = self.scaling[_ADAPTER]
        result: Tensor = self.base_layer(x) + F.linear(inner if scaling == 1.0 else inner * scaling, second)
        return result


def add_adapter(model: Any, config: TrainingConfig, name: str) -> PeftModel:
    """Freeze a model and put factors on its target layers.

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
        fan_in_fan_out=transposed,
        bias="none",
        task_type="CAUSAL_LM",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft's own use of a name that transformers renamed
        adapted = get_peft_model(model, lora)
    lora.base_model_name_or_path = name
    for key, parameter in adapted.named_parameters():
        if ".lora_A." in key:
            _start(parameter, torch_seed("lora", config.seed, key))
    return adapted


def _start(parameter: nn.Parameter, seed: int) -> None:
    generator = torch.Generator("cpu").manual_seed(seed)
    bound = 1.0 / math.sqrt(parameter.shape[1])
    start = torch.empty(parameter.shape, dtype=torch.float32).uniform_(-bound, bound, generator=generator)
    parameter.data.copy_(start)


def use_input_precision(model: PeftModel) -> None:
    """Let every plain LoRA layer of a model compute as `FactorLinear` does."""
    for module in model.modules():
        if type(module) is LoraLinear and isinstance(module.get_base_layer(), nn.Linear) and not module.lora_variant:
            module.__class__ = FactorLinear


def save_adapter(model: PeftModel, directory: Path) -> None:
    """Write `adapter_model.safetensors` and `adapter_config.json` as peft, vLLM and llama.cpp's converter read them.

    The bytes depend on the factors and the configuration alone.
    """
    from safetensors.torch import save_file

    # embeddings are never trained, and peft would ask the hub whether they were
    state = get_peft_model_state_dict(model, save_embedding_layers=False)
    weights = {name: value.detach().cpu().contiguous() for name, value in sorted(state.items())}
    save_file(weights, directory / WEIGHTS_NAME, metadata={"format": "pt"})
    fields = model.peft_config[_ADAPTER].to_dict() | {"inference_mode": True}
    plain = {name: sorted(value) if isinstance(value, set) else value for name, value in fields.items()}
    (directory / CONFIG_NAME).write_text(json.dumps(plain, indent=2, sort_keys=True) + "\n", encoding="utf-8")
