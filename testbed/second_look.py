"""A second look at a testbed whose claims were about nats a token: a description of what its lines say besides.

    python -m testbed.second_look PROTOCOL --results DIR --data DIR

The same claims about right answers, and about nats an answer instead of nats a token, each with Holm's adjustment over
a policy's claims; how much comparators differ from each other; and the best quotas by curves through all trainings.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from itertools import combinations, permutations
from pathlib import Path
from statistics import fmean

import numpy as np

from calibudget.lm.encoding import Encoder
from calibudget.lm.loading import load_tokenizer
from calibudget.study.reporting.claims import Effects, effects, judge_claims, t_interval
from testbed.analysis import PointResults, finished
from testbed.bench import unpacked
from testbed.curves import Curve, best_quotas, fit_curve, predicted
from testbed.data import read_half
from testbed.families import HALVES
from testbed.protocol import read_protocol
from testbed.report import declared, table
from testbed.results import RESULTS_NAME, Results

#: Comparators whose quotas differ by less of the budget, on average over seeds, say the same thing twice.
ALIKE = 0.05


def answer_nats(point: PointResults, policy: str, tokens: Mapping[str, np.ndarray]) -> dict[int, float]:
    """Mean over families of the NLL of a whole reference answer, by seed, nats."""
    return {
        seed: fmean(
            float((unpacked(point.runs[policy, seed]["items"][label]) * tokens[label]).mean()) for label in point.labels
        )
        for seed in point.seeds(policy)
    }


def test_tokens(data: Path, point: PointResults, count: int) -> dict[str, np.ndarray]:
    """Response tokens of the held-out records, end token included, by family."""
    encoder = Encoder("alpaca", load_tokenizer("embedded"))
    return {
        label: np.array([len(one.response_ids) for one in encoder.encode_all(list(family.test[:count]))])
        for label, family in read_half(data, point.point.half).families.items()
    }


def shared_effects(mine: Mapping[int, float], others: Mapping[int, float]) -> Effects:
    """Paired differences over the seeds that both have."""
    seeds = sorted(mine.keys() & others.keys())
    return effects({seed: mine[seed] for seed in seeds}, {seed: others[seed] for seed in seeds})


def judged(found: Mapping[str, Effects], planned: int, *, higher: bool, factor: float, digits: int) -> str:
    """The differences from every comparator with Holm's p over the planned claims."""
    verdicts = judge_claims(
        {name: (one, "higher" if higher else "lower") for name, one in found.items()}, unjudged=planned - len(found)
    )
    rows = []
    for name, one in found.items():
        low, high = t_interval(one) or (math.nan, math.nan)
        claim = verdicts[name]
        said = "shown to be better" if claim.supported else "shown to be worse" if claim.opposed else "not shown"
        change = f"{factor * one.mean:+.{digits}f} [{factor * low:+.{digits}f}, {factor * high:+.{digits}f}]"
        adjusted = "" if claim.adjusted_p is None else f"{claim.adjusted_p:.2g}"
        rows.append([name, str(one.seeds), change, "" if claim.p is None else f"{claim.p:.2g}", adjusted, said])
    return table(["minus", "seeds", "difference, 95%", "p", "Holm p", "said"], rows)


def likeness(point: PointResults, policies: Sequence[str]) -> str:
    """By how much of the budget quotas of two policies differ, on average over the seeds."""
    rows = []
    for one, other in combinations([policy for policy in policies if policy in point.policies], 2):
        shares = [
            sum(abs(point.cells[one, seed]["quotas"][k] - point.cells[other, seed]["quotas"][k]) for k in point.labels)
            / (2 * point.point.budget)
            for seed in point.seeds(one)
            if (other, seed) in point.cells
        ]
        if shares and fmean(shares) < ALIKE:
            rows.append([f"{one}, {other}", f"{100 * fmean(shares):.1f}"])
    return table(["comparators that are nearly one", "share of the budget that they spend differently, %"], rows)


def curves_through_all(point: PointResults) -> dict[str, Curve]:
    """A curve a family through the held-out NLLs of all trainings of the setting."""
    runs = {run["key"]: run for run in point.runs.values()}.values()
    return {
        label: fit_curve([run["quotas"][label] for run in runs], [run["tasks"][label]["nll"] for run in runs])
        for label in point.labels
    }


def pools(point: PointResults) -> dict[str, int]:
    """Each family's pool."""
    own = {family.name: family.pool for family in HALVES[point.point.half]}
    return {label: own[label] for label in point.labels}


