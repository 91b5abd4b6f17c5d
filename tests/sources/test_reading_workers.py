"""A source is the same whoever reads it, and whether its identities were kept or not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibudget.errors import CalibudgetError, DataError
from calibudget.sources import cache_files, identity_index
from calibudget.sources.cache_files import cache_folder
from calibudget.sources.inputs import inputs_of
from calibudget.sources.reading_workers import Readers, Reading
from calibudget.sources.spec import SourceSpec
from calibudget.sources.split import Parting
from calibudget.sources.whole_source import open_sources
from calibudget.store.artefacts import ids_sha256
from calibudget.tasks.answers import AnswerSpec
from calibudget.workers import _Process

ROWS: list[dict[str, Any]] = [
    {"prompt": f"Say  {n % 400}\u00e9", "completion": f"It is {n % 450}.", "id": f"r{n % 450}.{n % 400}", "x": n / 7}
    for n in range(600)
]
LABELS = AnswerSpec(kind="exact")
SPECS: list[dict[str, Any]] = [{}, {"id_field": "id"}, {"duplicates": "keep", "answer": LABELS}]


@pytest.fixture(autouse=True)
def every_input_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """No input is too small for a worker or the cache."""
    monkeypatch.setattr(cache_files, "SMALL", 0)


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


def found(data: Path, reading: Reading | None = None, **fields: Any) -> list[object]:
    """Everything that a pass over two sources finds."""
    specs = [
        SourceSpec(label="a", path=("0.parquet", "[1-4].*"), **fields),
        SourceSpec(label="b", path=".", **fields),
    ]
    with Readers(reading) as own:
        sources = list(open_sources(specs, data, selection_seed=2, readers=own))
    told: list[object] = []
    for source in sources:
        split = Parting(source).draw(split_seed=1, calibration_size=30).split()
        rows = b"".join(rows.tobytes() for rows in source.parts())
        told += [source.scan.files, source.scan.tally, split.calibration, ids_sha256(split.candidate_ids), rows]
    return told


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "fields"), [(2, SPECS[0]), (4, SPECS[1]), (8, SPECS[2])], ids=str)
def test_any_number_of_workers_finds_the_same(folder: Path, workers: int, fields: dict[str, Any]) -> None:
    expected = found(folder, **fields)
    assert found(folder, Reading(workers=workers), **fields) == expected


@pytest.mark.slow
@pytest.mark.usefixtures("ray_here")
def test_a_cluster_finds_the_same(folder: Path, tmp_path: Path) -> None:
    expected = found(folder)
    assert found(folder, Reading(engine="ray", workers=2)) == expected
    for _ in range(2):
        assert found(folder, Reading(engine="ray", workers=2, cache=tmp_path / "cache")) == expected


@pytest.mark.slow
@pytest.mark.usefixtures("ray_here")
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
@pytest.mark.parametrize("deaths", [2, 3])
def test_what_a_killed_worker_was_at_is_read_by_another_a_few_times(
    folder: Path, monkeypatch: pytest.MonkeyPatch, deaths: int
) -> None:
    ask, asked = _Process.ask, Counter[str]()

    def killed(self: _Process, request: Any, target: Path | None) -> Any:
        name = request["file"][1]
        asked[name] += 1
        if name == "0.parquet" and asked[name] <= deaths:
            self._process.kill()
        return ask(self, request, target)

    monkeypatch.setattr(_Process, "ask", killed)
    if deaths == 2:
        assert found(folder, Reading(workers=2)) == found(folder)
    else:
        message = r"0\.parquet: reading it ended 3 workers \(the last with exit code -9\)"
        with pytest.raises(CalibudgetError, match=message):
            found(folder, Reading(workers=2))
    assert asked.pop("0.parquet") >= 3
    assert set(asked.values()) <= {1, 2}  # two sources have some of the files


READ_ONCE = """
import sys
from pathlib import Path
from calibudget.sources.whole_source import open_source
from calibudget.sources.spec import SourceSpec
from calibudget.sources.split import Parting
spec = SourceSpec(label="s", path="*.jsonl", id_field=sys.argv[2] or None)
split = Parting(open_source(spec, Path(sys.argv[1]), selection_seed=1)).draw(split_seed=1, calibration_size=5).split()
assert len(split.candidates[:10]) == 10
print("pandas" in sys.modules)
"""


@pytest.mark.slow
@pytest.mark.parametrize("own", ["", "id"], ids=["digests", "own ids"])
def test_a_pass_imports_no_pandas(folder: Path, own: str) -> None:
    pytest.importorskip("pandas")
    done = subprocess.run(
        [sys.executable, "-c", READ_ONCE, str(folder), own], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the inputs that are read."""
    names: list[str] = []
    make = identity_index.make_identities

    def counted(*given: object) -> object:
        names.append(given[1].file.name)  # type: ignore[attr-defined]
        return make(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(identity_index, "make_identities", counted)
    return names


@pytest.mark.parametrize("fields", SPECS, ids=str)
def test_what_is_kept_is_what_was_found(folder: Path, tmp_path: Path, made: list[str], fields: dict[str, Any]) -> None:
    expected = found(folder, **fields)
    made.clear()
    kept = Reading(cache=tmp_path / "cache")
    assert found(folder, kept, **fields) == expected
    assert len(made) == 9  # the two sources share files and what is said of them
    assert found(folder, kept, **fields) == expected
    assert len(made) == 9
    assert not list((tmp_path / "cache").glob("*.tmp"))


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "another's"])
def test_a_damaged_file_is_noticed_and_made_again(
    folder: Path, tmp_path: Path, made: list[str], damaged: Callable[[bytes, str, bytes], bytes], damage: str
) -> None:
    kept = Reading(cache=tmp_path / "cache")
    expected = found(folder, kept)
    files = sorted((tmp_path / "cache").iterdir())
    for number, file in enumerate(files):
        file.write_bytes(damaged(file.read_bytes(), damage, files[max(number - 1, 0)].read_bytes()))
    made.clear()
    assert found(folder, kept) == expected
    assert len(made) == len(files) - (damage == "another's")


