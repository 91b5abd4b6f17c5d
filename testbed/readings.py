"""What other readings of a testbed's recorded warm-ups would have chosen: an exploration, nothing is trained.

    python -m testbed.readings PROTOCOL --results DIR

DIR holds the protocol's `results.jsonl`. The first table sets what the curves of the rule that reads learning curves
promised of each family beside what came out. The second gives the mean quotas of every reading, and the macro NLL that
curves through all of the setting's trainings predict of them. Those curves know the held-out records, and they are
curves: what a reading gains by them is a hint of what to try, and no result.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from testbed.analysis import PointResults, finished
from testbed.families import HALVES
from testbed.protocol import read_protocol
from testbed.report import LEARNERS, table
from testbed.results import RESULTS_NAME, Results
from testbed.rivals.comparators import fit_power_law, slice_tuner_round
from testbed.rivals.curves import CurveWarning, WarmUps, fit_curves
from testbed.rivals.least_nll import minimise_nll, predict_nll
from testbed.rivals.records import Curve, CurveForm
from testbed.rivals.searching import fit_curves_to_means

Quotas = dict[str, int]
#: NLLs of the calibration records by exposure and family, at one seed.
Warm = Mapping[int, Mapping[str, Sequence[float]]]

EXPOSURES = (50, 100, 200)
#: Policies that are shown as they ran, beside the one that reads learning curves.
RAN = ("equal", "val-error-floor", "calibudget", "slice-tuner", "mixing-law", "limit")
#: More than any pool holds.
NO_END = 1 << 40


class Setting:
    """One setting of a testbed: its cells, its warm-ups by seed, and curves through all of its trainings.

    Args:
        results: all lines.
        point: the cells of the setting.
    """

    def __init__(self, results: Results, point: PointResults) -> None:
        one = point.point
        self.point, self.budget = point, one.budget
        self.sizes = {family.name: family.pool for family in HALVES[one.half]}
        self.lower = {label: min(max(one.floor, EXPOSURES[-1]), size) for label, size in self.sizes.items()}
        self.learner = next(policy for policy in LEARNERS if policy in point.policies)
        self.warm = {seed: _warm_ups(results, one.half, seed) for seed in point.seeds(self.learner)}
        runs = {run["key"]: run for run in point.runs.values()}.values()
        self.found = fit_curves_to_means(
            {k: ([run["quotas"][k] for run in runs], [run["tasks"][k]["nll"] for run in runs]) for k in self.sizes},
            form="power",
        )
        self.best = minimise_nll(self.found, self.budget, lower=self.lower, upper=self.sizes)

    def by_curves(
        self, exposures: Sequence[int], form: CurveForm, *, shrink: bool = True, end_at_0: bool = False
    ) -> dict[int, Quotas]:
        """Quotas of least predicted NLL by seed; with `end_at_0` no source gets more once its curve has come to 0."""
        made = {}
        for seed in self.warm:
            curves = self.curves(seed, exposures, form, shrink=shrink)
            ends = {label: _end(curve) for label, curve in curves.items()} if end_at_0 else self.sizes
            upper = {label: max(self.lower[label], min(size, ends[label])) for label, size in self.sizes.items()}
            made[seed] = minimise_nll(curves, self.budget, lower=self.lower, upper=upper)
        return made

    def curves(self, seed: int, exposures: Sequence[int], form: CurveForm, *, shrink: bool) -> dict[str, Curve]:
        """The curves that a seed's warm-ups give."""
        measured = {
            label: WarmUps(exposures=exposures, nll=[self.warm[seed][n][label] for n in exposures])
            for label in self.sizes
        }
        return fit_curves(measured, form=form, shrink=shrink, seed=seed, require_visible=False).curves

    def by_power_laws(self, balance: float) -> dict[int, Quotas]:
        """Slice Tuner's law and objective on the same warm-ups, in one round; `balance` weighs unfairness."""
        made = {}
        for seed, warm in self.warm.items():
            laws = {k: fit_power_law(EXPOSURES, [fmean(warm[n][k]) for n in EXPOSURES]) for k in self.sizes}
            rest = self.budget - sum(self.lower.values())
            more = slice_tuner_round(laws, self.lower, rest, upper=self.sizes, balance=balance)
            made[seed] = {label: self.lower[label] + more[label] for label in self.sizes}
        return made

    def as_run(self, policy: str) -> dict[int, Quotas]:
        """The quotas that a policy had at the seeds of the warm-ups."""
        cells = self.point.cells
        return {seed: dict(cells[policy, seed]["quotas"]) for seed in self.warm if (policy, seed) in cells}


