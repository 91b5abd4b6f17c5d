"""`rounds.json`: the ledger of the rounds before this one, so that no example is spent twice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, cast

from calibudget.errors import ArtefactError
from calibudget.records import Unit
from calibudget.store.artefacts.fields import Fields, open_artefact
from calibudget.store.atomic import write_atomic
from calibudget.store.canonical import canonical_json, read_object

ROUNDS_NAME: Final = "rounds.json"
_SCHEMA: Final = "calibudget.rounds/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSource:
    """What a round used of one source.

    Attributes:
        units: examples or tokens that its picks use, as the round's unit says.
        record_ids: the picks in the order in which they were drawn.
        calibration_ids: the records that it held out, in key order.
    """

    units: int
    record_ids: tuple[str, ...]
    calibration_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One earlier round.

    Attributes:
        manifest_sha256: self digest of its manifest, which names the round.
        policy: by which it allocated.
        unit: what its budget counts.
        budget: its budget.
        sources: by label in code-point order.
    """

    manifest_sha256: str
    policy: str
    unit: Unit
    budget: int
    sources: Mapping[str, RoundSource]


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


def ledger_to_json(ledger: Ledger) -> dict[str, object]:
    """The `rounds.json` object of a ledger."""
    return {"schema": _SCHEMA, "rounds": [asdict(each) for each in ledger.rounds]}


def write_rounds(path: Path, ledger: Ledger) -> None:
    """Write `rounds.json`, atomically.

    Raises:
        ArtefactError: the file can't be written.
    """
    write_atomic(path, canonical_json(ledger_to_json(ledger)))


def read_rounds(path: Path) -> Ledger:
    """Read `rounds.json`.

    Raises:
        ArtefactError: the file is missing or torn, a field isn't what it should be, or an example was picked twice;
            file and field are named.
    """
    root = open_artefact(read_object(path), path.name, _SCHEMA)
    ledger = Ledger(rounds=tuple(_parse_round(row) for row in root.children("rounds")))
    root.finish()
    for label in sorted({label for each in ledger.rounds for label in each.sources}):
        picks = [one for each in ledger.rounds if label in each.sources for one in each.sources[label].record_ids]
        if len(picks) != len(ledger.spent(label)):
            raise ArtefactError(f"{path.name}: an example of {label!r} was picked by two rounds, or twice by one")
    return ledger


def _parse_round(row: Fields) -> Round:
    parsed = Round(
        manifest_sha256=row.digest("manifest_sha256"),
        policy=row.text("policy"),
        unit=cast(Unit, row.one_of("unit", "examples", "tokens")),
        budget=row.integer("budget"),
        sources={label: _parse_source(source) for label, source in row.by_label("sources").items()},
    )
    row.finish()
    return parsed


def _parse_source(row: Fields) -> RoundSource:
    source = RoundSource(
        units=row.integer("units"),
        record_ids=row.texts("record_ids"),
        calibration_ids=row.texts("calibration_ids"),
    )
    row.finish()
    return source
