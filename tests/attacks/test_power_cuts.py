"""Power cuts: what a disk may hold after one, from a command's trace, and commands that go on from there.

Of what wasn't flushed anything may be missing: a file's end or all of it, zeros in its place, and any of a directory's
new, renamed and removed names, in any order. What was flushed stays.
"""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.conftest import WORKS, chance_of
from tests.attacks.test_kills import check_goes_on

pytestmark = pytest.mark.slow


def replay(trace: list[Any], start: dict[str, Any], stop: int, chance: Any) -> dict[str, Any]:
    """What is durable after the first `stop` steps: paths to bytes, or to None for directories."""
    live: dict[str, Any] = dict(start)  # path to the inode's number, or None for a directory
    durable: dict[str, Any] = dict(start)
    inodes: dict[int, Any] = {number: [data, data] for number, data in start["inodes"].items()}
    del live["inodes"], durable["inodes"]
    pending: list[Any] = []  # changes of names since their directory was flushed
    for event, paths, data in trace[:stop]:
        first = paths[0]
        match event:
            case "open" if first not in live:
                number = len(inodes)
                inodes[number] = [b"", _next_flush(trace, first, stop)]
                live[first] = number
                pending.append(("put", first, number))
            case "open":
                ...
            case "os.mkdir" if first not in live:
                live[first] = None
                pending.append(("put", first, None))
            case "os.rename":
                moved = {path: one for path, one in live.items() if path == first or path.startswith(first + "/")}
                for path, one in moved.items():
                    del live[path]
                    live[paths[1] + path.removeprefix(first)] = one
                pending.append(("move", first, paths[1], moved))
            case "os.remove" | "os.rmdir":
                live.pop(first, None)
                pending.append(("drop", first))
            case "fsync" if data is None:
                folder = "" if first == "." else first + "/"
                of_it = [one for one in pending if _in(folder, one)]
                pending = [one for one in pending if not _in(folder, one)]
                for one in of_it:
                    _apply(durable, one)
            case "fsync":
                if live.get(first) is None:  # made by a library's own code, which is heard of only now
                    live[first] = len(inodes)
                    pending.append(("put", first, live[first]))
                inodes[live[first]] = [base64.b64decode(data), _next_flush(trace, first, stop)]
    for one in pending:
        if chance.random() < 0.5:
            _apply(durable, one)
    found = {}
    for path, one in durable.items():
        parents = [path[:at] for at in range(len(path)) if path[at] == "/"]
        if all(durable.get(parent, 0) is None for parent in parents):
            found[path] = None if one is None else _torn(inodes[one], chance)
    return found


def _in(folder: str, change: Any) -> bool:
    """Whether a change is one of names right below a folder."""
    paths = change[1 : 3 if change[0] == "move" else 2]
    return any(path.startswith(folder) and "/" not in path[len(folder) :] for path in paths)


def _apply(durable: dict[str, Any], change: Any) -> None:
    match change:
        case ("put", path, one):
            durable.setdefault(path, one)
        case ("drop", path):
            for inner in [one for one in durable if one == path or one.startswith(path + "/")]:
                del durable[inner]
        case ("move", first, second, moved):
            for inner in [one for one in durable if one == second or one.startswith(second + "/")]:
                del durable[inner]
            for path, one in moved.items():
                durable.pop(path, None)
                durable[second + path.removeprefix(first)] = one


def _next_flush(trace: list[Any], path: str, stop: int) -> bytes:
    """What is being written to a file that isn't flushed yet."""
    for event, paths, data in trace[stop:]:
        if event == "fsync" and paths[0] == path and data:
            return base64.b64decode(data)
    return b""


def _torn(inode: Any, chance: Any) -> Any:
    """The flushed bytes, and of those written since nothing, a part, or zeros."""
    flushed, written = inode
    if not written.startswith(flushed) or written == flushed:
        return flushed
    rest = written[len(flushed) :]
    cut = rest[: chance.randrange(len(rest) + 1)]
    return flushed + chance.choice([b"", cut, bytes(len(cut)), cut[: len(cut) // 2] + bytes(len(cut) - len(cut) // 2)])


def lay_out(state: dict[str, Any], directory: Path) -> None:
    directory.mkdir(parents=True)
    for path, data in sorted(state.items()):
        target = directory / path
        if data is None:
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.write_bytes(data)


def starting(directory: Path) -> dict[str, Any]:
    """What lies in a directory before a command, all of it flushed."""
    state: dict[str, Any] = {"inodes": {}}
    for path in sorted(directory.rglob("*")) if directory.exists() else ():
        name = path.relative_to(directory).as_posix()
        state[name] = None if path.is_dir() else len(state["inodes"])
        if path.is_file():
            state["inodes"][state[name]] = path.read_bytes()
    return state


@pytest.mark.parametrize("name", WORKS)
@pytest.mark.cases(1, 125, 5)
def test_what_a_power_cut_leaves_is_gone_on_from(zygote: Any, whole: Any, tmp_path: Path, name: str, part: Any) -> None:
    chance = chance_of(part)
    trace = json.loads(whole(name)[2].read_text())
    start = starting(WORKS[name].start(zygote, tmp_path / "start"))
    for case in range(part[1]):
        stop = chance.randrange(len(trace) + 1)
        directory = tmp_path / str(case)
        lay_out(replay(trace, start, stop, chance), directory)
        check_goes_on(zygote, name, directory, whole, (stop, case))
        shutil.rmtree(directory)
