"""A scorer without a model: plausible numbers that depend on nothing but the records."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence

from calibudget.keys import canonical_array
from calibudget.scoring.scorer import CalibrationItem, Measurement


class FakeScorer:
    """Scores derived from hashes, for tests and dry runs.

    Every source gets a difficulty of its own; a record's NLL scatters around it, and the harder the source the more
    of its answers are wrong. Another seed gives another model; a batch may take `seconds`, for tests of interruption.
    """

    def __init__(self, *, seed: int = 0, batch_size: int = 16, seconds: float = 0.0) -> None:
        self._seed = seed
        self._batch_size = batch_size
        self._seconds = seconds

    def describe(self) -> Mapping[str, object]:
        """See `Scorer`."""
        return {"engine": "fake", "batch_size": self._batch_size, "model": {"name": "fake", "seed": self._seed}}

    def batches(self, items: Sequence[CalibrationItem]) -> list[tuple[int, ...]]:
        """See `Scorer`."""
        order = sorted(range(len(items)), key=lambda i: (items[i].record.source, items[i].record.record_id))
        return [tuple(order[i : i + self._batch_size]) for i in range(0, len(order), self._batch_size)]

    def lengths(self, items: Sequence[CalibrationItem]) -> list[int]:
        """See `Scorer`; words count as tokens."""
        return [len(f"{item.record.prompt[-1].content} {item.record.completion}".split()) for item in items]

    def measure(self, items: Sequence[CalibrationItem]) -> list[Measurement]:
        """See `Scorer`."""
        time.sleep(self._seconds)
        return [self._measurement(item) for item in items]

    def _measurement(self, item: CalibrationItem) -> Measurement:
        record = item.record
        difficulty = self._fraction("difficulty", record.source)
        nll = (0.5 + 3.0 * difficulty) * (0.75 + 0.5 * self._fraction("nll", record.source, record.record_id))
        is_right = self._fraction("answer", record.source, record.record_id) > 0.2 + 0.6 * difficulty
        others = [label for label in item.answer.labels if label != record.answer]
        wrong = f"the answer is {others[0]}" if others else "no idea"
        return Measurement(
            source=record.source,
            record_id=record.record_id,
            response_tokens=len(record.completion.split()) + 1,
            nll=nll,
            text=None if item.answer.kind == "none" else record.completion if is_right else wrong,
        )

    def _fraction(self, *values: str) -> float:
        """A number in [0, 1) fixed by the seed and the values."""
        digest = hashlib.blake2b(canonical_array(["fake", self._seed, *values]), digest_size=8).digest()
        return int.from_bytes(digest, "big") / 2**64
