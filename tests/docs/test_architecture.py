"""Every path in docs/architecture.md exists, and every name that benchmarks, examples and docs import."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def _names(place: Path) -> Iterator[Any]:
    """What a module binds at its top; of a room, its modules too."""
    for statement in ast.parse((place / "__init__.py" if place.is_dir() else place).read_text(encoding="utf-8")).body:
        inside = [statement] if isinstance(statement, ast.FunctionDef | ast.ClassDef) else ast.walk(statement)
        yield from (getattr(node, "name", None) or getattr(node, "id", "") for node in inside)
    yield from (inner.stem for inner in place.glob("*"))


def test_every_path_and_name_of_the_page_exists() -> None:
    page, package = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"), ROOT / "src" / "calibudget"
    paths = re.findall(r"`([a-z_]+(?:/[a-z_]*)+(?:\.py)?|[a-z_]+\.py)`", page)
    named = [path for path in paths if not path.startswith(("testbed", "src", "docs", "tools", "benchmarks"))]
    assert len(named) > 30
    files = {path.name for path in package.rglob("*.py")}  # beside another file of the row its folder isn't named again
    assert [path for path in named if path not in files and not (package / path).exists()] == []
    defined = re.findall(r"`([a-z_/]+\.py)` \(`(\w+)`\)", page)
    assert len(defined) > 5
    assert [(path, name) for path, name in defined if name not in _names(package / path)] == []


#: What an import asks of the package, in code that a text holds too.
IMPORT = re.compile(r"from (calibudget[\w.]*) import (?:\(([\w\s,]+)\)|([\w ,]+))")


def test_every_import_of_benchmarks_examples_and_docs_exists() -> None:
    inside = [path for folder in ("benchmarks", "examples", "docs") for path in sorted((ROOT / folder).rglob("*.*"))]
    files = [ROOT / "README.md", *(path for path in inside if path.suffix in (".py", ".ipynb", ".md"))]
    found = [(file, match) for file in files for match in IMPORT.findall(file.read_text(encoding="utf-8"))]
    assert len(found) > 100
    for file, (module, *names) in found:
        place = ROOT / "src" / module.replace(".", "/")
        known = set(_names(place if place.is_dir() else place.with_suffix(".py")))
        for name in re.findall(r"(\w+)(?: as \w+)?", "".join(names)):
            assert name in known, f"{file.name}: {module} has no {name}"
