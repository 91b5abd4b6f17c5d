"""Several adapters of one base model, one after another, without loading the base again."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from calibudget.errors import DependencyError, ScoringError
from calibudget.lm.loading import LanguageModel, directory_digest


@contextmanager
def adapted(base: LanguageModel, adapter: Path | None) -> Iterator[LanguageModel]:
    """The base with a LoRA adapter put on top while the block runs; its own weights are never touched.

    Args:
        base: a loaded model without an adapter.
        adapter: directory of the adapter (adapter_config.json and safetensors), or None for the base itself.

    Raises:
        DependencyError: peft isn't installed.
        ScoringError: the directory is no adapter, or it doesn't fit the model.
    """
    if adapter is None:
        yield base
        return
    if not (adapter / "adapter_config.json").is_file() or not any(adapter.glob("*.safetensors")):
        raise ScoringError(f"adapter {adapter}: needs adapter_config.json and safetensors weights")
    wrapped = _wrapped(base, adapter)
    try:
        model = wrapped.get_base_model().to(base.model.device).eval()
        parameters = sum(parameter.numel() for parameter in model.parameters())
        identity = {**base.identity, "adapter": directory_digest(adapter), "parameters": parameters}
        yield replace(base, model=model, identity=identity)
    finally:
        wrapped.unload()


def _wrapped(base: LanguageModel, adapter: Path) -> Any:
    """The base in peft's hands, the adapter's weights loaded; where that fails the base is as it was."""
    try:
        from peft import PeftConfig, PeftModelForCausalLM
        from safetensors import SafetensorError
    except ImportError as error:
        raise DependencyError("an adapter needs peft; install: pip install 'calibudget[train]'") from error
    wrapped = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # peft's own use of a name that transformers renamed
            config = PeftConfig.from_pretrained(str(adapter))
            config.inference_mode = True
            wrapped = PeftModelForCausalLM(base.model, config)
            loaded = wrapped.load_adapter(str(adapter), "default", use_safetensors=True)
        if missing := [name for name in loaded.missing_keys if "lora_" in name]:
            raise ValueError(f"its weights lack {len(missing)} of the model's factors, {missing[0]} among them")
        return wrapped
    except (OSError, ValueError, RuntimeError, KeyError, TypeError, SafetensorError) as error:
        if wrapped is not None:
            wrapped.unload()
        raise ScoringError(f"adapter {adapter}: doesn't fit this model: {error}") from error
