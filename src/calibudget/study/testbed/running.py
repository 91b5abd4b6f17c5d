"""Running a protocol's cells: in one process or several, in the protocol's order, resumable after anything.

Cells run seed by seed, so that what is finished at any time is paired. Each process takes the first cell that nobody
has taken and that can run now; what cells share is measured by whoever comes first.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from calibudget.allocation import POLICIES
from calibudget.allocation.searching import fit_curves_to_means
from calibudget.errors import AllocationError, ArtefactError, CalibudgetError
from calibudget.records import Curve
from calibudget.study.testbed.bench import Bench
from calibudget.study.testbed.choosing import choose, macro
from calibudget.study.testbed.claiming import Claims
from calibudget.study.testbed.deciding import decide
from calibudget.study.testbed.families import Half
from calibudget.study.testbed.generate import HalfData, data_sha256, read_half
from calibudget.study.testbed.protocol import Point, PolicyRule, Protocol, read_protocol
from calibudget.study.testbed.results import RESULTS_NAME, Line, Results, key_of

if TYPE_CHECKING:
    from calibudget.study.testbed.lab import Lab

_WAIT: Final = 0.5
#: How often a place is filled again after its process failed, and the exit code that says so.
_RESTARTS: Final = 3
_FAULTY: Final = 17


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What all processes need to know.

    Attributes:
        protocol: the protocol's file.
        data: folder of the generated data.
        model: name or path of the model, as `calibudget.lm.load_model` takes it.
        results: folder of the results, the only one that is worth keeping.
        work: folder of locks and claims.
        deadline: seconds since the epoch after which no cell is begun, None for none.
        device: as `load_model` takes it.
        execution: options of `training.Execution`.
        score_tokens: most tokens of one forward while measuring.
        only: points to run, empty for all.
    """

    protocol: Path
    data: Path
    model: str
    results: Path
    work: Path
    deadline: float | None = None
    device: str = "auto"
    execution: Mapping[str, Any] | None = None
    score_tokens: int | None = None
    only: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """One cell of the protocol's grid."""

    point: Point
    policy: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.point.name}/{self.policy}/{self.seed}"


def cells(protocol: Protocol, only: Sequence[str] = ()) -> list[_Place]:
    """Every cell in the order in which they run: point by point, seed by seed."""
    return [
        _Place(point=point, policy=policy, seed=seed)
        for point in protocol.points
        if not only or point.name in only
        for seed in point.seeds
        for policy in point.policies
    ]


def run_testbed(job: Job, *, gpus: Sequence[int] = (), processes: int = 1, note: Callable[[str], None]) -> int:
    """Run what is left of a protocol.

    Args:
        job: what to run, where.
        gpus: the GPUs to run on; empty runs in this process on what it has.
        processes: on each GPU.
        note: told of each finished cell.

    Returns:
        How many cells are still unfinished.

    Raises:
        RecipeError, ArtefactError: a protocol or data that can't be used, or results of other ones.
    """
    protocol = read_protocol(job.protocol)
    binding = {"protocol": protocol.sha256, "data": data_sha256(job.data)}
    if protocol.data_sha256 not in (None, binding["data"]):
        raise ArtefactError(f"{job.data}: isn't the data of the protocol (its data_sha256 differs)")
    results = Results.create(job.results / RESULTS_NAME, binding)
    shutil.rmtree(job.work, ignore_errors=True)
    job.work.mkdir(parents=True)
    if gpus:
        _spawn(job, gpus, processes)
    else:
        Worker(job, note).work()
    return sum(results.find(_cell_key(protocol, place)) is None for place in cells(protocol, job.only))


