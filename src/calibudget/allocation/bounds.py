"""Floors and caps as people write them: a count, or a percentage of the budget or of the pool.

Nested groups of sources with floors and caps of their own, budgeted from the top down in whole units.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Annotated, Final, Literal, TypeAlias, cast

from pydantic import BeforeValidator, PlainSerializer, TypeAdapter, ValidationError

from calibudget.allocation.exact.budget_spread import Spread, spread
from calibudget.allocation.exact.numbers import as_count, as_ratio, nearest_double
from calibudget.allocation.source_labels import likely, listed
from calibudget.errors import AllocationError, InputTypeError
from calibudget.messages import fault, shown
from calibudget.values import CHECKED, Count, Text

# As many digits as anybody needs, and as Python reads by default.
_TEXT: Final = re.compile(r"([0-9]{1,1000}(?:\.[0-9]{1,1000})?)\s*% of (budget|pool)")
_WAYS: Final = "write a whole number, or a text like '10% of budget' or '50% of pool'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """A share of the budget, or of the pool of the source (or of all pools of the group) that it bounds.

    Attributes:
        share: from 0 to 1, exact.
        of: what it is a share of.
        text: how it was written, if it was.
    """

    share: Fraction
    of: Literal["budget", "pool"]
    text: str | None = field(default=None, compare=False)


#: What bounds a quota: units, or a portion.
Amount: TypeAlias = int | Portion


def parse_amount(value: object, name: str) -> Amount:
    """Read a floor or a cap: an integer >= 0, a `Portion`, or a text such as "12.5% of pool".

    A bare fraction is refused, since nobody can tell what it is a fraction of.

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
        portion = Portion(share=Fraction(match[1]) / 100, of="budget" if match[2] == "budget" else "pool", text=value)
    elif isinstance(value, float | Fraction):
        raise InputTypeError(f"{name} is {shown(value, str)}, but of what? {_WAYS}")
    else:
        return as_count(value, name)
    if not 0 <= portion.share <= 1:
        share = nearest_double(*portion.share.as_integer_ratio())
        raise AllocationError(f"{name} is {share:.6g} of the {portion.of}, but a share lies between 0 and 1")
    return portion


def _read_amount(value: object) -> object:
    try:
        return parse_amount(value, "the amount")
    except InputTypeError as error:  # which pydantic takes for no fault of the value
        raise ValueError(str(error)) from error


def _as_written(value: Amount) -> int | str | None:
    return value.text if isinstance(value, Portion) else value


