"""Running a protocol's cells: in this process or in several on GPUs, resumable after anything.

Cells run seed by seed, so that what is finished at any time is paired. What cells share is measured by whoever comes
first.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from calibudget.errors import ArtefactError
from testbed.data import data_sha256
from testbed.grid import cell_key, cells
from testbed.protocol import read_protocol
from testbed.results import RESULTS_NAME, Results
from testbed.worker import Job, Worker

__all__ = ["Job", "run_testbed"]

_WAIT: Final = 0.5
#: How often a place is filled again after its process failed, and the exit code that says so.
_RESTARTS: Final = 3
_FAULTY: Final = 17


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
    with TemporaryDirectory(prefix="calibudget-testbed-", ignore_cleanup_errors=True) as work:
        if gpus:
            _spawn(job, Path(work), gpus, processes)
        else:
            Worker(job, Path(work), note).work()
    return sum(results.find(cell_key(protocol, place)) is None for place in cells(protocol, job.only))


def _spawn(job: Job, work: Path, gpus: Sequence[int], processes: int) -> None:
    """Keep processes at work; one that a fault of its own ended is followed by another, without compilation."""
    seats = [_Seat(job=job, work=work, gpu=gpu, number=number) for number in range(processes) for gpu in gpus]
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
    work: Path
    gpu: int
    number: int
    starts: int = 0
    process: Any = None

    def start(self, *, fallback: bool) -> None:
        os.environ["CUDA_VISIBLE_DEVICES"] = str(self.gpu)
        job = replace(self.job, execution={**(self.job.execution or {}), "compile": False}) if fallback else self.job
        name = f"gpu {self.gpu} #{self.number}" + (" uncompiled" if fallback else "")
        self.process = get_context("spawn").Process(target=_child, args=(job, self.work, name), daemon=True)
        self.process.start()
        self.starts += 1

    @property
    def is_busy(self) -> bool:
        return bool(self.process.is_alive())

    @property
    def failed(self) -> bool:
        return bool(self.process.exitcode != 0)


def _child(job: Job, work: Path, name: str) -> None:
    begun = time.perf_counter()

    def note(text: str) -> None:
        print(f"[{time.perf_counter() - begun:7.1f} s] {name}: {text}", file=sys.stderr, flush=True)

    if not Worker(job, work, note).work():
        os._exit(_FAULTY)  # a process whose GPU state is in doubt has nothing to tidy up
