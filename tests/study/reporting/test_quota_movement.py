from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from calibudget.study.reporting.quota_movement import quota_shift


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), min_size=1, max_size=8))
def test_moved_is_what_one_side_gains(pairs: list[tuple[int, int]]) -> None:
    first = {str(i): a for i, (a, _) in enumerate(pairs)}
    second = {str(i): b for i, (_, b) in enumerate(pairs)}
    gap = sum(first.values()) - sum(second.values())
    (second if gap > 0 else first)["rest"] = abs(gap)
    (first if gap > 0 else second)["rest"] = 0
    if not sum(first.values()):
        return
    found = quota_shift(first, second)
    assert found.moved == sum(max(0, change) for change in found.by_source.values())
    assert found.moved <= sum(first.values())
    assert quota_shift(second, first).moved == found.moved
