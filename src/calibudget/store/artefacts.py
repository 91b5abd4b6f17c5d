"""`statistics.json` (paper 2.2), `allocation.json` (2.3) and `selection.json`.

What calibration said of each source; the quotas and everything that they were made from; and which examples were
selected, by digest.
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
from calibudget.records import AllocationPlan, ErrorRule, Selection, SourceStatistics, Statistics
from calibudget.sequences import require_ordered
from calibudget.store.canonical import canonical_json, read_object, sha256_hex
from calibudget.store.codec import Artefact
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
    """A record from the `statistics.json` object; `name` is what errors call it."""
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


def quotas_sha256(quotas: Mapping[str, int]) -> str:
    """Digest of a quota vector: SHA-256 of the RFC 8785 object of label to quota (paper 3.5, "quota hashes")."""
    return sha256_hex(canonical_json(dict(quotas)))


ALLOCATION: Final = Artefact(
    "calibudget.allocation/1",
    AllocationPlan,
    digest=("quotas_sha256", lambda plan: quotas_sha256(plan.quotas)),
    nulls=True,
)


def stated_quotas_sha256(path: Path) -> str | None:
    """The digest that `allocation.json` gives of its quotas, right or not; None in files from before it was kept."""
    stated = read_object(path).get("quotas_sha256")
    return None if stated is None else str(stated)


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


def _digest_source(selection: Selection, label: str) -> SourceDigest:
    ids = selection.picks[label]
    if selection.tokens is None:
        return SourceDigest(quota=len(ids), record_ids_sha256=ids_sha256(ids))
    use = selection.tokens[label]
    return SourceDigest(quota=use.quota, record_ids_sha256=ids_sha256(ids), count=len(ids), tokens=use.taken)
