"""Objects of a store: the same source as their local copies, a store that fails is told by its URL."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import DataError, RecipeError
from calibudget.sources.files import check_distinct_files, find_files
from calibudget.sources.remote import Copies, RemoteFile, check_path
from calibudget.sources.spec import SourceSpec
from calibudget.sources.whole_source import SourceRead, read_source

fsspec = pytest.importorskip("fsspec")

#: Clients that give up fast, where nobody answers anyway.
HASTY: dict[str, Any] = {
    "config_kwargs": {"connect_timeout": 0.3, "read_timeout": 0.3, "retries": {"total_max_attempts": 1}}
}


def rows_of(name: str, count: int = 20) -> list[dict[str, str]]:
    return [{"prompt": f"{name} {number}?", "completion": f"answer {number * number}"} for number in range(count)]


@contextmanager
def listening(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that does with each connection what it is told; gives its endpoint."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def read(data_dir: Path, *path: str, **fields: object) -> SourceRead:
    return read_source(SourceSpec(label="s", path=path, **fields), data_dir)  # type: ignore[arg-type]


def write_every_kind(folder: Path) -> Sequence[str]:
    import gzip

    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    lines = ["".join(json.dumps(row) + "\n" for row in rows_of(name)).encode() for name in "abc"]
    (folder / "a.jsonl").write_bytes(lines[0])
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(lines[1], mtime=0))
    with pa.CompressedOutputStream(str(folder / "c.jsonl.zst"), "zstd") as stream:
        stream.write(lines[2])
    cells = [f'"{row["prompt"]}\nsecond line",{row["completion"]}\n' for row in rows_of("d")]
    (folder / "d.csv").write_text("prompt,completion\n" + "".join(cells))
    pq.write_table(pa.Table.from_pylist(rows_of("e")), folder / "e.parquet", row_group_size=7)
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("path", ["s3://rows/in/*", "s3://rows/in", "s3://rows/**/?.*"])
def test_objects_give_what_their_local_copies_give(tmp_path: Path, s3_bucket: Any, path: str) -> None:
    names = write_every_kind(tmp_path / "in")
    s3_bucket.put(str(tmp_path / "in") + "/", "rows/in/", recursive=True)
    s3_bucket.pipe_file("rows/out/README.md", b"no rows")
    local, remote = read(tmp_path, "in"), read(tmp_path, path)
    assert len(remote.records) == 100
    assert remote.records == local.records
    assert [file.name for file in remote.files] == [f"s3://rows/in/{name}" for name in names]
    assert [(file.bytes, file.sha256) for file in remote.files] == [(file.bytes, file.sha256) for file in local.files]


@pytest.mark.slow
def test_an_object_is_copied_once_and_again_when_it_is_another(
    tmp_path: Path, s3_bucket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3_bucket.pipe_file("rows/r.jsonl", json.dumps(rows_of("old", 1)[0]).encode())
    monkeypatch.setattr("calibudget.sources.files.COPIES", Copies())
    url = "s3://rows/r.jsonl"
    first = find_files(SourceSpec(label="s", path=url), tmp_path).files
    assert find_files(SourceSpec(label="s", path="s3://rows/*.jsonl"), tmp_path).files == first
    assert read(tmp_path, url).records[0].prompt[0].content == "old 0?"
    s3_bucket.pipe_file("rows/r.jsonl", json.dumps(rows_of("new", 1)[0]).encode())
    assert read(tmp_path, url).records[0].prompt[0].content == "new 0?"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_two_sources_may_not_share_an_object(tmp_path: Path, s3_bucket: Any) -> None:
    s3_bucket.pipe_file("rows/r.jsonl", b"{}")
    specs = [
        SourceSpec(label=label, path=path) for label, path in {"a": "s3://rows/*", "b": "s3://rows/r.jsonl"}.items()
    ]
    with pytest.raises(DataError, match=r"source 'a' and source 'b' both read s3://rows/r\.jsonl"):
        check_distinct_files(specs, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("s3://rows/none.jsonl", r"no file matches 's3://rows/none\.jsonl'$"),
        ("s3://rows/*.csv", r"no file matches 's3://rows/\*\.csv'$"),
        ("s3://no-such-bucket/r.jsonl", r"s3://no-such-bucket/r\.jsonl: there is no bucket 'no-such-bucket'"),
        ("s3://no-such-bucket/*.jsonl", r"there is no bucket 'no-such-bucket'"),
        ("s3://No_Bucket!/r.jsonl", r"can't be read: Parameter validation failed: Invalid bucket name"),
        ("s3://rows/model.bin", r"s3://rows/model\.bin: unknown kind of file"),
        ("s3://rows/bad.jsonl", r"s3://rows/bad\.jsonl:2: not valid JSON"),
        ("s3://rows/saved", r"s3://rows/saved: is a data set that `datasets` saved; name its files"),
        ("s3://rows/splits", r"s3://rows/splits: is a data set that `datasets` saved; name its files"),
    ],
)
def test_what_is_not_there_or_can_not_be_read_is_named_by_its_url(
    tmp_path: Path, s3_bucket: Any, path: str, message: str
) -> None:
    s3_bucket.pipe_file("rows/model.bin", b"weights")
    s3_bucket.pipe_file("rows/bad.jsonl", json.dumps(rows_of("x", 1)[0]).encode() + b"\nbroken\n")
    s3_bucket.pipe_file("rows/saved/state.json", b"{}")
    s3_bucket.pipe_file("rows/splits/dataset_dict.json", b"{}")
    with pytest.raises(DataError, match=f"^source 's': .*{message}"):
        read(tmp_path, path)


@pytest.mark.slow
def test_a_folder_is_read_beside_an_object_of_its_name_and_a_saved_data_set_below(
    tmp_path: Path, s3_bucket: Any
) -> None:
    lines = "".join(json.dumps(row) + "\n" for row in rows_of("x")).encode()
    for marker in ("rows/both", "rows/both/"):
        s3_bucket.call_s3("put_object", Bucket="rows", Key=marker.removeprefix("rows/"), Body=b"")
    s3_bucket.pipe_file("rows/both/r.jsonl", lines)
    s3_bucket.pipe_file("rows/bothering.jsonl", b"broken")
    s3_bucket.pipe_file("rows/both/other/state.json", json.dumps(rows_of("y", 1)[0]).encode())
    assert [file.name for file in read(tmp_path, "s3://rows/both").files] == [
        "s3://rows/both/other/state.json",
        "s3://rows/both/r.jsonl",
    ]


@pytest.mark.slow
def test_a_store_that_refuses_ends_with_its_url_and_without_secrets(
    tmp_path: Path, s3_endpoint: Callable[..., None]
) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as unused:
        port = unused.getsockname()[1]
    s3_endpoint(f"http://127.0.0.1:{port}", **HASTY)
    with pytest.raises(DataError, match=r"^source 's': s3://rows/r\.jsonl: can't be read: Could not connect") as caught:
        read(tmp_path, "s3://rows/r.jsonl")
    assert "a-secret" not in str(caught.value)


@pytest.mark.slow
def test_a_store_that_never_answers_is_given_up(tmp_path: Path, s3_endpoint: Callable[..., None]) -> None:
    tries = []
    with listening(lambda connection: tries.append(connection)) as url:  # kept open, and silent
        s3_endpoint(url, **HASTY)
        with pytest.raises(DataError, match=r"^source 's': s3://rows/r\.jsonl: can't be read: .*[Tt]imeout"):
            read(tmp_path, "s3://rows/r.jsonl")
    assert len(tries) > 1


def _answer(connection: socket.socket, body: bytes, most: int) -> None:
    """Answer requests for one object, cutting its bytes short and the line dead after so many of them."""
    with connection:
        while head := connection.recv(65536):
            length = f'Content-Length: {len(body)}\r\nETag: "e"\r\nContent-Type: binary/octet-stream\r\n'
            if head.startswith(b"HEAD"):
                connection.sendall(f"HTTP/1.1 200 OK\r\n{length}\r\n".encode())
                continue
            connection.sendall(f"HTTP/1.1 206 Partial Content\r\n{length}\r\n".encode() + body[:most])
            if most < len(body):
                return


@pytest.mark.slow
@pytest.mark.parametrize("dead", [1, 1000])
def test_a_store_that_stops_mid_way_is_asked_again_and_then_given_up(
    tmp_path: Path, s3_endpoint: Callable[..., None], dead: int
) -> None:
    body = "".join(json.dumps(row) + "\n" for row in rows_of("r", 2000)).encode()
    gets: list[int] = []

    def serve(connection: socket.socket) -> None:
        gets.append(1)
        _answer(connection, body, len(body) // 2 if len(gets) <= dead else len(body))

    copies = Copies()
    with listening(serve) as url:
        s3_endpoint(url, **HASTY)
        file = RemoteFile(url="s3://rows/r.jsonl", bytes=len(body), version='"e"')
        if dead < 10:
            assert copies.path(file).read_bytes() == body
            return
        with pytest.raises(DataError, match=r"^s3://rows/r\.jsonl: can't be read: "):
            copies.path(file)
    assert 1 < len(gets) < 20
    assert list(copies._scratch.path("").iterdir()) == []


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("s3://key:a-secret@rows/r.jsonl", "a s3 URL must not hold credentials; put them into the environment"),
        ("gopher://rows/r.jsonl", "has an unknown scheme; known are file, s3, hf"),
        ("s3:///r.jsonl", "must name its bucket"),
        ("s3://*/r.jsonl", "must name its bucket"),
        ("file://r.jsonl", "must name an absolute path"),
    ],
)
def test_a_url_that_can_name_no_source_is_refused_by_the_recipe(path: str, message: str) -> None:
    with pytest.raises(RecipeError, match=f"^source 's': .*{message}") as caught:
        SourceSpec(label="s", path=path)
    assert "a-secret" not in str(caught.value)


def test_plain_paths_are_no_urls() -> None:
    for path in (
        "rows.jsonl",
        "s3/rows.jsonl",
        "/data/a@b.jsonl",
        "s3://rows/a@b.jsonl",
        "hf://datasets/o/n@v1/r.jsonl",
    ):
        check_path(path)


def test_a_file_url_is_an_absolute_path(tmp_path: Path) -> None:
    (tmp_path / "r 1.jsonl").write_text(json.dumps(rows_of("r", 1)[0]))
    found = read(tmp_path / "elsewhere", (tmp_path / "*.jsonl").as_uri().replace("%2A", "*"))
    assert [file.name for file in found.files] == ["r 1.jsonl"]


class _Hub(BaseHTTPRequestHandler):
    """As much of the hub as a data set with one file in one folder needs."""

    body = json.dumps(rows_of("hub", 1)[0]).encode()

    def log_message(self, *arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        folder = {"type": "directory", "oid": "1" * 40, "size": 0, "path": "d"}
        file = {"type": "file", "oid": "0" * 40, "size": len(self.body), "path": "d/r.jsonl"}
        path = self.path.partition("?")[0]
        if path == "/datasets/o/n/resolve/v1/d/r.jsonl":
            first, last = map(int, self.headers["range"].removeprefix("bytes=").split("-"))
            self._send(206, self.body[first : last + 1])
        elif path in ("/api/datasets/o/n", "/api/datasets/o/n/revision/v1"):
            self._send(200, json.dumps({"id": "o/n", "sha": "a" * 40, "siblings": []}).encode())
        elif path.startswith("/api/datasets/o/n/tree/v1"):
            found = [folder, file] if "recursive=true" in self.path else [file if path.endswith("/d") else folder]
            self._send(200, json.dumps(found).encode())
        else:
            self._send(404, b"{}")

    def do_POST(self) -> None:  # asked of paths that are no files
        self.rfile.read(int(self.headers["Content-Length"]))
        self._send(200, b"[]")

    def _send(self, code: int, data: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["hf://datasets/o/n@v1/d/r.jsonl", "hf://datasets/o/n@v1/*/*.jsonl"])
def test_files_of_the_hub_are_read_by_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    pytest.importorskip("huggingface_hub")
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setitem(fsspec.config.conf, "hf", {"endpoint": f"http://127.0.0.1:{server.server_address[1]}"})
    with closing(server.socket):
        found = read(tmp_path, path)
        server.shutdown()
    assert [file.name for file in found.files] == ["hf://datasets/o/n@v1/d/r.jsonl"]
    assert found.files[0].bytes == len(_Hub.body)
    assert found.records[0].completion == "answer 0"


def test_what_has_no_room_is_refused_before_it_is_fetched() -> None:
    with pytest.raises(DataError, match=r"s3://rows/r\.jsonl: .* has no room for its 1,000,000,000,000,000,000 bytes"):
        Copies().path(RemoteFile(url="s3://rows/r.jsonl", bytes=10**18, version="1"))
