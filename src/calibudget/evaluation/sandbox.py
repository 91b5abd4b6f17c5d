"""Generated code runs here and nowhere else: two bubblewrap sandboxes, one for the tests, one for the program.

Each has namespaces of its own (user, process, network, ipc, host name, mounts), no capability, a read-only root
that holds an interpreter and its libraries and nothing else (no home, no /proc, no shell), a small private
/tmp, no environment, limits on memory, processor time, processes and files, and a filter of system calls. The
caller holds the clock and counts the output. Where that can't be had, the code is not run.

Not covered: faults of the kernel itself, and timing. A program that computes right answers passes, however else
it behaves.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import IO, Any, Final, Literal

from calibudget.errors import DependencyError
from calibudget.evaluation.syscalls import seccomp_filter

_SYSTEM_PYTHONS: Final = ("/usr/bin/python3", "/usr/local/bin/python3")


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """A Python that can be put into the sandbox, and the files that it needs there."""

    executable: str
    version: str
    paths: tuple[str, ...]


def candidates() -> list[str]:
    """Interpreters to try, this one first; one below a home that only its owner may enter can't be shown to nobody."""
    return list(dict.fromkeys([os.path.realpath(sys.executable), *_SYSTEM_PYTHONS]))


def describe_interpreter(executable: str) -> Interpreter:
    """What of an interpreter has to lie in the sandbox: itself, the standard library, the shared libraries."""
    code = (
        "import json, sys, sysconfig as s; v = s.get_config_var; print(json.dumps([sys.version.split()[0], "
        "sys._base_executable or sys.executable, s.get_path('stdlib'), s.get_path('platstdlib'), v('LIBDIR'), "
        "v('INSTSONAME') if v('Py_ENABLE_SHARED') else None, v('MULTIARCH')]))"
    )
    answer = subprocess.run([executable, "-I", "-S", "-c", code], capture_output=True, timeout=60, check=True)  # noqa: S603
    version, real, stdlib, platstdlib, libdir, shared, multiarch = json.loads(answer.stdout)
    real = os.path.realpath(real)
    libraries = f"/usr/lib/{multiarch}" if multiarch and Path(f"/usr/lib/{multiarch}").is_dir() else "/usr/lib"
    paths = [real, stdlib, platstdlib, libraries, "/lib", "/lib64", "/usr/lib64"]
    if shared:
        paths.append(f"{libdir}/{shared}")
    return Interpreter(executable=real, version=version, paths=tuple(dict.fromkeys(paths)))


def bind(path: str) -> list[str]:
    """Arguments that show one path of the machine, or nothing where the machine lacks it."""
    if Path(path).is_symlink():
        return ["--symlink", str(Path(path).readlink()), path]
    return ["--ro-bind", path, path] if Path(path).exists() else []