#: An amount as a recipe has it: a count, or a text such as "10% of budget" or "50% of pool".
Bound = Annotated[
    Count | Portion,
    BeforeValidator(_read_amount, json_schema_input_type=Count | str),
    PlainSerializer(_as_written, when_used="json"),
]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Sources and groups that share bounds.

    Attributes:
        sources: labels of its own sources.
        groups: groups within it, by name.
        floor: fewest units of all its members together; a share of the pool is one of all their pools.
        cap: most units of all its members together; None for no bound.
    """

    __pydantic_config__ = CHECKED

    sources: tuple[Text, ...] = ()
    groups: Mapping[Text, Group] = field(default_factory=dict)
    floor: Bound = 0
    cap: Bound | None = None

    def __post_init__(self) -> None:
        if not self.sources and not self.groups:
            raise AllocationError("is an empty group")
        shared = sorted(set(self.sources) & set(self.groups))
        if shared:
            raise AllocationError(f"has a source and a group that are both called {listed(shared)}")

    def labels(self) -> Iterator[str]:
        """The sources in it, at any depth."""
        yield from self.sources
        for group in self.groups.values():
            yield from group.labels()


def parse_groups(value: Mapping[str, object], labels: Sequence[str]) -> dict[str, Group]:
    """Read groups from their plain form, in which recipes and `allocation.json` hold them.

    `value` holds by name a `Group` or a mapping with its fields, all optional; each label is in exactly one group.

    Raises:
        AllocationError: a field that is unknown or of the wrong type, an unknown source, a source in no group or in
            two, an empty group, a name that a group shares with its sibling source.
    """
    try:
        groups = _GROUPS.validate_python(value)
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(map(str, ("groups", *problem["loc"])))
        raise AllocationError(f"{place}: {fault(problem['type'], problem.get('ctx', {})) or problem['msg']}") from None
    members = Counter(label for group in groups.values() for label in group.labels())
    twice = sorted(label for label, count in members.items() if count > 1)
    unknown = sorted(set(members) - set(labels))
    missing = sorted(set(labels) - set(members))
    for sources, complaint in ((twice, "overlap in"), (unknown, "name unknown sources:"), (missing, "miss")):
        if sources:
            hint = f"; {likely(sources[0], labels)}" if sources is unknown else ""
            raise AllocationError(
                f"the groups {complaint} {listed(sources)}; each source belongs to exactly one group{hint}"
            )
    return groups


_GROUPS: Final = TypeAdapter(dict[Text, Group])


def plain_groups(groups: Mapping[str, Group]) -> dict[str, object]:
    """The plain form of groups whose amounts are whole units."""
    return {
        name: {
            "floor": group.floor,
            "cap": group.cap,
            "sources": sorted(group.sources),
            "groups": plain_groups(group.groups),
        }
        for name, group in sorted(groups.items())
    }


def resolve_groups(groups: Mapping[str, Group], *, budget: int, pools: Mapping[str, int]) -> dict[str, Group]:
    """The same groups with floors and caps in whole units; floors are rounded up, caps down."""

    def resolved(group: Group) -> Group:
        pool = sum(pools[label] for label in group.labels())
        return Group(
            sources=group.sources,
            groups=resolve_groups(group.groups, budget=budget, pools=pools),
            floor=least_units(group.floor, budget=budget, pool=pool),
            cap=None if group.cap is None else most_units(group.cap, budget=budget, pool=pool),
        )

    return {name: resolved(group) for name, group in groups.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Branch:
    """A source or a group with the bounds that its members leave it, in units beyond what floors already gave."""

    name: str
    lower: int
    upper: int
    utility: object
    position: int = -1
    members: tuple[_Branch, ...] = ()


def spread_groups(
    groups: Mapping[str, Group],
    utilities: Sequence[object],
    labels: Sequence[str],
    capacities: Sequence[int],
    budget: int,
    given: Sequence[int],
) -> Spread:
    """`spread` from the top down: whole units to the groups first, then within each.

    A group's utility is the sum over its members with room; its bounds are its own, cut with its members' sums. The
    groups are resolved and hold each source once; `given` are units that each source has beforehand and that its
    groups' floors and caps count too. Sequences have shape (K,), labels in code-point order.

    Raises:
        AllocationError: groups whose bounds can't be kept together, with the numbers.
    """
    positions = {label: k for k, label in enumerate(labels)}
    before = dict(zip(labels, given, strict=True))

    def branch(name: str, group: Group) -> _Branch:
        members = [branch(inner, inside) for inner, inside in group.groups.items()]
        for label in group.sources:
            k = positions[label]
            members.append(_Branch(name=label, lower=0, upper=capacities[k], utility=utilities[k], position=k))
        return _bounded(name, group, sorted(members, key=lambda b: b.name), sum(before[m] for m in group.labels()))

    roots = tuple(sorted((branch(name, group) for name, group in groups.items()), key=lambda b: b.name))
    _require_room(roots, budget, sum(given))
    quotas = [0] * len(labels)
    leaves: list[tuple[Sequence[_Branch], Spread]] = []
    waiting = [(roots, budget)]
    while waiting:
        members, amount = waiting.pop()
        limits = [one.lower for one in members], [one.upper for one in members]
        result = spread([one.utility for one in members], [one.name for one in members], *limits, amount)
        leaves.append((members, result))
        for member, quota in zip(members, result.quotas, strict=True):
            if member.members:
                waiting.append((member.members, quota))
            else:
                quotas[member.position] = quota

    def shares() -> list[float]:
        values = [0.0] * len(labels)
        for members, result in leaves:
            for member, share in zip(members, result.shares(), strict=True):
                if not member.members:
                    values[member.position] = share
        return values

    return Spread(quotas=quotas, shares=shares)


def _bounded(name: str, group: Group, members: Sequence[_Branch], given: int) -> _Branch:
    floor, cap = cast("tuple[int, int | None]", (group.floor, group.cap))
    least, most = sum(m.lower for m in members), sum(m.upper for m in members)
    if floor > given + most:
        raise AllocationError(f"the floor of group {name!r} is {floor:,}, but its members hold only {given + most:,}")
    if cap is not None and cap < given + least:
        raise AllocationError(
            f"the cap of group {name!r} is {cap:,}, but its members' floors come to {given + least:,}"
        )
    if cap is not None and cap < floor:
        raise AllocationError(f"the cap of group {name!r} is {cap:,}, below its floor of {floor:,}")
    roomy = [member for member in members if member.lower < member.upper]  # the others' utility moves nothing
    return _Branch(
        name=name,
        lower=max(least, floor - given),
        upper=most if cap is None else min(most, cap - given),
        utility=sum(Fraction(*as_ratio(m.utility, "the utility", m.name)) for m in roomy),
        members=tuple(members),
    )


def _require_room(roots: Sequence[_Branch], budget: int, given: int) -> None:
    least, most = sum(root.lower for root in roots), sum(root.upper for root in roots)
    if least > budget:
        bounds = ", ".join(f"{root.name} {root.lower:,}" for root in roots if root.lower)
        raise AllocationError(
            f"beyond the sources' floors of {given:,} the groups need {least:,} ({bounds}), "
            f"{least - budget:,} above the {budget:,} that are left: lower floors or raise the budget"
        )
    if most < budget:
        bounds = ", ".join(f"{root.name} {root.upper:,}" for root in roots)
        raise AllocationError(
            f"beyond the sources' floors of {given:,} the groups can take {most:,} ({bounds}), "
            f"{budget - most:,} short of the {budget:,} that are left: raise caps or take a smaller budget"
        )
