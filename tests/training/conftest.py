"""A tiny model, a train set for it, and the plain reference that training is held against."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibudget.lm.encoding import Encoder
from calibudget.lm.loading import load_model
from calibudget.training.config import Execution, TrainingConfig
from calibudget.training.data import TrainingExample, encode_examples
from calibudget.training.job import TrainingJob
from calibudget.training.optimizer_step import Learner
from calibudget.training.target_layers import add_adapter
from tests.conftest import tokenizer_with


def rows_of(count: Any, *, companion: int = 0) -> Any:
    """Rows of a train set, two sources and a companion, of many lengths."""
    rows = [  # type: ignore[var-annotated]
        {
            "source": ("apples", "pears")[i % 2],
            "record_id": f"id-{i:04d}",
            "role": "source",
            "prompt": " ".join(["How many apples are 12 and 345?"] * (1 + i * 5 % 3)),
            "completion": "the correct answer is answer1 " * (1 + i * 7 % 4),
            "original": {},
        }
        for i in range(count)
    ]
    rest = rows_of(companion) if companion else []
    return rows + [row | {"source": "companion", "role": "companion"} for row in rest]


def example_of(
    length: Any, prompt_length: Any, *, source: str = "apples", number: int = 0, role: str = "source"
) -> Any:
    """An example of exact lengths, its ids running through the vocabulary."""
    ids = (np.arange(length, dtype=np.int32) * 7 + 3 + number * 11) % 300 + 3
    return TrainingExample(
        source=source,
        record_id=f"{number:04d}",
        role=role,  # type: ignore[arg-type]
        ids=ids.astype(np.int32),
        prompt_length=prompt_length,
    )


@pytest.fixture
def language_model(tiny_directory: Path) -> Any:
    return load_model(str(tiny_directory), device="cpu")


@pytest.fixture(scope="session")
def encoder() -> Any:
    return Encoder("alpaca", tokenizer_with())


@pytest.fixture(scope="session")
def all_examples(encoder: Any) -> Any:
    return encode_examples(rows_of(22, companion=5), encoder, max_length=256, too_long="refuse")


@pytest.fixture(scope="session")
def examples(all_examples: Any) -> Any:
    """Nine of them, five of the companion's."""
    return all_examples[18:]


@pytest.fixture
def learner_of(tiny_directory: Path) -> Any:
    """Learners over fresh copies of the tiny model, their B factors away from zero so that A has gradients."""

    def make(*, execution: Any = None, trained: bool = True, **settings: Any) -> Any:
        import torch

        settings: dict[str, Any] = {"rank": 4, "scaling": 8.0, "max_length": 256, "batch_size": 4} | settings  # type: ignore[no-redef]
        config = TrainingConfig(**settings)
        model = load_model(str(tiny_directory), device="cpu").model
        learner = Learner(model, "tiny", config, execution or Execution(device="cpu", batch_tokens=4096))
        if trained:
            generator = torch.Generator().manual_seed(1)
            values = learner.factors[1].values.data
            values.copy_(torch.randn(values.shape, generator=generator) * 0.05)
        return learner

    return make


def training_job(model: Any, examples: Any, config: TrainingConfig, folder: Path, **execution: Any) -> TrainingJob:
    """A training on the CPU."""
    return TrainingJob(
        language_model=model,
        examples=examples,
        config=config,
        execution=Execution(device="cpu", **execution),
        output_dir=folder,
        evidence={},
    )


def reference_of(learner: Any, model: Any, config: Any) -> Any:
    """peft's own layers over another copy of a learner's model, with the learner's factors."""
    reference = add_adapter(model, config, "tiny")
    own = dict(learner.model.named_parameters())
    for name, parameter in reference.named_parameters():
        if parameter.requires_grad:
            parameter.data.copy_(own[name].data)
    return reference


def plain_loss(model: Any, example: Any) -> Any:
    """Summed loss of one example's response tokens, unpadded, by transformers' own logits: its plain meaning."""
    import torch

    ids = torch.from_numpy(example.ids.astype("int64"))[None]
    logits = model(input_ids=ids, use_cache=False).logits[0, example.prompt_length - 1 : -1]
    return torch.nn.functional.cross_entropy(logits, ids[0, example.prompt_length :], reduction="sum")
