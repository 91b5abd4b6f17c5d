"""The finished cells of a study, and the numbers that its comparisons are made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from calibudget.errors import StudyError
from calibudget.messages import counted
from calibudget.store.canonical import read_object
from calibudget.study.cell_records import ITEMS_NAME, Cell, CellResult, Items, read_items
from calibudget.study.execution import FAILURE_NAME, read_finished
from calibudget.study.freeze import plan_cells, read_frozen
from calibudget.study.grid import StopRule, cells_of, cells_of_point, endpoint_value
from calibudget.study.protocol import Point, Protocol, Status, protocol_from_json
from calibudget.study.reporting.claims import Effects, effects
from calibudget.study.run import status_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The cells of one point on one backbone, which are compared with each other.

    Attributes:
        status: how its results count.
        seeds: seeds of which every policy's cell is finished.
        planned: seeds that the protocol names.
        final: whether all planned seeds are there, or the continuation criterion has ended the point; until then no
            claim may be judged.
        policies: in the protocol's order.
        comparator: what the focus is compared with.
    """

    point: str
    backbone: str
    status: Status
    seeds: tuple[int, ...]
    planned: tuple[int, ...]
    final: bool
    policies: tuple[str, ...]
    comparator: str
    results: Results = field(repr=False, compare=False)

    @property
    def protocol(self) -> Protocol:
        """The protocol in force."""
        return self.results.protocol

    @property
    def focus(self) -> str:
        """The policy that claims are of."""
        return self.protocol.focus

    @property
    def definition(self) -> Point:
        """Its point as the protocol has it."""
        return self.protocol.points[self.point]

    @property
    def key(self) -> str:
        """Its part of a table's or a figure's name."""
        return f"{self.point}-{self.backbone}"

    @property
    def place(self) -> str:
        """Its name in titles."""
        return f"{self.point}, {self.backbone}"

    @property
    def seeds_counted(self) -> str:
        """How many seeds it is of, and of how many where some of the frozen ones aren't there."""
        seeds, planned = len(self.seeds), len(self.planned)
        return f"{'' if seeds == planned else f'{seeds} of '}{counted(planned, 'seed')}"

    @property
    def standing(self) -> str:
        """How its results count, and whether they are only interim ones."""
        return self.status if self.final else f"{self.status}, interim: {self.seeds_counted}"

    @property
    def seeds_note(self) -> str:
        """The seeds that it is of, and what one seed can't say."""
        listed = ", ".join(map(str, self.seeds))
        return f"Seeds {listed}." if len(self.seeds) > 1 else f"Seed {listed} alone: it says nothing of spread."

    @property
    def is_compared(self) -> bool:
        """Whether it has both the focus and its comparator."""
        return {self.focus, self.comparator} <= set(self.policies)

    @property
    def is_claimed(self) -> bool:
        """Whether it trains both, so that it can be said which is better."""
        return self.is_compared and self.definition.train

    def result(self, policy: str, seed: int) -> CellResult:
        """One finished cell."""
        return self.results.by_place[self.point, self.backbone, policy, seed]

    def quotas(self, policy: str) -> dict[int, Mapping[str, int]]:
        """A policy's quotas by seed."""
        return {seed: self.result(policy, seed).quotas for seed in self.seeds}

    def undefined(self, endpoint: str) -> tuple[str, ...]:
        """Names of the finished cells of focus and comparator in which an endpoint is undefined."""
        cells = (self.result(p, s) for s in self.seeds for p in (self.focus, self.comparator))
        return tuple(one.cell.name for one in cells if endpoint_value(self.protocol, endpoint, one) is None)

    def series(self, policy: str, endpoint: str) -> dict[int, float] | None:
        """An endpoint by seed; None where it is undefined for one of them, never a mean of fewer."""
        found = {seed: endpoint_value(self.protocol, endpoint, self.result(policy, seed)) for seed in self.seeds}
        known = {seed: value for seed, value in found.items() if value is not None}
        return known if len(known) == len(found) else None

    def paired(self, endpoint: str, other: str | None = None) -> Effects | None:
        """Differences by seed, focus minus another policy (the comparator); None where the endpoint is undefined."""
        first, second = self.series(self.focus, endpoint), self.series(other or self.comparator, endpoint)
        return None if first is None or second is None else effects(first, second)

    def task_scores(self, policy: str, endpoint: str) -> dict[tuple[str, int], float] | None:
        """The scores behind an endpoint by task and seed; None where one is undefined."""
        measure = self.protocol.endpoints[endpoint].measure
        found: dict[tuple[str, int], float] = {}
        for seed in self.seeds:
            tasks = self.result(policy, seed).tasks
            for task in self.protocol.weights(endpoint):
                value = tasks[task].metrics.get(measure) if task in tasks and tasks[task].items else None
                if value is None:
                    return None
                found[task, seed] = value
        return found

    def items(self, policy: str, seed: int) -> Mapping[tuple[str, str], Items] | None:
        """Items of one cell by task and metric; None where it kept none."""
        result = self.result(policy, seed)
        folder = self.results.folders.get(result.cell)
        return None if folder is None or "items" not in result.digests else read_items(folder / ITEMS_NAME)


