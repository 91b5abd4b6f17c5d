"""`statistics.json`: what calibration said of each source (paper 2.2).

`allocation.json`: the quotas of a policy and everything they were made from (paper 2.3).

`selection.json`: which examples were selected, by digest.

`rounds.json`: the ledger of the rounds before this one, so that no example is spent twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final, cast

from calibudget.errors import ArtefactError, InputTypeError
from calibudget.keys import canonical_array
from calibudget.messages import shown
from calibudget.records import (
    AllocationPlan,
    ErrorRule,
    Exponents,
    Selection,
    SourceAllocation,
    SourceStatistics,
    Statistics,
    Unit,
)
from calibudget.sequences import require_ordered
from calibudget.store.canonical import canonical_json, read_object, sha256_hex
from calibudget.store.codec import Fields, open_artefact
from calibudget.store.files import write_atomic

STATISTICS_NAME: Final = "statistics.json"
_STATISTICS: Final = "calibudget.statistics/1"
#: A mean NLL may lie below zero by rounding, never by more than this, nats.
NLL_ROUNDING: Final = 1e-6


def statistics_to_json(statistics: Statistics) -> dict[str, object]:
    """The `statistics.json` object of a record."""
    return {
        "schema": _STATISTICS,
        "model": dict(statistics.model),
        "error": statistics.error,
        "bootstrap": {"resamples": statistics.resamples, "seed": statistics.bootstrap_seed},
        "sources": {label: _measured_json(row) for label, row in sorted(statistics.sources.items())},
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
    root = open_artefact(value, name, _STATISTICS)
    error = cast(ErrorRule, root.one_of("error", "nll+wrong", "nll"))
    bootstrap = root.child("bootstrap")
    resamples = bootstrap.integer("resamples", minimum=1)
    statistics = Statistics(
        model=root.mapping("model"),
        error=error,
        resamples=resamples,
        bootstrap_seed=bootstrap.integer("seed", minimum=None),
        sources={label: _parse_measured(row, error, resamples) for label, row in root.by_label("sources").items()},
    )
    bootstrap.finish()
    root.finish()
    if not statistics.sources:
        raise ArtefactError(f"{name}: sources: is empty")
    return statistics


def _measured_json(row: SourceStatistics) -> dict[str, object]:
    return {
        "pool_size": row.pool_size,
        "calibration_size": row.calibration_size,
        "mean_nll": row.mean_nll,
        "error_rate": row.error_rate,
        "mean_error": row.mean_error,
        "bootstrap_sd": row.bootstrap_sd,
        "bootstrap_means": None if row.bootstrap_means is None else list(row.bootstrap_means),
        "slope": None,  # of the format: policies that were removed measured it
    }


def _parse_measured(row: Fields, error: ErrorRule, resamples: int) -> SourceStatistics:
    source = SourceStatistics(
        pool_size=row.integer("pool_size"),
        calibration_size=row.integer("calibration_size", minimum=2),
        mean_nll=row.number("mean_nll", minimum=-NLL_ROUNDING),
        error_rate=row.nullable("error_rate", lambda name: row.number(name, minimum=0.0, maximum=1.0)),
        mean_error=row.number("mean_error", minimum=-NLL_ROUNDING),
        bootstrap_sd=row.number("bootstrap_sd", minimum=0.0),
        bootstrap_means=row.nullable(
            "bootstrap_means", lambda name: row.numbers(name, length=resamples), may_be_absent=True
        ),
    )
    slope = row.nullable("slope", row.number, may_be_absent=True)
    if slope is not None:
        row.refuse("slope", "null, since the policies that read learning curves were removed", slope)
    row.finish()
    if source.error_rate is None and error == "nll+wrong":
        row.refuse("error_rate", "a number, since the error rule is nll+wrong", None)
    return source


ALLOCATION_NAME: Final = "allocation.json"
_ALLOCATION: Final = "calibudget.allocation/1"


def allocation_to_json(plan: AllocationPlan) -> dict[str, object]:
    """The `allocation.json` object of a plan."""
    return {
        "schema": _ALLOCATION,
        "policy": plan.policy,
        "unit": plan.unit,
        "budget": plan.budget,
        "floor": plan.floor,
        "floors": _plain(plan.floors),
        "caps": _plain(plan.caps),
        "groups": _plain(plan.groups),
        "exponents": asdict(plan.exponents),
        "need_transform": plan.need_transform,
        "epsilon": plan.epsilon,
        "statistics_sha256": plan.statistics_sha256,
        "residual_budget": plan.residual_budget,
        "quotas_sha256": quotas_sha256(plan.quotas),
        "sources": {label: asdict(row) for label, row in sorted(plan.sources.items())},
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
    root = open_artefact(value, name, _ALLOCATION)
    plan = AllocationPlan(
        policy=root.text("policy"),
        unit=cast(Unit, root.one_of("unit", "examples", "tokens")),
        budget=root.integer("budget"),
        floor=root.integer("floor"),
        floors=root.nullable("floors", root.integers_by_label),
        caps=root.nullable("caps", root.integers_by_label),
        groups=root.nullable("groups", root.mapping),
        exponents=parse_exponents(root.child("exponents")),
        need_transform=root.nullable("need_transform", root.text),
        epsilon=root.number("epsilon", minimum=0.0),
        statistics_sha256=root.nullable("statistics_sha256", root.digest),
        residual_budget=root.integer("residual_budget"),
        sources={label: _parse_allocated(row) for label, row in root.by_label("sources").items()},
    )
    root.nullable("quotas_sha256", root.digest, may_be_absent=True)
    root.finish()
    if not plan.sources:
        raise ArtefactError(f"{name}: sources: is empty")
    return plan


def _plain(value: Mapping[str, object] | None) -> dict[str, object] | None:
    return None if value is None else dict(value)


def parse_exponents(row: Fields) -> Exponents:
    """The exponents of an allocation or a manifest."""
    exponents = Exponents(
        need=row.number("need"), availability=row.number("availability"), reliability=row.number("reliability")
    )
    row.finish()
    return exponents


def _parse_allocated(row: Fields) -> SourceAllocation:
    source = SourceAllocation(
        pool_size=row.integer("pool_size"),
        floor_quota=row.integer("floor_quota"),
        residual_capacity=row.integer("residual_capacity"),
        need=row.nullable("need", lambda name: row.number(name, minimum=0.0)),
        availability=row.nullable("availability", lambda name: row.number(name, minimum=0.0)),
        reliability=row.nullable("reliability", lambda name: row.number(name, minimum=0.0, maximum=1.0)),
        utility=row.number("utility", minimum=0.0),
        share=row.number("share", minimum=0.0),
        residual_quota=row.integer("residual_quota"),
        quota=row.integer("quota"),
        interval=row.nullable("interval", lambda name: _parse_interval(row, name)),
    )
    row.finish()
    return source


def _parse_interval(row: Fields, name: str) -> tuple[int, int]:
    low_high = row.integers(name, length=2)
    if low_high[0] > low_high[1]:
        row.refuse(name, "[lowest, highest]", list(low_high))
    return low_high[0], low_high[1]


SELECTION_NAME: Final = "selection.json"
_SELECTION: Final = "calibudget.selection/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceDigest:
    """One source's picks: its quota in the budget's unit, and the digest of their ids in key order.

    `count` (examples) and `tokens` say what was picked for a quota of tokens; None where the quota counts examples.
    """

    quota: int
    record_ids_sha256: str
    count: int | None = None
    tokens: int | None = None


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

    seed: int
    selector: str
    sources: Mapping[str, SourceDigest]
    count: int
    companion_count: int
    selected_sha256: str
    tokens: int | None = None
    details: Mapping[str, object] | None = None


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
    digest = digest_selection(selection)
    fields = {"schema": _SELECTION, **_given(asdict(replace(digest, details=None)))}
    return fields if digest.details is None else fields | {"details": dict(digest.details)}


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
    root = open_artefact(read_object(path), path.name, _SELECTION)
    digest = SelectionDigest(
        seed=root.integer("seed", minimum=None),
        selector=root.text("selector"),
        sources={label: _parse_digest(row) for label, row in root.by_label("sources").items()},
        count=root.integer("count"),
        companion_count=root.integer("companion_count"),
        selected_sha256=root.digest("selected_sha256"),
        tokens=root.nullable("tokens", root.integer, may_be_absent=True),
        details=root.nullable("details", root.mapping, may_be_absent=True),
    )
    root.finish()
    return digest


def _digest_source(selection: Selection, label: str) -> SourceDigest:
    ids = selection.picks[label]
    if selection.tokens is None:
        return SourceDigest(quota=len(ids), record_ids_sha256=ids_sha256(ids))
    use = selection.tokens[label]
    return SourceDigest(quota=use.quota, record_ids_sha256=ids_sha256(ids), count=len(ids), tokens=use.taken)


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that aren't None, at any depth."""
    given = {name: value for name, value in fields.items() if value is not None}
    return {name: _given(value) if isinstance(value, Mapping) else value for name, value in given.items()}


def _parse_digest(row: Fields) -> SourceDigest:
    source = SourceDigest(
        quota=row.integer("quota"),
        record_ids_sha256=row.digest("record_ids_sha256"),
        count=row.nullable("count", row.integer, may_be_absent=True),
        tokens=row.nullable("tokens", row.integer, may_be_absent=True),
    )
    row.finish()
    return source


ROUNDS_NAME: Final = "rounds.json"
_ROUNDS: Final = "calibudget.rounds/1"


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
    return {"schema": _ROUNDS, "rounds": [asdict(each) for each in ledger.rounds]}


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
    root = open_artefact(read_object(path), path.name, _ROUNDS)
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
        sources={label: _parse_spent(source) for label, source in row.by_label("sources").items()},
    )
    row.finish()
    return parsed


def _parse_spent(row: Fields) -> RoundSource:
    source = RoundSource(
        units=row.integer("units"),
        record_ids=row.texts("record_ids"),
        calibration_ids=row.texts("calibration_ids"),
    )
    row.finish()
    return source
