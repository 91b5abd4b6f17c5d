"""What `where` lets pass: values are compared as values, whatever form a file gives them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

#: A number as a text may hold it; `007` is none, since it is a name more often.
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]{0,300})(\.[0-9]+)?([eE][-+]?[0-9]{1,3})?")
_TRUTHS: Final = {"true": True, "false": False}

#: What kind of value it is, and the value.
_Value = tuple[str, object]


class Wanted:
    """The values that a filter lets pass for a field.

    Two texts are equal if they are the same; a text equals a number or a truth value that it states ("1.0" and 1,
    "True" and true). Null, lists and objects equal nothing.
    """

    def __init__(self, given: object) -> None:
        values = given if isinstance(given, tuple | list) else (given,)
        self._texts = frozenset(one for one in values if isinstance(one, str))
        self._stated = frozenset(filter(None, map(_value, self._texts)))
        self._values = frozenset(filter(None, (_value(one) for one in values if not isinstance(one, str))))

    def __contains__(self, value: object) -> bool:
        if isinstance(value, str):
            return value in self._texts or (bool(self._values) and _value(value) in self._values)
        stated = _value(value)
        return stated is not None and (stated in self._values or stated in self._stated)

    def meets(self, other: Wanted) -> bool:
        """Whether some value may pass both."""
        return not (self._stated | self._values).isdisjoint(other._stated | other._values)


def are_disjoint(one: Mapping[str, object], two: Mapping[str, object]) -> bool:
    """Whether no row passes both filters, since they ask a field for different values."""
    return any(not Wanted(one[name]).meets(Wanted(two[name])) for name in one if name in two)


def _value(given: object) -> _Value | None:
    if isinstance(given, bool):
        return "truth", given
    if isinstance(given, int | float):
        return None if given != given else ("number", given)  # NaN equals nothing
    if not isinstance(given, str):
        return None
    truth = _TRUTHS.get(given.casefold())
    if truth is not None:
        return "truth", truth
    if _NUMBER.fullmatch(given):
        return "number", float(given) if set(given) & set(".eE") else int(given)
    return "text", given
