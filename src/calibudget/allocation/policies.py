"""The policies by name: what each one's utilities are made of, and how it treats the floor."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final, Literal

from calibudget.allocation import utility_factors
from calibudget.allocation.source_labels import require_text
from calibudget.errors import AllocationError

#: What a policy must be given beside pool sizes.
Wants = Literal["statistics", "weights", "pooled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One way to turn sources into quotas.

    Attributes:
        summary: one line for tables and help.
        rule: from evidence to utilities.
        has_floor: whether it gives the floor before a share of what that leaves.
        wants: the input that it reads beside pool sizes, if any.
        factors: the factors whose product the utilities are, each to its exponent; empty where they are something else.
    """

    summary: str
    rule: utility_factors.Rule
    has_floor: bool = True
    wants: Wants | None = None
    factors: tuple[str, ...] = ()

    @property
    def needs_scores(self) -> bool:
        """Whether its quotas depend on what a model scored."""
        return self.wants == "statistics"


def _plain(values: Iterable[float]) -> utility_factors.Worth:
    """Utilities that are no product of factors."""
    return utility_factors.Worth(utilities=list(map(float, values)))


def _root_of_capacity(evidence: utility_factors.Evidence) -> utility_factors.Worth:
    """The square root of the residual capacity, which is the availability."""
    values = list(map(utility_factors.availability, evidence.capacities))
    return utility_factors.Worth(utilities=values, factors={"availability": values})


def _factor_policy(summary: str, *factors: str) -> Policy:
    return Policy(
        summary=summary, rule=partial(utility_factors.product_of, names=factors), wants="statistics", factors=factors
    )


#: Every policy by name: the paper's rule, its ablations and comparators (table 1), and what goes beyond it.
POLICIES: Final[Mapping[str, Policy]] = {
    "calibudget": _factor_policy("floor + need * availability^1/2 * reliability", *utility_factors.FACTORS),
    "need": _factor_policy("floor + need", "need"),
    "need-availability": _factor_policy("floor + need * availability^1/2", "need", "availability"),
    "need-reliability": _factor_policy("floor + need * reliability", "need", "reliability"),
    "val-error-floor": Policy(
        summary="floor + calibration error", rule=utility_factors.calibration_error, wants="statistics"
    ),
    "floor-sqrt": Policy(summary="floor + square root of the residual capacity", rule=_root_of_capacity),
    "equal": Policy(summary="equal quotas", rule=lambda evidence: _plain([1] * len(evidence.labels)), has_floor=False),
    "proportional": Policy(summary="pool size", rule=lambda evidence: _plain(evidence.pool_sizes), has_floor=False),
    "pooled": Policy(  # the quotas of the draw; at that worth they are their own apportionment
        summary="one draw from all pools together",
        rule=lambda evidence: _plain(evidence.pooled),
        has_floor=False,
        wants="pooled",
    ),
    "weights": Policy(
        summary="floor + weights of your own", rule=lambda evidence: _plain(evidence.weights), wants="weights"
    ),
}


REFUTED: Final = "the second of two frozen comparisons refuted learning curves as a default (docs/testbed.md)"
#: Policies of earlier versions, and why they are gone.
_REMOVED: Final = {
    "learning-curve": REFUTED,
    "least-nll": REFUTED,
    "floor": "take `floor-sqrt` and as the budget the sum of the floors, which then are the quotas",
}


def refuse_removed(name: str) -> None:
    """Refuse a policy of an earlier version by its name."""
    if name in _REMOVED:
        raise AllocationError(f"the policy {name!r} was removed: {_REMOVED[name]}")


def policy_named(name: str) -> Policy:
    """The policy of that name.

    Raises:
        InputTypeError: a name that isn't a text.
        AllocationError: an unknown name; the message lists the known ones.
    """
    require_text(name, "the policy")
    refuse_removed(name)
    if name not in POLICIES:
        raise AllocationError(f"there is no policy {name!r}; the policies are {', '.join(POLICIES)}")
    return POLICIES[name]


def pooled_quotas(keys: Mapping[str, Sequence[bytes]], budget: int) -> dict[str, int]:
    """Quotas of a draw from all candidates together: the first B under the keyed order, counted by source.

    `keys` are each source's candidate keys (32 bytes each) under the "selection" role, in any order.

    Raises:
        AllocationError: a budget above the number of candidates.

    Source: paper 3.1, pooled-uniform.
    """
    labels = sorted(keys)
    pools = sum(map(len, keys.values()))
    if budget > pools:
        raise AllocationError(f"the budget {budget:,} is {budget - pools:,} above all pools together ({pools:,})")
    streams = [[(key, label) for key in sorted(keys[label])] for label in labels]
    counts = Counter(label for _, label in islice(heapq.merge(*streams), budget))
    return {label: counts[label] for label in labels}
