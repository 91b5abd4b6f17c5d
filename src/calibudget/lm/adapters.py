"""Putting a LoRA adapter on a loaded model, all of it or not at all."""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from calibudget.errors import DependencyError, ScoringError
from calibudget.lm.files import check_heads

_PEFT_IS_MISSING: Final = "an adapter needs peft; install: pip install 'calibudget[train]'"


def check_adapter(adapter: Path) -> None:
    """Refuse a directory that is no adapter, before a model is loaded for it.

    Raises:
        DependencyError: peft isn't installed.
        ScoringError: its configuration or its weights are missing or torn.
    """
    if find_spec("peft") is None:
        raise DependencyError(_PEFT_IS_MISSING)
    check_adapter_files(adapter)
    from safetensors import SafetensorError

    try:
        check_heads(adapter)
    except (OSError, ValueError, SafetensorError) as error:
        raise ScoringError(f"adapter {adapter}: can't be read: {error}") from error


def check_adapter_files(adapter: Path) -> None:
    """Refuse a directory that lacks an adapter's files; nothing is read, so no library is needed.

    Raises:
        ScoringError: its configuration or its weights are missing.
    """
    if not (adapter / "adapter_config.json").is_file() or not any(adapter.glob("*.safetensors")):
        raise ScoringError(f"adapter {adapter}: needs adapter_config.json and safetensors weights")


def attach(model: Any, adapter: Path) -> Any:
    """The model in peft's hands with the adapter's weights; where that fails the model is as it was.

    Args:
        model: a transformers model without an adapter.
        adapter: directory of the adapter (adapter_config.json and safetensors).

    Raises:
        DependencyError: peft isn't installed.
        ScoringError: the directory is no adapter, or it doesn't fit the model, or it lacks weights: peft would only
            warn of those, and what is then measured is more or less the base.
    """
    check_adapter(adapter)
    try:
        from peft import PeftConfig, PeftModelForCausalLM
        from safetensors import SafetensorError
    except ImportError as error:
        raise DependencyError(_PEFT_IS_MISSING) from error
    wrapped = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # peft's own use of a name that transformers renamed
            config = PeftConfig.from_pretrained(str(adapter))
            config.inference_mode = True
            wrapped = PeftModelForCausalLM(model, config)
            loaded = wrapped.load_adapter(str(adapter), "default", use_safetensors=True)
        if missing := [name for name in loaded.missing_keys if "lora_" in name]:
            raise ValueError(f"its weights lack {len(missing)} of the model's factors, {missing[0]} among them")
        return wrapped
    except (OSError, ValueError, RuntimeError, KeyError, TypeError, SafetensorError) as error:
        if wrapped is not None:
            wrapped.unload()
        raise ScoringError(f"adapter {adapter}: doesn't fit this model: {error}") from error
