"""How sure a claim over seeds is, several claims together, and how many seeds one needs.

All tests are two-sided, of paired differences by seed: `alpha` is the level of a test or of a family of them, `power`
the probability of finding a true difference, `sd` a standard deviation of differences (ddof 1), in their unit.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any, Final, Literal, TypeVar

from calibudget.errors import requires

#: Which way a metric is better.
Direction = Literal["higher", "lower"]

#: Differences as small as this beside the numbers that they are of are rounding, and count as none.
_ROUNDING: Final = 1e-12

Key = TypeVar("Key", int, tuple[str, int])


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """Paired differences of one metric, policy minus comparator, in the metric's unit.

    Attributes:
        by_seed: the difference of each seed, in ascending order.
        sd: their standard deviation (ddof 1), 0 where they differ by rounding alone; None for one seed, which says
            nothing of spread.
    """

    by_seed: Mapping[int, float]
    mean: float
    sd: float | None

    @property
    def seeds(self) -> int:
        """Number of seeds."""
        return len(self.by_seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wins:
    """How many of the paired differences go the policy's way."""

    won: int
    tied: int
    lost: int

    @property
    def total(self) -> int:
        """Number of comparisons."""
        return self.won + self.tied + self.lost


def effects(policy: Mapping[int, float], comparator: Mapping[int, float]) -> Effects:
    """Differences by seed, their mean and standard deviation (paper, Table 2); both sides have the same seeds."""
    differences = _differences(policy, comparator)
    values = list(differences.values())
    rounding = _ROUNDING * max(map(abs, (*policy.values(), *comparator.values())))
    sd = None if len(values) == 1 else 0.0 if max(values) - min(values) <= rounding else stdev(values)
    return Effects(by_seed=differences, mean=fmean(values), sd=sd)


def wins(
    policy: Mapping[tuple[str, int], float], comparator: Mapping[tuple[str, int], float], direction: Direction
) -> Wins:
    """Comparisons over tasks and seeds that the policy wins (paper 3.3: 15 of 24); ties are counted apart."""
    sign = 1 if direction == "higher" else -1
    gains = [sign * one for one in _differences(policy, comparator).values()]
    return Wins(won=sum(one > 0 for one in gains), tied=gains.count(0), lost=sum(one < 0 for one in gains))


def _differences(policy: Mapping[Key, float], comparator: Mapping[Key, float]) -> dict[Key, float]:
    pairs = {key: (policy[key], comparator[key]) for key in sorted(policy)}
    return {
        key: 0.0 if math.isclose(one, other, rel_tol=_ROUNDING) else one - other for key, (one, other) in pairs.items()
    }


#: Seeds up to which all sign patterns are gone through.
_MOST_FLIPPED: Final = 20
_MOST_SEEDS: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Whether seeds support that a policy is better on one metric.

    Attributes:
        p: two-sided p of the paired t test; None where there is one seed or no spread.
        adjusted_p: the same after Holm's adjustment over all claims judged together.
        supported: whether the difference goes the right way with adjusted p below alpha.
        opposed: whether it goes the wrong way with adjusted p below alpha: the policy is shown to be worse.
        consistent: whether every seed's difference goes the right way, which is a description and no test.
        reversed: whether every seed's difference goes the wrong way, a description too.
    """

    effects: Effects
    p: float | None
    adjusted_p: float | None
    supported: bool
    opposed: bool
    consistent: bool
    reversed: bool


def judge_claims(
    claims: Mapping[str, tuple[Effects, Direction]], *, alpha: float = 0.05, unjudged: int = 0
) -> dict[str, Claim]:
    """Judge a family of claims together; the probability of one false claim among them is at most alpha.

    A claim without a p value (one seed, no spread) is never supported, and counts in the adjustment as one of p = 1;
    so do the `unjudged`, of which nothing is known (yet).
    """
    p_values = {name: t_test_p(one) for name, (one, _) in claims.items()}
    adjusted = holm({name: 1.0 if p is None else p for name, p in p_values.items()}, more=unjudged)
    judged = {}
    for name, (one, direction) in claims.items():
        sign = 1 if direction == "higher" else -1
        p = p_values[name]
        judged[name] = Claim(
            effects=one,
            p=p,
            adjusted_p=None if p is None else adjusted[name],
            supported=p is not None and sign * one.mean > 0 and adjusted[name] < alpha,
            opposed=p is not None and sign * one.mean < 0 and adjusted[name] < alpha,
            consistent=all(sign * difference > 0 for difference in one.by_seed.values()),
            reversed=all(sign * difference < 0 for difference in one.by_seed.values()),
        )
    return judged


def t_test_p(found: Effects) -> float | None:
    """Two-sided p that the mean difference is 0, by Student's paired t test over seeds.

    None for one seed, and where the differences don't vary at all, which no test can judge.
    """
    if found.sd is None or found.sd == 0:
        return None
    t = found.mean / (found.sd / math.sqrt(found.seeds))
    return float(2 * _stats().t.sf(abs(t), found.seeds - 1))


def t_interval(found: Effects, *, level: float = 0.95) -> tuple[float, float] | None:
    """Ends of Student's interval of the mean difference over seeds; None for one seed."""
    if found.sd is None:
        return None
    reach = float(_stats().t.isf((1 - level) / 2, found.seeds - 1)) * found.sd / math.sqrt(found.seeds)
    return found.mean - reach, found.mean + reach


