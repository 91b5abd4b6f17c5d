"""The factors of the utility: need, availability of the pool, reliability of the measurement, and their product."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal, Overflow
from typing import Final

from calibudget.allocation.apportionment import sorted_labels
from calibudget.allocation.exact import as_count
from calibudget.errors import AllocationError, InputTypeError
from calibudget.records import SourceStatistics

#: The paper's small constant: least mean error and least residual capacity that enter a utility.
EPSILON: Final = 1e-12
# Digits enough that rounding the decimal result to a double gives the same bits as rounding the true value, but
# for values that lie within 1e-30 of a boundary between two doubles.
_CONTEXT: Final = Context(prec=50)


def needs(mean_errors: Sequence[float], transform: str | None = None) -> list[float]:
    """n_k, how much the model still needs each source, with mean 1.

    Args:
        mean_errors: m_k, shape (K,), finite, nats plus 0 to 1; values below `EPSILON` count as `EPSILON`.
        transform: None for the paper's max(m_k, epsilon); or a name of `NEED_TRANSFORMS` applied to it first.

    Raises:
        AllocationError: an unknown transform.

    Source: paper 2.2, n_k.
    """
    if transform is not None and transform not in NEED_TRANSFORMS:
        known = ", ".join(NEED_TRANSFORMS)
        raise AllocationError(
            f"need_transform is {transform!r}, but only {known} are known (or none, the paper's form)"
        )
    raised = [max(float(error), EPSILON) for error in mean_errors]
    values = raised if transform is None else NEED_TRANSFORMS[transform](raised)
    mean = math.fsum(values) / len(values) if values else 1.0
    return [value / mean for value in values]


def availability(residual_capacity: int) -> float:
    """a_k, the square root of what the pool holds above the floor quota (paper 2.2)."""
    return math.sqrt(max(residual_capacity, EPSILON))


def as_spread(bootstrap_sd: float, label: str) -> float:
    """A standard deviation, refused if negative.

    Raises:
        AllocationError: naming the source.
    """
    if bootstrap_sd < 0:
        raise AllocationError(f"bootstrap_sd of {label!r} must not be negative, but is {bootstrap_sd}")
    return bootstrap_sd


def reliability(bootstrap_sd: float) -> float:
    """rho_k = 1 / (1 + sigma_k), in (0, 1]; 1 means a measurement without any spread (paper 2.2)."""
    return 1.0 / (1.0 + bootstrap_sd)


def power(base: float, exponent: float) -> float:
    """A power for utilities, base > 0: exact at exponents 0 and 1, correctly rounded root at 0.5, else to 1 ulp.

    Other exponents go through decimal arithmetic, whose results don't depend on the platform's math library.

    Raises:
        AllocationError: the power is above every double.
    """
    if exponent == 1:
        return base
    if exponent == 0.5:
        return math.sqrt(base)
    if exponent == 0:
        return 1.0
    try:
        raised = float(_CONTEXT.power(Decimal(base), Decimal(exponent)))
    except Overflow:
        raised = math.inf
    if raised == math.inf:
        raise AllocationError(f"{base:g} to the power of {exponent:g} is too large a number; take a smaller exponent")
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
    own = floors or {}
    sizes = [as_count(_field(statistics[label], "pool_size", label), "pool_size", label) for label in labels]
    least = [as_count(own.get(label, floor), "the floor", label) for label in labels]
    errors = [_measured(statistics[label], "mean_error", label) for label in labels]
    spreads = [as_spread(_measured(statistics[label], "bootstrap_sd", label), label) for label in labels]
    exponents = [
        as_exponent(need_exponent, "need_exponent"),
        as_exponent(availability_exponent, "availability_exponent"),
        as_exponent(reliability_exponent, "reliability_exponent"),
    ]
    factors = (
        needs(errors, need_transform),
        [availability(size - min(size, f)) for size, f in zip(sizes, least, strict=True)],
        [reliability(sd) for sd in spreads],
    )
    return dict(zip(labels, products(factors, exponents), strict=True))


def products(factors: Sequence[Sequence[float]], exponents: Sequence[float]) -> list[float]:
    """The product over factors of factor^exponent, left to right, a source at a time (each factor has shape (K,))."""
    return [
        math.prod((power(value, exponent) for value, exponent in zip(values, exponents, strict=True)), start=1.0)
        for values in zip(*factors, strict=True)
    ]


def as_exponent(value: object, name: str) -> float:
    """A finite exponent of either sign.

    Raises:
        InputTypeError: not a real number.
        AllocationError: infinite or not a number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputTypeError(f"{name} must be a number, not {value!r} ({type(value).__name__})")
    if not math.isfinite(value):
        raise AllocationError(f"{name} must be finite, but is {value}")
    return float(value)


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1, equal values sharing the mean of theirs."""
    ordered = sorted(values)
    first = {value: ordered.index(value) for value in set(values)}
    return [first[value] + (ordered.count(value) + 1) / 2 for value in values]


def _log1p(values: Sequence[float]) -> list[float]:
    return [float(_CONTEXT.ln(_CONTEXT.add(Decimal(value), 1))) for value in values]


#: Forms of the need that do change quotas (a mere change of scale cancels). They are ours: the paper names
#: variants A to C in its diagnostics and doesn't define them.
NEED_TRANSFORMS: Final[Mapping[str, Callable[[Sequence[float]], list[float]]]] = {"rank": _ranks, "log1p": _log1p}


def _field(row: SourceStatistics | Mapping[str, object], name: str, label: str) -> object:
    value = row.get(name) if isinstance(row, Mapping) else getattr(row, name)
    if value is None:
        raise AllocationError(f"the statistics of {label!r} have no {name}")
    return value


def _measured(row: SourceStatistics | Mapping[str, object], name: str, label: str) -> float:
    value = _field(row, name, label)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputTypeError(f"{name} of {label!r} must be a number, not {value!r} ({type(value).__name__})")
    if not math.isfinite(value):
        raise AllocationError(f"{name} of {label!r} must be finite, but is {value}")
    return float(value)
