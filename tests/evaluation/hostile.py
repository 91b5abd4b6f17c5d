# ruff: noqa: E501
"""Programs that mean harm, each with what it tries and how its case must end.

Two kinds. An *attack* says whether it got through, and its test demands that it did: held, it fails. A *fake*
is wrong about a plain question and tries to be taken for right.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from textwrap import dedent, indent

from calibudget.evaluation.sandbox import CodeCase


@dataclass(frozen=True, kw_only=True)
class Hostile:
    """One program; `defence` names what holds it, `limits` what the test tightens to be quick."""

    name: str
    defence: str
    program: str
    tests: str
    ends: tuple[str, ...] = ("failed",)
    names: tuple[str, ...] = ("attack",)
    prelude: str = ""
    limits: dict[str, float] = field(default_factory=dict)

    def case(self, **values: object) -> CodeCase:
        """The case, with the test's own values put where the program says <name>."""
        program = self.program
        for name, value in values.items():
            program = program.replace(f"<{name}>", str(value))
        return CodeCase(program=program, tests=self.tests, names=self.names, prelude=self.prelude)


def attack(name: str, defence: str, body: str, **rest: object) -> Hostile:
    program = "import ctypes, errno, os, resource, signal, socket, subprocess, sys, threading, time\n"
    program += "libc = ctypes.CDLL(None, use_errno=True)\n"
    program += "def refused(result):\n    if result == -1:\n        raise OSError(ctypes.get_errno(), 'refused')\n"
    program += "def attack():\n    try:\n" + indent(dedent(body).strip("\n"), " " * 8)
    program += "\n    except (OSError, MemoryError, ValueError, RuntimeError) as error:\n"
    program += "        return f'blocked by {error!r}'\n    return 'reached'\n"
    return Hostile(name=name, defence=defence, program=program, tests="assert attack() == 'reached'", **rest)  # type: ignore[arg-type]


def fake(name: str, program: str, tests: str = "assert add(2, 3) == 5", **rest: object) -> Hostile:
    rest.setdefault("ends", ("failed", "error", "died"))
    names = rest.pop("names", ("add",))
    return Hostile(name=name, defence="judge apart", program=dedent(program), tests=tests, names=names, **rest)  # type: ignore[arg-type]


_EQUAL = """
class Equal(BASE):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return True
    def __contains__(self, item): return True
    def __sub__(self, other): return self
    def __abs__(self): return self
    __hash__ = BASE.__hash__
def add(a, b): return Equal()
"""

