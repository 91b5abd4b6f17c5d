"""CountSketch of one long float32 vector beside a numpy scatter-add and a dense random projection.

    python benchmarks/countsketch.py [--length N] [--dimension D] [--rounds R]

All of them map a vector of N entries to D buckets. Ours and the scatter-adds apply a map whose tables are already
there, as for the second and every further vector of a run; what building ours costs stands in a line of its own.
The scatter-adds have the same buckets and signs as ready-made int64 and float32 arrays, and add float64 products, the
form for which `np.add.at` has a fast path (float32 products into float64 sums take it many times as long). The dense
projection draws a sign matrix row by row in blocks, since N x D entries fit nowhere, and is timed on N / 1000
positions and scaled.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # one core for everything; idle BLAS threads would burn CPU seconds

import numpy as np

from calibudget.selection.sketch import CountSketch

DENSE_FRACTION = 1000
DENSE_BLOCK = 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--length", type=int, default=100_000_000)
    parser.add_argument("--dimension", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    length, dimension = arguments.length, arguments.dimension
    vector = np.random.default_rng(0).standard_normal(length, dtype=np.float32)
    sketch = CountSketch(dimension=dimension, seed=42)
    buckets, signs = tables(sketch, length)
    part = max(DENSE_BLOCK, length // DENSE_FRACTION)
    runs: dict[str, Callable[[], object]] = {
        "ours": lambda: sketch(vector),
        "numpy add.at, tables ready": lambda: scatter_add(vector, buckets, signs, dimension),
        "numpy bincount, tables ready": lambda: np.bincount(buckets, weights=vector * signs, minlength=dimension),
        "dense signs, scaled": lambda: dense(vector[:part], dimension),
    }
    scales = {"dense signs, scaled": length / part}
    np.testing.assert_allclose(sketch(vector), scatter_add(vector, buckets, signs, dimension), rtol=1e-9, atol=1e-6)
    report(measure(runs, arguments.rounds, scales), length, dimension, arguments.rounds)


def tables(sketch: CountSketch, length: int) -> tuple[np.ndarray, np.ndarray]:
    buckets, signs = np.empty(length, np.int64), np.empty(length, np.float32)
    for start in range(0, length, 2**20):
        bins = sketch.bins(start, min(start + 2**20, length))
        buckets[start : start + len(bins)] = bins >> 1
        signs[start : start + len(bins)] = 1 - 2 * (bins & 1).astype(np.float32)
    return buckets, signs


def scatter_add(vector: np.ndarray, buckets: np.ndarray, signs: np.ndarray, dimension: int) -> np.ndarray:
    result = np.zeros(dimension)
    np.add.at(result, buckets, np.multiply(vector, signs, dtype=np.float64))
    return result


def dense(vector: np.ndarray, dimension: int) -> np.ndarray:
    generator, result = np.random.Generator(np.random.SFC64(0)), np.zeros(dimension)
    for start in range(0, len(vector), DENSE_BLOCK):
        block = vector[start : start + DENSE_BLOCK]
        bits = np.unpackbits(np.frombuffer(generator.bytes(len(block) * dimension // 8 + 1), np.uint8))
        matrix = bits[: len(block) * dimension].reshape(len(block), dimension).astype(np.float32)
        result += 2 * (block @ matrix) - block.sum()
    return result / np.sqrt(dimension)


def measure(
    runs: dict[str, Callable[[], object]], rounds: int, scales: dict[str, float]
) -> dict[str, tuple[float, float]]:
    """Median wall and CPU seconds of each run; every other round goes backwards."""
    walls: dict[str, list[float]] = {name: [] for name in runs}
    cpus: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds):
        for name in list(runs)[:: -1 if number % 2 else 1]:
            wall, cpu = time.perf_counter(), time.process_time()
            runs[name]()
            walls[name].append((time.perf_counter() - wall) * scales.get(name, 1.0))
            cpus[name].append((time.process_time() - cpu) * scales.get(name, 1.0))
    return {name: (statistics.median(walls[name]), statistics.median(cpus[name])) for name in runs}


def report(figures: dict[str, tuple[float, float]], length: int, dimension: int, rounds: int) -> None:
    ours = figures["ours, table kept"]
    print(f"\n{length:,} float32 values to {dimension:,} buckets; medians of {rounds} rounds, order alternating\n")
    print("| what | wall s | CPU s | CPU ns a value | CPU against ours |")
    print("|---|---:|---:|---:|---:|")
    for name, (wall, cpu) in figures.items():
        print(f"| {name} | {wall:.3f} | {cpu:.3f} | {cpu / length * 1e9:.2f} | {cpu / ours[1]:.2f}x |")
    print(f"\nnumpy {np.__version__}, Python {platform.python_version()}, {platform.machine()} {processor()}")


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


if __name__ == "__main__":
    main()
