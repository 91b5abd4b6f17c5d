"""`rounds.json`: the ledger of the rounds before this one, so that no example is spent twice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from calibudget.records import Unit
from calibudget.store.json_records import Artefact
from calibudget.values import ByLabel, Count, Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSource:
    """What a round used of one source.

    Attributes:
        units: examples or tokens that its picks use, as the round's unit says.
        record_ids: the picks in the order in which they were drawn.
        calibration_ids: the records that it held out, in key order.
    """

    units: Count
    record_ids: tuple[str, ...]
    calibration_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One earlier round."""

    manifest_sha256: Digest
    policy: str
    unit: Unit
    budget: Count
    sources: ByLabel[RoundSource]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The earlier rounds, oldest first."""

    rounds: tuple[Round, ...]

    def spent(self, label: str) -> frozenset[str]:
        """Ids of a source's examples that some round picked."""
        return frozenset(one for used in self._of(label) for one in used.record_ids)

    def units(self, label: str) -> int:
        """Units of a source that all rounds used together."""
        return sum(used.units for used in self._of(label))

    def calibration(self, label: str) -> tuple[str, ...]:
        """The calibration split of the last round that drew one of this source; empty if none did."""
        drawn = [used.calibration_ids for used in self._of(label) if used.calibration_ids]
        return drawn[-1] if drawn else ()

    def held_out(self, label: str) -> frozenset[str]:
        """Ids of a source's records that some round held out for calibration."""
        return frozenset(one for used in self._of(label) for one in used.calibration_ids)

    def _of(self, label: str) -> list[RoundSource]:
        return [each.sources[label] for each in self.rounds if label in each.sources]


def picked_twice(ledger: Ledger) -> str | None:
    """A source of which an example was picked twice, by two rounds or by one; None where there is none."""
    for label in sorted({label for each in ledger.rounds for label in each.sources}):
        picks = sum(len(each.sources[label].record_ids) for each in ledger.rounds if label in each.sources)
        if picks != len(ledger.spent(label)):
            return label
    return None


def _check(ledger: Ledger) -> str | None:
    label = picked_twice(ledger)
    return None if label is None else f"an example of {label!r} was picked by two rounds, or twice by one"


ROUNDS: Final = Artefact("calibudget.rounds/1", Ledger, check=_check)
