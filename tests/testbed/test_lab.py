"""The learner on which one training follows the other: restarted it is a new one, and the model scores as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from calibudget.lm.loading import LanguageModel, load_model
from calibudget.scoring.local import LocalScorer
from calibudget.scoring.scorer import CalibrationItem, ScorerSettings
from calibudget.tasks.answers import AnswerSpec
from calibudget.training.config import Execution, TrainingConfig
from calibudget.training.data import encode_examples
from testbed.lab import LastingLearner
from tests.conftest import record_of


@pytest.fixture
def language_model(tiny_directory: Path) -> LanguageModel:
    return load_model(str(tiny_directory), device="cpu")


@pytest.fixture
def examples(language_model: LanguageModel) -> Any:
    rows = [
        {"source": "apples", "record_id": str(i), "role": "source", "prompt": "How many? " * (1 + i % 3)}
        | {"completion": "the correct answer is answer1"}
        for i in range(7)
    ]
    return encode_examples(rows, language_model.encoder("alpaca"), max_length=256, too_long="refuse")


def step(learner: LastingLearner, examples: Any) -> float:
    tokens = sum(one.response_length for one in examples)
    loss = learner.gradients(learner.batches(examples, range(len(examples))), tokens).item()
    learner.update((1e-3, 8e-3))
    return float(loss)


def test_a_restarted_learner_is_a_new_one(tiny_directory: Path, examples: Any) -> None:
    def learner_of(seed: int) -> LastingLearner:
        model = load_model(str(tiny_directory), device="cpu").model
        return LastingLearner(model, "tiny", TrainingConfig(rank=4, seed=seed), Execution(device="cpu"))

    used, fresh = learner_of(7), learner_of(8)
    step(used, examples)
    used.restart(8)
    for _ in range(2):
        for name, value in fresh.tensors().items():
            assert torch.equal(used.tensors()[name], value), name
        for learner in (used, fresh):
            step(learner, examples)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")  # torch's compiler warns of its own doings
def test_measuring_between_trainings_compiles_nothing_anew(
    language_model: LanguageModel, examples: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._dynamo.testing import CompileCounterWithBackend

    compile_with, backend = torch.compile, CompileCounterWithBackend("aot_eager")
    monkeypatch.setattr(torch, "compile", lambda f, dynamic: compile_with(f, dynamic=dynamic, backend=backend))
    torch._dynamo.reset()
    model = language_model.model
    own = type(model.model.layers[0]).forward
    items = [CalibrationItem(record=record_of("apples", i), answer=AnswerSpec(kind="exact")) for i in range(4)]
    before = LocalScorer(language_model, ScorerSettings(max_new_tokens=3)).measure(items)
    execution = Execution(device="cpu", pack=True, compile=True, fuse=True)
    learner = LastingLearner(model, "tiny", TrainingConfig(rank=4), execution)
    with learner.as_loaded():
        assert model.model.layers[0].forward.__func__ is own
        scorer = LocalScorer(language_model, ScorerSettings(max_new_tokens=3))
    losses = [step(learner, examples)]
    compiled = len(backend.graphs)
    for _ in range(2):
        learner.restart(42)
        with learner.as_loaded():
            assert scorer.measure(items) == before
        losses.append(step(learner, examples))
    assert len(backend.graphs) == compiled
    assert len(set(losses)) == 1
