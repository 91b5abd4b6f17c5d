"""A Python for the sandbox: which one, and what of it has to lie there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

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
