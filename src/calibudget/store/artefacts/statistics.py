"""`statistics.json`: what calibration said of each source (paper 2.2)."""

from __future__ import annotations

from pathlib import Path
from typing import Final, cast

from calibudget.errors import ArtefactError
from calibudget.records import ErrorRule, SourceStatistics, Statistics
from calibudget.store.artefacts.fields import Fields, open_artefact
from calibudget.store.atomic import write_atomic
from calibudget.store.canonical import canonical_json, read_object, sha256_hex

STATISTICS_NAME: Final = "statistics.json"
_SCHEMA: Final = "calibudget.statistics/1"

#: A mean NLL may lie below zero by rounding, never by more than this, nats.
NLL_ROUNDING: Final = 1e-6


def statistics_to_json(statistics: Statistics) -> dict[str, object]:
    """The `statistics.json` object of a record."""
    return {
        "schema": _SCHEMA,
        "model": dict(statistics.model),
        "error": statistics.error,
        "bootstrap": {"resamples": statistics.resamples, "seed": statistics.bootstrap_seed},
        "sources": {label: _source_json(row) for label, row in sorted(statistics.sources.items())},
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
    root = open_artefact(value, name, _SCHEMA)
    error = cast(ErrorRule, root.one_of("error", "nll+wrong", "nll"))
    bootstrap = root.child("bootstrap")
    resamples = bootstrap.integer("resamples", minimum=1)
    statistics = Statistics(
        model=root.mapping("model"),
        error=error,
        resamples=resamples,
        bootstrap_seed=bootstrap.integer("seed", minimum=None),
        sources={label: _parse_source(row, error, resamples) for label, row in root.by_label("sources").items()},
    )
    bootstrap.finish()
    root.finish()
    if not statistics.sources:
        raise ArtefactError(f"{name}: sources: is empty")
    return statistics


def _source_json(row: SourceStatistics) -> dict[str, object]:
    return {
        "pool_size": row.pool_size,
        "calibration_size": row.calibration_size,
        "mean_nll": row.mean_nll,
        "error_rate": row.error_rate,
        "mean_error": row.mean_error,
        "bootstrap_sd": row.bootstrap_sd,
        "bootstrap_means": None if row.bootstrap_means is None else list(row.bootstrap_means),
        "slope": row.slope,
    }


def _parse_source(row: Fields, error: ErrorRule, resamples: int) -> SourceStatistics:
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
        slope=row.nullable("slope", row.number, may_be_absent=True),
    )
    row.finish()
    if source.error_rate is None and error == "nll+wrong":
        row.refuse("error_rate", "a number, since the error rule is nll+wrong", None)
    return source
