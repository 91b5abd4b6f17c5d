"""One family of generated puzzles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from calibudget.tasks.answers import AnswerSpec

_EXACT: Final = AnswerSpec(kind="exact")


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One family of puzzles, as reasoning-gym makes them.

    Attributes:
        name: the source's label, and reasoning-gym's name unless `game` is given.
        pool: candidates that remain once the calibration split is taken.
        game: reasoning-gym's name, where the label says which of its difficulties this is.
        answer: how answers are read and compared.
        options: reasoning-gym's options that aren't its defaults.
        own_answers: whether each record has an answer of its own, so that no held-out answer can be learnt by heart;
            a family that has too few, or whose answers are parts of each other, is refused.
        spare: items made beyond those wanted, from which held-out records are taken in place of those whose answers
            could be learnt by heart.
    """

    name: str
    pool: int
    game: str = ""
    answer: AnswerSpec = _EXACT
    options: Mapping[str, object] = field(default_factory=dict)
    own_answers: bool = True
    spare: int = 0