def sign_flip_p(found: Effects) -> float | None:
    """Two-sided p by going through all signs of the differences: exact, without any assumption but symmetry.

    It can't be below 2 / 2**seeds, so fewer than six seeds never reach 0.05. None above 20 seeds, where going through
    them takes too long and the t test is close.
    """
    values = list(found.by_seed.values())
    if len(values) > _MOST_FLIPPED:
        return None
    observed = abs(math.fsum(values))
    rounding = 1e-12 * math.fsum(map(abs, values))
    # the first sign may stay: a pattern and its mirror image are equally far from 0
    patterns = itertools.product((1, -1), repeat=len(values) - 1)
    sums = (abs(math.fsum([values[0], *(s * v for s, v in zip(signs, values[1:], strict=True))])) for signs in patterns)
    as_far = sum(one >= observed - rounding for one in sums)
    return as_far / float(2 ** (len(values) - 1))


def holm(p_values: Mapping[str, float], *, more: int = 0) -> dict[str, float]:
    """Holm's step-down adjustment: the smallest p times the number of claims, the next times one fewer, and so on.

    The family has so many `more` claims, of p = 1.
    """
    adjusted: dict[str, float] = {}
    reached = 0.0
    ordered = sorted(p_values.items(), key=lambda item: (item[1], item[0]))
    for place, (name, p) in enumerate(ordered):
        reached = max(reached, min(1.0, (len(ordered) + more - place) * p))
        adjusted[name] = reached
    return {name: adjusted[name] for name in p_values}


def detectable_effect(sd: float, seeds: int, *, alpha: float = 0.05, power: float = 0.8) -> float | None:
    """The smallest true mean difference that a paired t test over so many seeds finds; None for fewer than two."""
    if seeds < 2:
        return None
    low, high = 0.0, 1.0
    while _power(high, seeds, alpha) < power:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _power(middle, seeds, alpha) < power else (low, middle)
    return sd * high


def seeds_needed(effect: float, sd: float, *, alpha: float = 0.05, power: float = 0.8) -> int | None:
    """The fewest seeds, 2 or more, with which a paired t test finds a true mean difference.

    None where the effect is 0, or more than 100,000 would be needed. `sd` measured over few seeds is itself unsure, and
    the number with it: three seeds leave it a factor of 0.5 to 6.
    """
    if effect == 0:
        return None
    if sd == 0:
        return 2
    ratio = abs(effect) / sd
    most = 2
    while most < _MOST_SEEDS and _power(ratio, most, alpha) < power:
        most *= 2
    counts = range(2, min(most, _MOST_SEEDS) + 1)
    place = bisect_left(counts, power, key=lambda seeds: _power(ratio, seeds, alpha))
    return counts[place] if place < len(counts) else None


def _power(ratio: float, seeds: int, alpha: float) -> float:
    """Of the two-sided paired t test when the true mean is `ratio` standard deviations."""
    stats = _stats()
    critical = stats.t.isf(alpha / 2, seeds - 1)
    shift = ratio * math.sqrt(seeds)
    upper = float(stats.nct.sf(critical, seeds - 1, shift))
    lower = float(stats.nct.cdf(-critical, seeds - 1, shift))
    # far out in the tail the library gives NaN for the side that can't matter
    return upper + (0.0 if math.isnan(lower) else lower)


def _stats() -> Any:
    with requires("a study's test", "study"):
        from scipy import stats
    return stats
