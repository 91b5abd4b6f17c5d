from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from calibudget.sources.spec import SourceSpec
from calibudget.sources.whole_source import SourceRead, read_source
from tests.conftest import write_rows


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write rows as JSON lines below the data directory, which is tmp_path."""

    return lambda name, rows: write_rows(tmp_path / name, rows)


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., SourceRead]:
    """Read a source below tmp_path from the fields of a SourceSpec."""

    def read_spec(path: str | tuple[str, ...] = "rows.jsonl", **fields: object) -> SourceRead:
        return read_source(SourceSpec(label="s", path=path, **fields), tmp_path)  # type: ignore[arg-type]

    return read_spec


@pytest.fixture
def damaged() -> Callable[[bytes, str, bytes], bytes]:
    """A function from a file's bytes, a damage and another file's bytes to what is left; unknown damages leave all."""
    draw = random.Random(0)  # noqa: S311

    def damage_bytes(whole: bytes, damage: str, other: bytes) -> bytes:
        data = bytearray(other if damage == "another's" else whole)
        if damage == "flipped":
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        elif damage == "cut":
            del data[draw.randrange(len(data)) :]
        elif damage == "empty":
            data.clear()
        return bytes(data)

    return damage_bytes
