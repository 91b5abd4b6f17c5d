"""Held-out answers that a model could know by heart from the answers that it was trained on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from calibudget.sources.identity import normal_instruction

#: A shared run of fewer words says nothing: numbers and short formulas have such by chance.
SHORTEST_RUN: Final = 4


def normal_answer(text: str) -> str:
    """An answer without what case and white space may differ by."""
    return normal_instruction(text).casefold()


def known_answers(trained: Iterable[str], held_out: Sequence[str]) -> list[str]:
    """The held-out answers that are trained ones, or share a run of words with one that is half of them or more.

    Args:
        trained: answers that may be trained on.
        held_out: answers that are measured.

    Returns:
        Those of `held_out`, in their order; a run counts from `SHORTEST_RUN` words on.
    """
    pool = [normal_answer(answer) for answer in trained]
    whole, words = set(pool), [answer.split() for answer in pool]
    by_length: dict[int, list[tuple[str, list[str]]]] = defaultdict(list)
    for answer in held_out:
        parts = normal_answer(answer).split()
        by_length[max(SHORTEST_RUN, -(-len(parts) // 2))].append((answer, parts))
    known = set()
    for length, answers in by_length.items():
        wanted = {run for _, parts in answers for run in _runs(parts, length)}
        found = {run for parts in words for run in _runs(parts, length) if run in wanted}
        known |= {answer for answer, parts in answers if not found.isdisjoint(_runs(parts, length))}
    return [answer for answer in held_out if answer in known or normal_answer(answer) in whole]


def _runs(words: Sequence[str], length: int) -> list[tuple[str, ...]]:
    return [tuple(words[start : start + length]) for start in range(len(words) - length + 1)]
