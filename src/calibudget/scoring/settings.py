"""A scorer as plain values, so that another process, or another machine, can make the same one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from calibudget.errors import DependencyError, ScoringError
from calibudget.hardware import Device, Dtype
from calibudget.scoring.fake import FakeScorer
from calibudget.scoring.scorer import Scorer

if TYPE_CHECKING:
    from calibudget.lm.loading import LanguageModel


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorerSettings:
    """What makes a scorer; the fields are those of `load_model` and `LocalScorer`.

    Attributes:
        kind: "local"; "openai" for `ServerScorer`, which `base_url` to `timeout` belong to; or "fake" for `FakeScorer`,
            which uses none of the other fields but `seconds`.
        model: a model's name for `resolve_model`.
        adapter: directory of a LoRA adapter.
        gpus: GPUs that the model is split over at least.
        seconds: time that a batch of the fake scorer takes.
    """

    kind: Literal["local", "openai", "fake"] = "local"
    model: str = ""
    adapter: str | None = None
    gpus: int = 1
    device: Device = "auto"
    dtype: Dtype = "auto"
    template: Literal["alpaca", "chat"] = "alpaca"
    batch_tokens: int | None = None
    max_length: int | None = None
    max_new_tokens: int | None = None
    base_url: str | None = None
    served_model: str | None = None
    requests: int = 16
    timeout: float = 300.0
    seconds: float = 0.0


def make_scorer(settings: ScorerSettings, language_model: LanguageModel | None = None) -> Scorer:
    """Make a scorer in this process."""
    if settings.kind == "fake":
        return FakeScorer(seconds=settings.seconds)
    if settings.kind == "openai":
        return _server_scorer(settings)
    from calibudget.lm.loading import load_model

    if language_model is None:
        language_model = load_model(
            settings.model,
            device=settings.device,
            dtype=settings.dtype,
            adapter=Path(settings.adapter) if settings.adapter else None,
            gpus=settings.gpus,
        )
    from calibudget.scoring.local import LocalScorer  # needs torch, whose absence load_model explains

    return LocalScorer(
        language_model,
        template=settings.template,
        batch_tokens=settings.batch_tokens,
        max_length=settings.max_length,
        max_new_tokens=settings.max_new_tokens,
    )


def _server_scorer(settings: ScorerSettings) -> Scorer:
    try:
        from calibudget.scoring.server import ServerScorer
    except ImportError as error:
        raise DependencyError(f"engine: openai needs {error.name}; install: pip install 'calibudget[lm]'") from error
    if settings.base_url is None:
        raise ScoringError("engine: openai needs the server's address: base_url: http://host:8000/v1")
    return ServerScorer(
        settings.base_url,
        settings.model,
        served_model=settings.served_model,
        template=settings.template,
        max_length=settings.max_length,
        max_new_tokens=settings.max_new_tokens,
        requests=settings.requests,
        timeout=settings.timeout,
    )
