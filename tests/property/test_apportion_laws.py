"""Laws that quotas obey, and the one that largest remainders are known to break."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from calibudget.allocation.quotas import allocate, apportion

LABELS = st.text(min_size=1, max_size=3)
UTILITIES = st.one_of(
    st.integers(0, 20),
    st.floats(0, 1e12, allow_subnormal=False),
    st.sampled_from([0.1, 0.2, 0.3, 1 / 3]),
    st.fractions(0, 5, max_denominator=12),
)
QUICK = settings(max_examples=60, derandomize=True)


@st.composite
def problems(draw: Any) -> Any:
    """Utilities and bounds by label, and a budget that the bounds hold."""
    labels = draw(st.lists(LABELS, min_size=1, max_size=7, unique=True))
    utilities = {label: draw(UTILITIES) for label in labels}
    upper = {label: draw(st.integers(0, 30)) for label in labels}
    lower = {label: draw(st.integers(0, high)) if draw(st.booleans()) else 0 for label, high in upper.items()}
    budget = draw(st.integers(sum(lower.values()), sum(upper.values())))
    return utilities, lower, upper, budget


@QUICK
@given(problems())
def test_quotas_stay_in_bounds_within_one_of_their_shares_and_sum_to_the_budget(problem: Any) -> None:
    utilities, lower, upper, budget = problem
    made = apportion(utilities, budget, lower=lower, upper=upper)
    assert sum(made.quotas.values()) == budget == made.budget
    assert all(lower[k] <= made.quotas[k] <= upper[k] for k in utilities)
    assert all(abs(made.quotas[k] - made.shares[k]) < 1 + 1e-9 for k in utilities)
    assert list(made.quotas) == sorted(utilities)


@QUICK
@given(problems(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_changes_nothing(problem: Any, rng: Any) -> None:
    utilities, lower, upper, budget = problem
    shuffled = list(utilities)
    rng.shuffle(shuffled)
    again = apportion({k: utilities[k] for k in shuffled}, budget, lower=lower, upper=upper)
    assert again == apportion(utilities, budget, lower=lower, upper=upper)


@QUICK
@given(problems(), st.integers(-60, 60))
def test_scaling_by_a_power_of_two_changes_nothing(problem: Any, exponent: Any) -> None:
    utilities, lower, upper, budget = problem
    scaled = {
        k: u * (Fraction(2) ** exponent if not isinstance(u, float) else 2.0**exponent) for k, u in utilities.items()
    }
    assert apportion(scaled, budget, lower=lower, upper=upper) == apportion(utilities, budget, lower=lower, upper=upper)


@QUICK
@given(problems(), LABELS, UTILITIES)
def test_a_source_without_capacity_changes_no_other(problem: Any, label: Any, utility: Any) -> None:
    utilities, lower, upper, budget = problem
    if label in utilities:
        return
    more = apportion(utilities | {label: utility}, budget, lower=lower | {label: 0}, upper=upper | {label: 0})
    assert {k: q for k, q in more.quotas.items() if k != label} == apportion(
        utilities, budget, lower=lower, upper=upper
    ).quotas
    assert more.quotas[label] == 0


@QUICK
@given(problems(), st.data())
def test_a_quota_does_not_fall_when_its_own_utility_rises(problem: Any, data: Any) -> None:
    utilities, lower, upper, budget = problem
    label = data.draw(st.sampled_from(sorted(utilities)))
    raised = utilities | {label: Fraction(utilities[label]) + data.draw(st.fractions(0, 10, max_denominator=9))}
    before = apportion(utilities, budget, lower=lower, upper=upper)
    assert apportion(raised, budget, lower=lower, upper=upper).quotas[label] >= before.quotas[label]


@QUICK
@given(problems(), st.data())
def test_a_quota_does_not_fall_when_its_own_cap_rises(problem: Any, data: Any) -> None:
    utilities, lower, upper, budget = problem
    label = data.draw(st.sampled_from(sorted(utilities)))
    raised = upper | {label: upper[label] + data.draw(st.integers(0, 20))}
    before = apportion(utilities, budget, lower=lower, upper=upper)
    assert apportion(utilities, budget, lower=lower, upper=raised).quotas[label] >= before.quotas[label]


@QUICK
@given(problems(), st.integers(0, 8))
def test_the_papers_rule_is_a_floor_and_an_apportionment_of_the_rest(problem: Any, floor: Any) -> None:
    utilities, _, sizes, _ = problem
    floors = {k: min(size, floor) for k, size in sizes.items()}
    budget = (sum(floors.values()) + sum(sizes.values())) // 2
    rooms = {k: sizes[k] - floors[k] for k in sizes}
    rest = apportion(utilities, budget - sum(floors.values()), upper=rooms)
    made = allocate(sizes, utilities, budget, floor)
    assert made.quotas == {k: floors[k] + q for k, q in rest.quotas.items()}
    assert made.shares == rest.shares
    assert made.floor_quotas == {k: floors[k] for k in sorted(floors)}


def test_a_quota_may_fall_when_the_budget_rises() -> None:
    """The known paradox of largest remainders: 6 : 6 : 2 gives the last 2 of 10 units but 1 of 11."""
    utilities = {"a": 6, "b": 6, "c": 2}
    assert apportion(utilities, 10).quotas == {"a": 4, "b": 4, "c": 2}
    assert apportion(utilities, 11).quotas == {"a": 5, "b": 5, "c": 1}