INSTALL_LINE: Final = "apt-get install bubblewrap"
#: Who the code is inside, and outside too where the caller is root.
_NOBODY: Final = 65534
_OLDEST: Final = (0, 8)
Verdict = Literal["passed", "failed", "error", "died", "timeout", "output"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one program may use.

    Attributes:
        wall_seconds: real time for loading and all tests; the caller kills everything then.
        cpu_seconds: processor time of each process.
        memory_bytes: address space of each process.
        processes: processes and threads of the sandbox together.
        file_bytes: largest file, and size of the private /tmp.
        open_files: open files of each process.
        output_bytes: what the program may write to its standard output and error together.
    """

    wall_seconds: float = 30.0
    cpu_seconds: int = 10
    memory_bytes: int = 512 * 1024 * 1024
    processes: int = 16
    file_bytes: int = 8 * 1024 * 1024
    open_files: int = 64
    output_bytes: int = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeCase:
    """A program and what it is held against.

    Attributes:
        program: the generated code, not trusted.
        tests: code of the data set that raises unless the program is right.
        names: global names of the program that the tests use.
        prelude: code of the data set that runs before the tests, beside them (helpers, imports).
    """

    program: str
    tests: str
    names: tuple[str, ...]
    prelude: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeVerdict:
    """How a case ended; only "passed" is a pass.

    Attributes:
        verdict: "failed" an assertion of the tests, "error" any other exception, "died" the program's process
            ended or broke the protocol, "timeout" wall or processor time, "output" too much of it.
        reason: one line for the reader.
    """

    verdict: Verdict
    reason: str = ""

    @property
    def passed(self) -> bool:
        """Whether all tests ran and held."""
        return self.verdict == "passed"


class Sandbox:
    """Runs code cases. Make it with `open_sandbox`, which first shows that this machine can confine anything."""

    def __init__(self, interpreter: Interpreter, *, version: str, limits: Limits | None = None) -> None:
        self.interpreter = interpreter
        self.version = version
        self.limits = limits or Limits()

    def describe(self) -> dict[str, object]:
        """What verdicts depend on, for the evidence."""
        return {"bubblewrap": self.version, "python": self.interpreter.version, "limits": asdict(self.limits)}

    def run(self, case: CodeCase) -> CodeVerdict:
        """Runs one case to its verdict; nothing of it is left when this returns.

        Raises:
            DependencyError: the sandbox itself could not be started.
        """
        with contextlib.ExitStack() as stack:
            ends = socket.socketpair()
            for end in ends:
                stack.enter_context(end)
            job = stack.enter_context(_memory_file(json.dumps(asdict(case)).encode("ascii")))
            judge = stack.enter_context(self._process("judge", ends[0].fileno(), stdin=job))
            program = stack.enter_context(self._process("program", ends[1].fileno(), stdin=subprocess.DEVNULL))
            for end in ends:
                end.close()
            return self._watch(judge, program)

    def namespaces(self) -> list[str]:
        """What the code shares with nobody."""
        return ["--unshare-all", "--unshare-user", "--disable-userns"]

    def identity(self) -> list[str]:
        """Who the code is: nobody, without capabilities, in a session of its own that ends with the caller."""
        nobody = str(_NOBODY)
        who = ["--uid", nobody, "--gid", nobody, "--cap-drop", "ALL", "--hostname", "sandbox", "--new-session"]
        return [*who, "--die-with-parent", "--clearenv", "--setenv", "PYTHONHASHSEED", "0"]

    def root(self) -> list[str]:
        """What the code sees: the interpreter, two devices, and a small /tmp that alone can be written."""
        binds = [part for path in self.interpreter.paths for part in bind(path)]
        devices = [part for name in ("/dev/null", "/dev/urandom") for part in ("--dev-bind", name, name)]
        size = str(self.limits.file_bytes)
        return [*binds, *devices, "--size", size, "--tmpfs", "/tmp", "--chdir", "/tmp", "--remount-ro", "/"]  # noqa: S108

    def system_calls(self) -> bytes:
        """The seccomp filter; nothing means none."""
        return seccomp_filter()

    def process_limits(self) -> dict[str, int]:
        """What the kernel holds each process to, by names of `resource.RLIMIT_*`."""
        limits = self.limits
        return {
            "AS": limits.memory_bytes,
            "CPU": limits.cpu_seconds,
            "NPROC": limits.processes,
            "FSIZE": limits.file_bytes,
            "NOFILE": limits.open_files,
            "CORE": 0,
            "MEMLOCK": 0,
            "MSGQUEUE": 0,
        }

    @contextlib.contextmanager
    def _process(self, role: str, channel: int, *, stdin: int | IO[bytes]) -> Iterator[Any]:
        with contextlib.ExitStack() as stack:
            arguments = ["bwrap", *self.namespaces(), *self.identity()]
            own = (resources.files("calibudget.evaluation") / "in_sandbox.py").read_bytes()
            file = stack.enter_context(_memory_file(own))
            descriptors = [channel, file.fileno()]
            arguments += ["--ro-bind-data", str(file.fileno()), "/harness/in_sandbox.py", *self.root()]
            calls = self.system_calls()
            if calls:
                file = stack.enter_context(_memory_file(calls))
                descriptors.append(file.fileno())
                arguments += ["--seccomp", str(file.fileno())]
            start = f"import sys; sys.path[0] = '/harness'; from in_sandbox import {role}; "
            start += f"{role}({channel}, {self.process_limits()!r})"
            process = subprocess.Popen(  # noqa: S603
                [*arguments, self.interpreter.executable, "-s", "-S", "-B", "-c", start],
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE if role == "judge" else subprocess.STDOUT,
                pass_fds=descriptors,
                cwd="/",
                process_group=0,
                **_as_nobody(),
            )
        with process:
            try:
                yield process
            finally:
                _kill(process)

    def _watch(self, judge: Any, program: Any) -> CodeVerdict:
        deadline = time.monotonic() + self.limits.wall_seconds
        said, printed = bytearray(), 0
        with selectors.DefaultSelector() as selector:
            selector.register(judge.stdout, selectors.EVENT_READ, "judge")
            selector.register(program.stdout, selectors.EVENT_READ, "program")
            while (left := deadline - time.monotonic()) > 0:
                for key, _ in selector.select(left):
                    chunk = os.read(key.fd, 65536)
                    if not chunk:
                        selector.unregister(key.fileobj)
                        if key.data == "judge":
                            return self._verdict(bytes(said), judge, program)
                    elif key.data == "judge":
                        said += chunk
                    else:
                        printed += len(chunk)
                        if printed > self.limits.output_bytes:
                            return CodeVerdict(verdict="output", reason=f"more than {self.limits.output_bytes} bytes")
        return CodeVerdict(verdict="timeout", reason=f"not done after {self.limits.wall_seconds:g} s")

    def _verdict(self, said: bytes, judge: Any, program: Any) -> CodeVerdict:
        ready, _, line = said.partition(b"\n")
        verdict: Any
        verdict, reason = json.loads(line) if line.endswith(b"\n") else ("died", "the tests' process died")
        if ready != b"ready" or verdict == "broken":
            _kill(program)
            words = (judge.stderr.read() + program.stdout.read()).decode("utf-8", "replace").strip()
            raise DependencyError(f"the sandbox for generated code did not start: {words or reason}")
        if verdict == "died" and _ended_by_clock(program):
            return CodeVerdict(verdict="timeout", reason=f"killed after {self.limits.cpu_seconds} s of processor time")
        return CodeVerdict(verdict=verdict, reason=reason)


def open_sandbox(limits: Limits | None = None) -> Sandbox:
    """A sandbox that was seen to work on this machine.

    Raises:
        DependencyError: bubblewrap is missing, too old or may not create namespaces here; the message names the
            install line or the reason. Generated code is never run without it.
    """
    version = _bubblewrap_version()
    reasons = []
    for executable in candidates():
        try:
            sandbox = Sandbox(describe_interpreter(executable), version=version, limits=limits)
            verdict = sandbox.run(
                CodeCase(program="def one():\n    return 1", tests="assert one() == 1", names=("one",))
            )
        except (DependencyError, OSError, subprocess.SubprocessError) as error:
            reasons.append(f"{executable}: {error}")
            continue
        if verdict.passed:
            return sandbox
        reasons.append(f"{executable}: {verdict.verdict} {verdict.reason}")
    raise DependencyError(
        "bubblewrap can't confine code on this machine, so code tasks are refused. " + "; ".join(reasons)
    )


def _bubblewrap_version() -> str:
    if shutil.which("bwrap") is None:
        raise DependencyError(
            f"code tasks run generated code in bubblewrap, which isn't installed: {INSTALL_LINE} (0.8 or newer)"
        )
    text = subprocess.run(["bwrap", "--version"], capture_output=True, text=True, timeout=60, check=False).stdout  # noqa: S607
    found = re.search(r"(\d+)\.(\d+)(?:\.\d+)?", text)
    if found is None or (int(found[1]), int(found[2])) < _OLDEST:
        raise DependencyError(f"code tasks need bubblewrap 0.8 or newer, here is {text.strip()!r}: {INSTALL_LINE}")
    return found[0]


def _as_nobody() -> dict[str, Any]:
    """Root gives up root before anything else: limits on processes don't hold for it, not even in a namespace."""
    return {"user": _NOBODY, "group": _NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kills a sandbox. While it starts, its inner process doesn't die with the outer one, so their group is killed."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _ended_by_clock(program: subprocess.Popen[bytes]) -> bool:
    """Whether the kernel killed a program that left its judge without an answer, as it does at the time limit."""
    try:
        return program.wait(timeout=1) in (128 + signal.SIGKILL, 128 + signal.SIGXCPU)
    except subprocess.TimeoutExpired:
        return False


@contextlib.contextmanager
def _memory_file(data: bytes) -> Iterator[IO[bytes]]:
    """An open file that has no name, at its beginning."""
    with os.fdopen(os.memfd_create("calibudget"), "w+b") as file:
        file.write(data)
        file.seek(0)
        yield file