def _spawn(job: Job, gpus: Sequence[int], processes: int) -> None:
    """Keep processes at work; one that a fault of its own ended is followed by another, without compilation."""
    seats = [_Seat(job=job, gpu=gpu, number=number) for number in range(processes) for gpu in gpus]
    for seat in seats:
        seat.start(fallback=False)
    while True:
        for seat in seats:
            if not seat.is_busy and seat.failed and seat.starts <= _RESTARTS:
                seat.start(fallback=True)
        if not any(seat.is_busy for seat in seats):
            return
        time.sleep(_WAIT)


@dataclass(slots=True, kw_only=True)
class _Seat:
    """A place for one process on one GPU."""

    job: Job
    gpu: int
    number: int
    starts: int = 0
    process: Any = None

    def start(self, *, fallback: bool) -> None:
        os.environ["CUDA_VISIBLE_DEVICES"] = str(self.gpu)
        job = replace(self.job, execution={**(self.job.execution or {}), "compile": False}) if fallback else self.job
        name = f"gpu {self.gpu} #{self.number}" + (" uncompiled" if fallback else "")
        self.process = get_context("spawn").Process(target=_child, args=(job, name), daemon=True)
        self.process.start()
        self.starts += 1

    @property
    def is_busy(self) -> bool:
        return bool(self.process.is_alive())

    @property
    def failed(self) -> bool:
        return bool(self.process.exitcode != 0)


def _child(job: Job, name: str) -> None:
    begun = time.perf_counter()

    def note(text: str) -> None:
        print(f"[{time.perf_counter() - begun:7.1f} s] {name}: {text}", file=sys.stderr, flush=True)

    if not Worker(job, note).work():
        os._exit(_FAULTY)  # a process whose GPU state is in doubt has nothing to tidy up


