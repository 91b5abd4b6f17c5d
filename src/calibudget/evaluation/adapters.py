"""Several adapters of one base model, one after another, without loading the base again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from calibudget.lm.adapters import attach
from calibudget.lm.loading import LanguageModel, directory_digest


@contextmanager
def adapted(base: LanguageModel, adapter: Path | None) -> Iterator[LanguageModel]:
    """The base with a LoRA adapter put on top while the block runs; its own weights are never touched.

    Args:
        base: a loaded model without an adapter.
        adapter: directory of the adapter (adapter_config.json and safetensors), or None for the base itself.

    Raises:
        DependencyError, ScoringError: as `lm.adapters.attach`.
    """
    if adapter is None:
        yield base
        return
    wrapped = attach(base.model, adapter)
    try:
        model = wrapped.get_base_model().to(base.model.device).eval()
        parameters = sum(parameter.numel() for parameter in model.parameters())
        identity = {**base.identity, "adapter": directory_digest(adapter), "parameters": parameters}
        yield replace(base, model=model, identity=identity)
    finally:
        wrapped.unload()
