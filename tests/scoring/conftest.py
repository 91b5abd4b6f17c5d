import pytest

from calibudget.scoring import CalibrationItem
from calibudget.tasks import AnswerSpec

CHOICE = AnswerSpec(kind="choice", labels=("answer1", "answer2"))


@pytest.fixture(scope="session")
def items_of(record_of):
    """A function from counts by source to items."""

    def make(count=10, sources=("apples", "pears"), answer=CHOICE):
        return [
            CalibrationItem(record=record_of(source, number), answer=answer)
            for source in sources
            for number in range(count)
        ]

    return make
