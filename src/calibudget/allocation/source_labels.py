"""The labels of sources: in code-point order, the same in every mapping, told in a few words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TypeVar

from calibudget.errors import AllocationError, InputTypeError
from calibudget.messages import first_of, shown

Value = TypeVar("Value")


def sorted_labels(values: Mapping[str, object]) -> list[str]:
    """The labels in code-point order, the order of all ties and all outputs."""
    require_mapping(values, "the numbers of the sources")
    if not {str}.issuperset(map(type, values)):
        for label in values:
            require_text(label, "a source's label")
    return sorted(values)


def in_order(labels: list[str], values: Mapping[str, Value]) -> list[Value]:
    """The values of labels that a mapping has, in their order; one that has just them in it isn't searched."""
    return list(values.values() if list(values) == labels else map(values.__getitem__, labels))


def require_same_labels(labels: Iterable[str], values: Mapping[str, object], name: str, rest: str) -> None:
    """Refuse a mapping that misses a source or names another one."""
    require_mapping(values, name)
    if list(values) == labels:
        return
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
    """Refuse what isn't a mapping by label."""
    if not isinstance(values, Mapping):
        raise InputTypeError(f"{name} must be a mapping by label, not {shown(values)} ({type(values).__name__})")


def require_text(value: object, name: str) -> None:
    """Refuse what isn't a text."""
    if not isinstance(value, str):
        raise InputTypeError(f"{name} must be a text, not {shown(value)} ({type(value).__name__})")


def likely(name: object, labels: Sequence[str]) -> str:
    """Which sources there are, for a message about one that isn't; and the one that was meant, where one is near."""
    nearest = get_close_matches(shown(name, str), labels)
    return f"the sources are {listed(labels)}" + (f"; did you mean {nearest[0]!r}?" if nearest else "")


def listed(labels: Sequence[str], most: int = 5) -> str:
    """A few labels for a message, and how many more there are."""
    return first_of([*map(shown, labels)], most)
