# ruff: noqa: E501, S105, S108
"""Every hostile program is held, and every defence is what holds it: without it, the program gets through."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import importlib.util
import os
import platform
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import DependencyError
from calibudget.evaluation import sandbox as module
from calibudget.evaluation.sandbox import CodeCase, Sandbox, bind, open_sandbox
from calibudget.evaluation.syscalls import seccomp_filter

_SPEC = importlib.util.spec_from_file_location("hostile", Path(__file__).with_name("hostile.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
hostile = importlib.util.module_from_spec(_SPEC)
sys.modules["hostile"] = hostile
_SPEC.loader.exec_module(hostile)

RIGHT = CodeCase(program="def add(a, b):\n    return a + b", tests="assert add(2, 3) == 5", names=("add",))
IPC_KEY = 0x43414C49
#: Seconds for what has to end by itself, however busy the machine is.
WHILE = 600.0


@pytest.fixture
def common() -> Iterator[Path]:
    """A folder that everybody may write; pytest's own is closed to others, again with every session that starts."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o777)
        yield Path(name)


@pytest.fixture(scope="module")
def values() -> Iterator[dict[str, object]]:
    """What hostile programs go for: the machine's listeners, message queue and secret file."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    folder.chmod(0o755)
    secret = folder / "secret"
    secret.write_text("secret")
    secret.chmod(0o644)
    libc = ctypes.CDLL(None)
    key = IPC_KEY + os.getpid() % 10_000  # test runs side by side must not remove each other's queue
    queue = libc.msgget(key, 0o1666)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        name = f"calibudget-{os.getpid()}"
        abstract.bind("\0" + name)
        abstract.listen()
        os.environ["CALIBUDGET_SECRET"] = "1"
        yield {
            "secret_parent": folder, "secret": secret, "port": listener.getsockname()[1], "abstract": name,
            "pid": os.getpid(), "host": os.uname().nodename, "uid": os.getuid(), "key": key,
            "clone": {"x86_64": 56, "aarch64": 220}[platform.machine()],
            "add_key": {"x86_64": 248, "aarch64": 217}[platform.machine()],
        }  # fmt: skip
        del os.environ["CALIBUDGET_SECRET"]
    libc.msgctl(queue, 0, None)
    shutil.rmtree(folder)


def limited(sandbox: Sandbox, kind: type[Sandbox] = Sandbox, **limits: float) -> Sandbox:
    return kind(sandbox.interpreter, version=sandbox.version, limits=dataclasses.replace(sandbox.limits, **limits))  # type: ignore[arg-type]


#: Those that `make test` runs, of every kind some; `make test-full` runs all.
DOZEN = {
    "exits with status 0 when called", "a number equal to everything", "patches all", "answers before it is asked",
    "sleeps", "computes without end", "takes 1 GB", "forks without end", "prints 4 MB", "reads the home",
    "rewrites the judge", "leaves its root through /proc", "opens an internet socket", "signals its parent", "mounts",
}  # fmt: skip


def some(values: list, chosen: Any) -> list:  # type: ignore[type-arg]
    """All values as parameters, those that aren't chosen for `make test-full` alone."""
    return [pytest.param(*one, marks=() if chosen(*one) else pytest.mark.full) for one in values]


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    some([(one,) for one in hostile.HOSTILE], lambda one: one.name in DOZEN),
    ids=lambda program: program.name,
)
def test_hostile_program_is_held(sandbox: Sandbox, values: dict[str, object], program: Any) -> None:
    result = limited(sandbox, **program.limits).run(program.case(**values))
    assert result.verdict in program.ends, result


@pytest.mark.slow
def test_a_right_program_passes(sandbox: Sandbox) -> None:
    assert sandbox.run(RIGHT).passed


# Each defence taken away, and the programs that then get through.


def weaker(name: str, **methods: Callable[[Sandbox], object]) -> type[Sandbox]:
    """The sandbox with something else in the place of what a method of it says."""
    return type(name, (Sandbox,), methods)


def but_for(parts: list[str], first: str, count: int = 1, instead: Sequence[str] = ()) -> list[str]:
    at = parts.index(first)
    return [*parts[:at], *instead, *parts[at + count :]]


def unshared(*names: str) -> Callable[[Sandbox], object]:
    return lambda _: [*(f"--unshare-{name}" for name in names), "--disable-userns"]


