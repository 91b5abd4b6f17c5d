"""`warm-ups.parquet`: calibration NLLs after small trainings on some units of every source, and NLLs made elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, cast

import pyarrow as pa

from calibudget.errors import ArtefactError, InputError
from calibudget.records import Unit
from calibudget.store.artefacts import NLL_ROUNDING
from calibudget.store.canonical import loads_object, read_bytes
from calibudget.store.codec import Fields, open_artefact
from calibudget.store.files import check_labels
from calibudget.store.parquet import load_table, read_table, table_metadata, write_table

WARM_UPS_NAME: Final = "warm-ups.parquet"
_SCHEMA: Final = "calibudget.warm-ups/1"
_COLUMNS: Final = pa.schema(
    [
        pa.field("source", pa.string(), nullable=False),
        pa.field("warm_up", pa.int64(), nullable=False),
        pa.field("exposure", pa.int64(), nullable=False),
        pa.field("record_id", pa.string(), nullable=False),
        pa.field("nll", pa.float64(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class WarmUpNll:
    """What a warm-up left of one calibration record.

    Attributes:
        source: label of the source.
        warm_up: its number, from 1: in ascending order of exposure, or of mixtures in the order of
            `allocation.perturbed_mixtures`.
        exposure: units of the source that it trained on, >= 1.
        record_id: id of the calibration record.
        nll: its mean NLL after the warm-up, nats.
    """

    source: str
    warm_up: int
    exposure: int
    record_id: str
    nll: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUpRun:
    """What one warm-up was, and what it cost.

    Attributes:
        examples: source examples that it trained on.
        steps: optimizer steps.
        seconds: of training and scoring, in the process that finished it.
        selected_sha256: digest of the ids that it trained on.
        adapter_sha256: of `adapter_model.safetensors`.
        training: the training's configuration.
    """

    examples: int
    steps: int
    seconds: float
    selected_sha256: str
    adapter_sha256: str
    training: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUpFile:
    """Warm-ups as a file holds them.

    Attributes:
        nlls: ordered by source, warm-up, record id.
        unit: what exposures count.
        model: what the scorer said of the bare model, None for a file made elsewhere that doesn't say.
        runs: one a warm-up; none for a file made elsewhere that doesn't say.
        mixtures: whether the warm-ups are mixtures in which one source at a time is changed, so that a source's
            exposure recurs.
    """

    nlls: tuple[WarmUpNll, ...]
    unit: Unit = "examples"
    model: Mapping[str, object] | None = None
    runs: tuple[WarmUpRun, ...] = ()
    mixtures: bool = False

    def of(self, label: str) -> dict[int, dict[str, float]]:
        """A source's NLLs by number of the warm-up, ascending, and record id."""
        found: dict[int, dict[str, float]] = {}
        for one in self.nlls:
            if one.source == label:
                found.setdefault(one.warm_up, {})[one.record_id] = one.nll
        return found

    def exposures(self, label: str) -> dict[int, int]:
        """A source's exposure in each warm-up, by number, ascending."""
        return {one.warm_up: one.exposure for one in self.nlls if one.source == label}

    @property
    def labels(self) -> list[str]:
        """The sources in code-point order."""
        return sorted({one.source for one in self.nlls})


def write_warm_ups(path: Path, warm_ups: WarmUpFile) -> None:
    """Write `warm-ups.parquet`, atomically.

    Raises:
        ArtefactError: a row isn't what it should be, or the file can't be written.
    """
    numbered = [(f"row {n}", asdict(row)) for n, row in enumerate(sorted(warm_ups.nlls), start=1)]
    rows = _checked(numbered, path.name, mixtures=warm_ups.mixtures)
    columns = {name: [getattr(row, name) for row in rows] for name in _COLUMNS.names}
    metadata = {
        "schema": _SCHEMA,
        "unit": warm_ups.unit,
        "model": None if warm_ups.model is None else dict(warm_ups.model),
        "runs": [asdict(run) | {"training": dict(run.training)} for run in warm_ups.runs],
        **({"mixtures": True} if warm_ups.mixtures else {}),
    }
    write_table(path, pa.table(columns, schema=_COLUMNS), metadata, dictionary=["source"])


def read_warm_ups(path: Path) -> WarmUpFile:
    """Read the `warm-ups.parquet` of a run directory.

    Raises:
        ArtefactError: the file is missing or damaged, or a column or row isn't what it should be; it is named.
    """
    table, metadata = read_table(path, _COLUMNS)
    found = _parse(metadata, table, path.name)
    if list(found.nlls) != [WarmUpNll(**row) for row in table.to_pylist()]:
        raise ArtefactError(f"{path.name}: rows must ascend by source, warm-up and record id")
    return found


def read_warm_ups_file(path: Path, *, mixtures: bool = False) -> WarmUpFile:
    """Read warm-ups from any place: Parquet or JSONL with `source`, `exposure`, `record_id` and `nll`.

    Args:
        path: the file.
        mixtures: whether a file that doesn't say so itself holds mixtures; these need `warm_up` too.

    Raises:
        ArtefactError: the file can't be read, or a row isn't what it should be; file and line or row are named.
    """
    if path.suffix != ".parquet":
        return WarmUpFile(nlls=_checked(_json_lines(path), path.name, mixtures=mixtures), mixtures=mixtures)
    table = load_table(path)
    metadata = table_metadata(table, path.name)
    if metadata is None:
        return WarmUpFile(nlls=_checked(_table_rows(table), path.name, mixtures=mixtures), mixtures=mixtures)
    return _parse(metadata, table, path.name)


