"""What each source is worth under a policy: the factors that it uses and the utility that they make."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeVar

from calibudget.allocation.apportionment import require_text
from calibudget.allocation.exact import as_double, as_weight
from calibudget.allocation.least_nll import minimise_nll
from calibudget.allocation.need import availability, needs, products, reliability
from calibudget.errors import AllocationError, UnfedPolicyError
from calibudget.records import Curve, Exponents, SourceStatistics

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
        lower: floor quotas.
        upper: the most that pool and cap allow.
        budget: B.
        statistics: the calibration statistics, None for policies that read none.
        mean_errors: m_k, or one bootstrap replicate's means in its place.
        weights: the user's own weights.
        importance: what a nat of each source is worth to the user; empty if all are worth the same.
        curves: learning curves.
        pooled: quotas of the draw from all pools together.
        exponents: exponents of the factors.
        need_transform: form of the need, None for the paper's.
        signal: what `val-error-floor` allocates by.
    """

    labels: Sequence[str]
    pool_sizes: Sequence[int]
    capacities: Sequence[int]
    lower: Sequence[int] = ()
    upper: Sequence[int] = ()
    budget: int = 0
    statistics: Sequence[SourceStatistics] = ()
    mean_errors: Sequence[float] = ()
    weights: Sequence[float] = ()
    importance: Sequence[float] = ()
    curves: Sequence[Curve] = ()
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


_Value = TypeVar("_Value")

#: A policy's rule from evidence to worth.
Rule = Callable[[Evidence], Worth]


def product_of(*names: str) -> Rule:
    """The rule that multiplies these factors, each to its exponent, in the paper's order (paper 2.2)."""

    def rule(evidence: Evidence) -> Worth:
        factors: dict[str, list[float]] = {name: _FACTOR_RULES[name](evidence) for name in FACTORS if name in names}
        exponents = {f"exponents.{name}": getattr(evidence.exponents, name) for name in factors}
        exponents = {name: as_double(exponent, name) for name, exponent in exponents.items()}
        return Worth(
            utilities=products(evidence.labels, list(factors.values()), exponents),
            factors=factors,
            from_means="need" in factors,
        )

    return rule


def root_of_capacity(evidence: Evidence) -> Worth:
    """The square root of the residual capacity, which is the availability (table 1, Floor-Sqrt)."""
    values = _availability(evidence)
    return Worth(utilities=values, factors={"availability": values})


def pool_size(evidence: Evidence) -> Worth:
    """The pool size itself (table 1, Proportional)."""
    return Worth(utilities=[float(size) for size in evidence.pool_sizes])


def nothing(evidence: Evidence) -> Worth:
    """Zero for all: nothing is spent beyond the floors."""
    return Worth(utilities=[0.0] * len(evidence.labels))


def equal_worth(evidence: Evidence) -> Worth:
    """One for all (table 1, Equal)."""
    return Worth(utilities=[1.0] * len(evidence.labels))


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
    return Worth(
        utilities=[
            _required(row, "error_rate", label, "no error rate, since its answers aren't checked: choose signal: z")
            for label, row in zip(evidence.labels, evidence.statistics, strict=True)
        ]
    )


def own_weights(evidence: Evidence) -> Worth:
    """The user's weights."""
    return Worth(utilities=list(evidence.weights))


def learning_slope(evidence: Evidence) -> Worth:
    """max(0, fall of the calibration NLL per doubling of exposure), times its importance; beyond the paper.

    Raises:
        UnfedPolicyError: a source whose slope no warm-ups measured.
    """
    slopes = [
        _required(row, "slope", label, "no slope: learning-curve needs warm-ups at two or more quotas")
        for label, row in zip(evidence.labels, evidence.statistics, strict=True)
    ]
    falls = [max(0.0, slope) for slope in slopes]
    if not evidence.importance:
        return Worth(utilities=falls)
    worth = zip(evidence.labels, evidence.importance, strict=True)
    weights = [as_weight(each, "the importance", label) for label, each in worth]
    return Worth(utilities=[fall * weight for fall, weight in zip(falls, weights, strict=True)])


def least_nll(evidence: Evidence) -> Worth:
    """The quotas that minimise the (weighted) macro NLL of the curves; at that worth they are their own apportionment.

    Beyond the paper.
    """

    def by_label(values: Sequence[_Value]) -> dict[str, _Value]:
        return dict(zip(evidence.labels, values, strict=True))

    quotas = minimise_nll(
        by_label(evidence.curves),
        evidence.budget,
        lower=by_label(evidence.lower),
        upper=by_label(evidence.upper),
        weights=by_label(evidence.importance) if evidence.importance else None,
    )
    return Worth(utilities=[float(quota) for quota in quotas.values()])


def pooled_draw(evidence: Evidence) -> Worth:
    """The quotas of the draw from all pools together; at that worth they are their own apportionment."""
    return Worth(utilities=[float(quota) for quota in evidence.pooled])


def _need(evidence: Evidence) -> list[float]:
    return needs(evidence.mean_errors, evidence.need_transform)


def _availability(evidence: Evidence) -> list[float]:
    return [availability(capacity) for capacity in evidence.capacities]


def _reliability(evidence: Evidence) -> list[float]:
    rows = zip(evidence.labels, evidence.statistics, strict=True)
    return [reliability(as_double(row.bootstrap_sd, "bootstrap_sd", label, least=0)) for label, row in rows]


_FACTOR_RULES: Final[Mapping[str, Callable[[Evidence], list[float]]]] = {
    "need": _need,
    "availability": _availability,
    "reliability": _reliability,
}


def _required(row: SourceStatistics, field: str, label: str, complaint: str) -> float:
    value = getattr(row, field)
    if value is None:
        raise UnfedPolicyError(f"{label!r} has {complaint}")
    return as_double(value, field, label)
