from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from calibudget.sources import SourceRead, SourceSpec, read_source


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write rows as JSON lines below the data directory, which is tmp_path."""

    def write_rows(name: str, rows: Iterable[object]) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path

    return write_rows


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., SourceRead]:
    """Read a source below tmp_path from the fields of a SourceSpec."""

    def read_spec(path: str | tuple[str, ...] = "rows.jsonl", **fields: object) -> SourceRead:
        return read_source(SourceSpec(label="s", path=path, **fields), tmp_path)  # type: ignore[arg-type]

    return read_spec
