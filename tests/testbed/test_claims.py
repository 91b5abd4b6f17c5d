from __future__ import annotations

from pathlib import Path

from testbed.claims import Claims


def test_a_cell_is_taken_once(tmp_path: Path) -> None:
    one, other = Claims(tmp_path), Claims(tmp_path)
    assert one.take("main/equal/1")
    assert not other.take("main/equal/1")


def test_a_failed_cell_is_tried_once_more_and_then_left_alone(tmp_path: Path) -> None:
    claims = Claims(tmp_path)
    assert claims.take("main/equal/1")
    claims.fail("main/equal/1", for_good=False)
    assert claims.take("main/equal/1")
    claims.fail("main/equal/1", for_good=False)
    assert not claims.take("main/equal/1")
