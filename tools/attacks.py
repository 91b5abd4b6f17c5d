"""All attacks at their full counts, in as many processes as are given, one line of a table a part.

    python tools/attacks.py OUT [--processes 24] [--seconds 560] [--only WORDS]

Parts that OUT/parts.tsv holds already aren't run again, so a run that was stopped, or whose seconds ended, goes on when
the command is given again. OUT/attacks.tsv sums the parts up; OUT/faults.txt holds what the failing ones said.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
#: Attacks in the order in which they are begun: the long ones that are one process each, then by weight.
ORDER = (
    *(
        "test_soak",
        "test_fuzz",
        "killed_at_a_step",
        "disk_that_fails",
        "power_cuts",
        "a_forger",
        "run_or_an_evaluation",
    ),
    *("damaged_model", "damaged_file", "in_a_study", "clean_runs", "commands_at_once", "the_machine_around"),
    *("killed_at_a_moment", "some_size", "other_versions"),
)
SUMMED = ("attack", "parts", "cases", "failed_parts", "skipped_parts", "seconds", "first_seed", "last_seed")


class Parts:
    """The parts of a run: which are left, in which order, until when, and what they came to."""

    def __init__(self, out: Path, ends: float) -> None:
        self.out, self.ends = out, ends
        self.file = out / "parts.tsv"
        self.done = {line.split("\t")[0] for line in (out / "before.tsv").read_text().splitlines()}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out what is done, and begin with what takes longest."""
        items[:] = [item for item in items if short(item.nodeid) not in self.done]
        items.sort(key=lambda item: next((at for at, one in enumerate(ORDER) if one in item.nodeid), len(ORDER)))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Begin nothing when the time is up."""
        if time.time() > self.ends:
            pytest.skip("no time left")

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Write a part's line, and what it said if it failed."""
        if "PYTEST_XDIST_WORKER" in os.environ or "no time left" in str(report.longrepr):
            return
        if report.when == "call" or report.outcome != "passed":
            with self.file.open("a") as file:
                cases = dict(report.user_properties).get("cases", cases_of(report.nodeid))
                file.write(f"{short(report.nodeid)}\t{cases}\t{report.outcome}\t{report.duration:.1f}\n")
        if report.failed:
            with (self.out / "faults.txt").open("a") as file:
                file.write(f"==== {report.nodeid} {report.when}\n{report.longreprtext[-6000:]}\n")


def short(nodeid: str) -> str:
    """A part's name within the attacks."""
    return nodeid.removeprefix("tests/attacks/")


def cases_of(nodeid: str) -> int:
    """Of `…[part-3-25-run]` 25, of `…[4000-recipe.yaml]` 4000."""
    found = re.search(r"part-\d+-(\d+)|\[(\d+)", nodeid)
    return int(found[1] or found[2]) if found else 1


def sum_up(parts: Path) -> str:
    """One line an attack: parts, cases, failures, seconds and seeds."""
    rows: dict[str, list[Any]] = defaultdict(lambda: [0, 0, 0, 0, 0.0, 0, 0])
    for line in parts.read_text().splitlines():
        name, cases, outcome, seconds = line.split("\t")
        found = re.search(r"part-(\d+)-\d+", name)
        number = 1000 + int(found[1]) if found else 0
        row = rows[re.sub(r"part-\d+-\d+-?", "", name).replace("[]", "")]
        row[0] += 1
        row[1] += int(cases) if outcome != "skipped" else 0
        row[2] += outcome == "failed"
        row[3] += outcome == "skipped"
        row[4] += float(seconds)
        row[5] = min(row[5] or number, number)
        row[6] = max(row[6], number)
    lines = ["\t".join(SUMMED)]
    for attack, row in rows.items():
        lines.append("\t".join([attack, *(f"{one:.0f}" for one in row)]))
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run what is left, and sum up."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--processes", default=str(os.cpu_count()))
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no part after so many")
    parser.add_argument("--only", default="", help="as pytest's -k")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "parts.tsv").touch()
    shutil.copy(given.out / "parts.tsv", given.out / "before.tsv")
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    os.environ |= {
        "CALIBUDGET_ATTACKS": str(given.out.resolve()),
        "CALIBUDGET_ATTACKS_END": str(time.time() + given.seconds),
    }
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    sys.path[:0] = [str(ROOT), str(ROOT / "src")]
    os.chdir(ROOT)
    # the libraries of another machine may warn of what those of the lock file don't
    options = [
        "-p",
        "no:cacheprovider",
        "-p",
        "tools.attacks",
        "-q",
        "--timeout",
        "3600",
        "-o",
        "filterwarnings=default",
    ]
    spread = ["-n", given.processes, "--dist", "load", "--maxschedchunk", "1"]
    code = pytest.main([*options, *spread, "-m", "full", "-k", given.only, "--tb", "short", "tests/attacks"])
    (given.out / "attacks.tsv").write_text(sum_up(given.out / "parts.tsv"))
    return int(code)


def pytest_configure(config: pytest.Config) -> None:
    """As a plugin of the processes that pytest starts."""
    if "CALIBUDGET_ATTACKS" in os.environ:
        config.pluginmanager.register(
            Parts(Path(os.environ["CALIBUDGET_ATTACKS"]), float(os.environ["CALIBUDGET_ATTACKS_END"])), "attacks-parts"
        )


if __name__ == "__main__":
    sys.exit(main())
