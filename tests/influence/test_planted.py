"""Influence recovers planted helpful and planted harmful examples."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from calibudget.influence.config import WARM_UP, InfluenceConfig
from calibudget.influence.scorer import InfluenceScorer
from calibudget.lm.loading import load_model
from calibudget.training.config import Execution, TrainingConfig
from calibudget.training.devices import Devices

WORDS = ["apple", "river", "stone", "cloud", "garden"]


def row(number: Any, prompt: Any, completion: Any) -> Any:
    return {"source": "s", "record_id": f"{number:04d}", "role": "source", "prompt": prompt, "completion": completion}


def question(number: Any, chance: Any) -> str:
    return f"Is {chance.choice(WORDS)} {number} {chance.choice(WORDS)} a word?"


def helpful(number: Any, chance: Any) -> Any:
    return row(number, question(number, chance), "yes")


def harmful(number: Any, chance: Any) -> Any:
    """The right form with the wrong answer: what a flipped label looks like."""
    return row(number, question(number, chance), "no")


def unrelated(number: Any, chance: Any) -> Any:
    digits = [chance.randrange(10) for _ in range(6)]
    return row(number, f"Sort {' '.join(map(str, digits))}.", " ".join(map(str, sorted(digits))))


def rows_of(kind: Any, count: Any, seed: Any) -> Any:
    chance = random.Random(seed)  # noqa: S311 - test data
    return [kind(1000 * seed + number, chance) for number in range(count)]


def scored(model: Any, directory: Any, *, count: Any, warm_up: Any) -> Any:
    config = InfluenceConfig(warm_up=TrainingConfig(**(WARM_UP | warm_up)), dimension=2048, warm_up_share=1.0)
    execution = Execution(device="cpu", dtype="float32", batch_tokens=2048)
    scorer = InfluenceScorer(lambda: load_model(model, device="cpu"), "alpaca", config, execution, Devices("cpu"))
    kinds = {"helpful": helpful, "harmful": harmful, "unrelated": unrelated}
    warming = [one for n, kind in enumerate(kinds.values()) for one in rows_of(kind, count, n + 1)]
    scorer.warm_up(warming, directory, {})
    scorer.calibrate({"words": rows_of(helpful, count, 9)})
    pools = {name: rows_of(kind, count, n + 4) for n, (name, kind) in enumerate(kinds.items())}
    return {name: [means[0] for means in scorer(rows)] for name, rows in pools.items()}


def auc(above: Any, below: Any) -> Any:
    """How often one of `above` has the higher score, ties counting half."""
    pairs = [(a > b) + 0.5 * (a == b) for a in above for b in below]
    return sum(pairs) / len(pairs)


@pytest.mark.slow
def test_the_tiny_model_tells_helpful_from_harmful_from_unrelated(tmp_path: Path, tiny_directory: Path) -> None:
    warm_up: dict[str, Any] = {
        "rank": 8,
        "scaling": 8.0,
        "epochs": 6,
        "learning_rate": 2e-3,
        "batch_size": 8,
        "max_length": 256,
    }
    scores = scored(str(tiny_directory), tmp_path, count=30, warm_up=warm_up)
    assert auc(scores["helpful"], scores["harmful"]) > 0.9
    assert auc(scores["helpful"], scores["unrelated"]) > 0.9
    # the control: two halves of one kind aren't told apart
    assert 0.2 < auc(scores["helpful"][:15], scores["helpful"][15:]) < 0.8


@pytest.mark.full
@pytest.mark.model
def test_smollm2_tells_helpful_from_harmful_from_unrelated(tmp_path: Path) -> None:
    warm_up: dict[str, Any] = {
        "rank": 8,
        "scaling": 8.0,
        "epochs": 2,
        "learning_rate": 5e-4,
        "batch_size": 6,
        "max_length": 128,
    }
    scores = scored("embedded", tmp_path, count=6, warm_up=warm_up)
    assert auc(scores["helpful"], scores["harmful"]) > 0.9
    assert auc(scores["helpful"], scores["unrelated"]) > 0.9
