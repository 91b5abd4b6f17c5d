"""The allocator beside its peers: few sources, a million sources, and bootstrap spreads.

    python benchmarks/allocation.py [--rounds R] [--size K] [--sources S] [--parts few,peers,many,spreads]
                                    [--families PATTERN]

Peers are pinned in the dependency group `bench`: apportionment 1.0 and apportionpy 0.3.1 (largest remainders), scipy
(bootstrap), and what one would write instead: plain Python integers (exact) and numpy in doubles. All run side by side
in one process, order alternating; figures are medians of wall and CPU time. "Right" counts answers that equal those of
rational arithmetic (plain integers are judged too, against fractions, on the small problems).
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import random
import re
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from operator import attrgetter
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # one core for everything; idle BLAS threads would burn CPU seconds

import numpy as np
import scipy
from apportionment import methods as apportionment
from apportionpy.apportionment import Apportion
from measuring import in_turn, processor
from scipy.stats import bootstrap as scipy_bootstrap

from calibudget.allocation.arrays import apportion_arrays
from calibudget.allocation.bootstrap import bootstrap
from calibudget.allocation.quotas import allocate, apportion
from calibudget.keys import named_stream

#: The mappings of an allocation.
THREE = ("quotas", "shares", "floor_quotas")
Run = Callable[[], object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=1_000_000)
    parser.add_argument("--sources", type=int, default=2_000)
    parser.add_argument("--parts", default="few,peers,many,spreads", help="which tables, with commas")
    parser.add_argument("--families", default="", help="which utilities of the table of many sources, a pattern")
    arguments = parser.parse_args()
    parts: dict[str, Run] = {
        "few": lambda: few_sources(arguments.rounds),
        "peers": lambda: peers_at_many(arguments.rounds),
        "many": lambda: many_sources(arguments.rounds, arguments.size, arguments.families),
        "spreads": lambda: spreads(arguments.rounds, arguments.sources),
    }
    for part in arguments.parts.split(","):
        parts[part]()
    print(
        f"\nPython {platform.python_version()}, numpy {np.__version__}, scipy {scipy.__version__}, "
        f"{platform.machine()} {processor()}, {os.cpu_count()} cores"
    )


# Few sources


def few_sources(rounds: int) -> None:
    """Eight sources, and how many of 2,000 problems full of ties each gets right."""
    utilities = [0.91, 1.31, 0.77, 1.02, 0.66, 1.23, 0.85, 1.17]
    names = "abcdefgh"
    pools = dict(zip(names, (9_327, 16_013, 33_310, 39_805, 63_138, 2_151, 1_019, 4_857), strict=True))
    worth = dict(zip(names, utilities, strict=True))
    peers = {
        "ours, apportion": lambda u, b: list(apportion(dict(zip(names, u, strict=False)), b).quotas.values()),
        "ours, arrays": lambda u, b: apportion_arrays(u, b).quotas.tolist(),
        "plain integers": by_integers,
        "apportionment": lambda u, b: by_apportionment(u, b, fractions=False),
        "apportionment, fractions": lambda u, b: by_apportionment(u, b, fractions=True),
        "apportionpy": by_apportionpy,
    }
    right = {name: sum(solves(peer, *problem) for problem in small_problems(2_000)) for name, peer in peers.items()}
    runs: dict[str, Run] = {name: (lambda peer=peer: peer(utilities, 931)) for name, peer in peers.items()}
    runs["ours, allocate (floors, pools)"] = lambda: allocate(pools, worth, 10_000, 1_150)
    figures = in_turn(runs, rounds, repeat=2_000)
    ours = figures["ours, allocate (floors, pools)"][1]
    print(f"\n## 8 sources\n\nmedians of {rounds} rounds of 2,000 calls\n")
    print("| what | wall us | CPU us | against ours | right of 2,000 |\n|---|---:|---:|---:|---:|")
    for name, (wall, cpu) in figures.items():
        correct = f"{right[name]:,}" if name in right else "tests/property"
        print(f"| {name} | {wall * 1e6:.1f} | {cpu * 1e6:.1f} | {cpu / ours:.2f}x | {correct} |")


def small_problems(count: int) -> Iterator[tuple[list[float], int]]:
    """2 to 8 sources, small integers (ties abound) or tenths (near ties), small budgets."""
    rng = random.Random(0)
    for number in range(count):
        scale = (1, 0.1)[number % 2]
        yield [scale * rng.randint(1, 60) for _ in range(rng.randint(2, 8))], rng.randint(1, 60)


def solves(peer: Callable[[list[float], int], Sequence[int]], utilities: list[float], budget: int) -> bool:
    try:
        return list(peer(utilities, budget)) == by_fractions(utilities, budget)
    except Exception:  # a peer that fails has not solved it
        return False


def by_fractions(utilities: Sequence[float], budget: int) -> list[int]:
    exact = [Fraction(u) for u in utilities]
    shares = [budget * u / sum(exact) for u in exact]
    quotas = [math.floor(t) for t in shares]
    order = sorted(range(len(shares)), key=lambda k: (quotas[k] - shares[k], k))
    for k in order[: budget - sum(quotas)]:
        quotas[k] += 1
    return quotas


def by_apportionment(utilities: Sequence[float], budget: int, *, fractions: bool) -> list[int]:
    votes = integers_of(utilities) if fractions else list(utilities)
    names = [str(k) for k in range(len(votes))]
    return list(apportionment.compute("largest_remainder", votes, budget, fractions=fractions, parties=names))


def integers_of(utilities: Sequence[float]) -> list[int]:
    """The utilities over a common denominator."""
    ratios = [u.as_integer_ratio() for u in utilities]
    common = math.lcm(*(d for _, d in ratios))
    return [n * (common // d) for n, d in ratios]


def by_apportionpy(utilities: Sequence[float], budget: int) -> list[int]:
    return list(Apportion(budget, list(utilities), "hamilton").fair_shares)


# Many sources


def families(size: int) -> Iterator[tuple[str, np.ndarray, np.ndarray | None, int]]:
    """Name, utilities, caps and budget; remainders that tie, nearly tie, or leave the range of doubles."""
    rng = np.random.default_rng(0)
    count = np.arange(1, size + 1, dtype=np.float64)
    caps = rng.integers(0, 40, size)
    room = int(caps.sum()) * 3 // 4
    yield "random", rng.random(size), None, 10 * size + 3
    yield "equal remainders, equal utilities", np.full(size, 0.1), None, 10 * size + size // 2
    yield "equal remainders, integers", count, None, size * (size + 1) // 4
    yield "0.1 * i", 0.1 * count, None, size * (size + 1) // 4
    yield "thirds", count / 3, None, 10 * size + 1
    yield "1e-300 to 1e300", 10.0 ** rng.uniform(-300, 300, size), None, 10 * size
    yield "subnormal", rng.integers(1, 1_000, size) * 5e-324, None, 10 * size + 1
    yield "binding caps", rng.random(size), caps, room
    yield "binding caps, equal utilities", np.full(size, 1 / 3), caps, room
    yield "all-zero utilities, caps", np.zeros(size), caps + 10, 10 * size


def peers_at_many(rounds: int) -> None:
    """How the libraries fare as sources grow; at a million `apportionment` doesn't finish."""
    print(f"\n## Libraries as sources grow\n\nmedians of {rounds} rounds; utilities are random doubles\n")
    print(
        "| sources | ours CPU ms | apportionment CPU ms (right) | apportionpy CPU ms (right) |\n|---:|---:|---:|---:|"
    )
    for size in (100, 1_000, 4_000):
        utilities = np.random.default_rng(0).random(size)
        plain, budget = utilities.tolist(), 10 * size + 3
        answers: dict[str, object] = {}
        runs: dict[str, Run] = {
            "ours": lambda u=utilities, b=budget: apportion_arrays(u, b).quotas.tolist(),
            "apportionment": lambda u=plain, b=budget: by_apportionment(u, b, fractions=False),
            "apportionpy": lambda u=plain, b=budget: by_apportionpy(u, b),
        }
        figures = in_turn(runs, rounds, answers=answers)
        exact = by_fractions(plain, budget)
        cells = [f"{figures[name][1] * 1e3:,.1f}" + told(answers[name] == exact) for name in runs]
        print(f"| {size:,} | " + " | ".join(cells) + " |", flush=True)


