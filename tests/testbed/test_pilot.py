"""Which candidates the pilot's rule takes."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

from testbed.families import HALVES
from testbed.pilot import Trial, chosen, markdown, trials
from testbed.protocol import read_protocol
from testbed.results import Results


def trial(name: Any, game: Any, low: Any, high: Any, sd: float = 0.0) -> Any:
    values = {250: [low, low], 1000: [high - sd, high + sd]}
    return Trial(name=name, game=game, accuracy=values)


def test_movers_and_others_go_in_turn_to_both_sets_a_game_once_and_unsteady_ones_not_at_all() -> None:
    movers = [trial(f"m{n}", f"game-{n}", 0.1, 0.3) for n in range(11)]
    twin = trial("twin", "game-0", 0.1, 0.4)
    unsteady = trial("unsteady", "new", 0.1, 0.6, sd=0.08)
    still = [trial(f"s{n}", f"still-{n}", 0.5, 0.549) for n in range(7)]
    first, second = chosen([movers[0], twin, unsteady, *movers[1:], *still])
    assert first == ["m0", "m2", "m4", "m6", "m8", "s0", "s2", "s4"]
    assert second == ["m1", "m3", "m5", "m7", "m9", "s1", "s3", "s5"]


def test_the_third_testbed_s_families_are_those_that_the_pilot_s_results_give(
    protocol_path: Path, tmp_path: Path
) -> None:
    packed = protocol_path.parents[2] / "benchmarks" / "results" / "testbed-3" / "pilot.jsonl.gz"
    (tmp_path / "results.jsonl").write_bytes(gzip.decompress(packed.read_bytes()))
    protocol = read_protocol(protocol_path.with_name("testbed-3-pilot.yaml"))
    every = trials(protocol, Results.read(tmp_path / "results.jsonl", protocol.sha256))
    assert len(every) == 40
    sets = tuple([family.name for family in HALVES[half]] for half in ("answers-1", "answers-2"))
    assert chosen(every) == sets
    assert (packed.with_name("pilot.md")).read_text(encoding="utf-8").endswith(f"{markdown(every)}\n")
