"""Progress where stderr is no terminal: no stage is silent for longer than half a minute."""

from __future__ import annotations

import pytest

from calibudget.cli.progress import Lines


def test_a_log_goes_on_while_a_stage_tells_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])

    def told() -> list[str]:
        return capsys.readouterr().err.splitlines()

    lines = Lines()
    lines.again(100.0)  # nothing has begun
    lines("scoring", 0, 800)
    lines("scoring", 7, 800)
    assert told() == []
    lines.again(129.0 - 100.0)
    assert told() == []
    lines.again(30.0)
    lines.again(59.0)
    assert told() == ["scoring: 7 of 800, 30 s so far"]
    clock[0] = 65.0
    lines("scoring", 400, 800)
    assert told() == ["scoring: 400 of 800, 6.2/s, 65 s left"]
    lines.again(95.0)
    assert told() == ["scoring: 400 of 800, 95 s so far"]
    clock[0] = 100.0
    lines("scoring", 800, 800)
    lines.again(160.0)
    assert told() == ["scoring: 800 of 800, 8.0/s", "at work since scoring ended, 60 s so far"]
    lines("verifying", 0, 1)
    clock[0] = 102.5
    lines("verifying", 1, 1)
    assert told() == ["verifying ...", "verifying: 2.5 s"]