class Worker:
    """One process's share of the work."""

    def __init__(self, job: Job, note: Callable[[str], None]) -> None:
        self._job, self._note = job, note
        self._protocol = read_protocol(job.protocol)
        self._results = Results(job.results / RESULTS_NAME)
        self._benches: dict[Half, Bench] = {}
        self._claims = Claims(job.work / "claims")
        self._limits: dict[str, dict[str, Curve]] = {}

    def work(self) -> bool:
        """Run cells until none is left, or until the deadline.

        Returns:
            Whether all went well. After an error that nobody foresaw, such as one of the GPU's, the process ends with
            False, and its cell is left to one more attempt; a cell that can't be made is noted, and the others go on.
        """
        while (place := self._next()) is not None:
            begun = time.perf_counter()
            try:
                line = self._run(place)
            except CalibudgetError as error:
                self._claims.fail(place.name, for_good=True)
                self._note(f"{place.name} FAILED: {error}")
            except Exception:
                self._claims.fail(place.name, for_good=False)
                self._note(f"{place.name} FAILED: {traceback.format_exc()}")
                return False
            else:
                self._claims.finish(place.name)
                seconds = time.perf_counter() - begun
                self._note(f"{place.name}: macro NLL {macro(self._results, line):.4f}, {seconds:.1f} s")
        return True

    @property
    def _is_late(self) -> bool:
        return self._job.deadline is not None and time.time() >= self._job.deadline

    def _next(self) -> _Place | None:
        """Claim the first cell that can run now; wait where only others' work is in the way."""
        while not self._is_late:
            waiting = False
            for place in cells(self._protocol, self._job.only):
                if self._results.find(_cell_key(self._protocol, place)) is not None:
                    continue
                if not self._is_ready(place):
                    waiting = True
                elif self._claims.take(place.name):
                    return place
            if not waiting or not self._claims.others_work():
                return None
            time.sleep(_WAIT)
        return None

    def _is_ready(self, place: _Place) -> bool:
        rule = self._protocol.policies[place.policy]
        if rule.rule == "chosen":
            return choose(self._protocol, self._results, rule) is not None
        return rule.rule != "limit" or self._limit(place.point) is not None

    def _run(self, place: _Place) -> Line:
        rule = self._rule(place)
        bench = self._bench(place.point.half)
        decision = decide(bench, place.point, rule, place.seed, self._limit(place.point))
        measured = bench.run(place.seed, decision.quotas)
        values: dict[str, object] = {
            "point": place.point.name,
            "policy": place.policy,
            "seed": place.seed,
            "half": place.point.half,
            "quotas": dict(decision.quotas),
            "run": measured["key"],
            "rule": rule.model_dump(mode="json"),
            "warm_up_examples": decision.examples,
            "warm_up_seconds": round(decision.seconds, 3),
            "predicted": decision.predicted,
            "notes": dict(decision.notes),
            "code": self._code,
            "device": self._device,
        }
        return self._results.add(_cell_key(self._protocol, place), values)

    def _rule(self, place: _Place) -> PolicyRule:
        rule = self._protocol.policies[place.policy]
        if rule.rule != "chosen":
            return rule
        name = choose(self._protocol, self._results, rule)
        if name is None:
            raise AllocationError("chosen: the cells that it compares aren't finished")
        return self._protocol.policies[name].model_copy(update={"charged": rule.charged})

    def _limit(self, point: Point) -> dict[str, Curve] | None:
        """Curves through the held-out NLLs of finished cells, which no policy may see; None until they are there.

        They go through the cells of the paper's policies at the first seeds of the first point of this setting.
        """
        first = self._protocol.same_setting(point)[0]
        if first.name in self._limits:
            return self._limits[first.name]
        lines = [
            self._results.find(_cell_key(self._protocol, _Place(point=first, policy=policy, seed=seed)))
            for seed in first.seeds[:LIMIT_SEEDS]
            for policy in first.policies
            if self._protocol.policies[policy].rule in POLICIES
        ]
        runs = [self._results.find(line["run"]) for line in lines if line is not None]
        found = [run for run in runs if run is not None]
        if not found or len(found) < len(lines):
            return None
        points = {
            label: ([run["quotas"][label] for run in found], [run["tasks"][label]["nll"] for run in found])
            for label in sorted(found[0]["quotas"])
        }
        try:
            self._limits[first.name] = fit_curves_to_means(points, form="power")
        except AllocationError:
            return None  # all policies gave a source the same quota: no curve shows
        return self._limits[first.name]

    def _bench(self, half: Half) -> Bench:
        if half not in self._benches:
            self._benches[half] = Bench(
                self._data(half), self._protocol, self._results, self._job.work, lambda: self._lab
            )
        return self._benches[half]

    def _data(self, half: Half) -> HalfData:
        return read_half(self._job.data, half)

    @cached_property
    def _lab(self) -> Lab:
        from calibudget.lm import load_model
        from calibudget.study.testbed.lab import Lab
        from calibudget.training import Execution, parse_options

        begun = time.perf_counter()
        model = load_model(self._job.model, device=self._job.device)  # type: ignore[arg-type]
        expected = self._protocol.model_sha256
        if expected is not None and model.identity.get("sha256") != expected:
            raise ArtefactError(f"{self._job.model}: isn't the model of the protocol (its model_sha256 differs)")
        lab = Lab(
            model,
            self._protocol.config,
            parse_options(Execution, self._job.execution or {}),
            score_tokens=self._job.score_tokens,
            max_new_tokens=self._protocol.calibration.max_new_tokens,
        )
        self._note(f"loaded on {self._device} in {time.perf_counter() - begun:.1f} s")
        return lab

    @cached_property
    def _device(self) -> str:
        import torch

        return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"

    @cached_property
    def _code(self) -> str:
        return code_sha256()


#: Seeds of a point whose finished cells `limit` fits its curves to.
LIMIT_SEEDS: Final = 3


def code_sha256() -> str:
    """Digest of the package's sources."""
    root = Path(__file__).parents[2]
    state = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        state.update(f"{path.relative_to(root).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return state.hexdigest()


def _cell_key(protocol: Protocol, place: _Place) -> str:
    return key_of("cell", protocol=protocol.sha256, point=place.point.name, policy=place.policy, seed=place.seed)