@dataclass(frozen=True, kw_only=True)
class Results:
    """What a study holds.

    Attributes:
        protocol: the version in force.
        folders: where each lies.
        missing: cells without a result that nothing stopped, with what is known of why.
        stopped: why cells weren't run.
    """

    protocol: Protocol
    results: Mapping[Cell, CellResult]
    statuses: Mapping[str, Status]
    folders: Mapping[Cell, Path] = field(default_factory=dict)
    missing: Mapping[Cell, str] = field(default_factory=dict)
    stopped: Mapping[Cell, str] = field(default_factory=dict)

    @cached_property
    def by_place(self) -> dict[tuple[str, str, str, int], CellResult]:
        """Finished cells by point, backbone, policy and seed."""
        return {(c.point, c.backbone, c.policy, c.seed): found for c, found in self.results.items()}

    def blocks(self) -> Iterator[Block]:
        """Every point on every backbone of which some seed is whole."""
        return (block for block in self.planned_blocks() if block.seeds)

    def planned_blocks(self) -> Iterator[Block]:
        """Every point on every backbone, whether any of it is finished or not."""
        for name, point in self.protocol.points.items():
            policies = self.protocol.policies_of(point)
            for backbone in self.protocol.backbones_of(point):
                whole = tuple(
                    seed for seed in point.seeds if all((name, backbone, p, seed) in self.by_place for p in policies)
                )
                yield Block(
                    point=name,
                    backbone=backbone,
                    status=self.statuses[name],
                    seeds=whole,
                    planned=point.seeds,
                    final=all(
                        self._settled(cell) for cell in cells_of_point(self.protocol, name) if cell.backbone == backbone
                    ),
                    policies=policies,
                    comparator=self.protocol.comparator_of(point),
                    results=self,
                )

    def _settled(self, cell: Cell) -> bool:
        """Whether a cell is finished, or stopped by a criterion whose own cells are settled.

        A criterion also stops what it can't judge yet; that is no end of the point while its cells may still come.
        """
        if cell in self.results or cell not in self.stopped:
            return cell in self.results
        stops = StopRule(protocol=self.protocol)
        return all(self._settled(other) for other in cells_of(self.protocol) if stops.looks_at(cell, other))


def load_results(directory: Path, *, partial: bool = False) -> Results:
    """Read a study's cells, each held to what is frozen.

    Raises:
        ArtefactError: nothing is frozen there, or a folder holds a cell of other code, data or settings.
        StudyError: cells are missing and `partial` is off, or none is finished.
    """
    frozen = read_frozen(directory)
    protocol = protocol_from_json(frozen.last.protocol, directory)
    planned = plan_cells(protocol, frozen, directory)
    found = {one.cell: (one.directory, result) for one in planned if (result := read_finished(one)) is not None}
    results = {cell: result for cell, (_, result) in found.items()}
    if not results:
        raise StudyError(f"{directory}: no cell is finished; `calibudget study run` makes them")
    stops = StopRule(protocol=protocol)
    left = [one for one in planned if one.cell not in results]
    stopped = {one.cell: reason for one in left if (reason := stops.reason(one.cell, results)) is not None}
    missing = {one.cell: _why(one.directory) for one in left if one.cell not in stopped}
    if missing and not partial:
        first = next(iter(missing))
        raise StudyError(
            f"{directory}: {len(missing)} of {len(planned)} cells are missing, the first {first.name} "
            f"({missing[first]}); `calibudget study run` makes them, `--partial` reports without them"
        )
    return Results(
        protocol=protocol,
        results=results,
        statuses={name: status_of(protocol, frozen, name) for name in protocol.points},
        folders={cell: folder for cell, (folder, _) in found.items()},
        missing=missing,
        stopped=stopped,
    )


def _why(directory: Path) -> str:
    path = directory / FAILURE_NAME
    if not path.exists():
        return "not run yet"
    note = read_object(path)
    return f"failed: {note.get('error')}: {note.get('message')}"
