"""A second model over the weights of one that is loaded, to be changed while the first stays as it is.

Several adapters of one base model, one after another, without loading the base again.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from calibudget.lm.adapters import attach
from calibudget.lm.identity import directory_digest
from calibudget.lm.loading import LanguageModel
from calibudget.lm.placement import parts_of
from calibudget.lm.quantised import count_numbers


def twin(language_model: LanguageModel) -> LanguageModel:
    """The same model with modules and configuration of its own; the weights are shared and must not be written to.

    Training puts factors on a model's layers and other functions in their places; on a twin that leaves the first
    model as it was loaded, at no cost in memory but what the change itself takes.
    """
    from torch import nn

    model = language_model.model
    shared = {
        # a quantised weight is a class of its own, with its scales, and is never trained
        id(weight): nn.Parameter(weight.data, requires_grad=False) if type(weight) is nn.Parameter else weight
        for weight in model.parameters()
    }
    return replace(language_model, model=copy.deepcopy(model, dict(shared)))


@contextmanager
def adapted(base: LanguageModel, adapter: Path | None) -> Iterator[LanguageModel]:
    """The base with a LoRA adapter put on top while the block runs; its own weights are never touched.

    Args:
        base: a loaded model without an adapter.
        adapter: directory of the adapter (adapter_config.json and safetensors), or None for the base itself.
    """
    if adapter is None:
        yield base
        return
    wrapped = attach(base.model, adapter)
    try:
        model = wrapped.get_base_model()
        if parts_of(model) is None and "quantised" not in base.identity:  # theirs were put beside their layers
            model.to(base.model.device)
        model.eval()
        identity = {**base.identity, "adapter": directory_digest(adapter), "parameters": count_numbers(model)}
        yield replace(base, model=model, identity=identity)
    finally:
        wrapped.unload()
