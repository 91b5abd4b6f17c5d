"""Several adapters of one base model, one after another, without loading the base again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

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
    try:
        from peft import PeftModel
    except ImportError as error:
        raise DependencyError("an adapter needs peft; install: pip install 'calibudget[train]'") from error
    try:
        wrapped = PeftModel.from_pretrained(base.model, str(adapter), use_safetensors=True)
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise ScoringError(f"adapter {adapter}: doesn't fit this model: {error}") from error
    try:
        model = wrapped.get_base_model().to(base.model.device).eval()
        parameters = sum(parameter.numel() for parameter in model.parameters())
        identity = {**base.identity, "adapter": directory_digest(adapter), "parameters": parameters}
        yield replace(base, model=model, identity=identity)
    finally:
        wrapped.unload()
