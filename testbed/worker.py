"""What one process does: cells in the protocol's order, each the first that nobody has taken."""

from __future__ import annotations

import hashlib
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import calibudget
from calibudget.errors import ArtefactError, CalibudgetError
from testbed.bench import Bench
from testbed.choice import macro
from testbed.claims import Claims
from testbed.data import HalfData, read_half
from testbed.families import Half
from testbed.grid import Place, cell_key, cells
from testbed.policies import decide
from testbed.protocol import read_protocol
from testbed.results import RESULTS_NAME, Line, Results

if TYPE_CHECKING:
    from testbed.lab import Lab


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What all processes need to know.

    Attributes:
        protocol: the protocol's file.
        data: folder of the generated data.
        model: name or path of the model, as `calibudget.lm.loading.load_model` takes it.
        results: folder of the results, the only one that is worth keeping.
        deadline: seconds since the epoch after which no cell is begun, None for none.
        device: as `load_model` takes it.
        execution: options of `training.config.Execution`.
        score_tokens: most tokens of one forward while measuring.
        only: points to run, empty for all.
    """

    protocol: Path
    data: Path
    model: str
    results: Path
    deadline: float | None = None
    device: str = "auto"
    execution: Mapping[str, Any] | None = None
    score_tokens: int | None = None
    only: tuple[str, ...] = ()


class Worker:
    """One process's share of the work.

    Args:
        job: what is to be done.
        work: folder of the locks and claims of all its processes.
        note: told of each cell.
    """

    def __init__(self, job: Job, work: Path, note: Callable[[str], None]) -> None:
        self._job, self._work, self._note = job, work, note
        self._protocol = read_protocol(job.protocol)
        self._results = Results(job.results / RESULTS_NAME)
        self._benches: dict[Half, Bench] = {}
        self._claims = Claims(work / "claims")

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
                seconds = time.perf_counter() - begun
                self._note(f"{place.name}: macro NLL {macro(self._results, line):.4f}, {seconds:.1f} s")
        return True

    def _next(self) -> Place | None:
        """Claim the first cell that is left."""
        if self._job.deadline is not None and time.time() >= self._job.deadline:
            return None
        left = (
            place
            for place in cells(self._protocol, self._job.only)
            if self._results.find(cell_key(self._protocol, place)) is None
        )
        return next((place for place in left if self._claims.take(place.name)), None)

    def _run(self, place: Place) -> Line:
        rule = self._protocol.policies[place.policy]
        bench = self._bench(place.point.half)
        decision = decide(bench, place.point, rule, place.seed)
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
        return self._results.add(cell_key(self._protocol, place), values)

    def _bench(self, half: Half) -> Bench:
        if half not in self._benches:
            self._benches[half] = Bench(self._data(half), self._protocol, self._results, self._work, lambda: self._lab)
        return self._benches[half]

    def _data(self, half: Half) -> HalfData:
        return read_half(self._job.data, half)

    @cached_property
    def _lab(self) -> Lab:
        from calibudget.lm.loading import load_model
        from calibudget.training.config import Execution, parse_options
        from testbed.lab import Lab

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


def code_sha256() -> str:
    """Digest of the sources of the package and of the testbed."""
    state = hashlib.sha256()
    for root in (Path(calibudget.__file__).parent, Path(__file__).parent):
        for path in sorted(root.rglob("*.py")):
            name = path.relative_to(root.parent).as_posix()
            state.update(f"{name}\0".encode() + path.read_bytes() + b"\0")
    return state.hexdigest()
