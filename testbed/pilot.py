"""What the third testbed's pilot decides: which candidates become its families.

python -m testbed.pilot PROTOCOL --results DIR
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Final

from testbed.candidates import CANDIDATES, KNOWN
from testbed.protocol import Protocol, read_protocol
from testbed.report import table
from testbed.results import RESULTS_NAME, Results

#: A family moves if its accuracy rises by so much between the least and the most examples; one is refused whose
#: accuracy has a larger standard deviation over seeds.
LEAST_MOVE: Final = 0.05
LARGEST_SD: Final = 0.10
#: Families of each kind that each set takes.
MOVERS, OTHERS = 5, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What the pilot saw of one candidate.

    Attributes:
        name: the candidate.
        game: reasoning-gym's name.
        accuracy: by examples of it, one a seed.
    """

    name: str
    game: str
    accuracy: Mapping[int, Sequence[float]]

    @property
    def move(self) -> float:
        """Mean accuracy with the most examples less that with the fewest."""
        return fmean(self.accuracy[max(self.accuracy)]) - fmean(self.accuracy[min(self.accuracy)])

    @property
    def sd(self) -> float:
        """The largest standard deviation over seeds at any exposure, ddof 1."""
        return max(stdev(values) for values in self.accuracy.values())

    @property
    def order(self) -> tuple[bool, bytes]:
        """Unused games first, each kind in the order of a digest of the names."""
        return self.game in KNOWN, hashlib.sha256(f"testbed-3 {self.name}".encode()).digest()


def trials(protocol: Protocol, results: Results) -> list[Trial]:
    """What finished cells say of every candidate, in the order of choice."""
    names = {point.name for point in protocol.points if point.status == "choosing"}
    found: dict[str, dict[int, list[float]]] = {}
    for cell in results.lines("cell"):
        run = results.find(cell["run"])
        if cell["point"] in names and run is not None:
            for label, quota in cell["quotas"].items():
                found.setdefault(label, {}).setdefault(quota, []).append(run["tasks"][label]["accuracy"])
    games = {family.name: family.game for family in CANDIDATES}
    made = [Trial(name=name, game=games[name], accuracy=dict(sorted(own.items()))) for name, own in found.items()]
    return sorted(made, key=lambda trial: trial.order)


def chosen(every: Sequence[Trial]) -> tuple[list[str], list[str]]:
    """The families of both sets: movers first, then others, a game once; in turn to the one set and the other."""
    fit = [trial for trial in every if trial.sd <= LARGEST_SD]
    games: set[str] = set()
    taken: tuple[list[str], list[str]] = ([], [])
    for moves, count in ((True, MOVERS), (False, OTHERS)):
        kind = [trial for trial in fit if (trial.move >= LEAST_MOVE) == moves]
        picked = 0
        for trial in kind:
            if picked < 2 * count and trial.game not in games:
                games.add(trial.game)
                taken[picked % 2].append(trial.name)
                picked += 1
    return taken


def markdown(every: Sequence[Trial]) -> str:
    """The trials as a table, and the sets."""
    sets = chosen(every)
    rows = []
    for trial in every:
        verdict = "moves" if trial.move >= LEAST_MOVE else "doesn't move"
        if trial.sd > LARGEST_SD:
            verdict = "refused: depends on the seed"
        place = next((f"set {number}" for number, names in enumerate(sets, 1) if trial.name in names), "")
        means = [f"{100 * fmean(values):.1f}" for values in trial.accuracy.values()]
        row = [trial.name, trial.game, "no" if trial.game in KNOWN else "yes", *means]
        rows.append([*row, f"{100 * trial.move:+.1f}", f"{100 * trial.sd:.1f}", verdict, place])
    exposures = [f"accuracy % at {exposure:,}" for exposure in every[0].accuracy]
    header = ["candidate", "game", "new game", *exposures, "moved, points", "largest sd, points", "verdict", "taken"]
    return table(header, rows)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("protocol", type=Path)
    parser.add_argument("--results", type=Path, required=True)
    asked = parser.parse_args()
    protocol = read_protocol(asked.protocol)
    print(markdown(trials(protocol, Results.read(asked.results / RESULTS_NAME, protocol.sha256))))


if __name__ == "__main__":
    main()
