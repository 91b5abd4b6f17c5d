"""Training of a real model: the loss of records that it never saw falls, with the adapter that peft itself loads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from calibudget.lm.loading import load_model
from calibudget.training.config import TrainingConfig
from calibudget.training.data import encode_examples
from calibudget.training.loop import train
from tests.training.conftest import plain_loss, training_job

NAMES = ("Anna", "Bela", "Carl", "Dora", "Emil")


def greetings(first: Any, count: Any) -> Any:
    """Rows that follow one rule, so that what is learnt from some helps with others."""
    return [
        {
            "source": "greetings",
            "record_id": str(number),
            "role": "source",
            "prompt": f"Greet {NAMES[number % 5]}, guest number {number}.",
            "completion": f"Welcome to the house, {NAMES[number % 5]}! Your room is {100 + number}.",
            "original": {},
        }
        for number in range(first, first + count)
    ]


def held_out_loss(model: Any, examples: Any) -> Any:
    """Mean loss of the response tokens in nats, through transformers' own logits."""
    import torch

    with torch.inference_mode():
        total = sum(plain_loss(model, example).item() for example in examples)
    return total / sum(example.response_length for example in examples)


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft's own
def test_the_loss_of_unseen_records_falls_under_the_saved_adapter(tmp_path: Path) -> None:
    from peft import PeftModel

    base = load_model("embedded", device="cpu")
    encode: dict[str, Any] = {"encoder": base.encoder("alpaca"), "max_length": 128, "too_long": "refuse"}
    held_out = encode_examples(greetings(900, 5), **encode)
    before = held_out_loss(base.model, held_out)
    config = TrainingConfig(rank=8, scaling=8.0, learning_rate=1e-3, epochs=1, batch_size=4, max_length=128)
    job = training_job(base, encode_examples(greetings(0, 32), **encode), config, tmp_path, batch_tokens=512)
    adapter = train(job).adapter
    fresh = PeftModel.from_pretrained(load_model("embedded", device="cpu").model, str(adapter))
    assert held_out_loss(fresh, held_out) < before / 2