def test_workers_end_with_their_readers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    popen, started = subprocess.Popen, []

    def noting(*given: object, **more: Any) -> subprocess.Popen[bytes]:
        started.append(popen(*given, **more))  # type: ignore[call-overload]
        return started[-1]  # type: ignore[no-any-return]

    monkeypatch.setattr(subprocess, "Popen", noting)
    spec = SourceSpec(label="a", path=".")
    with Readers(Reading(workers=2)) as own:
        for given in inputs_of(spec, folder)[0]:
            own.ask(spec, given)
    assert len(started) == 2
    assert {(one.returncode, one.stdin.closed, one.stdout.closed) for one in started} == {(-signal.SIGKILL, True, True)}


def test_filters_that_compare_other_values_are_kept_apart(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    rows = [{"prompt": f"p{x!r}", "completion": "c", "x": x} for x in (1, 1.0, "1.0", True)]
    (data / "0.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    wanted: list[object] = [1, 1.0, True, "1", 2**60]
    with Readers(Reading(cache=tmp_path / "cache")) as own:
        kept = []
        for x in wanted:
            spec = SourceSpec(label="a", path=".", where={"x": x})  # type: ignore[dict-item]
            one = own.ask(spec, inputs_of(spec, data)[0][0])()
            kept.append(one.tally.read - one.tally.filtered)
            one.forget()
    assert kept == [3, 3, 1, 2, 0]
    assert len(list((tmp_path / "cache").iterdir())) == len(wanted)


def test_a_user_without_a_home_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert cache_folder() is None


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
    folder: Path, tmp_path: Path, made: list[str], change: dict[str, Any]
) -> None:
    specs = [SourceSpec(label="a", path=".", **fields) for fields in ({}, change)]
    with Readers(Reading(cache=tmp_path / "cache")) as own:
        list(open_sources(specs, folder, selection_seed=2, readers=own))
    assert len(made) == 18


def test_other_code_makes_its_own(
    folder: Path, tmp_path: Path, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Reading(cache=tmp_path / "cache")
    found(folder, kept)
    monkeypatch.setattr(cache_files, "_made_by", lambda: ["another normal form"])
    found(folder, kept)
    assert len(made) == 18


def test_a_file_that_changes_while_it_is_read_is_not_kept(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name_rows: Callable[..., Iterator[pa.RecordBatch]] = identity_index.name_rows

    def changing(*given: object) -> Iterator[pa.RecordBatch]:
        yield from name_rows(*given)
        path = given[1].file.path  # type: ignore[attr-defined]
        status = path.stat()
        path.write_bytes(bytes(reversed(path.read_bytes())))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    monkeypatch.setattr(identity_index, "name_rows", changing)
    with pytest.raises(DataError, match="changed while it was read"):
        found(folder, Reading(cache=tmp_path / "cache"))
    assert not list((tmp_path / "cache").iterdir())