def whole_root(_: Sandbox) -> list[str]:
    names = ("bin", "etc", "lib", "lib64", "usr", "var")
    folders = sorted(str(path) for path in Path("/").iterdir() if path.name in names)
    return [*(part for path in folders for part in bind(path)), "--dev", "/dev", "--tmpfs", "/tmp"]


def unlimited_root(self: Sandbox) -> list[str]:
    parts = Sandbox.root(self)
    return but_for(parts, parts[parts.index("--size") + 1], instead=[str(2**30)])


def as_caller(self: Sandbox) -> list[str]:
    who = ["--uid", str(os.getuid()), "--gid", str(os.getgid())]
    return but_for(Sandbox.identity(self), "--uid", 4, who)


class SharedTmp(Sandbox):
    folder = ""

    def root(self) -> list[str]:
        return but_for(super().root(), "--size", 4, ["--bind", self.folder, "/tmp"])


def no_filter(_: Sandbox) -> bytes:
    return b""


NoProcessNamespace = weaker("NoProcessNamespace", namespaces=unshared("user", "ipc", "net", "uts", "cgroup-try"))
NoHostName = weaker(
    "NoHostName",
    namespaces=unshared("user", "ipc", "net", "pid", "cgroup-try"),
    identity=lambda self: but_for(Sandbox.identity(self), "--hostname", 2),
)
NoIpcNamespace = weaker(
    "NoIpcNamespace", namespaces=unshared("user", "uts", "net", "pid", "cgroup-try"), system_calls=no_filter
)
NoNetworkNamespace = weaker(
    "NoNetworkNamespace",
    namespaces=lambda self: [*Sandbox.namespaces(self), "--share-net"],
    system_calls=no_filter,
)
NoFilter = weaker("NoFilter", system_calls=no_filter)
MoreUserNamespaces = weaker("MoreUserNamespaces", namespaces=lambda _: ["--unshare-all", "--unshare-user"])
WholeRoot = weaker("WholeRoot", root=whole_root)
#: The root writable, the interpreter's files too.
OpenFiles = weaker(
    "OpenFiles", root=lambda self: [part.replace("--ro-bind", "--bind") for part in Sandbox.root(self)][:-2]
)
NoSession = weaker("NoSession", identity=lambda self: but_for(Sandbox.identity(self), "--new-session"))
NoLimits = weaker("NoLimits", process_limits=lambda _: {}, root=unlimited_root)
Capable = weaker(
    "Capable", identity=lambda self: but_for(Sandbox.identity(self), "--cap-drop", 2, ["--cap-add", "ALL"])
)
KeptEnvironment = weaker("KeptEnvironment", identity=lambda self: but_for(Sandbox.identity(self), "--clearenv"))
Proc = weaker("Proc", root=lambda self: ["--proc", "/proc", *Sandbox.root(self)])
Caller = weaker("Caller", identity=as_caller)


WEAKER = [
    (NoProcessNamespace, ["sees the caller", "signals its parent"]),
    (NoHostName, ["knows the machine's name"]),
    (NoIpcNamespace, ["reads the machine's shared memory"]),
    (NoNetworkNamespace, ["connects to the machine", "connects to an abstract socket of the machine"]),
    (NoFilter, ["opens an internet socket", "listens", "opens a netlink socket", "makes a file in memory", "makes shared memory", "changes its personality"]),
    (MoreUserNamespaces, ["makes a user namespace"]),
    (WholeRoot, ["reads the home", "reads the list of users", "lists the home's parent", "starts a shell", "reads through a climbing link"]),
    (OpenFiles, ["writes to the root", "writes where the judge lies"]),
    (NoSession, ["keeps the caller's session"]),
    (NoLimits, ["takes 1 GB", "forks 100 children", "starts 100 threads", "writes 32 MB in many files", "opens 1,000 files", "computes without end", "raises its limits"]),
    (Capable, ["has a capability in reach"]),
    (KeptEnvironment, ["reads a secret of the environment"]),
    (Proc, ["reads its own memory as a file", "reads the environment of process 1", "leaves its root through /proc"]),
    (Caller, ["is the caller"]),
]  # fmt: skip
#: One program a defence for `make test`.
FIRST = {names[0] for _, names in WEAKER}
_BY_NAME = {program.name: program for program in hostile.HOSTILE}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name"),
    some([(kind, name) for kind, names in WEAKER for name in names], lambda _, name: name in FIRST),
    ids=lambda value: getattr(value, "__name__", value),
)
def test_without_its_defence_it_gets_through(
    sandbox: Sandbox, values: Any, monkeypatch: pytest.MonkeyPatch, kind: Any, name: Any
) -> None:
    if kind is Caller and os.geteuid() == 0:
        monkeypatch.setattr(module, "_as_nobody", dict)
        if not os.access(sandbox.interpreter.executable, os.X_OK):
            pytest.skip("the interpreter is out of reach")
    program = _BY_NAME[name]
    assert limited(sandbox, kind, wall_seconds=WHILE).run(program.case(**values)).verdict == "passed"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "limits"),
    [
        ("sleeps", {"wall_seconds": WHILE}),
        ("prints 4 MB", {"output_bytes": 2**23}),
    ],
)
def test_without_the_callers_limit_it_gets_through(sandbox: Sandbox, name: str, limits: dict[str, float]) -> None:
    assert limited(sandbox, **limits).run(_BY_NAME[name].case()).verdict == "passed"  # type: ignore[arg-type]


