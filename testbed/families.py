"""The testbed's families of generated puzzles: two halves of eight, eight more, and one apart for retention.

The half "choose" holds the families on which the idea of allocating by learning curves was formed; rules, fits and
settings may be chosen on it. The half "confirm" was never looked at while anything was chosen. Within each half pools
differ by a factor of more than six, and the families by kind, difficulty and what exposure gains.

Held-out prompts of those are new, but not their answers: one family turned out to have 319 sentences in all. The
families of "confirm-2" hold out answers too. `testbed/family_choice.py` chose them, by their data alone.
Those of "answers-1" and "answers-2" were taken by the rule of a pilot (`testbed/pilot.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Literal

from calibudget.errors import InputError
from calibudget.tasks.answers import AnswerSpec
from testbed.candidates import CANDIDATES
from testbed.family import Family

#: A group of families that are trained on together.
Half = Literal[
    "choose", "confirm", "confirm-2", "pilot-1", "pilot-2", "pilot-3", "pilot-4", "pilot-5", "answers-1", "answers-2"
]

#: Examples of each family that are held out to measure on, never trained on and never calibrated with.
TEST_SIZE: Final = 300
#: Examples of each family beyond its pool that the calibration split takes.
CALIBRATION_SIZE: Final = 100
#: Examples of the companion family that every train set holds.
COMPANION_SIZE: Final = 400
#: Seeds between two families: reasoning-gym makes item i from seed + i, so ranges must not touch.
SEED_STEP: Final = 1_000_000

_NUMBER: Final = AnswerSpec(kind="number")


def _prompts_only(*families: Family) -> tuple[Family, ...]:
    """The families of the first testbed, whose data was frozen before answers were held out."""
    return tuple(replace(family, own_answers=False) for family in families)


def _candidates(*names: str) -> tuple[Family, ...]:
    by_name = {family.name: family for family in CANDIDATES}
    return tuple(by_name[name] for name in names)


#: The groups in which the pilot of the third testbed trains its candidates.
PILOTS: Final[tuple[Half, ...]] = ("pilot-1", "pilot-2", "pilot-3", "pilot-4", "pilot-5")

#: The families of each half.
HALVES: Final[Mapping[Half, tuple[Family, ...]]] = {
    "choose": _prompts_only(
        Family(name="color_cube_rotation", pool=900),
        Family(name="chain_sum", pool=1200, answer=_NUMBER),
        Family(name="word_sequence_reversal", pool=1500),
        Family(name="spell_backward", pool=2000),
        Family(name="syllogism", pool=3000, answer=AnswerSpec(kind="choice", labels=("Yes", "No"))),
        Family(name="needle_haystack", pool=4000, options={"min_num_statements": 3, "max_num_statements": 8}),
        Family(name="word_sorting", pool=5000),
        Family(name="letter_counting", pool=6000, answer=_NUMBER),
    ),
    "confirm": _prompts_only(
        Family(name="calendar_arithmetic", pool=900),
        Family(name="knights_knaves", pool=1200),
        Family(name="number_format", pool=1500),
        Family(name="caesar_cipher", pool=2000),
        Family(name="base_conversion", pool=3000),
        Family(name="number_filtering", pool=4000),
        Family(name="family_relationships", pool=5000),
        Family(name="gcd", pool=6000, answer=_NUMBER),
    ),
    "confirm-2": (
        Family(name="time_intervals", pool=900),
        Family(name="number_sorting", pool=1200, options={"max_numbers": 5}),
        Family(name="group_anagrams", pool=1500, options={"max_anagram_groups": 3, "max_words_per_group": 3}),
        Family(name="decimal_chain_sum", pool=2000, answer=_NUMBER),
        Family(name="products", pool=3000, answer=_NUMBER),
        Family(name="path_star", pool=4000, options={"degree": 2, "max_path_length": 3, "node_range": 1000}),
        Family(name="rotate_matrix", pool=5000, options={"min_n": 5, "max_n": 5}),
        Family(
            name="complex_arithmetic",
            pool=6000,
            options={"min_real": -30, "max_real": 30, "min_imag": -30, "max_imag": 30},
        ),
    ),
    # difficulties of one game stand side by side, and so come into different groups
    **{half: CANDIDATES[number :: len(PILOTS)] for number, half in enumerate(PILOTS)},
    # as the pilot's rule took them: five that move, three that don't
    "answers-1": _candidates(
        "matrix_two_steps",
        "bitwise_one",
        "jumble_short",
        "sorting_six",
        "reversal_long",
        "insertion_long",
        "equations_three",
        "dice_odds",
    ),
    "answers-2": _candidates(
        "legs_one",
        "arithmetic_two",
        "anagrams_two",
        "filter_integers",
        "sum_two",
        "lcm_large",
        "life_small",
        "fractions",
    ),
}

#: The halves of the first testbed, which share their data.
FIRST_HALVES: Final[tuple[Half, ...]] = ("choose", "confirm")

#: The family whose examples join every train set unchanged, and whose held-out loss shows what is retained.
COMPANION: Final = Family(name="gsm_symbolic", pool=COMPANION_SIZE, answer=_NUMBER, own_answers=False)


def first_seed(family: Family) -> int:
    """The seed of a family's first item; no two families' ranges touch."""
    every = [*HALVES["choose"], *HALVES["confirm"], COMPANION, *HALVES["confirm-2"], *CANDIDATES]
    return SEED_STEP * (1 + [one.name for one in every].index(family.name))


def families_of(half: Half) -> tuple[Family, ...]:
    """The families of a half.

    Raises:
        InputError: an unknown half.
    """
    if half not in HALVES:
        raise InputError(f"the testbed's halves are {' and '.join(HALVES)}, not {half!r}")
    return HALVES[half]