def _warm_ups(results: Results, half: str, seed: int) -> Warm:
    found = {}
    for line in results.lines("probe"):
        exposures = set(line["exposures"].values())
        # Those that decoded answers were made for other rules; the curves were fitted without them.
        if line["half"] == half and line["seed"] == seed and len(exposures) == 1 and line["wrong"] is None:
            found[exposures.pop()] = line["nll"]
    return found


def _end(curve: Curve) -> int:
    """The least quota at which a curve is at 0 or lower; one that never is has no end."""
    if not curve.slope:
        return NO_END
    fall = curve.level * math.log(2) / curve.slope
    if not curve.exponent:
        return math.ceil(curve.exposure * math.exp(min(fall, math.log(NO_END))))
    left = 1 - curve.exponent * fall
    return NO_END if left <= 0 else math.ceil(curve.exposure * left ** (-1 / curve.exponent))


def promised(setting: Setting) -> str:
    """What the curves that were used promised of each family, and what came out."""
    made, point, rows = setting.as_run(setting.learner), setting.point, []
    curves = {seed: setting.curves(seed, EXPOSURES, "power", shrink=True) for seed in made}
    for label in setting.sizes:
        said = fmean(curves[seed][label].nll(quotas[label]) for seed, quotas in made.items())
        came = fmean(point.task(setting.learner, seed, label, "nll") for seed in made)
        warm = [fmean(fmean(setting.warm[seed][n][label]) for seed in made) for n in EXPOSURES]
        slope = fmean(curves[seed][label].slope for seed in made)
        quota = fmean(quotas[label] for quotas in made.values())
        row = [*(f"{value:.3f}" for value in warm), f"{slope:.3f}", f"{quota:,.0f}", f"{said:.3f}", f"{came:.3f}"]
        rows.append([label, *row, f"{(came - said) / len(setting.sizes):+.4f}"])
    at = [f"calibration NLL at {n}" for n in EXPOSURES]
    tail = ["fall per doubling at 200", "quota", "promised NLL", "held-out NLL", "share of the macro NLL's miss"]
    return table(["family", *at, *tail], rows)


def readings(setting: Setting) -> dict[str, dict[int, Quotas]]:
    """Quotas by reading and seed: those that ran, then the others."""
    ran = {f"{name}, as run": setting.as_run(name) for name in (*RAN, setting.learner)}
    curves = setting.by_curves
    return {name: made for name, made in ran.items() if made} | {
        "power, not shrunk": curves(EXPOSURES, "power", shrink=False),
        "power, ends at 0": curves(EXPOSURES, "power", end_at_0=True),
        "log-linear": curves(EXPOSURES, "log-linear"),
        "log-linear, not shrunk": curves(EXPOSURES, "log-linear", shrink=False),
        "log-linear, ends at 0": curves(EXPOSURES, "log-linear", end_at_0=True),
        "log-linear, 100 and 200": curves(EXPOSURES[1:], "log-linear"),
        "log-linear, 100 and 200, ends at 0": curves(EXPOSURES[1:], "log-linear", end_at_0=True),
        "Slice Tuner's law, one round": setting.by_power_laws(1.0),
        "Slice Tuner's law, NLL alone": setting.by_power_laws(0.0),
        "curves through all trainings": dict.fromkeys(setting.warm, setting.best),
    }


def chosen(setting: Setting) -> str:
    """Mean quotas of every reading, what the curves through all trainings predict of them, and what was measured."""
    rows, misses = [], []
    for name, made in readings(setting).items():
        quotas = {label: fmean(one[label] for one in made.values()) for label in setting.sizes}
        predicted = fmean(predict_nll(setting.found, one) for one in made.values())
        row = [name, str(len(made)), f"{predicted:.4f}", ""]
        policy = name.removesuffix(", as run")
        if policy != name:
            measured = setting.point.macro(policy, "nll")
            misses.append(fmean(measured[seed] for seed in made) - predicted)
            row[3] = f"{predicted + misses[-1]:.4f}"
        rows.append([*row, *(f"{quotas[label]:,.0f}" for label in setting.sizes)])
    header = ["quotas by", "seeds", "predicted by curves through all trainings", "measured", *setting.sizes]
    errors = ", ".join(f"{miss:+.4f}" for miss in misses)
    return f"{table(header, rows)}\n\nMeasured less predicted, where both are known: {errors}."


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("protocol", type=Path)
    parser.add_argument("--results", type=Path, required=True)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", CurveWarning)
    protocol = read_protocol(arguments.protocol)
    results = Results.read(arguments.results / RESULTS_NAME, protocol.sha256)
    setting = Setting(results, next(iter(finished(protocol, results).values())))
    print(promised(setting), chosen(setting), sep="\n\n")


if __name__ == "__main__":
    main()
