from __future__ import annotations

import pytest

from calibudget.errors import InputError
from calibudget.selection.draw import exposures, marked, unmarked


def test_everything_is_seen_once_before_anything_is_seen_twice() -> None:
    assert exposures("a", ["x", "y"], 3) == ["x", "y", "x#r2", "y#r2", "x#r3", "y#r3"]
    assert exposures("a", ["x", "y"], 1) == ["x", "y"]
    assert exposures("a", [], 3) == []


def test_marks_come_off_as_they_went_on(subtests: pytest.Subtests) -> None:
    for record_id, number in [("x", 1), ("x", 2), ("x#2", 12), ("é#r", 3)]:
        with subtests.test(record_id=record_id):
            assert unmarked(marked(record_id, number)) == (record_id, number)


def test_an_id_that_ends_like_a_repeat_s_is_refused_only_where_repeats_may_be() -> None:
    assert exposures("a", ["x#r2"], 1) == ["x#r2"]
    with pytest.raises(InputError, match="'x#r2' looks like a repeat's"):
        exposures("a", ["x", "x#r2"], 2)
