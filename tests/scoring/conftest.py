from __future__ import annotations

from typing import Any

from calibudget.scoring.scorer import CalibrationItem
from calibudget.tasks.answers import AnswerSpec
from tests.conftest import record_of

CHOICE = AnswerSpec(kind="choice", labels=("answer1", "answer2"))


def items_of(count: int = 10, sources: Any = ("apples", "pears"), answer: Any = CHOICE) -> Any:
    """So many items of each source."""
    return [
        CalibrationItem(record=record_of(source, number), answer=answer)
        for source in sources
        for number in range(count)
    ]
