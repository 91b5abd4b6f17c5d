"""What goes into a scorer, what comes out of it, and the scorer's own two duties."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from calibudget.records import Record
from calibudget.tasks import AnswerSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationItem:
    """One calibration record and how its answer is checked."""

    record: Record
    answer: AnswerSpec

    @property
    def name(self) -> str:
        """The item as messages name it."""
        return f"source {self.record.source}, record {self.record.record_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What a model says of one calibration record, before its answer is judged.

    Attributes:
        source: label of the source.
        record_id: id of the record.
        response_tokens: response tokens scored, end token included; at least 1.
        nll: mean negative log-likelihood over them, nats.
        text: the greedy answer, cut where more text couldn't change the parsed answer; None where the answer
            kind is "none".
        batch_splits: how often the record's batch was halved for want of memory; 0 as planned.
    """

    source: str
    record_id: str
    response_tokens: int
    nll: float
    text: str | None
    batch_splits: int = 0


class Scorer(Protocol):
    """A model behind a batch plan; the shipped ones are `FakeScorer` and `LocalScorer`."""

    def describe(self) -> Mapping[str, object]:
        """Everything that the measurements depend on, as JSON; it holds `model`, an object.

        Two scorers with the same description give the same measurements for the same items.
        """
        ...

    def batches(self, items: Sequence[CalibrationItem]) -> list[tuple[int, ...]]:
        """Part the items, given by index, into batches: a function of the items and the description alone.

        Raises:
            ScoringError: an item that can't be scored; it is named, and nothing has been scored yet.
        """
        ...

    def lengths(self, items: Sequence[CalibrationItem]) -> list[int]:
        """Tokens of each item, prompt and response together; what the forward costs goes with them."""
        ...

    def measure(self, items: Sequence[CalibrationItem]) -> list[Measurement]:
        """Score the items of one batch, in the order given.

        Raises:
            ScoringError: an item whose score can't be used; it is named.
        """
        ...


@runtime_checkable
class ParallelScorer(Scorer, Protocol):
    """A scorer that can work on several batches at once, such as `LocalPool`."""

    def measure_batches(
        self, batches: Mapping[int, Sequence[CalibrationItem]]
    ) -> Iterator[tuple[int, list[Measurement]]]:
        """Score numbered batches and give each back with its number, in whatever order they are done."""
        ...
