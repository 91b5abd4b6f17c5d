"""Quotas over a grid of budgets, floors and exponents: what would the policy do if?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

from calibudget.allocation.amounts import Amount
from calibudget.allocation.planning import plan
from calibudget.allocation.policies import policy_named
from calibudget.errors import AllocationError, InputTypeError
from calibudget.records import AllocationPlan, Exponents
from calibudget.wording import shown


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """One point of the grid.

    Attributes:
        budget: B.
        floor: the common floor.
        exponents: exponents of the factors.
        residual_budget: what the floors leave; None where the point isn't feasible.
        quotas: by label in code-point order; None where the point isn't feasible.
        refusal: why it isn't; None where it is.
    """

    budget: int
    floor: Amount | str
    exponents: Exponents
    residual_budget: int | None
    quotas: Mapping[str, int] | None
    refusal: str | None


def what_if(
    policy: str,
    *,
    budgets: Sequence[int],
    common_floors: Sequence[Amount | str],
    exponents: Sequence[Exponents] = (Exponents(),),
    planned: Callable[..., AllocationPlan] = plan,
    **inputs: Any,
) -> tuple[WhatIf, ...]:
    """The policy's quotas at every combination of budget, common floor and exponents, budgets slowest.

    A combination that no quotas satisfy is part of the answer, not an error.

    Args:
        policy: a name of `POLICIES`.
        budgets: the budgets to try.
        common_floors: the floors to try, for every source that has none of its own.
        exponents: the exponents to try.
        planned: makes the plan of a point, as `plan` does.
        inputs: the rest as `plan` takes it, own floors (`floors`) included.

    Raises:
        InputTypeError: budgets, floors or exponents that aren't a sequence.
        AllocationError: an unknown policy.

    Source: paper 3.4, floor sensitivity: f = 950 beside f = 1,150.
    """
    policy_named(policy)
    for name, values in (("budgets", budgets), ("common_floors", common_floors), ("exponents", exponents)):
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise InputTypeError(f"{name} must be a sequence of values to try, not {shown(values)}")

    def point(budget: int, floor: Amount | str, powers: Exponents) -> WhatIf:
        place = partial(WhatIf, budget=budget, floor=floor, exponents=powers)
        try:
            made = planned(policy, budget=budget, floor=floor, exponents=powers, intervals=False, **inputs)
        except AllocationError as error:
            return place(residual_budget=None, quotas=None, refusal=str(error))
        return place(residual_budget=made.residual_budget, quotas=made.quotas, refusal=None)

    return tuple(point(*place) for place in product(budgets, common_floors, exponents))
