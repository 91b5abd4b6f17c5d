"""Hub data sets over the hub's own HTTP API, from a local stand-in of it: no network is needed."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

pytestmark = pytest.mark.slow  # each test starts a process that imports datasets

FIRST, SECOND, SCRIPT = "a" * 40, "b" * 40, "e" * 40
ROWS = [{"prompt": f"Say {number}", "completion": f"It is {number}."} for number in range(10)]
READ = """
import json, sys
from pathlib import Path
from calibudget.errors import CalibudgetError
from calibudget.sources.whole_source import read_source
from calibudget.sources.spec import SourceSpec

try:
    read = read_source(SourceSpec(label="s", **json.loads(sys.argv[1])), Path())
    found = {"prompts": [one.prompt[0].content for one in read.records], "files": [one.name for one in read.files]}
except CalibudgetError as error:
    found = {"error": str(error)}
print(json.dumps(found))
"""


def lines(rows: list[dict[str, str]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


class Hub(ThreadingHTTPServer):
    """Serves the revisions of one data set repository: by commit, path to bytes."""

    daemon_threads = True
    repository = "acme/tiny"

    def __init__(self, revisions: dict[str, dict[str, bytes]]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.revisions = revisions
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        url = urlsplit(self.path)
        path, repository = unquote(url.path), self.server.repository
        api, files = f"/api/datasets/{repository}/", f"/datasets/{repository}/resolve/"
        if path.startswith(files):
            revision, _, name = path.removeprefix(files).partition("/")
            self.send_file(FIRST if revision == "main" else revision, name)
        elif path.startswith(api):
            kind, revision, *folder = path.removeprefix(api).split("/")
            self.send_listing(kind, FIRST if revision == "main" else revision, "/".join(folder))
        else:
            self.send(404, b"{}", {"X-Error-Code": "RepoNotFound"})

    def send_file(self, commit: str, name: str) -> None:
        data = self.server.revisions.get(commit, {}).get(name)
        if data is None:
            known = commit in self.server.revisions
            self.send(404, b"", {"X-Error-Code": "EntryNotFound" if known else "RevisionNotFound"})
            return
        self.send(200, data, {"ETag": f'"{hashlib.sha256(data).hexdigest()}"', "X-Repo-Commit": commit})

    def send_listing(self, kind: str, commit: str, folder: str) -> None:
        held = self.server.revisions.get(commit)
        if held is None:
            self.send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
            return
        listing: Any
        if kind == "revision":
            listing = {"id": self.server.repository, "sha": commit, "tags": [], "private": False}
            listing["siblings"] = [{"rfilename": name} for name in held]
        else:
            oid = {name: hashlib.sha256(data).hexdigest()[:40] for name, data in held.items()}
            listing = [
                {"type": "file", "path": n, "size": len(held[n]), "oid": oid[n]}
                for n in held
                if n.rpartition("/")[0] == folder
            ]
            below = sorted({name.partition("/")[0] for name in held if "/" in name}) if not folder else []
            listing += [{"type": "directory", "path": name, "size": 0, "oid": "0" * 40} for name in below]
            if not listing:
                self.send(404, b"{}", {"X-Error-Code": "EntryNotFound"})
                return
        self.send(200, json.dumps(listing).encode(), {"Content-Type": "application/json"})

    def send(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    pytest.importorskip("datasets", reason="datasets isn't installed")
    script = f"open({str(tmp_path / 'canary')!r}, 'w')"
    server = Hub(
        {
            FIRST: {"README.md": b"# Tiny\n", "data/train.jsonl": lines(ROWS), "data/test.jsonl": lines(ROWS[:3])},
            SECOND: {"data/train.jsonl": lines(ROWS[:4])},
            SCRIPT: {"tiny.py": script.encode()},
        }
    )
    yield server
    server.shutdown()
    server.server_close()


def read(server: Hub, home: Path, **fields: str) -> dict[str, Any]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    environment |= {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_address[1]}", "HF_HOME": str(home / "hf")}
    spec = json.dumps({"hub": server.repository, "split": "train", **fields})
    done = subprocess.run([sys.executable, "-c", READ, spec], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_splits_and_revisions_are_read_over_the_api(hub: Hub, tmp_path: Path) -> None:
    assert read(hub, tmp_path) == {"prompts": [row["prompt"] for row in ROWS], "files": ["hub:acme/tiny/train"]}
    assert read(hub, tmp_path, split="test")["prompts"] == ["Say 0", "Say 1", "Say 2"]
    earlier = read(hub, tmp_path, revision=SECOND)
    assert (len(earlier["prompts"]), earlier["files"]) == (4, [f"hub:acme/tiny/train@{SECOND}"])


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"hub": "acme/other"}, "acme/other"),
        ({"revision": "c" * 40}, "c" * 40),
        ({"split": "dev"}, "dev"),
        ({"revision": SCRIPT}, SCRIPT),
    ],
)
def test_what_the_hub_has_not_is_refused_by_name_and_no_script_is_run(
    hub: Hub, tmp_path: Path, fields: dict[str, str], said: str
) -> None:
    error = read(hub, tmp_path, **fields)["error"]
    assert error.startswith("source 's': hub:")
    assert said in error
    assert not (tmp_path / "canary").exists()
