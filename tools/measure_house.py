"""What the house is made of: figures to steer by, of the package and its tests.

    python tools/measure_house.py --root DIR    what reading the source gives; this checkout unless one is named
    python tools/measure_house.py --full        also how many tests there are, and what one `run` executes (a minute)

They are no goals in themselves: two ideas in one file or a name cut short helps nobody.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import os
import re
import runpy
import subprocess
import sys
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

PACKAGE = "calibudget"


class Module:
    """One file of the package: its name, text and syntax tree."""

    def __init__(self, path: Path, source: Path) -> None:
        self.path = path
        parts = path.relative_to(source).with_suffix("").parts
        self.is_package = parts[-1] == "__init__"
        self.name = ".".join(parts[:-1] if self.is_package else parts)
        text = path.read_text(encoding="utf-8")
        self.lines = len(text.splitlines())
        self.nodes = list(ast.walk(ast.parse(text)))

    def imported(self, known: Mapping[str, Module]) -> set[str]:
        """Modules of the package that this one imports, but for what only type checkers read."""
        unread = {
            id(inner)
            for node in self.nodes
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
            for inner in ast.walk(node)
        }
        found = set()
        for node in self.nodes:
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and id(node) not in unread:
                inside = {f"{node.module}.{alias.name}" for alias in node.names} & set(known)
                found |= inside or {node.module}
        return (found & set(known)) - {self.name}

    def inside_functions(self) -> Iterator[ast.AST]:
        """What a call executes; the rest happens at import."""
        outer = [node for node in self.nodes if isinstance(node, ast.FunctionDef)]
        return iter({id(inner): inner for node in outer for part in node.body for inner in ast.walk(part)}.values())

    @property
    def import_lines(self) -> int:
        """Lines of imports and of `__all__`."""
        kinds = (ast.Import, ast.ImportFrom)
        return sum(
            (node.end_lineno or 0) - node.lineno + 1
            for node in self.nodes
            if isinstance(node, kinds)
            or (isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__")
        )


def _small_functions(modules: list[Module]) -> list[str]:
    """Functions and methods with a small body whose name is used once in the whole package."""
    used: Counter[str] = Counter()
    defined: Counter[str] = Counter()
    small = []
    for module in modules:
        for node in module.nodes:
            if isinstance(node, ast.Name):
                used[node.id] += 1
            elif isinstance(node, ast.Attribute):
                used[node.attr] += 1
            elif isinstance(node, ast.FunctionDef):
                defined[node.name] += 1
                body = node.body[1:] if ast.get_docstring(node) else node.body
                lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
                if lines < 5 and not node.name.startswith("__"):
                    small.append((f"{module.name}.{node.name}", node.name))
    return [full for full, name in small if used[name] == 1 and defined[name] == 1]


def _circles(imports: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """Sets of two or more that all reach each other."""
    reached: dict[str, set[str]] = {}
    for name in imports:
        seen: set[str] = set()
        waiting = [name]
        while waiting:
            new = imports[waiting.pop()] - seen
            seen |= new
            waiting += new
        reached[name] = seen
    return {frozenset(other for other in reached[name] if name in reached[other]) for name in imports} - {frozenset()}


def _longest_chain(imports: Mapping[str, set[str]]) -> int:
    """Length of the longest chain of imports, which must have no circle."""

    @cache
    def height(name: str) -> int:
        return 1 + max((height(other) for other in imports[name]), default=0)

    return max(map(height, list(imports)))


def _room(name: str) -> str:
    return ".".join(name.split(".")[:2])


def _executed_share(modules: list[Module], root: Path) -> str:
    """Share of the statements inside functions that a run of the golden model's recipe executes, `verify` included."""
    hit: dict[str, set[int]] = defaultdict(set)
    inside = str(root / "src" / PACKAGE)

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "line":
            hit[frame.f_code.co_filename].add(frame.f_lineno)
        return trace if frame.f_code.co_filename.startswith(inside) else None

    golden = __import__("golden_runs")  # beside this file; it puts its own package first
    sys.path.insert(0, str(root / "src"))
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        golden.write_inputs()
        golden.write_model("tiny")
        sys.argv = [PACKAGE, "run", "model.yaml", "--output-dir", "run"]
        threading.settrace(trace)
        sys.settrace(trace)
        with contextlib.suppress(SystemExit):
            runpy.run_module(PACKAGE, run_name="__main__")
        sys.settrace(None)
        if not Path("run/SHA256SUMS.tsv").exists():
            raise SystemExit("the run that was to be measured didn't finish; tools/golden_runs.py says why")
    statements = [
        node.lineno in hit[str(module.path)]
        for module in modules
        for node in module.inside_functions()
        if isinstance(node, ast.stmt) and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    ]
    return f"{sum(statements) / len(statements):.0%} of {len(statements):,}"


def _figures(root: Path, *, full: bool) -> Iterator[tuple[str, object]]:
    source = root / "src"
    modules = [Module(path, source) for path in sorted((source / PACKAGE).rglob("*.py"))]
    known = {module.name: module for module in modules}
    imports = {name: module.imported(known) for name, module in known.items()}
    lines = sum(module.lines for module in modules)
    yield "lines / files of the package", f"{lines:,} / {len(modules)}"
    yield "median module, lines", median(module.lines for module in modules)
    yield "import and __all__ lines", f"{sum(module.import_lines for module in modules) / lines:.1%}"
    raises = sum(isinstance(node, ast.Raise) for module in modules for node in module.nodes)
    yield "one raise per so many lines", round(lines / raises)
    yield "functions with one reference and a body under 5 lines", len(_small_functions(modules))
    importers = Counter(other for others in imports.values() for other in others)
    single = [name for name, module in known.items() if importers[name] == 1 and not module.is_package]
    yield "modules with a single importer", len(single)
    yield "circles of imports between modules", len(_circles(imports))
    rooms: dict[str, set[str]] = defaultdict(set)
    for name, others in imports.items():
        if name != PACKAGE:
            rooms[_room(name)] |= {_room(other) for other in others} - {_room(name), PACKAGE}
    yield "floors (longest chain of rooms)", "none: a circle" if _circles(rooms) else _longest_chain(rooms)
    tests = sorted((root / "tests").rglob("*.py"))
    yield "lines / files of the tests", f"{sum(len(p.read_text().splitlines()) for p in tests):,} / {len(tests)}"
    if full:
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
        beside = os.environ | {"PYTHONPATH": str(source)}
        told = subprocess.run(command, cwd=root, env=beside, capture_output=True, text=True, check=False).stdout  # noqa: S603
        yield "items of the tests", int(re.findall(r"^(\d+) tests", told, re.MULTILINE)[-1])
        yield "statements inside functions that a run executes", _executed_share(modules, root)


def main() -> None:
    """Print the figures as a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--full", action="store_true")
    options = parser.parse_args()
    sys.stdout.write("| figure | value |\n|---|---:|\n")
    for name, value in _figures(options.root.resolve(), full=options.full):
        sys.stdout.write(f"| {name} | {value} |\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