def told(right: bool) -> str:
    return " (yes)" if right else " (NO)"


def many_sources(rounds: int, size: int, pattern: str) -> None:
    print(f"\n## {size:,} sources\n\nmedians of {rounds} rounds\n")
    print(
        "| utilities | arrays CPU ms | integers | times | mappings, quotas | all three | integers by label | times "
        "| doubles | right | doubles |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---|---|")
    names = [f"source {k:07d}" for k in range(size)]
    for name, utilities, caps, budget in families(size):
        if not re.search(pattern, name):
            continue
        answers: dict[str, Any] = {}
        runs: dict[str, Run] = {
            "ours": lambda u=utilities, c=caps, b=budget: apportion_arrays(u, b, upper=c).quotas,
            "integers": lambda u=utilities, c=caps, b=budget: by_integers(
                u.tolist(), b, None if c is None else c.tolist()
            ),
            "doubles": lambda u=utilities, c=caps, b=budget: by_doubles(u, b, c),
        }
        worth = dict(zip(names, utilities.tolist(), strict=True))
        bounds = None if caps is None else dict(zip(names, caps.tolist(), strict=True))
        runs["mappings"] = lambda u=worth, c=bounds, b=budget: apportion(u, b, upper=c).quotas
        runs["all three"] = lambda u=worth, c=bounds, b=budget: attrgetter(*THREE)(apportion(u, b, upper=c))
        runs["by label"] = lambda u=worth, c=bounds, b=budget: by_label(u, b, c)
        figures = in_turn(runs, rounds, answers=answers)
        exact = np.array(answers["integers"])
        right = np.array_equal(answers["ours"], exact) and answers["mappings"] == answers["by label"]
        right = right and list(answers["by label"].values()) == answers["integers"]
        wrong = int((np.asarray(answers["doubles"]) != exact).sum())
        cpu = {key: figure[1] * 1e3 for key, figure in figures.items()}
        print(
            f"| {name} | {cpu['ours']:.0f} | {cpu['integers']:,.0f} | {cpu['integers'] / cpu['ours']:.0f} "
            f"| {cpu['mappings']:,.0f} | {cpu['all three']:,.0f} | {cpu['by label']:,.0f} "
            f"| {cpu['by label'] / cpu['mappings']:.1f} | {cpu['doubles']:.0f} | {'yes' if right else 'NO'} "
            f"| {f'no, {wrong:,} quotas differ' if wrong else 'yes'} |",
            flush=True,
        )


