"""Commands run in this process, with their exit code, output and messages."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import pytest

from calibudget.cli.entry import entry


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


@pytest.fixture
def calibudget(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs `calibudget` with these arguments, as the console script does."""

    def call(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["calibudget", *map(str, arguments)])
        with pytest.raises(SystemExit) as leave:
            entry()
        captured = capsys.readouterr()
        return Outcome(code=leave.value.code, out=captured.out, err=captured.err)  # type: ignore[arg-type]

    return call
