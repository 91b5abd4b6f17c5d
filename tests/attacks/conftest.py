"""Attacks at their counts: what is attacked, by whom, and how many cases there are.

`make test` tries a few cases of most attacks, `make test-full` all of them, in parts with seeds of their own. What each
came to is in docs/reliability.md.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import chdir, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tools.golden_runs import MASKED, MASKED_FOLDER, write_inputs, write_model

ZYGOTE = Path(__file__).with_name("zygote.py")
#: Training and influence of the tiny model, over in a moment.
TRAINED = ["rank=2", "batch_size=4", "epochs=1", "max_length=512", "device=cpu", "deterministic=true"]
INFLUENCE = [
    *("--device", "cpu", "--dimension", "64", "--shards", "2", "--warm-up-share", "0.2"),
    *("--warm-up", "epochs=1", "--warm-up", "rank=2", "--warm-up", "max_length=512"),
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`@pytest.mark.cases(few, full, each)`: few cases or none in `make test`; all in parts, each of its seed."""
    mark = metafunc.definition.get_closest_marker("cases")
    if mark is None:
        return
    few, full, each = mark.args
    parts = [pytest.param((20, few), id=f"few-{few}")] if few else []
    for number in range(-(-full // each)):
        count = min(each, full - number * each)
        parts.append(pytest.param((1000 + number, count), id=f"part-{number}-{count}", marks=pytest.mark.full))
    metafunc.parametrize("part", parts)


def chance_of(part: Any, name: str = "") -> random.Random:
    return random.Random(f"{name}{part[0]}" if name else part[0])  # noqa: S311 - cases, no secrets


class Zygote:
    """A process that has imported everything and gives commands in forks of itself."""

    def __init__(self, folder: Path, env: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.number = 0
        usual = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
        with (folder / "zygote.log").open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(ZYGOTE)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=os.environ | usual | {"XDG_CACHE_HOME": str(folder / "cache")} | (env or {}),
                text=True,
            )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n", (folder / "zygote.log").read_text()

    def give(self, *commands: Any, **more: Any) -> Any:
        """Run one command, or several at once; of each its exit code, what it printed, and its steps."""
        requests = []
        for argv in commands:
            self.number += 1
            names = {name: str(self.folder / f"{name}-{self.number}") for name in ("out", "count", "modules")}
            requests.append({"argv": [str(one) for one in argv], "cwd": str(self.folder), **names, **more})
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(requests) + "\n")
        self.process.stdin.flush()
        replies = json.loads(self.process.stdout.readline())
        for request in requests:
            Path(request["out"]).unlink()
        return replies[0] if len(replies) == 1 else replies

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            with suppress(OSError):
                stream.close()  # type: ignore[union-attr]


@pytest.fixture(scope="session")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """In its folder lie the inputs of the golden runs, a tiny model, and finished runs to go on from."""
    folder = tmp_path_factory.mktemp("attacks")
    with chdir(folder):
        write_inputs()
        write_model("tiny")
    one = Zygote(folder)
    for argv in (
        ["run", "recipe.yaml", "--output-dir", "fake"],
        ["run", "model.yaml", "--output-dir", "scored"],
        ["score", "model.yaml", "--shard", "1/1", "--output", "part.parquet"],
        ["study", "freeze", "protocol.yaml", "--output-dir", "frozen"],
    ):
        done = one.give(argv)
        assert done["code"] == 0, done["text"]
    yield one
    one.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A command that writes.

    Attributes:
        argv: the command; `{}` stands for the directory that it writes.
        again: what is added to go on with it.
        starts_from: a finished directory that it adds to, or none.
        verifies: whether that directory has to verify at every moment.
    """

    argv: tuple[str, ...]
    again: tuple[str, ...] = ()
    starts_from: str | None = None
    verifies: bool = False

    def command(self, directory: Path) -> list[str]:
        return [one.format(directory) for one in self.argv]

    def start(self, zygote: Zygote, directory: Path) -> Path:
        """The directory as it is before the command."""
        if self.starts_from is not None:
            shutil.copytree(zygote.folder / self.starts_from, directory)
        return directory


WORKS = {
    "run": Work(argv=("run", "recipe.yaml", "--output-dir", "{}"), again=("--resume",)),
    "run-model": Work(argv=("run", "model.yaml", "output.format=parquet", "--output-dir", "{}"), again=("--resume",)),
    "select": Work(argv=("select", "recipe.yaml", "--allocation", "fake/allocation.json", "--output-dir", "{}")),
    "score": Work(argv=("score", "model.yaml", "--output", "{}/scores.parquet")),
    "train": Work(argv=("train", "{}", *TRAINED), again=("--resume",), starts_from="scored", verifies=True),
    "evaluate": Work(
        argv=("evaluate", "{}", "--tasks", "piqa=piqa.test.jsonl", "--data-dir", "data", "--device", "cpu"),
        again=("--resume",),
        starts_from="scored",
        verifies=True,
    ),
    "influence": Work(argv=("influence", "model.yaml", "--output-dir", "{}", *INFLUENCE)),
    "study": Work(argv=("study", "run", "protocol.yaml", "--output-dir", "{}"), starts_from="frozen"),
}
#: Commands that are over at once, so that only others at the same moment disturb them.
MOMENTS = {
    "export": Work(argv=("score", "model.yaml", "--export", "{}/texts.jsonl")),
    "merge": Work(argv=("score", "merge", "part.parquet", "--output", "{}/scores.parquet")),
}


def contents(directory: Path) -> dict[str, bytes]:
    """A directory's files, but for locks, times and digests over times."""
    found = {}
    for path in sorted(directory.rglob("*")):
        if path.is_file() and not path.name.endswith(".lock"):
            name = MASKED_FOLDER.sub(r"\1", path.relative_to(directory).as_posix())
            mask = MASKED.get(path.name)
            data = path.read_bytes()
            found[name] = data if mask is None else re.sub(mask.encode(), b"", data, flags=re.DOTALL)
    return found


@pytest.fixture(scope="session")
def whole(zygote: Zygote) -> Any:
    """By work, what it leaves undisturbed, its steps, their trace and its seconds; made when first asked for."""
    known: dict[str, Any] = {}

    def of(name: str) -> Any:
        if name not in known:
            work = {**WORKS, **MOMENTS}[name]
            directory = work.start(zygote, zygote.folder / f"whole-{name}")
            trace = zygote.folder / f"trace-{name}.json"
            began = time.monotonic()
            done = zygote.give(work.command(directory), root=str(directory), trace=str(trace))
            assert done["code"] == 0, done["text"]
            known[name] = contents(directory), done["steps"], trace, time.monotonic() - began
        return known[name]

    return of
