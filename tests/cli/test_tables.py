"""What tables show is whole and meant literally, however narrow the terminal and whatever the names."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from typing import Any

import pytest

from calibudget.allocation.plan import AllocationRequest, plan
from calibudget.allocation.stability import WhatIf
from calibudget.cli.tables import print_grid, print_line, print_plan
from calibudget.records import Exponents
from tests.conftest import statistics_of

LABELS = ("arc_challenge[red]", "b:smile:", "[bold]")
SIZES = " ".join(f"{label}={1_000_000 + number}" for number, label in enumerate(LABELS))
ALLOCATE = ("allocate", "--sizes", SIZES, "--policy", "floor-sqrt", "--budget", 900_000, "--floor", 100_000)


@pytest.fixture(params=["pipe", "terminal"])
def attach(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes stdout what the parameter says, and returns that; to be called in the test, whose stdout is its own."""

    def attached() -> str:
        if request.param == "terminal":
            monkeypatch.setenv("TERM", "dumb")  # 80 columns, no colours
            monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        return request.param  # type: ignore[no-any-return]

    return attached


@pytest.mark.parametrize("more", [(), ("--compare",)])
def test_what_a_terminal_would_act_on_is_written_out(calibudget: Any, more: Any) -> None:
    sizes = "a\x1b[31m=10 b\u202e=20"
    outcome = calibudget("allocate", "--sizes", sizes, "--policy", "equal", "--budget", 6, *more)
    assert outcome.code == 0
    assert r"a\x1b[31m" in outcome.out
    assert r"b\u202e" in outcome.out


@pytest.mark.parametrize("more", [(), ("--compare",)])
def test_labels_and_numbers_are_never_cut_nor_read_as_markup(calibudget: Any, attach: Any, more: Any) -> None:
    attach()
    outcome = calibudget(*ALLOCATE, *more)
    assert (outcome.code, outcome.err) == (0, "")
    assert all(label in outcome.out for label in LABELS)
    assert "300,000" in outcome.out
    assert "…" not in outcome.out


def test_a_plan_of_the_paper_s_size_fits_80_columns(capsys: pytest.CaptureFixture[str], attach: Any) -> None:
    """Two columns leave a narrow terminal, and are named."""
    sizes = {f"arc_challenge{n}": 1_019 + 9_000 * n for n in range(8)}
    measured = {label: {"pool_size": size, "mean_error": 3.4 + size / 90_000} for label, size in sizes.items()}
    statistics = statistics_of({label: {**row, "bootstrap_means": (3.3, 3.5)} for label, row in measured.items()})
    request = AllocationRequest(
        policy="calibudget", pool_sizes=sizes, budget=10_000, floor=1_150, statistics=statistics
    )
    stdout = attach()
    print_plan(plan(request))
    lines = capsys.readouterr().out.splitlines()
    assert (max(map(len, lines)) <= 80) == (stdout == "terminal")
    assert ("utility and share need a wider terminal" in "\n".join(lines)) == (stdout == "terminal")
    assert "pool reached: arc_challenge0" in lines


def test_a_line_is_printed_as_it_is(capsys: pytest.CaptureFixture[str], attach: Any) -> None:
    attach()
    line = "runs/[/x]/manifest.json " + "0123456789abcdef" * 4 + " [bold] :smile:"
    print_line(line)
    assert capsys.readouterr().out == line + "\n"


@pytest.mark.parametrize("command", ["allocate", "compare", "whatif"])
def test_of_a_thousand_sources_a_terminal_shows_both_ends_and_a_pipe_all(
    calibudget: Any, capsys: pytest.CaptureFixture[str], attach: Any, command: str
) -> None:
    sizes = {f"s{n:03d}": 1000 + 37 * (n * 7 % 1000) for n in range(1000)}
    stdout = attach()
    if command == "whatif":
        one = WhatIf(
            budget=9,
            floor=1,
            exponents=Exponents(),
            residual_budget=9,
            quotas=dict(sorted(sizes.items())),
            refusal=None,
        )
        points = [one, replace(one, floor=2)]
        print_grid("proportional", "examples", points)
        out = capsys.readouterr().out
    else:
        more = ["--compare"] if command == "compare" else []
        named = " ".join(f"{label}={size}" for label, size in sizes.items())
        out = calibudget("allocate", "--sizes", named, "--policy", "proportional", "--budget", 1_000_000, *more).out
    rows = [line for line in out.splitlines() if re.search(r"\bs\d\d\d\b", line)]
    assert len(rows) == (30 if stdout == "terminal" else 1000)
    if stdout == "terminal":
        assert "s857" in rows[0]  # 857 * 7 % 1000 is 999
        assert "s000" in rows[-1]
        assert "(970 between)" in out
        assert "the 20 largest and the 10 smallest quotas" in out
