"""The factors of the utility: need, availability of the pool, reliability of the measurement, and their product.

What each source is worth under a policy: the factors that it uses and the utility that they make.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal, Overflow
from fractions import Fraction
from functools import partial
from typing import Final, Literal

from calibudget.allocation.exact.numbers import as_count, as_double, as_doubles, count_within_doubles
from calibudget.allocation.source_labels import require_mapping, require_text, sorted_labels
from calibudget.errors import AllocationError, InputTypeError, UnfedPolicyError
from calibudget.records import Exponents, SourceStatistics

#: The paper's small constant: least mean error and least residual capacity that enter a utility.
EPSILON: Final = 1e-12
# Digits enough that rounding the decimal result to a double gives the same bits as rounding the true value, but
# for values that lie within 1e-30 of a boundary between two doubles.
_CONTEXT: Final = Context(prec=50)


def needs(mean_errors: Sequence[float], transform: str | None = None) -> list[float]:
    """n_k, how much the model still needs each source, with mean 1.

    m_k are finite, nats plus 0 to 1, shape (K,); values below `EPSILON` count as `EPSILON`. Without a transform, a name
    of `NEED_TRANSFORMS`, it is the paper's max(m_k, epsilon).

    Raises:
        InputTypeError, AllocationError: an unknown transform, or errors that aren't finite numbers.

    Source: paper 2.2, n_k.
    """
    if transform is not None:
        require_text(transform, "need_transform")
    if transform is not None and transform not in NEED_TRANSFORMS:
        known = ", ".join(NEED_TRANSFORMS)
        raise AllocationError(
            f"need_transform is {transform!r}, but only {known} are known (or none, the paper's form)"
        )
    raised = [max(error, EPSILON) for error in as_doubles(mean_errors, "mean errors")]
    values = raised if transform is None else NEED_TRANSFORMS[transform](raised)
    try:
        mean = math.fsum(values) / max(len(values), 1)
    except OverflowError:
        raise AllocationError("the mean errors come to more than the largest double") from None
    return [value / mean for value in values]


def availability(residual_capacity: float) -> float:
    """a_k, the square root of what the pool holds above the floor quota (paper 2.2)."""
    return math.sqrt(max(residual_capacity, EPSILON))


def reliability(bootstrap_sd: float) -> float:
    """rho_k = 1 / (1 + sigma_k), in (0, 1]; 1 means a measurement without any spread (paper 2.2)."""
    return 1.0 / (1.0 + bootstrap_sd)


def power(base: float, exponent: float) -> float:
    """A power for utilities, base > 0: exact at exponents 0 and 1, correctly rounded root at 0.5, else to 1 ulp.

    Other exponents go through decimal arithmetic, whose results don't depend on the platform's math library.

    Raises:
        AllocationError: the power is above every double, or below those that keep all their digits.
    """
    if exponent == 1:
        return base
    if exponent == 0.5:
        return math.sqrt(base)
    if as_double(base, "the base of a power") <= 0:
        raise AllocationError(f"a power needs a base above 0, not {base:g}")
    try:
        raised = float(_CONTEXT.power(Decimal(base), Decimal(as_double(exponent, "the exponent"))))
    except Overflow:
        raised = math.inf
    if not sys.float_info.min <= raised < math.inf:
        size = "large" if raised == math.inf else "small"
        raise AllocationError(
            f"{base:g} to the power of {exponent:g} is too {size} a number; take an exponent nearer to 0"
        )
    return raised


def utilities(
    statistics: Mapping[str, SourceStatistics | Mapping[str, object]],
    floor: int,
    *,
    floors: Mapping[str, int] | None = None,
    need_exponent: float = 1.0,
    availability_exponent: float = 0.5,
    reliability_exponent: float = 1.0,
    need_transform: str | None = None,
) -> dict[str, float]:
    """u_k = need^1 * availability^0.5 * reliability^1 of each source, multiplied in that order.

    Args:
        statistics: a row a source, as in `statistics.json` under "sources": pool_size, mean_error, bootstrap_sd.
        floor: f of the allocation that the utilities are for; availability is what the floor leaves of the pool.
        floors: own floors of some sources.
        need_exponent: exponent of the need (alpha of the paper).
        availability_exponent: exponent of the availability, itself a square root (beta of the paper).
        reliability_exponent: exponent of the reliability (gamma of the paper).
        need_transform: see `needs`.

    Returns:
        Utilities by label in code-point order, ready for `allocate`.

    Raises:
        InputTypeError, AllocationError: a field that is missing, of the wrong type, negative or not finite.

    Source: paper 2.2, u_k.
    """
    labels = sorted_labels(statistics)
    floor = as_count(floor, "the floor")
    own = {} if floors is None else floors
    require_mapping(own, "floors")

    def column(name: str, read: Callable[[object, str, str], float]) -> list[float]:
        return [read(_field(statistics[label], name, label), name, label) for label in labels]

    sizes = column("pool_size", count_within_doubles)
    least = [as_count(own.get(label, floor), "the floor", label) for label in labels]
    errors, spreads = column("mean_error", as_double), column("bootstrap_sd", partial(as_double, least=0))
    given = (need_exponent, availability_exponent, reliability_exponent)
    exponents = {
        f"{name}_exponent": as_double(one, f"{name}_exponent") for name, one in zip(FACTORS, given, strict=True)
    }
    factors = (
        needs(errors, need_transform),
        [availability(size - min(size, f)) for size, f in zip(sizes, least, strict=True)],
        [reliability(sd) for sd in spreads],
    )
    return dict(zip(labels, products(labels, factors, exponents), strict=True))


def products(labels: Sequence[str], factors: Sequence[Sequence[float]], exponents: Mapping[str, float]) -> list[float]:
    """The product over factors of factor^exponent, left to right, a source at a time.

    Each factor has shape (K,), all above 0; exponents stand in the factors' order, by what messages call them.

    Raises:
        AllocationError: a power or a product that leaves the range in which doubles keep all their digits.
    """
    return [
        _product(label, values, exponents) for label, values in zip(labels, zip(*factors, strict=True), strict=True)
    ]


def _product(label: str, factors: Sequence[float], exponents: Mapping[str, float]) -> float:
    utility = 1.0
    for (name, exponent), factor in zip(exponents.items(), factors, strict=True):
        try:
            utility *= power(factor, exponent)
        except AllocationError as error:
            raise AllocationError(f"{name}: of {label!r}, {error}") from error
    if not sys.float_info.min <= utility < math.inf:
        size = "large" if utility == math.inf else "small"
        powers = " * ".join(f"{factor:g}^{e:g}" for factor, e in zip(factors, exponents.values(), strict=True))
        names = ", ".join(exponents)
        raise AllocationError(
            f"the utility of {label!r} is {powers}, too {size} a number; take exponents nearer to 0 ({names})"
        )
    return utility


def doubled_ranks(values: Sequence[float | Fraction]) -> list[int]:
    """Twice the ranks from 1, equal values sharing the mean of theirs, so that all are integers."""
    ordered = sorted(values)
    return [bisect_left(ordered, value) + bisect_right(ordered, value) + 1 for value in values]


#: Forms of the need that do change quotas (a mere change of scale cancels). They are ours: the paper names
#: variants A to C in its diagnostics and doesn't define them.
NEED_TRANSFORMS: Final[Mapping[str, Callable[[Sequence[float]], Sequence[float]]]] = {
    "rank": doubled_ranks,
    "log1p": lambda values: [float(_CONTEXT.ln(_CONTEXT.add(Decimal(value), 1))) for value in values],
}


def _field(row: SourceStatistics | Mapping[str, object], name: str, label: str) -> object:
    if not isinstance(row, Mapping | SourceStatistics):
        raise InputTypeError(f"the statistics of {label!r} must be a row of them, not {type(row).__name__}")
    value = row.get(name) if isinstance(row, Mapping) else getattr(row, name)
    if value is None:
        raise AllocationError(f"the statistics of {label!r} have no {name}")
    return value


#: The measured quantity that `val-error-floor` allocates by: the rate of wrong answers, or the mean error m_k.
Signal = Literal["error_rate", "z"]
#: The factors of the paper's utility, in order of multiplication.
FACTORS: Final = ("need", "availability", "reliability")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a policy may build utilities from; every sequence has shape (K,) in the order of `labels`.

    Attributes:
        labels: the sources in code-point order.
        pool_sizes: N_k.
        capacities: what the floor leaves of each pool, N_k - floor quota, whatever the cap: a cap that doesn't
            bind changes no quota.
        statistics: the calibration statistics; none for policies that read none.
        mean_errors: m_k, or one bootstrap replicate's means in its place.

    The rest is as asked for (`AllocationRequest`).
    """

    labels: Sequence[str]
    pool_sizes: Sequence[int]
    capacities: Sequence[int]
    statistics: Sequence[SourceStatistics] = ()
    mean_errors: Sequence[float] = ()
    weights: Sequence[float] = ()
    pooled: Sequence[int] = ()
    exponents: Exponents = field(default_factory=Exponents)
    need_transform: str | None = None
    signal: Signal = "error_rate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """What a rule made of the evidence.

    Attributes:
        utilities: u_k, shape (K,).
        factors: by name the factors that the utilities are the product of, shape (K,) each.
        from_means: whether the mean errors entered, so that bootstrap replicates give intervals.
    """

    utilities: list[float]
    factors: Mapping[str, list[float]] = field(default_factory=dict)
    from_means: bool = False


#: A policy's rule from evidence to worth.
Rule = Callable[[Evidence], Worth]


def product_of(evidence: Evidence, names: Sequence[str]) -> Worth:
    """The product of these factors, each to its exponent, in the paper's order (paper 2.2)."""
    factors = {name: _factor(name, evidence) for name in FACTORS if name in names}
    exponents = {f"exponents.{name}": getattr(evidence.exponents, name) for name in factors}
    exponents = {name: as_double(exponent, name) for name, exponent in exponents.items()}
    utilities = products(evidence.labels, list(factors.values()), exponents)
    return Worth(utilities=utilities, factors=factors, from_means="need" in factors)


def calibration_error(evidence: Evidence) -> Worth:
    """The rate of wrong answers, or the mean error z (table 1, Val-error+floor, which says only "error").

    Raises:
        AllocationError: an unknown signal.
        UnfedPolicyError: a source without checked answers.
    """
    require_text(evidence.signal, "signal")
    if evidence.signal == "z":
        return Worth(utilities=list(evidence.mean_errors), from_means=True)
    if evidence.signal != "error_rate":
        raise AllocationError(f"signal is {evidence.signal!r}, but only error_rate and z are known")
    rates = []
    for label, row in zip(evidence.labels, evidence.statistics, strict=True):
        if row.error_rate is None:
            raise UnfedPolicyError(f"{label!r} has no error rate, since its answers aren't checked: choose signal: z")
        rates.append(as_double(row.error_rate, "error_rate", label))
    return Worth(utilities=rates)


def _factor(name: str, evidence: Evidence) -> list[float]:
    if name == "need":
        return needs(evidence.mean_errors, evidence.need_transform)
    if name == "availability":
        return list(map(availability, evidence.capacities))
    rows = zip(evidence.labels, evidence.statistics, strict=True)
    return [reliability(as_double(row.bootstrap_sd, "bootstrap_sd", label, least=0)) for label, row in rows]
