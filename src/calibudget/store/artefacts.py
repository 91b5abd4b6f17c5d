"""`statistics.json` (paper 2.2), `allocation.json` (2.3), `selection.json` and `rounds.json`.

What calibration said of each source; the quotas and everything that they were made from; which examples were selected,
by digest; and the ledger of the rounds before this one, so that no example is spent twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from calibudget.errors import ArtefactError, InputTypeError
from calibudget.keys import canonical_array
from calibudget.messages import shown
from calibudget.records import AllocationPlan, ErrorRule, Selection, SourceStatistics, Statistics, Unit
from calibudget.sequences import require_ordered
from calibudget.store.canonical import canonical_json, read_object, sha256_hex
from calibudget.store.codec import Artefact, plain
from calibudget.store.files import write_atomic
from calibudget.values import ByLabel, Count, Digest, Integer, Sources

STATISTICS_NAME: Final = "statistics.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bootstrap:
    """How the file says what the replicates were made with."""

    resamples: Annotated[Count, Field(ge=1)]
    seed: Integer


def _no_slope(slope: object) -> None:
    if slope is not None:
        raise ValueError(f"must be null, since the policies that read learning curves were removed, not {shown(slope)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _SourceRow(SourceStatistics):
    """A source as the file has it."""

    slope: Annotated[None, BeforeValidator(_no_slope)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _StatisticsFile:
    """`statistics.json` field by field."""

    model: Mapping[str, object]
    error: ErrorRule
    bootstrap: _Bootstrap
    sources: Sources[_SourceRow]


STATISTICS: Final = Artefact("calibudget.statistics/1", _StatisticsFile)


def statistics_to_json(statistics: Statistics) -> dict[str, object]:
    """The `statistics.json` object of a record."""
    return {
        "schema": STATISTICS.schema,
        "model": dict(statistics.model),
        "error": statistics.error,
        "bootstrap": {"resamples": statistics.resamples, "seed": statistics.bootstrap_seed},
        "sources": {label: asdict(row) | {"slope": None} for label, row in sorted(statistics.sources.items())},
    }


def statistics_bytes(statistics: Statistics) -> bytes:
    """The bytes of `statistics.json`.

    Raises:
        InputError: a value has no canonical JSON form, such as a mean that isn't finite.
    """
    return canonical_json(statistics_to_json(statistics))


def statistics_sha256(statistics: Statistics) -> str:
    """SHA-256 of the canonical `statistics.json`, by which an allocation names its statistics."""
    return sha256_hex(statistics_bytes(statistics))


def write_statistics(path: Path, statistics: Statistics) -> None:
    """Write `statistics.json`, atomically.

    Raises:
        InputError: a value has no canonical JSON form, such as a mean that isn't finite.
        ArtefactError: the file can't be written.
    """
    write_atomic(path, statistics_bytes(statistics))


def read_statistics(path: Path) -> Statistics:
    """Read `statistics.json`; floats come back bit for bit.

    Raises:
        ArtefactError: the file is missing or torn, or a field isn't what it should be; both are named.
    """
    return parse_statistics(read_object(path), path.name)


def parse_statistics(value: object, name: str) -> Statistics:
    """A record from the `statistics.json` object; `name` is what errors call it.

    Raises:
        ArtefactError: a field isn't what it should be.
    """
    file = STATISTICS.parse(value, name)
    resamples = file.bootstrap.resamples
    for label, row in file.sources.items():
        if row.bootstrap_means is not None and len(row.bootstrap_means) != resamples:
            raise ArtefactError(f"{name}: sources.{label}.bootstrap_means: must be a list of length {resamples}")
        if row.error_rate is None and file.error == "nll+wrong":
            raise ArtefactError(
                f"{name}: sources.{label}.error_rate: must be a number, since the error rule is nll+wrong"
            )
    kept = [field.name for field in fields(SourceStatistics)]
    return Statistics(
        model=file.model,
        error=file.error,
        resamples=resamples,
        bootstrap_seed=file.bootstrap.seed,
        sources={
            label: SourceStatistics(**{name: getattr(row, name) for name in kept})
            for label, row in file.sources.items()
        },
    )


ALLOCATION_NAME: Final = "allocation.json"
ALLOCATION: Final = Artefact("calibudget.allocation/1", AllocationPlan, digest="quotas_sha256")


def allocation_to_json(plan: AllocationPlan) -> dict[str, object]:
    """The `allocation.json` object of a plan."""
    return {
        "schema": ALLOCATION.schema,
        **asdict(plan),
        "sources": {label: asdict(row) for label, row in sorted(plan.sources.items())},
        "quotas_sha256": quotas_sha256(plan.quotas),
    }


def quotas_sha256(quotas: Mapping[str, int]) -> str:
    """Digest of a quota vector: SHA-256 of the RFC 8785 object of label to quota (paper 3.5, "quota hashes")."""
    return sha256_hex(canonical_json(dict(quotas)))


def write_allocation(path: Path, plan: AllocationPlan) -> None:
    """Write `allocation.json`, atomically.

    Raises:
        InputError: a value has no canonical JSON form, such as an integer beyond 2**53 - 1.
        ArtefactError: the file can't be written.
    """
    write_atomic(path, canonical_json(allocation_to_json(plan)))


def read_allocation(path: Path) -> AllocationPlan:
    """Read `allocation.json`; types and ranges are checked, the arithmetic is `verify`'s.

    Raises:
        ArtefactError: the file is missing or torn, or a field isn't what it should be; both are named.
    """
    return parse_allocation(read_object(path), path.name)


def stated_quotas_sha256(path: Path) -> str | None:
    """The digest that `allocation.json` gives of its quotas, right or not; None in files from before it was kept."""
    stated = read_object(path).get("quotas_sha256")
    return None if stated is None else str(stated)


def parse_allocation(value: object, name: str) -> AllocationPlan:
    """A plan from the `allocation.json` object; `name` is what errors call it.

    Raises:
        ArtefactError: a field isn't what it should be.
    """
    return ALLOCATION.parse(value, name)


SELECTION_NAME: Final = "selection.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceDigest:
    """One source's picks: its quota in the budget's unit, and the digest of their ids in key order.

    `count` (examples) and `tokens` say what was picked for a quota of tokens; None where the quota counts examples.
    """

    quota: Count
    record_ids_sha256: Digest
    count: Count | None = None
    tokens: Count | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionDigest:
    """A selection without its ids; `selection.json`.

    Attributes:
        seed: selection seed.
        selector: name of the rule that chose among the candidates ("uniform").
        sources: quota and digest of each source, by label in code-point order.
        count: examples selected from all sources, the companion set apart.
        companion_count: companion records joined unchanged.
        selected_sha256: digest of all picks, sources in code-point order, each in key order.
        tokens: tokens of all picks; None where the budget counts examples.
        details: what the selector says of itself; None for the uniform draw.
    """

    seed: Integer
    selector: str
    sources: ByLabel[SourceDigest]
    count: Count
    companion_count: Count
    selected_sha256: Digest
    tokens: Count | None = None
    details: Mapping[str, object] | None = None


SELECTION: Final = Artefact("calibudget.selection/1", SelectionDigest)


def ids_sha256(ids: Iterable[str]) -> str:
    """Digest of an id list: SHA-256 of its RFC 8785 array, in the given order.

    Raises:
        InputTypeError: no ordered sequence, or an id is no string.
        InputError: an id holds a lone surrogate.
    """
    require_ordered(ids, "ids")
    texts = list(ids)
    for text in texts:
        if not isinstance(text, str):
            raise InputTypeError(f"an id is a string, not {type(text).__name__}: {shown(text)}")
    return sha256_hex(canonical_array(texts))


def digest_selection(selection: Selection) -> SelectionDigest:
    """What `selection.json` says of a selection."""
    picks = dict(sorted(selection.picks.items()))
    return SelectionDigest(
        seed=selection.seed,
        selector=selection.selector,
        sources={label: _digest_source(selection, label) for label in picks},
        count=sum(map(len, picks.values())),
        companion_count=selection.companion_count,
        selected_sha256=ids_sha256(chain.from_iterable(picks.values())),
        tokens=None if selection.tokens is None else sum(use.taken for use in selection.tokens.values()),
        details=selection.details,
    )


def selection_to_json(selection: Selection) -> dict[str, object]:
    """The `selection.json` object of a selection."""
    return {"schema": SELECTION.schema, **plain(digest_selection(selection))}


def write_selection(path: Path, selection: Selection) -> None:
    """Write `selection.json`, atomically.

    Raises:
        ArtefactError: the file can't be written.
    """
    write_atomic(path, canonical_json(selection_to_json(selection)))


def read_selection(path: Path) -> SelectionDigest:
    """Read `selection.json`.

    Raises:
        ArtefactError: the file is missing or torn, or a field isn't what it should be; both are named.
    """
    return SELECTION.parse(read_object(path), path.name)


def _digest_source(selection: Selection, label: str) -> SourceDigest:
    ids = selection.picks[label]
    if selection.tokens is None:
        return SourceDigest(quota=len(ids), record_ids_sha256=ids_sha256(ids))
    use = selection.tokens[label]
    return SourceDigest(quota=use.quota, record_ids_sha256=ids_sha256(ids), count=len(ids), tokens=use.taken)


ROUNDS_NAME: Final = "rounds.json"


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
    """One earlier round.

    Attributes:
        manifest_sha256: self digest of its manifest, which names the round.
        policy: by which it allocated.
        unit: what its budget counts.
        budget: its budget.
        sources: by label in code-point order.
    """

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


ROUNDS: Final = Artefact("calibudget.rounds/1", Ledger)


def ledger_to_json(ledger: Ledger) -> dict[str, object]:
    """The `rounds.json` object of a ledger."""
    return {"schema": ROUNDS.schema, **plain(ledger)}


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
    ledger = ROUNDS.parse(read_object(path), path.name)
    for label in sorted({label for each in ledger.rounds for label in each.sources}):
        picks = [one for each in ledger.rounds if label in each.sources for one in each.sources[label].record_ids]
        if len(picks) != len(ledger.spent(label)):
            raise ArtefactError(f"{path.name}: an example of {label!r} was picked by two rounds, or twice by one")
    return ledger
