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
from collections.abc import Callable

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # one core for everything; idle BLAS threads would burn CPU seconds

import numpy as np
from measuring import in_turn, processor

from calibudget.selection.count_sketch import CountSketch

DENSE_FRACTION = 1000
DENSE_BLOCK = 256
OURS, DENSE = "ours, table kept", "dense signs, scaled"


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
        OURS: lambda: sketch(vector),
        "numpy add.at, tables ready": lambda: scatter_add(vector, buckets, signs, dimension),
        "numpy bincount, tables ready": lambda: np.bincount(buckets, weights=vector * signs, minlength=dimension),
        DENSE: lambda: dense(vector[:part], dimension),
    }
    np.testing.assert_allclose(sketch(vector), scatter_add(vector, buckets, signs, dimension), rtol=1e-9, atol=1e-6)
    figures = in_turn(runs, arguments.rounds)
    figures[DENSE] = tuple(seconds * length / part for seconds in figures[DENSE])
    report(figures, length, dimension, arguments.rounds)


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


def report(figures: dict[str, tuple[float, float]], length: int, dimension: int, rounds: int) -> None:
    ours = figures[OURS]
    print(f"\n{length:,} float32 values to {dimension:,} buckets; medians of {rounds} rounds, order alternating\n")
    print("| what | wall s | CPU s | CPU ns a value | CPU against ours |")
    print("|---|---:|---:|---:|---:|")
    for name, (wall, cpu) in figures.items():
        print(f"| {name} | {wall:.3f} | {cpu:.3f} | {cpu / length * 1e9:.2f} | {cpu / ours[1]:.2f}x |")
    print(f"\nnumpy {np.__version__}, Python {platform.python_version()}, {platform.machine()} {processor()}")


if __name__ == "__main__":
    main()
