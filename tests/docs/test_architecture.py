"""Every path in docs/architecture.md exists, and every name that benchmarks, which mypy doesn't read, import."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_path_of_the_page_exists() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    paths = re.findall(r"`([a-z_]+(?:/[a-z_]*)+(?:\.py)?|keys\.py|errors\.py)`", page)
    named = [path for path in paths if not path.startswith(("testbed", "src", "docs", "tools", "benchmarks"))]
    assert len(named) > 30
    package = ROOT / "src" / "calibudget"
    assert [path for path in named if not (package / path).exists()] == []


def _names(path: Path) -> Iterator[str]:
    """What a module binds at its top; for a room, also its modules."""
    for statement in ast.parse((path / "__init__.py" if path.is_dir() else path).read_text(encoding="utf-8")).body:
        inside = [statement] if isinstance(statement, ast.FunctionDef | ast.ClassDef) else ast.walk(statement)
        for node in inside:
            names = (getattr(node, "asname", None), getattr(node, "name", None), getattr(node, "id", None))
            yield from [name for name in names if isinstance(name, str)]
    if path.is_dir():
        yield from [inner.stem for inner in path.iterdir()]


def test_every_import_of_benchmarks_exists() -> None:
    asked = [
        (path.name, node.module, alias.name)
        for path in sorted((ROOT / "benchmarks").glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "calibudget"
        for alias in node.names
    ]
    assert len(asked) > 100
    places = {module: ROOT / "src" / module.replace(".", "/") for _, module, _ in asked}
    files = {module: place if place.is_dir() else place.with_suffix(".py") for module, place in places.items()}
    assert [one for one in asked if not files[one[1]].exists() or one[2] not in set(_names(files[one[1]]))] == []
