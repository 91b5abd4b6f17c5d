"""Gives commands in forks of one process that has imported everything, and harms them at a step that the caller names.

A step is whatever changes the file system below a root: a file opened for writing, a flush to the disk, a rename, a
removal, a directory made or removed. Requests and replies are lines of JSON; see `Zygote` in conftest.py.
"""

from __future__ import annotations

import base64
import errno
import importlib
import json
import os
import random
import select
import signal
import sys
import time
import traceback
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

#: Python's own names for the steps, and how many leading arguments are paths.
EVENTS = {"open": 1, "os.rename": 2, "os.remove": 1, "os.mkdir": 1, "os.rmdir": 1, "os.truncate": 1, "os.symlink": 2}
#: What the commands import; `calibudget.lm` comes before any product of torch's.
PARTS = (
    *("calibudget.lm", "torch", "transformers", "peft", "calibudget.cli.main", "calibudget.study.run"),
    *("calibudget.pipeline.evaluate", "calibudget.pipeline.influence", "calibudget.pipeline.train"),
    *("calibudget.scoring.local", "calibudget.training.loop", "calibudget.influence.scorer"),
)
#: What a full disk still does.
FREES = frozenset({"os.rename", "os.remove", "os.rmdir"})


def opened(descriptor: int) -> str:
    return str(Path(f"/proc/self/fd/{descriptor}").readlink())


class Watch:
    """Counts a command's steps below a root, keeps their trace, and harms it at one of them."""

    def __init__(self, root: str, step: int | None, harm: str, trace: str | None) -> None:
        self.root, self.step, self.harm, self.trace = os.path.realpath(root) + os.sep, step, harm, trace
        self.count, self.paused, self.yields = 0, False, 0
        self.seen: list[Any] = []
        self.chance = random.Random()  # noqa: S311 - cases, no secrets
        self.fsync = os.fsync
        os.fsync = self.flush  # type: ignore[assignment]
        sys.addaudithook(self.hear)

    def hear(self, event: str, arguments: Any) -> None:
        if event not in EVENTS or self.paused:
            return
        if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)):
            return
        folder = arguments[-1] if event in ("os.remove", "os.rmdir", "os.mkdir") else -1
        self.take(event, [self.absolute(path, folder) for path in arguments[: EVENTS[event]]])

    def absolute(self, path: Any, folder: Any) -> str:
        if isinstance(path, int):
            return opened(path)
        base = opened(folder) if isinstance(folder, int) and folder >= 0 else str(Path.cwd())
        return os.path.normpath(Path(base) / os.fsdecode(path))

    def flush(self, descriptor: Any) -> None:
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        self.take("fsync", [opened(number)])
        self.fsync(number)

    def take(self, event: str, paths: list[str]) -> None:
        if not any((path + os.sep).startswith(self.root) for path in paths):
            return
        if self.trace is not None:
            data = None
            if event == "fsync" and Path(paths[0]).is_file():
                self.paused = True
                data = base64.b64encode(Path(paths[0]).read_bytes()).decode()
                self.paused = False
            self.seen.append([event, [os.path.relpath(path, self.root) for path in paths], data])
        number, self.count = self.count, self.count + 1
        for _ in range(int(self.chance.random() * self.yields)):
            os.sched_yield()  # so that every interleaving comes up
        if self.step is None or number < self.step:
            return
        if self.harm == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if (self.harm == "EIO" and number > self.step) or (self.harm == "ENOSPC" and event in FREES):
            return
        code = getattr(errno, self.harm)
        raise OSError(code, os.strerror(code), paths[0])


def work(request: dict[str, Any], out: int) -> int:
    """What a fork does: the command, its output in a file."""
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.chdir(request["cwd"])
    os.environ |= request.get("env", {})
    if "TZ" in request.get("env", {}):
        time.tzset()
    watch = None
    if request.get("root"):
        watch = Watch(request["root"], request.get("step"), request.get("harm", "kill"), request.get("trace"))
        watch.yields = request.get("yields", 0)
        watch.chance.seed(request.get("seed", 0) + os.getpid())
    if request.get("file_bytes"):
        import resource

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_bytes"],) * 2)
    sys.argv = ["calibudget", *request["argv"]]
    try:
        from calibudget.cli.entry import entry

        entry()
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = 70
    sys.stdout.flush()
    sys.stderr.flush()
    if watch is not None:
        watch.paused, watch.step = True, None
        if watch.trace is not None:
            Path(watch.trace).write_text(json.dumps(watch.seen))
        Path(request["count"]).write_text(str(watch.count))
    Path(request["modules"]).write_text("\n".join(sorted(sys.modules)))
    return code


def give(requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Start all commands at once, and wait for them."""
    started = []
    ready, go = os.pipe()
    for request in requests:
        out = os.open(request["out"], os.O_CREAT | os.O_TRUNC | os.O_RDWR)
        child = os.fork()
        if child == 0:
            os.close(go)
            os.read(ready, 1)  # until the last one is there
            code = 70
            try:
                code = work(request, out)
            finally:
                os._exit(code)
        os.close(out)
        started.append((child, request))
    os.close(ready)
    os.close(go)
    return [reply(child, request) for child, request in started]


def reply(child: int, request: dict[str, Any]) -> dict[str, Any]:
    ended = os.pidfd_open(child)
    if not select.select([ended], [], [], request.get("kill_after"))[0]:
        os.kill(child, signal.SIGKILL)
    os.close(ended)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    count = Path(request["count"])
    steps = int(count.read_text()) if count.exists() else None
    count.unlink(missing_ok=True)
    modules = Path(request["modules"])
    for name in modules.read_text().split() if modules.exists() else ():
        with suppress(Exception):  # whatever a fork had to import, the next ones have
            importlib.import_module(name)
    modules.unlink(missing_ok=True)
    return {"code": code, "text": Path(request["out"]).read_text(errors="replace"), "steps": steps}


def main() -> None:
    warnings.simplefilter("ignore")
    for name in PARTS:
        importlib.import_module(name)
    import torch

    torch.set_num_threads(1)
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(give(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
