"""From a protocol to its cells, in the order in which they are run."""

from __future__ import annotations

from calibudget.study.protocol import Point, Protocol
from calibudget.study.records import Cell


def cells_of(protocol: Protocol) -> tuple[Cell, ...]:
    """Every cell of a protocol: by point, backbone, seed and policy, so that those of one seed and model follow."""
    return tuple(cell for name in protocol.points for cell in cells_of_point(protocol, name))


def cells_of_point(protocol: Protocol, name: str) -> tuple[Cell, ...]:
    """One point's cells."""
    point = protocol.points[name]
    return tuple(
        _cell(name, point, backbone, seed, policy)
        for backbone in protocol.backbones_of(point)
        for seed in point.seeds
        for policy in protocol.policies_of(point)
    )


def _cell(name: str, point: Point, backbone: str, seed: int, policy: str) -> Cell:
    transfer = point.transfer
    split_seed = seed if transfer is None else transfer.seed
    keeps_picks = transfer is not None and transfer.picks == "fixed"
    return Cell(
        point=name,
        policy=policy,
        backbone=backbone,
        seed=seed,
        budget=point.budget,
        floor=point.floor,
        unit=point.unit,
        kind="adaptive" if transfer is None else "transferred",
        split_seed=split_seed,
        selection_seed=split_seed if keeps_picks else seed,
        calibrated_on=backbone if transfer is None else transfer.backbone or backbone,
    )