def test_the_environment_is_what_the_documentation_says(sandbox: Sandbox) -> None:
    program = "import os\ndef f(): return sorted(dict(os.environ).items())"
    known = [("PWD", "/tmp"), ("PYTHONHASHSEED", "0")]
    tests = f"assert [tuple(one) for one in f()] == {known}"
    assert sandbox.run(CodeCase(program=program, tests=tests, names=("f",))).passed


@pytest.mark.slow
def test_private_tmp(sandbox: Sandbox, common: Path) -> None:
    leave = CodeCase(program="open('/tmp/left', 'w').close()\ndef f(): return 1", tests="assert f() == 1", names=("f",))
    look = _BY_NAME["finds what the last program left"].case()
    assert sandbox.run(leave).passed
    assert not sandbox.run(look).passed
    shared = limited(sandbox, SharedTmp)
    shared.folder = str(common)  # type: ignore[attr-defined]
    assert shared.run(leave).passed
    assert shared.run(look).passed


@pytest.mark.slow
def test_read_only_binds(sandbox: Sandbox, common: Path) -> None:
    """A folder that everybody may write is bound as the interpreter's are; only the bind keeps a program out of it."""

    class WithFolder(Sandbox):
        def root(self) -> list[str]:
            return [*super().root(), *binds]

    write = hostile.attack("writes", "read-only binds", f"open('{common}/left', 'w')").case()
    binds = bind(str(common))
    assert not limited(sandbox, WithFolder).run(write).passed
    binds = [part.replace("--ro-bind", "--bind") for part in binds]
    assert limited(sandbox, WithFolder).run(write).passed
    assert (common / "left").exists()


@pytest.mark.slow
def test_input_reaches_a_program_that_is_given_some(sandbox: Sandbox) -> None:
    class FedInput(Sandbox):
        def _process(self, role: str, channel: int, *, stdin: Any) -> Any:
            return super()._process(role, channel, stdin=fed if role == "program" else stdin)

    with tempfile.TemporaryFile() as fed:
        fed.write(b"words")
        fed.seek(0)
        assert limited(sandbox, FedInput).run(_BY_NAME["waits for input"].case()).passed


#: The usual way: program and tests in one process, status 0 is a pass. Here it is itself a sandboxed program.
USUAL = """
import os, sys
def usual():
    child = os.fork()
    if child == 0:
        try:
            exec(compile(%r, "usual.py", "exec"), {"__name__": "usual"})
        except BaseException as error:
            sys.excepthook(type(error), error, None)
            os._exit(getattr(error, "code", 1) or 0 if isinstance(error, SystemExit) else 1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
FOOLS_THE_USUAL_WAY = [
    "leaves with status 0 at once", "exits with status 0 at once", "leaves with status 0 when called",
    "exits with status 0 when called", "an exception hook that leaves with status 0", "a thread that leaves with status 0",
    "an alarm that leaves with status 0", "a child that goes on alone", "becomes another program",
    "is equal to everything", "a number equal to everything", "a text equal to everything", "is less than everything",
    "patches all", "puts its own module in the place of math", "rewrites what it is compared with, a frame up",
    "reads the answer from the code that calls it", "replaces the helper that judges it",
    "prints the verdict",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", some([(name,) for name in FOOLS_THE_USUAL_WAY], lambda name: name in DOZEN))
def test_a_fake_passes_where_tests_and_program_share_a_process(sandbox: Sandbox, name: str) -> None:
    case = _BY_NAME[name].case()
    text = "\n".join([case.prelude, case.program, case.tests])
    usual = CodeCase(program=USUAL % text, tests="assert usual()", names=("usual",))
    assert sandbox.run(usual).passed


# What is left when a program has ended.

DAEMON = """
import os, signal
def linger():
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        for descriptor in (0, 1, 2):
            os.close(descriptor)
        while True:
            signal.pause()
    os.wait()
    return 1