def by_integers(utilities: Sequence[float], budget: int, caps: Sequence[int] | None = None) -> list[int]:
    """What one would write to be exact: a common denominator, and rounds that settle whoever is over the cap."""
    weights = integers_of(utilities)
    if not any(weights):
        weights = [1] * len(weights)
    quotas = [0] * len(weights)
    free, left, total = range(len(weights)), budget, sum(weights)
    if caps is not None:
        while over := {k for k in free if left * weights[k] > caps[k] * total}:
            for k in over:
                quotas[k] = caps[k]
            left -= sum(caps[k] for k in over)
            total -= sum(weights[k] for k in over)
            free = [k for k in free if k not in over]
    remainders = {}
    for k in free:
        quotas[k], remainders[k] = divmod(left * weights[k], total)
    short = budget - sum(quotas)
    for k in sorted(remainders, key=remainders.__getitem__, reverse=True)[:short]:
        quotas[k] += 1
    return quotas


def by_label(utilities: Mapping[str, float], budget: int, caps: Mapping[str, int] | None = None) -> dict[str, int]:
    """The same from mappings to a mapping, labels sorted, since they settle ties."""
    labels = sorted(utilities)
    limits = None if caps is None else [caps[label] for label in labels]
    return dict(zip(labels, by_integers([utilities[label] for label in labels], budget, limits), strict=True))


def by_doubles(utilities: np.ndarray, budget: int, caps: np.ndarray | None) -> np.ndarray:
    """What one would write to be fast: the same in doubles."""
    weights = utilities if utilities.any() else np.ones(len(utilities))
    limit = np.full(len(weights), budget) if caps is None else caps
    full = np.zeros(len(weights), dtype=bool)
    while True:
        left = budget - limit[full].sum()
        shares = np.where(full, 0, weights * (left / weights[~full].sum()))
        over = ~full & (shares > limit)
        if not over.any():
            break
        full |= over
    whole = np.floor(shares)
    quotas = np.where(full, limit, whole).astype(np.int64)
    short = int(budget - quotas.sum())
    quotas[np.argsort(-(shares - whole), kind="stable")[: max(short, 0)]] += 1
    return quotas


# Bootstrap spreads


def spreads(rounds: int, sources: int) -> None:
    """200 means of 100 errors a source, each source with a stream of its own."""
    rng = np.random.default_rng(0)
    errors = [(f"source {k}", values) for k, values in enumerate(rng.random((sources, 100)) * 3)]
    runs: dict[str, Run] = {
        "ours": lambda: [sd for _, sd in bootstrap(errors, seed=42)],
        "numpy gather over Philox": lambda: [by_gather(label, values) for label, values in errors],
        "scipy, one source at a time": lambda: [by_scipy(values) for _, values in errors],
    }
    figures = in_turn(runs, rounds)
    tracemalloc.start()
    runs["ours"]()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    mine = runs["ours"]()
    gathered = np.array(runs["numpy gather over Philox"]())
    print(
        f"\n## Bootstrap spreads of {sources:,} sources\n\n200 means of 100 errors each; medians of {rounds} rounds\n"
    )
    print("| what | CPU s | CPU us a source | CPU s at 100,000 sources | against ours |\n|---|---:|---:|---:|---:|")
    for name, (_, cpu) in figures.items():
        each = cpu / sources
        print(f"| {name} | {cpu:.2f} | {each * 1e6:.0f} | {each * 1e5:.1f} | {cpu / figures['ours'][1]:.1f}x |")
    largest = np.abs(mine - gathered).max()
    print(f"\nours: {peak / 2**20:.1f} MiB at its peak; largest difference to the gather {largest:.1e}")


def by_gather(label: str, values: np.ndarray) -> float:
    draws = named_stream("bootstrap", 42, label).random_raw(200 * len(values))
    index = ((draws >> np.uint64(32)) * np.uint64(len(values))) >> np.uint64(32)
    return float(np.sort(values)[index.astype(np.int64)].reshape(200, -1).mean(axis=1).std())


def by_scipy(values: np.ndarray) -> float:
    generator = np.random.default_rng(42)
    result = scipy_bootstrap((values,), np.mean, n_resamples=200, batch=200, method="percentile", rng=generator)
    return float(result.standard_error)


if __name__ == "__main__":
    main()
