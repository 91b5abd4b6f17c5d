from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from calibudget.training.data import NO_LABEL, fixed_sequences, packed_batch, padded_batch
from tests.training.conftest import example_of


@pytest.fixture(scope="module")
def three() -> Any:
    return [example_of(11, 4), example_of(101, 90, number=1), example_of(30, 1, number=2)]


def taught(batch: Any) -> Any:
    """(id before, label) of every label, in order."""
    flat = batch.input_ids.flatten()
    pairs = zip(flat[batch.label_rows].tolist(), batch.labels.tolist(), strict=True)
    return [pair for pair in pairs if pair[1] != NO_LABEL]


def wanted(examples: Any) -> Any:
    return [
        (int(example.ids[i - 1]), int(example.ids[i]))
        for example in examples
        for i in range(example.prompt_length, example.length)
    ]


@pytest.mark.parametrize("fixed", [False, True])
def test_packs_teach_every_response_token_from_the_one_before(three: Any, fixed: bool) -> None:
    batch = packed_batch(three, longest=128, sequences=9 if fixed else None)
    assert taught(batch) == wanted(three)
    assert batch.attention_mask is None


def test_rows_teach_every_response_token_from_the_one_before(three: Any) -> None:
    batch = padded_batch(three)
    assert taught(batch) == wanted(three)
    assert batch.input_ids.shape == (3, 101)
    assert batch.attention_mask.sum(dim=1).tolist() == [11, 101, 30]  # type: ignore[union-attr]


@pytest.mark.parametrize("fixed", [False, True])
def test_filling_is_cut_into_sequences_of_its_own(three: Any, fixed: bool) -> None:
    """A row beyond the longest sequence would be left unwritten by the kernel, and NaN there spoils gradients."""
    batch = packed_batch(three, longest=16, sequences=40 if fixed else None)
    width = batch.input_ids.shape[1]
    starts = batch.starts.tolist()  # type: ignore[union-attr]
    assert width % 128 == 0
    assert starts[:4] == [0, 11, 112, 142]
    assert starts[-1] == width
    lengths = np.diff(starts)
    assert (lengths[3:] <= 16).all()
    assert len(starts) == (41 if fixed else len(starts))
    positions = batch.position_ids[0]
    assert all(positions[start] == 0 for start, length in zip(starts, lengths, strict=False) if length)


def test_shapes_repeat_for_graphs() -> None:
    sequences = fixed_sequences(32, 10_240, 1024)
    keys = {
        packed_batch(
            [example_of(int(length), int(length) // 2, number=i) for i, length in enumerate(lengths)],
            longest=1024,
            sequences=sequences,
        ).shape_key
        for lengths in np.random.default_rng(0).integers(40, 300, size=(60, 32))
    }
    assert len(keys) <= 8