"""


#: A limit like no other test's, nor another test process's, by which the processes of the next tests are known.
MARK = 57 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


def sleepers() -> list[int]:
    """This machine's processes that run a program under the marked limit."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if f"'NOFILE': {MARK}".encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def wait_for_the_end(processes: Iterable[int]) -> None:
    """Until all of them have ended; one that never does is the test's failure, by its own time limit."""
    for one in processes:
        with contextlib.suppress(ProcessLookupError):
            descriptor = os.pidfd_open(one)
            select.select([descriptor], [], [])
            os.close(descriptor)


def end_sleepers() -> None:
    found = sleepers()
    for one in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)
    wait_for_the_end(found)


@pytest.mark.slow
def test_nothing_is_left_of_a_program_but_without_a_process_namespace(sandbox: Sandbox) -> None:
    """What the defence has ended by then, it would have ended in the weaker sandbox too."""
    daemon = CodeCase(program=DAEMON, tests="assert linger() == 1", names=("linger",))
    assert limited(sandbox, NoProcessNamespace, open_files=MARK).run(daemon).passed
    alive = sleepers()
    assert alive
    assert limited(sandbox, open_files=MARK).run(daemon).passed
    wait_for_the_end(set(sleepers()) - set(alive))
    assert set(sleepers()) & set(alive)
    end_sleepers()


_CALLER = f"""
import sys
from calibudget.evaluation import sandbox as module
dropped = [] if sys.argv[1] == "bound" else ["--die-with-parent"]
whole = module.Sandbox.identity
module.Sandbox.identity = lambda self: [part for part in whole(self) if part not in dropped]
sandbox = module.open_sandbox(module.Limits(open_files={MARK}, wall_seconds={WHILE}))
read = module.os.read

def told(descriptor, size):  # what a program says is passed on, so that it is known to run
    chunk = read(descriptor, size)
    if b"asleep" in chunk:
        print("asleep", flush=True)
    return chunk

module.os.read = told
sandbox.run(module.CodeCase(program=sys.argv[2], tests="", names=("x",)))
"""


#: Sleeps under a name by which it is seen from outside.
_ASLEEP = "import ctypes, signal\nctypes.CDLL(None).prctl(15, b'asleep')\nprint('asleep', flush=True)\nsignal.pause()"


def asleep() -> list[int]:
    found = []
    for one in sleepers():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{one}/comm").read_text() == "asleep\n":
                found.append(one)
    return found


def kill_a_caller(kind: str) -> None:
    """Let a process run a program in the sandbox, and kill that process while the program sleeps."""
    caller = subprocess.Popen([sys.executable, "-c", _CALLER, kind, _ASLEEP], stdout=subprocess.PIPE)
    assert caller.stdout is not None
    with caller:
        assert caller.stdout.readline() == b"asleep\n"
        caller.send_signal(signal.SIGKILL)
        caller.wait()


@pytest.mark.slow
def test_a_program_dies_with_its_caller_but_where_it_is_not_bound(sandbox: Sandbox) -> None:
    kill_a_caller("unbound")
    alive = asleep()
    kill_a_caller("bound")
    wait_for_the_end(set(asleep()) - set(alive))
    assert alive
    assert asleep() == alive
    end_sleepers()


# Refusals: without the sandbox nothing is run.


def test_missing_bubblewrap_is_refused_with_the_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(DependencyError, match="apt-get install bubblewrap"):
        open_sandbox()


def test_a_bubblewrap_that_may_not_confine_is_refused(monkeypatch: pytest.MonkeyPatch, common: Path) -> None:
    script = common / "bwrap"
    script.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo bubblewrap 0.8.0 && exit\necho no namespaces here >&2; exit 1\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{common}:/usr/bin:/bin")
    with pytest.raises(DependencyError, match="no namespaces here"):
        open_sandbox()


def test_an_unknown_processor_is_refused() -> None:
    with pytest.raises(DependencyError, match="x86_64, aarch64, not riscv64"):
        seccomp_filter("riscv64")
