"""What the benchmarks share that needs no GPU: runs in turn, whole processes, calibration records, the processor."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

#: Where figures are written unless a script is told otherwise.
OUTPUT = Path(os.environ.get("OUT", ROOT / "benchmarks" / "results"))
#: The paper's eight commonsense sources; HellaSwag's records are those of its validation set.
SOURCES = ("arc_challenge", "arc_easy", "boolq", "hellaswag", "openbookqa", "piqa", "social_i_qa", "winogrande")

_PROCESS = """
import resource, time
start = time.perf_counter()
{code}
use = resource.getrusage(resource.RUSAGE_SELF)
cpu = use.ru_utime + use.ru_stime
print(time.perf_counter() - start, cpu, globals().get("step", cpu), use.ru_maxrss / 1024)
"""


def in_turn(
    runs: Mapping[str, Callable[[], object]],
    rounds: int,
    *,
    repeat: int = 1,
    answers: dict[str, object] | None = None,
) -> dict[str, tuple[float, float]]:
    """Median wall and CPU seconds of a call of each run; every other round goes backwards."""
    walls: dict[str, list[float]] = {name: [] for name in runs}
    cpus: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds):
        for name in list(runs)[:: -1 if number % 2 else 1]:
            run = runs[name]
            wall, cpu = time.perf_counter(), time.process_time()
            for _ in range(repeat):
                answer = run()
            walls[name].append((time.perf_counter() - wall) / repeat)
            cpus[name].append((time.process_time() - cpu) / repeat)
            if answers is not None:
                answers[name] = answer
    return {name: (statistics.median(walls[name]), statistics.median(cpus[name])) for name in runs}


def in_process(code: str) -> tuple[float, float, float, float] | str:
    """Seconds, CPU seconds, those that the code calls `step`, and peak MB of a process; or its last words."""
    done = subprocess.run([sys.executable, "-c", _PROCESS.format(code=code)], capture_output=True, text=True)
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["no reason"])[-1][:60]
    wall, cpu, step, memory = map(float, done.stdout.split())
    return wall, cpu, step, memory


def processor() -> str:
    """The processor's own name, where the system tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def installed(*names: str) -> str:
    """Names of packages that are installed, each with its version."""
    texts = []
    for name in names:
        try:
            texts.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(texts)


def calibration_items(*sizes: int) -> dict[int, list[Any]]:
    """So many calibration records of each of the commonsense sources (seed 42), by size; needs CALIBUDGET_DATA."""
    from calibudget.scoring.scorer import CalibrationItem
    from calibudget.sources.spec import SourceSpec
    from calibudget.sources.split import Parting
    from calibudget.sources.whole_source import open_source

    items: dict[int, list[Any]] = {size: [] for size in sizes}
    for label in SOURCES:
        name = "hellaswag_valsplit" if label == "hellaswag" else label
        spec = SourceSpec(label=label, path=f"commonsense/{name}.train.jsonl.gz", preset=label, duplicates="keep")
        source = open_source(spec, Path(os.environ["CALIBUDGET_DATA"]), selection_seed=42)
        for size, own in items.items():
            split = Parting(source).draw(split_seed=42, calibration_size=size).split()
            own += [CalibrationItem(record=record, answer=spec.answers) for record in split.calibration]
    return items


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def write_rows(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    """Rows as JSON lines."""
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines))
    print(f"{len(lines)} rows, {path.stat().st_size:,} bytes: {path}")
