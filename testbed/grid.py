"""The cells of a protocol, and the best quotas that finished ones know of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from calibudget.allocation.policies import POLICIES
from calibudget.errors import AllocationError
from testbed.protocol import Point, Protocol
from testbed.results import Results, key_of
from testbed.rivals.records import Curve
from testbed.rivals.searching import fit_curves_to_means

#: Seeds of a point whose finished cells `limit_curves` go through.
LIMIT_SEEDS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One cell of a protocol's grid.

    Attributes:
        point: what it belongs to.
        policy: name in the protocol.
        seed: of split, bootstrap, draw and training.
    """

    point: Point
    policy: str
    seed: int

    @property
    def name(self) -> str:
        """How messages and claims name it."""
        return f"{self.point.name}/{self.policy}/{self.seed}"


def cells(protocol: Protocol, only: Sequence[str] = ()) -> list[Place]:
    """Every cell in the order in which they run: point by point, seed by seed."""
    return [
        Place(point=point, policy=policy, seed=seed)
        for point in protocol.points
        if not only or point.name in only
        for seed in point.seeds
        for policy in point.policies
    ]


def cell_key(protocol: Protocol, place: Place) -> str:
    """The key of a cell in the results."""
    return key_of("cell", protocol=protocol.sha256, point=place.point.name, policy=place.policy, seed=place.seed)


def limit_curves(protocol: Protocol, results: Results, point: Point) -> dict[str, Curve] | None:
    """Curves through the held-out NLLs of finished cells, which no policy may see; None until they are there.

    They go through the cells of the paper's policies at the first seeds of the first point of this setting. None also
    where all of them gave a source the same quota, so that no curve shows.
    """
    first = protocol.same_setting(point)[0]
    lines = [
        results.find(cell_key(protocol, Place(point=first, policy=policy, seed=seed)))
        for seed in first.seeds[:LIMIT_SEEDS]
        for policy in first.policies
        if protocol.policies[policy].rule in POLICIES
    ]
    runs = [results.find(line["run"]) for line in lines if line is not None]
    found = [run for run in runs if run is not None]
    if not found or len(found) < len(lines):
        return None
    points = {
        label: ([run["quotas"][label] for run in found], [run["tasks"][label]["nll"] for run in found])
        for label in sorted(found[0]["quotas"])
    }
    try:
        return fit_curves_to_means(points, form="power")
    except AllocationError:
        return None