FAKES = [
    fake("leaves with status 0 at once", "import os\nos._exit(0)", ends=("died",)),
    fake("exits with status 0 at once", "import sys\nsys.exit(0)", ends=("error",)),
    fake("leaves with status 0 when called", "import os\ndef add(a, b): os._exit(0)", ends=("died",)),
    fake("exits with status 0 when called", "def add(a, b): raise SystemExit(0)", ends=("error",)),
    fake(
        "an exception hook that leaves with status 0",
        "import os, sys\nsys.excepthook = lambda *a: os._exit(0)\ndef add(a, b): return 4",
    ),
    fake(
        "a thread that leaves with status 0",
        """
        import os, threading
        def leave():
            called.wait()
            os._exit(0)
        called = threading.Event()
        threading.Thread(target=leave).start()
        def add(a, b):
            called.set()
            threading.Event().wait()
        """,
    ),
    fake(
        "an alarm that leaves with status 0",
        """
        import os, signal
        signal.signal(signal.SIGALRM, lambda *a: os._exit(0))
        signal.setitimer(signal.ITIMER_REAL, .1)
        def add(a, b):
            while True: signal.pause()
        """,
    ),
    fake(
        "a child that goes on alone",
        """
        import os
        ended, never = os.pipe()
        if os.fork(): os._exit(0)
        os.close(never)
        os.read(ended, 1)
        raise ValueError
        """,
    ),
    fake("becomes another program", "import os, sys\nos.execv(sys.executable, [sys.executable, '-S', '-c', 'pass'])"),
    fake("is equal to everything", _EQUAL.replace("BASE", "object"), ends=("failed",)),
    fake("a number equal to everything", _EQUAL.replace("BASE", "int"), ends=("failed",)),
    fake(
        "a text equal to everything", _EQUAL.replace("BASE", "str"), tests="assert add(2, 3) == '5'", ends=("failed",)
    ),
    fake("is less than everything", _EQUAL.replace("BASE", "object"), tests="assert add(2, 3) < 6", ends=("error",)),
    fake(
        "patches all",
        "import builtins\nbuiltins.all = lambda x: True\ndef add(a, b): return 9",
        tests="assert all(add(x, 0) == x for x in (1, 2))",
    ),
    fake(
        "puts its own module in the place of math",
        "import sys, types\nm = types.ModuleType('math'); m.isclose = lambda *a: True\nsys.modules['math'] = m\ndef add(a, b): return 9",
        tests="import math\nassert math.isclose(add(2, 3), 5)",
    ),
    fake(
        "rewrites what it is compared with, a frame up",
        """
        import sys
        def add(a, b):
            frame = sys._getframe()
            while frame:
                if "right" in frame.f_globals: frame.f_globals["right"] = lambda: 9
                frame = frame.f_back
            return 9
        """,
        tests="def right(): return 5\nassert add(2, 3) == right()",
    ),
    fake(
        "reads the answer from the code that calls it",
        """
        import sys
        def add(a, b):
            frame, found = sys._getframe(), []
            while frame:
                found += [x for x in frame.f_code.co_consts if isinstance(x, int) and x == 555]
                frame = frame.f_back
            return found[-1] if found else 0
        """,
        tests="assert add(2, 3) == 555",
        ends=("failed",),
    ),
    fake(
        "replaces the helper that judges it",
        "def poly(xs, x): return 0.0\ndef find_zero(xs): return 3.0",
        tests="assert abs(poly([1, 2], find_zero([1, 2]))) < 1e-4",
        names=("find_zero",),
        prelude="def poly(xs, x):\n    return sum(c * x ** i for i, c in enumerate(xs))\n",
        ends=("failed",),
    ),
    fake("prints the verdict", "print('ready'); print('[\"passed\", \"\"]'); import os; os._exit(0)"),
    fake(
        "writes the verdict to everything that is open",
        """
        import os
        for descriptor in range(64):
            try: os.write(descriptor, b'ready\\n["passed", ""]\\n')
            except OSError: pass
        def add(a, b): return 4
        """,
    ),
    fake(
        "answers before it is asked",
        """
        import os
        for descriptor in range(3, 64):
            try: os.write(descriptor, b'{"value": true}\\n' * 50)
            except OSError: pass
        os._exit(0)
        """,
    ),
    fake(
        "names a type that is none",
        'import os\nfor d in range(3, 64):\n    try: os.write(d, b\'{"value": {"type": "exec"}}\\n\' * 9)\n    except OSError: pass\ndef add(a, b): return 4',
    ),
    fake(
        "answers with a list 100,000 deep",
        "def add(a, b):\n    x = []\n    for _ in range(100000): x = [x]\n    return x",
    ),
    fake("answers with a list that holds itself", "def add(a, b):\n    x = []\n    x.append(x)\n    return x"),
    fake("answers with 64 MB", "def add(a, b): return 'x' * 2**26"),
    fake(
        "answers without end",
        """
        import os
        def add(a, b):
            while True:
                for descriptor in range(3, 64):
                    try: os.write(descriptor, b'x' * 65536)
                    except OSError: pass
        """,
    ),
    fake("closes everything and waits", "import os, signal\nos.closerange(0, 64)\nsignal.pause()", ends=("died",)),
    fake("kills itself", "import os\nos.kill(os.getpid(), 11)", ends=("died",)),
    fake("breaks the interpreter", "import ctypes\nctypes.string_at(0)", ends=("died",)),
    fake(
        "recurses without end",
        "import sys\nsys.setrecursionlimit(10**9)\ndef f(): return f()\nf()",
        ends=("died", "error", "timeout"),
    ),
    fake("is no Python", "def add(a, b):\n  return a +", ends=("error",)),
    fake("is empty", "", ends=("error",)),
    fake("holds a null character", "def add(a, b): return 5\0", ends=("error",)),
    fake("lacks the function", "def plus(a, b): return a + b", ends=("error",)),
]

TIME = [
    attack("sleeps", "wall clock", "time.sleep(1)", ends=("timeout",), limits={"wall_seconds": 0.5}),
    attack(
        "stops itself",
        "wall clock",
        "os.kill(os.getpid(), signal.SIGSTOP)",
        ends=("timeout",),
        limits={"wall_seconds": 1.0},
    ),
    attack(
        "computes without end",
        "processor time",
        "end = time.process_time() + 1.5\nwhile time.process_time() < end: pass",
        ends=("timeout",),
        limits={"cpu_seconds": 1},
    ),
    attack("waits for input", "no input", "if not sys.stdin.read(1): raise OSError('end of input')"),
]

SIZE = [
    attack("takes 1 GB", "memory", "x = bytearray(2**30)\nx[::4096] = b'x' * 2**18"),
    attack(
        "forks 100 children",
        "processes",
        "for _ in range(100):\n    if os.fork() == 0:\n        signal.pause()",
    ),
    attack(
        "forks without end",
        "processes",
        "while True: os.fork()",
        ends=("failed", "died", "error", "timeout"),
        limits={"wall_seconds": 3.0},
    ),
    attack(
        "starts 100 threads",
        "processes",
        "for _ in range(100): threading.Thread(target=threading.Event().wait, daemon=True).start()",
    ),
    attack(
        "writes 32 MB in many files",
        "size of /tmp",
        "for n in range(32):\n    with open(f'/tmp/{n}', 'wb', buffering=0) as file: file.write(b'x' * 2**20) == 2**20 or refused(-1)",
    ),
    attack("opens 1,000 files", "open files", "kept = [open('/dev/null') for _ in range(1000)]"),
    attack("prints 4 MB", "output", "sys.stdout.write('x' * 2**22)\nsys.stdout.flush()", ends=("output",)),
    attack("raises its limits", "memory", "resource.setrlimit(resource.RLIMIT_AS, (2**34, 2**34))"),
]

