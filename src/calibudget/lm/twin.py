"""A second model over the weights of one that is loaded, to be changed while the first stays as it is."""

from __future__ import annotations

import copy
from dataclasses import replace

from calibudget.lm.loading import LanguageModel


def twin(language_model: LanguageModel) -> LanguageModel:
    """The same model with modules and configuration of its own; the weights are shared and must not be written to.

    Training puts factors on a model's layers and other functions in their places; on a twin that leaves the first
    model as it was loaded, at no cost in memory but what the change itself takes.
    """
    from torch import nn

    model = language_model.model
    shared = {id(weight): nn.Parameter(weight.data, requires_grad=False) for weight in model.parameters()}
    return replace(language_model, model=copy.deepcopy(model, dict(shared)))
