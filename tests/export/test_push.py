"""`--push` against a local stand-in of the hub's API; what arrives is read back over the same API."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from calibudget.store.train_set import read_train
from tests.sources.test_hub_api import FIRST, Handler, Hub, read

pytestmark = pytest.mark.slow


class Repository(Hub):
    """A hub on which one repository can be made and committed to."""

    def __init__(self) -> None:
        super().__init__({FIRST: {".gitattributes": b""}})
        self.RequestHandlerClass = Writing
        self.made: list[dict[str, Any]] = []
        self.large: dict[str, bytes] = {}


class Writing(Handler):
    server: Repository

    def answer(self) -> None:
        if self.path == f"/api/datasets/{self.server.repository}":
            self.send(404, b"{}", {"X-Error-Code": "RepoNotFound"}) if not self.server.made else self.told(
                {"id": self.server.repository, "sha": FIRST, "private": True, "tags": []}
            )
            return
        super().answer()

    def told(self, found: object) -> None:
        self.send(200, json.dumps(found).encode(), {"Content-Type": "application/json"})

    def take(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        host = f"http://127.0.0.1:{self.server.server_address[1]}"
        kind = self.path.rpartition("main")[0].rstrip("/").rpartition("/")[2] or self.path.rpartition("/")[2]
        if self.path.startswith("/large/"):
            self.server.large[self.path.removeprefix("/large/")] = body
            self.told({})
            return
        assert self.headers["Authorization"] == "Bearer hf_of_a_test"
        fields = json.loads(body) if kind != "commit" else {}
        match kind:
            case "create" if not self.server.repository.endswith("/" + fields["name"]):
                self.send(403, json.dumps({"error": "not yours"}).encode(), {"Content-Type": "application/json"})
            case "create":
                self.server.made.append(fields)
                self.told({"url": f"{host}/datasets/{self.server.repository}"})
            case "validate-yaml":
                self.told({"errors": [], "warnings": []})
            case "preupload":
                modes = ["lfs" if file["path"].endswith(".parquet") else "regular" for file in fields["files"]]
                files = zip(fields["files"], modes, strict=True)
                self.told({"files": [{"path": f["path"], "uploadMode": m, "shouldIgnore": False} for f, m in files]})
            case "batch":
                upload = [
                    {**one, "actions": {"upload": {"href": f"{host}/large/{one['oid']}"}}} for one in fields["objects"]
                ]
                self.told({"transfer": "basic", "objects": upload})
            case "commit":
                self.commit(body)
                self.told(
                    {
                        "commitOid": FIRST,
                        "commitUrl": f"{host}/datasets/{self.server.repository}/commit/{FIRST}",
                        "hookOutput": "",
                    }
                )

    do_POST = do_PUT = take  # noqa: N815 - the library's names

    def commit(self, body: bytes) -> None:
        held = self.server.revisions[FIRST]
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                held[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                data = self.server.large[value["oid"]]
                assert hashlib.sha256(data).hexdigest() == value["oid"]
                held[value["path"]] = data


@pytest.fixture
def hub() -> Iterator[Repository]:
    pytest.importorskip("datasets", reason="datasets isn't installed")
    server = Repository()
    yield server
    server.shutdown()
    server.server_close()


def push(hub: Repository, run_dir: Path, home: Path, repository: str) -> Any:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    environment |= {
        "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_address[1]}",
        "HF_HOME": str(home / "home"),
        "HF_TOKEN": "hf_of_a_test",
        "HF_HUB_DISABLE_XET": "1",  # whose protocol this stand-in doesn't speak
    }
    command = ["export", str(run_dir), "--for", "huggingface", "--output-dir", str(home / "out")]
    return subprocess.run(
        [sys.executable, "-m", "calibudget", *command, "--push", repository],
        env=environment,
        capture_output=True,
        text=True,
    )


def test_what_is_pushed_is_private_and_reads_back_as_the_train_set(
    hub: Repository, two_fruits: Path, tmp_path: Path
) -> None:
    done = push(hub, two_fruits, tmp_path, hub.repository)
    assert done.returncode == 0, done.stderr
    (made,) = hub.made
    assert made["type"] == "dataset"
    assert made.get("private") or made.get("visibility") == "private"
    assert hub.revisions[FIRST]["README.md"] == (tmp_path / "out" / "README.md").read_bytes()
    rows = read_train(two_fruits / "train.jsonl")
    assert read(hub, tmp_path)["prompts"] == [str(row["prompt"]).strip() for row in rows]


def test_a_push_that_the_hub_refuses_is_told_with_what_is_there(
    hub: Repository, two_fruits: Path, tmp_path: Path
) -> None:
    refused = push(hub, two_fruits, tmp_path, "acme/other")
    assert refused.returncode == 2, refused.stderr
    last = refused.stderr.splitlines()[-1]
    assert "--push acme/other: " in last
    assert last.endswith(
        f"; {tmp_path / 'out'} is whole, "
        f"`hf upload acme/other {tmp_path / 'out'} --repo-type dataset --private` tries again"
    )
    assert (tmp_path / "out" / "export.json").exists()