FILES = [
    attack("reads the home", "root", "open('<secret>').read()"),
    attack("reads the list of users", "root", "open('/etc/passwd').read()"),
    attack("lists the home's parent", "root", "os.listdir('<secret_parent>')"),
    attack("starts a shell", "root", "subprocess.run(['/bin/sh', '-c', 'true'], check=True)"),
    attack(
        "reads through a climbing link",
        "root",
        "os.symlink('../../../../..<secret>', '/tmp/link')\nopen('/tmp/link').read()",
    ),
    attack("reads the environment of process 1", "no /proc", "open('/proc/1/environ', 'rb').read()"),
    attack("reads its own memory as a file", "no /proc", "open('/proc/self/mem', 'rb')"),
    attack("leaves its root through /proc", "no /proc", "os.listdir('/proc/1/root')"),
    attack("writes to the root", "read-only root", "open('/leftover', 'w')"),
    attack("writes where the judge lies", "read-only root", "open('/harness/extra.py', 'w')"),
    attack(
        "rewrites the judge",
        "read-only binds",
        "os.chmod('/harness/in_sandbox.py', 0o666)\nopen('/harness/in_sandbox.py', 'w')",
    ),
    attack(
        "rewrites the standard library through a link",
        "read-only binds",
        "os.symlink(os.__file__, '/tmp/link')\nopen('/tmp/link', 'a')",
    ),
    attack(
        "makes a device",
        "capabilities",
        "os.mknod('/tmp/device', 0o600 | 0o020000, os.makedev(1, 1))\nopen('/tmp/device')",
    ),
    attack("opens the machine's memory", "root", "open('/dev/mem', 'rb')"),
    attack("finds what the last program left", "private /tmp", "open('/tmp/left').read()"),
    attack(
        "reads a secret of the environment",
        "environment",
        "if 'CALIBUDGET_SECRET' not in os.environ: raise OSError('not there')",
    ),
]

NET = [
    attack("connects to the machine", "network", "socket.create_connection(('127.0.0.1', <port>), timeout=2)"),
    attack("opens an internet socket", "system calls", "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)"),
    attack("listens", "system calls", "socket.create_server(('127.0.0.1', 0))"),
    attack("opens a netlink socket", "system calls", "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)"),
    attack("opens a socket to the hypervisor", "system calls", "socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)"),
    attack(
        "connects to an abstract socket of the machine",
        "network",
        "socket.socket(socket.AF_UNIX).connect('\\0<abstract>')",
    ),
]

PROCESSES = [
    attack("sees the caller", "process namespace", "try: os.kill(<pid>, 0)\nexcept PermissionError: pass"),
    attack(
        "signals its parent",
        "process namespace",
        "if os.getppid() in (0, 1): raise OSError('the parent is out of sight')\nos.kill(os.getppid(), 0)",
    ),
    attack(
        "kills process 1",
        "process namespace",
        "os.kill(1, signal.SIGKILL)\nos.kill(1, 0)\nraise OSError('still there')",
    ),
    attack(
        "kills all it may", "process namespace", "os.kill(-1, signal.SIGKILL)\nraise OSError('nobody else was there')"
    ),
    attack("keeps the caller's session", "session", "if os.getsid(0) != 0: raise OSError('a session of its own')"),
    attack(
        "knows the machine's name", "host name", "if os.uname().nodename != '<host>': raise OSError('another name')"
    ),
    attack("is the caller", "user", "if os.getuid() != <uid>: raise OSError('somebody else')"),
    attack("becomes root", "user", "os.setuid(0)"),
    attack(
        "has a capability in reach", "capabilities", "if libc.prctl(23, 21, 0, 0, 0) != 1: raise OSError('bounded')"
    ),
    attack(
        "makes a user namespace",
        "no user namespaces",
        "child = libc.syscall(<clone>, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)\nif child == 0: os._exit(0)\nrefused(child)",
    ),
    attack("reads the machine's shared memory", "ipc namespace", "refused(libc.msgget(<key>, 0))"),
]

CALLS = [
    attack("unshares", "system calls", "refused(libc.unshare(0x00000400))"),
    attack("traces", "system calls", "refused(libc.ptrace(0, 0, 0, 0))"),
    attack("makes a file in memory", "system calls", "os.memfd_create('x')"),
    attack("makes shared memory", "system calls", "refused(libc.shmget(0, 4096, 0o1600))"),
    attack("keeps a key in the kernel", "system calls", "refused(libc.syscall(<add_key>, b'user', b'x', b'y', 1, -4))"),
    attack("changes its personality", "system calls", "refused(libc.personality(0x0040000))"),
    attack(
        "reads another's memory", "system calls", "refused(libc.process_vm_readv(os.getpid(), None, 0, None, 0, 0))"
    ),
    attack("changes its root", "system calls", "os.chroot('/tmp')"),
    attack("mounts", "system calls", "refused(libc.mount(b'none', b'/tmp', b'tmpfs', 0, None))"),
]

HOSTILE = [*FAKES, *TIME, *SIZE, *FILES, *NET, *PROCESSES, *CALLS]