def _parse(metadata: Mapping[str, object], table: pa.Table, name: str) -> WarmUpFile:
    root = open_artefact(metadata, f"{name}: schema metadata", _SCHEMA)
    mixtures = root.nullable("mixtures", root.boolean, may_be_absent=True) or False
    rows = _checked(_table_rows(table), name, mixtures=mixtures)
    found = WarmUpFile(
        nlls=rows,
        mixtures=mixtures,
        unit=cast(Unit, root.one_of("unit", "examples", "tokens")),
        model=root.nullable("model", root.mapping),
        runs=tuple(_parse_run(run) for run in root.children("runs")),
    )
    root.finish()
    numbers = {row.warm_up for row in rows}
    if found.runs and numbers != set(range(1, len(found.runs) + 1)):
        raise ArtefactError(f"{name}: holds warm-ups {sorted(numbers)}, but describes {len(found.runs)} of them")
    return found


def _parse_run(row: Fields) -> WarmUpRun:
    run = WarmUpRun(
        examples=row.integer("examples"),
        steps=row.integer("steps"),
        seconds=row.number("seconds", minimum=0.0),
        selected_sha256=row.digest("selected_sha256"),
        adapter_sha256=row.digest("adapter_sha256"),
        training=row.mapping("training"),
    )
    row.finish()
    return run


def _table_rows(table: pa.Table) -> Iterator[tuple[str, dict[str, object]]]:
    yield from ((f"row {number}", row) for number, row in enumerate(table.to_pylist(), start=1))


def _json_lines(path: Path) -> Iterator[tuple[str, dict[str, object]]]:
    for number, line in enumerate(read_bytes(path).split(b"\n"), start=1):
        if line.strip():
            yield f"line {number}", loads_object(line, f"{path.name}: line {number}")


def _checked(rows: Iterable[tuple[str, Mapping[str, object]]], name: str, *, mixtures: bool) -> tuple[WarmUpNll, ...]:
    """Rows in order; each record once after each warm-up."""
    parsed = [(place, _parse_row(Fields(row, f"{name}: {place}"))) for place, row in rows]
    if not parsed:
        raise ArtefactError(f"{name}: holds no NLLs")
    seen: dict[tuple[str, int, str], str] = {}
    for place, row in parsed:
        if mixtures and row.warm_up < 1:
            raise ArtefactError(f"{name}: {place}: warm_up: is missing; of mixtures each row names its own, from 1 on")
        after = row.warm_up if mixtures else row.exposure
        twin = seen.setdefault((row.source, after, row.record_id), place)
        if twin != place:
            raise ArtefactError(
                f"{name}: {place}: record_id: {row.record_id!r} of {row.source!r} after "
                f"{'warm-up ' if mixtures else ''}{after:,} was given at {twin} already"
            )
    found = _mixed(parsed, name) if mixtures else _ranked(parsed, name)
    try:
        check_labels(sorted({row.source for row in found}))
    except InputError as fault:
        raise ArtefactError(f"{name}: source: {fault}") from fault
    return tuple(sorted(found))


def _mixed(parsed: Sequence[tuple[str, WarmUpNll]], name: str) -> list[WarmUpNll]:
    """Rows of mixtures, which name their warm-up; a source has one exposure in each."""
    exposures: dict[tuple[str, int], int] = {}
    for place, row in parsed:
        other = exposures.setdefault((row.source, row.warm_up), row.exposure)
        if other != row.exposure:
            raise ArtefactError(
                f"{name}: {place}: exposure: {row.exposure:,} of {row.source!r} in warm-up {row.warm_up}, which has "
                f"{other:,} of it in another row"
            )
    return [row for _, row in parsed]


def _ranked(parsed: Sequence[tuple[str, WarmUpNll]], name: str) -> list[WarmUpNll]:
    """Rows whose warm-ups are numbered by exposure, where they aren't yet."""
    ranks: dict[str, dict[int, int]] = {}
    for source, exposure in sorted({(row.source, row.exposure) for _, row in parsed}):
        own = ranks.setdefault(source, {})
        own[exposure] = len(own) + 1
    for place, row in parsed:
        if row.warm_up not in (0, ranks[row.source][row.exposure]):
            raise ArtefactError(f"{name}: {place}: warm_up: {row.warm_up} isn't the place of its exposure")
    return [replace(row, warm_up=ranks[row.source][row.exposure]) for _, row in parsed]


def _parse_row(row: Fields) -> WarmUpNll:
    parsed = WarmUpNll(
        source=row.text("source"),
        warm_up=row.nullable("warm_up", row.integer, may_be_absent=True) or 0,
        exposure=row.integer("exposure", minimum=1),
        record_id=row.text("record_id"),
        nll=row.number("nll", minimum=-NLL_ROUNDING) + 0.0,
    )
    row.finish()
    return parsed
