"""The cells of a protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.protocol import Point, Protocol
from testbed.results import key_of


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
