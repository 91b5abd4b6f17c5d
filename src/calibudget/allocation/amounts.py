"""Floors and caps as people write them: a count, or a percentage of the budget or of the pool."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal, TypeAlias

from calibudget.allocation.exact import as_count, nearest_double
from calibudget.errors import AllocationError, InputTypeError
from calibudget.wording import shown

# As many digits as anybody needs, and as Python reads by default.
_TEXT: Final = re.compile(r"([0-9]{1,1000}(?:\.[0-9]{1,1000})?)\s*% of (budget|pool)")
_WAYS: Final = "write a whole number, or a text like '10% of budget' or '50% of pool'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """A share of the budget, or of the pool of the source (or of all pools of the group) that it bounds.

    Attributes:
        share: from 0 to 1, exact.
        of: what it is a share of.
    """

    share: Fraction
    of: Literal["budget", "pool"]


#: What bounds a quota: units, or a portion.
Amount: TypeAlias = int | Portion


def parse_amount(value: object, name: str) -> Amount:
    """Read a floor or a cap.

    Args:
        value: an integer >= 0, a `Portion`, or a text such as "12.5% of pool". A bare fraction is refused, since
            nobody can tell what it is a fraction of.
        name: what the amount is, for the message.

    Raises:
        InputTypeError: another type, a bare fraction among them.
        AllocationError: a negative number, a text of another form, a share above 100%.
    """
    if isinstance(value, Portion):
        portion = value
        if not isinstance(portion.share, Fraction):
            raise InputTypeError(f"the share of {name} must be a Fraction, not {shown(portion.share)}")
    elif isinstance(value, str):
        match = _TEXT.fullmatch(value.strip())
        if match is None:
            raise AllocationError(f"{name} is {value!r:.60}, which can't be read: {_WAYS}")
        portion = Portion(share=Fraction(match[1]) / 100, of="budget" if match[2] == "budget" else "pool")
    elif isinstance(value, float | Fraction):
        raise InputTypeError(f"{name} is {shown(value, str)}, but of what? {_WAYS}")
    else:
        return as_count(value, name)
    if not 0 <= portion.share <= 1:
        share = nearest_double(*portion.share.as_integer_ratio())
        raise AllocationError(f"{name} is {share:.6g} of the {portion.of}, but a share lies between 0 and 1")
    return portion


def least_units(amount: Amount, *, budget: int, pool: int) -> int:
    """The fewest whole units that keep a floor."""
    exact = _units(amount, budget, pool)
    return -(-exact.numerator // exact.denominator)


def most_units(amount: Amount, *, budget: int, pool: int) -> int:
    """The most whole units that keep a cap."""
    exact = _units(amount, budget, pool)
    return exact.numerator // exact.denominator


def _units(amount: Amount, budget: int, pool: int) -> Fraction:
    if isinstance(amount, Portion):
        return amount.share * (budget if amount.of == "budget" else pool)
    return Fraction(amount)