def best_by_all(point: PointResults, curves: Mapping[str, Curve]) -> str:
    """The best quotas by curves through all trainings, and where every policy stands by them."""
    lower = dict.fromkeys(curves, point.point.floor)
    start = point.cells["equal", point.seeds("equal")[0]]["quotas"]
    least = predicted(curves, best_quotas(curves, start, lower=lower, upper=pools(point)))
    rows = [["best by all trainings", f"{least:.4f}", "", ""]]
    for policy in point.policies:
        quotas = {label: round(quota) for label, quota in point.quotas(policy).items()}
        value = predicted(curves, quotas)
        measured = fmean(point.macro(policy, "nll").values())
        rows.append([policy, f"{value:.4f}", f"{100 * (value / least - 1):+.1f}", f"{measured:.4f}"])
    return table(["quotas of", "predicted macro NLL", "above the best, %", "measured"], rows)


def pool_luck(point: PointResults, curves: Mapping[str, Curve]) -> str:
    """Where proportional quotas stand among those of all assignments of the same pools to the families.

    Their loss is read off the curves, their answers off parabolas in the logarithm of the quota.
    """
    seed = point.seeds("proportional")[0]
    by_pool = {pools(point)[label]: quota for label, quota in point.cells["proportional", seed]["quotas"].items()}
    losses = {label: {size: curves[label].nll(quota) for size, quota in by_pool.items()} for label in point.labels}
    answers = {}
    for label in point.labels:
        logs = [math.log2(cell["quotas"][label]) for cell in point.cells.values()]
        fit = np.polyfit(logs, [point.task(*key, label, "accuracy") for key in point.cells], 2)
        answers[label] = {size: float(np.polyval(fit, math.log2(quota))) for size, quota in by_pool.items()}
    lower, fewer = (_share_below(values, pools(point)) for values in (losses, answers))
    return (
        "Of all assignments of these pools to the families, "
        f"{100 * lower:.0f}% give proportional quotas a lower loss than the one that was run, and {100 * fewer:.0f}% "
        "fewer right answers."
    )


def _share_below(values: Mapping[str, Mapping[int, float]], actual: Mapping[str, int]) -> float:
    """The share of all assignments of the sizes whose sum of values is below that of the actual one."""
    sums = [
        sum(values[label][size] for label, size in zip(actual, one, strict=True))
        for one in permutations(actual.values())
    ]
    own = sum(values[label][size] for label, size in actual.items())
    return sum(one < own - 1e-12 for one in sums) / len(sums)


def need_and_gains(point: PointResults) -> str:
    """Rank correlation over the families of need with what a doubling gains, in nats and in answers, over all cells."""
    from scipy import stats

    notes = [point.cells["calibudget", seed]["notes"]["calibration"] for seed in point.seeds("calibudget")]
    need = [fmean(one[label]["nll"] + one[label]["error_rate"] for one in notes) for label in point.labels]
    found = []
    for metric in ("nll", "accuracy"):
        slopes = []
        for label in point.labels:
            doublings = [math.log2(cell["quotas"][label]) for cell in point.cells.values()]
            values = [point.task(*key, label, metric) for key in point.cells]
            slopes.append(float(np.polyfit(doublings, values, 1)[0]))
        found.append(float(stats.spearmanr(need, slopes).statistic))
    return (
        "Rank correlation over the families of need with what a doubling of the quota gains, over all cells: "
        f"{-found[0]:+.2f} for nats a token, {found[1]:+.2f} for right answers."
    )


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("protocol", type=Path)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    asked = parser.parse_args()
    protocol = read_protocol(asked.protocol)
    points = finished(protocol, Results.read(asked.results / RESULTS_NAME, protocol.sha256))
    for name, claims in declared(protocol).items():
        point = points[name]
        tokens = test_tokens(asked.data, point, protocol.test_items)
        lengths = ", ".join(f"{label} {own.mean():.0f}" for label, own in tokens.items())
        print(f"## {name}\n\nMean tokens of an answer: {lengths}.")
        for policy, others in claims.items():
            made = [other for other in others if other in point.policies]
            accuracy = {x: shared_effects(point.macro(policy, "accuracy"), point.macro(x, "accuracy")) for x in made}
            nats = {x: shared_effects(answer_nats(point, policy, tokens), answer_nats(point, x, tokens)) for x in made}
            print(f"\n### {policy}\n\nMacro accuracy, points:\n")
            print(judged(accuracy, len(others), higher=True, factor=100, digits=1))
            print("\nMacro nats an answer:\n")
            print(judged(nats, len(others), higher=False, factor=1, digits=2))
        curves = curves_through_all(point)
        print(f"\n{likeness(point, next(iter(claims.values())))}\n\n{best_by_all(point, curves)}\n")
        print(f"{pool_luck(point, curves)}\n\n{need_and_gains(point)}")


if __name__ == "__main__":
    main()
