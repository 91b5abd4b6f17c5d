"""The one primitive of the allocator: integers between bounds, as close as whole units allow to a common level."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from calibudget.allocation.exact import Real, as_count, highest_count, lowest_count
from calibudget.allocation.spread import spread
from calibudget.errors import AllocationError, InputTypeError
from calibudget.records import Allocation
from calibudget.wording import shown


def apportion(
    utilities: Mapping[str, Real],
    budget: int,
    *,
    lower: Mapping[str, Real] | None = None,
    upper: Mapping[str, Real] | None = None,
) -> Allocation:
    """Spread a budget over sources in proportion to their utilities, between bounds, in whole units.

    The share of a source is clip(level * utility, lower, upper), the level being the one at which the shares sum
    to the budget. The quota is the share rounded down, plus one unit each for the largest fractional parts, ties
    by label in code-point order. The answer is that of rational arithmetic on the numbers as given, whatever
    their type: independent of platform, of order, and of exact scaling of the utilities.

    Args:
        utilities: one nonnegative finite number a source; a float means the rational that it holds. Sources of
            utility 0 stay at their lower bound unless all others are full; what is then left is spread over them
            at equal weight.
        budget: units to spend, an integer >= 0.
        lower: least units a source, default 0; a real bound is rounded up to the next integer.
        upper: most units a source, default no bound; a real bound is rounded down.

    Returns:
        Quotas that sum to the budget, shares, and `lower` as floor quotas, labels in code-point order.

    Raises:
        InputTypeError: a number of the wrong type (a bool, a text, 3.0 as the budget) or labels that aren't texts.
        AllocationError: a negative or infinite number, keys that differ, bounds that cross or can't hold the budget.

    Source: paper 2.3 and its appendix (largest remainders, ties by label); the level where bounds bind is ours.
    """
    labels = sorted_labels(utilities)
    budget = as_count(budget, "the budget")
    low, high = integer_bounds(labels, budget, lower, upper)
    result = spread([utilities[label] for label in labels], labels, low, high, budget)
    return Allocation(
        budget=budget,
        quotas=dict(zip(labels, result.quotas, strict=True)),
        shares=dict(zip(labels, result.shares(), strict=True)),
        floor_quotas=dict(zip(labels, low, strict=True)),
    )


def integer_bounds(
    labels: Sequence[str],
    budget: int,
    lower: Mapping[str, Real] | None,
    upper: Mapping[str, Real] | None,
    *,
    of: str = "utilities",
) -> tuple[list[int], list[int]]:
    """Bounds in whole units in the order of the labels, between whose sums the budget lies.

    Args:
        labels: the sources.
        budget: units to spend.
        lower: least units a source, default 0; real bounds are rounded up.
        upper: most units a source, default no bound; real bounds are rounded down.
        of: what names the sources, for the message.

    Raises:
        InputTypeError, AllocationError: as `apportion`.
    """
    budget = as_count(budget, "the budget")
    low = [0] * len(labels)
    if lower is not None:
        require_same_labels(labels, lower, "lower", of)
        low = [lowest_count(lower[label], "the lower bound", label) for label in labels]
    high = [max(budget, bound) for bound in low]
    if upper is not None:
        require_same_labels(labels, upper, "upper", of)
        high = [highest_count(upper[label], "the upper bound", label) for label in labels]
    _require_feasible(labels, low, high, budget)
    return low, high


def sorted_labels(values: Mapping[str, object]) -> list[str]:
    """The labels in code-point order, the order of all ties and all outputs.

    Raises:
        InputTypeError: no mapping, or a label that isn't a text.
    """
    require_mapping(values, "the numbers of the sources")
    for label in values:
        if type(label) is not str:
            require_text(label, "a source's label")
    return sorted(values)


def require_same_labels(labels: Iterable[str], values: Mapping[str, object], name: str, rest: str) -> None:
    """Refuse a mapping that misses a source or names another one.

    Args:
        labels: the sources.
        values: the mapping.
        name: what the mapping is, for the message.
        rest: what the labels are from, for the message.

    Raises:
        InputTypeError: no mapping.
        AllocationError: naming the sources that one of the two lacks, and which of the two.
    """
    require_mapping(values, name)
    expected = set(labels)
    if expected == values.keys():
        return
    missing = sorted(expected - values.keys())
    unknown = sorted((label for label in values if label not in expected), key=lambda label: shown(label, str))
    lacking = [
        f"{listed(stray)} {'is' if len(stray) == 1 else 'are'} missing from {where}"
        for stray, where in ((missing, name), (unknown, rest))
        if stray
    ]
    raise AllocationError(f"{name} and {rest} must name the same sources, but {' and '.join(lacking)}")


def require_mapping(values: object, name: str) -> None:
    """Refuse what isn't a mapping by label.

    Raises:
        InputTypeError: naming what it is.
    """
    if not isinstance(values, Mapping):
        raise InputTypeError(f"{name} must be a mapping by label, not {shown(values)} ({type(values).__name__})")


def require_text(value: object, name: str) -> None:
    """Refuse what isn't a text.

    Raises:
        InputTypeError: naming what it is.
    """
    if not isinstance(value, str):
        raise InputTypeError(f"{name} must be a text, not {shown(value)} ({type(value).__name__})")


def listed(labels: Sequence[str], most: int = 5) -> str:
    """A few labels for a message, and how many more there are."""
    more = len(labels) - most
    return ", ".join(shown(label) for label in labels[:most]) + (f" and {more} more" if more > 0 else "")


def _require_feasible(labels: Sequence[str], low: Sequence[int], high: Sequence[int], budget: int) -> None:
    for label, least, most in zip(labels, low, high, strict=True):
        if least > most:
            raise AllocationError(f"the lower bound of {label!r} is {least:,} and its upper bound only {most:,}")
    if not labels and budget:
        raise AllocationError(f"there are no sources to spend a budget of {budget:,} on")
    if sum(low) > budget:
        raise AllocationError(
            f"the lower bounds come to {sum(low):,}, {sum(low) - budget:,} above the budget {budget:,}"
        )
    if sum(high) < budget:
        raise AllocationError(
            f"the upper bounds come to {sum(high):,}, {budget - sum(high):,} short of the budget {budget:,}"
        )
