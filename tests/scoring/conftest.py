from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from calibudget.scoring.scorer import CalibrationItem
from calibudget.tasks.answers import AnswerSpec

CHOICE = AnswerSpec(kind="choice", labels=("answer1", "answer2"))


@pytest.fixture(scope="session")
def items_of(record_of: Callable[..., Any]) -> Any:
    """A function from counts by source to items."""

    def make(count: int = 10, sources: Any = ("apples", "pears"), answer: Any = CHOICE) -> Any:
        return [
            CalibrationItem(record=record_of(source, number), answer=answer)
            for source in sources
            for number in range(count)
        ]

    return make
