"""A source is the same whoever reads it, and whether its identities were kept or not."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibudget.errors import CalibudgetError, DataError
from calibudget.sources import Readers, Reading, SourceSpec, identities, open_sources, part_source, readers
from calibudget.store import ids_sha256
from calibudget.tasks import AnswerSpec

ROWS: list[dict[str, object]] = [
    {"prompt": f"Say  {n % 400}\u00e9", "completion": f"It is {n % 450}.", "id": f"r{n % 450}.{n % 400}", "x": n / 7}
    for n in range(600)
]
LABELS = AnswerSpec(kind="exact")
SPECS: list[dict[str, object]] = [{}, {"id_field": "id"}, {"duplicates": "keep", "answer": LABELS}]


@pytest.fixture(autouse=True)
def every_input_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """No input is too small for a worker or the cache."""
    monkeypatch.setattr(identities, "SMALL", 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Nine files of three kinds."""
    data = tmp_path / "data"
    data.mkdir()
    for number in range(9):
        rows = ROWS[number::9]
        if number % 3 == 0:
            pq.write_table(pa.Table.from_pylist(rows), data / f"{number}.parquet")
        elif number % 3 == 1:
            table = pa.Table.from_pylist(rows)
            with pa.OSFile(str(data / f"{number}.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as out:
                out.write_table(table)
        else:
            (data / f"{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return data


def found(data: Path, reading: Reading | None = None, **fields: object) -> list[object]:
    """Everything that a pass over two sources finds."""
    specs = [
        SourceSpec(label="a", path=("0.parquet", "[1-4].*"), **fields),  # type: ignore[arg-type]
        SourceSpec(label="b", path=".", **fields),  # type: ignore[arg-type]
    ]
    with Readers(reading) as own:
        sources = list(open_sources(specs, data, selection_seed=2, readers=own))
    told: list[object] = []
    for source in sources:
        split = part_source(source, split_seed=1, calibration_size=30)
        rows = b"".join(rows.tobytes() for rows in source.parts())
        told += [source.scan.files, source.scan.tally, split.calibration, ids_sha256(split.candidate_ids), rows]
    return told


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "fields"), [(2, SPECS[0]), (4, SPECS[1]), (8, SPECS[2])], ids=str)
def test_any_number_of_workers_finds_the_same(folder: Path, workers: int, fields: dict[str, object]) -> None:
    expected = found(folder, **fields)
    assert found(folder, Reading(workers=workers), **fields) == expected


@pytest.mark.slow
def test_a_cluster_finds_the_same(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    expected = found(folder)
    assert found(folder, Reading(engine="ray", workers=2)) == expected
    for _ in range(2):
        assert found(folder, Reading(engine="ray", workers=2, cache=tmp_path / "cache")) == expected


@pytest.mark.slow
@pytest.mark.parametrize("reading", [Reading(workers=2), Reading(engine="ray", workers=2)], ids=str)
def test_the_first_bad_row_is_named_whoever_meets_it(folder: Path, reading: Reading) -> None:
    for number in (5, 2):
        with (folder / f"{number}.jsonl").open("a") as handle:
            handle.write('{"prompt": "p"}\n')
    with pytest.raises(DataError) as here:
        found(folder)
    with pytest.raises(DataError) as there:
        found(folder, reading)
    assert str(there.value) == str(here.value)
    assert "source 'a': 2.jsonl:68" in str(here.value)


@pytest.mark.slow
def test_a_worker_that_dies_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = readers.Processes._start

    def killed(self: readers.Processes) -> subprocess.Popen[bytes]:
        process = start(self)
        process.send_signal(signal.SIGKILL)
        process.wait()
        return process

    monkeypatch.setattr(readers.Processes, "_start", killed)
    with pytest.raises(CalibudgetError, match=r"0\.parquet: the process that read it ended with exit code -9"):
        found(folder, Reading(workers=2))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the inputs that are read."""
    names: list[str] = []
    make = identities.make_identities

    def counted(*given: object) -> object:
        names.append(given[1].file.name)  # type: ignore[attr-defined]
        return make(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(identities, "make_identities", counted)
    return names


@pytest.mark.parametrize("fields", SPECS, ids=str)
def test_what_is_kept_is_what_was_found(
    folder: Path, tmp_path: Path, made: list[str], fields: dict[str, object]
) -> None:
    expected = found(folder, **fields)
    made.clear()
    kept = Reading(cache=tmp_path / "cache")
    assert found(folder, kept, **fields) == expected
    assert len(made) == 9  # the two sources share files and what is said of them
    assert found(folder, kept, **fields) == expected
    assert len(made) == 9
    assert not list((tmp_path / "cache").glob("*.tmp"))


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "another's"])
def test_a_damaged_file_is_noticed_and_made_again(folder: Path, tmp_path: Path, made: list[str], damage: str) -> None:
    kept = Reading(cache=tmp_path / "cache")
    expected = found(folder, kept)
    files = sorted((tmp_path / "cache").iterdir())
    draw = random.Random(0)  # noqa: S311
    for number, file in enumerate(files):
        data = bytearray(file.read_bytes())
        if damage == "flipped":
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        elif damage == "cut":
            del data[draw.randrange(len(data)) :]
        elif damage == "empty":
            data.clear()
        else:
            data = bytearray(files[number - 1].read_bytes()) if number else data
        file.write_bytes(data)
    made.clear()
    assert found(folder, kept) == expected
    assert len(made) == len(files) - (damage == "another's")


def test_a_file_that_changes_under_the_same_size_and_time_is_read_again(folder: Path, tmp_path: Path) -> None:
    kept = Reading(cache=tmp_path / "cache")
    before = found(folder, kept)
    path = folder / "5.jsonl"
    status, text = path.stat(), path.read_text()
    path.write_text(text.replace("It is 5.", "It is 6."))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (status.st_size, status.st_mtime_ns)
    after = found(folder, kept)
    assert after != before
    assert after == found(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"where": {"id": "r7.7"}},
        {"columns": {"prompt": "completion", "completion": "prompt"}},
        {"id_field": "id"},
        {"answer": AnswerSpec(kind="exact")},
    ],
    ids=str,
)
def test_what_the_recipe_says_of_the_rows_counts(
    folder: Path, tmp_path: Path, made: list[str], change: dict[str, object]
) -> None:
    specs = [SourceSpec(label="a", path=".", **fields) for fields in ({}, change)]  # type: ignore[arg-type]
    with Readers(Reading(cache=tmp_path / "cache")) as own:
        list(open_sources(specs, folder, selection_seed=2, readers=own))
    assert len(made) == 18


def test_other_code_makes_its_own(
    folder: Path, tmp_path: Path, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Reading(cache=tmp_path / "cache")
    found(folder, kept)
    monkeypatch.setattr(identities, "_made_by", lambda: ["another normal form"])
    found(folder, kept)
    assert len(made) == 18


def test_a_cache_that_cannot_be_written_is_done_without(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file, so no folder can be here")
    assert found(folder, Reading(cache=tmp_path / "cache")) == found(folder)


def test_a_file_that_changes_while_it_is_read_is_not_kept(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name_rows: Callable[..., Iterator[pa.RecordBatch]] = identities.name_rows

    def changing(*given: object) -> Iterator[pa.RecordBatch]:
        yield from name_rows(*given)
        path = given[1].file.path  # type: ignore[attr-defined]
        status = path.stat()
        path.write_bytes(bytes(reversed(path.read_bytes())))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    monkeypatch.setattr(identities, "name_rows", changing)
    with pytest.raises(DataError, match="changed while it was read"):
        found(folder, Reading(cache=tmp_path / "cache"))
    assert not list((tmp_path / "cache").iterdir())


def test_small_inputs_are_read_here_and_not_kept(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identities, "SMALL", 1_048_576)
    monkeypatch.setattr(readers, "Processes", None)
    assert found(folder, Reading(workers=4, cache=tmp_path / "cache")) == found(folder)
    assert not (tmp_path / "cache").exists()
