"""Putting a LoRA adapter on a loaded model, all of it or not at all."""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from calibudget.errors import DependencyError, ScoringError
from calibudget.lm.model_digest import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    bound_files,
    check_adapter_configuration,
    folder_of,
)


def check_adapter(adapter: Path) -> None:
    """Refuse a directory that is no adapter, before a model is loaded for it."""
    if find_spec("peft") is None:
        raise DependencyError("an adapter needs peft; install: pip install 'calibudget[train]'")
    check_adapter_files(adapter)
    check_adapter_configuration(adapter)


def check_adapter_files(adapter: Path) -> None:
    """Refuse a directory that lacks an adapter's files; nothing is read, so no library is needed."""
    if missing := [name for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS) if not (adapter / name).is_file()]:
        raise ScoringError(f"adapter {adapter}: needs {' and '.join(missing)}")


def attach(model: Any, adapter: Path) -> Any:
    """The model in peft's hands with the weights of an adapter's directory; where that fails the model is as it was.

    Raises:
        DependencyError: peft isn't installed.
        ScoringError: the directory is no adapter, or it doesn't fit the model, or it lacks weights: peft would only
            warn of those, and what is then measured is more or less the base.
    """
    check_adapter(adapter)
    from peft import PeftConfig, PeftModelForCausalLM

    wrapped = None
    try:
        with warnings.catch_warnings(), folder_of(bound_files(adapter)) as folder:
            warnings.simplefilter("ignore", FutureWarning)  # peft's own use of a name that transformers renamed
            config = PeftConfig.from_pretrained(str(folder))
            config.inference_mode = True
            wrapped = PeftModelForCausalLM(model, config)
            loaded = wrapped.load_adapter(str(folder), "default", use_safetensors=True)
        if missing := [name for name in loaded.missing_keys if "lora_" in name]:
            raise ValueError(f"its weights lack {len(missing)} of the model's factors, {missing[0]} among them")
        return wrapped
    except Exception as error:  # its files can make peft raise anything
        if wrapped is not None:
            wrapped.unload()
        raise ScoringError(f"adapter {adapter}: doesn't fit this model: {error}") from error
