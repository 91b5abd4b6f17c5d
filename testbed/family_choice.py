"""Which families of reasoning-gym the second testbed takes, chosen by their data alone.

    python -m testbed.family_choice > benchmarks/results/testbed-2/families.md

No model is asked. A family must give the same items under any hash seed, fit the training's length with its prompts and
the decoder's with its answers, have one right answer a question, and be able to fill the largest pool with prompts and
answers of its own, held-out ones that are no parts of the others. Those that pass are taken in the order of a digest of
their names, at most three of a kind, until eight are there; pool sizes go to them in that order.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Final

from calibudget.errors import DataError
from calibudget.lm.encoding import Encoder
from calibudget.lm.loading import load_tokenizer
from calibudget.records import Message, Record
from testbed.data import items, parted
from testbed.families import COMPANION, FIRST_HALVES, HALVES
from testbed.family import Family

POOLS: Final = (900, 1200, 1500, 2000, 3000, 4000, 5000, 6000)
#: Most tokens of prompt and answer together, and of the answer: the protocol's `max_length` and `max_new_tokens`.
LONGEST, LONGEST_ANSWER = 256, 80
LOOKED_AT: Final = 1000
MOST_OF_A_KIND: Final = 3
#: Smaller items, of families whose default ones are too long, and more different ones.
OPTIONS: Final[Mapping[str, Mapping[str, int]]] = {
    "complex_arithmetic": {"min_real": -30, "max_real": 30, "min_imag": -30, "max_imag": 30},
    "group_anagrams": {"max_anagram_groups": 3, "max_words_per_group": 3},
    "manipulate_matrix": {"max_rows": 5, "max_cols": 5, "max_transforms": 3},
    "number_sorting": {"max_numbers": 5},
    "path_star": {"degree": 2, "max_path_length": 3, "node_range": 1000},
    "rotate_matrix": {"min_n": 5, "max_n": 5},
    "spiral_matrix": {"min_n": 3, "max_n": 5},
    "string_insertion": {"max_string_length": 12},
}

#: Questions with several right answers, of which reasoning-gym gives one, or with answers that are right to a
#: tolerance: an exact match would count right ones wrong.
MANY_ANSWERS: Final = frozenset(
    """
    boxnet countdown course_schedule cryptarithm decimal_arithmetic graph_color intermediate_integration jugs
    kakurasu knight_swap mahjong_puzzle n_queens palindrome_generation power_function puzzle24 quantum_lock rubiks_cube
    rush_hour shortest_path simple_integration sokoban survo tower_of_hanoi tsumego word_ladder
    """.split()  # noqa: SIM905
)
#: Families that mix others, that need files which aren't installed, or some of whose items take very long to make.
APART: Final = frozenset(
    """
    advanced_geometry arc_agi bf codeio composite figlet_font futoshiki game_of_life game_of_life_halting
    polynomial_equations polynomial_multiplication rearc sudoku zebra_puzzles
    """.split()  # noqa: SIM905
)


def main() -> None:
    """Print the verdict on every family as a Markdown table."""
    from reasoning_gym.factory import DATASETS

    if sys.argv[1:] == ["digests"]:
        found = {name: digest(name) for name in looked_at(DATASETS)}
        print("\n" + json.dumps(found))  # a family prints dots as it is made
        return
    first = {family.name for half in FIRST_HALVES for family in HALVES[half]} | {COMPANION.name}
    digests = [digests_under(seed) for seed in ("1", "2")]
    encoder = Encoder("alpaca", load_tokenizer("embedded"))
    kinds = {name: DATASETS[name][0].__module__.split(".")[1] for name in DATASETS}
    taken: list[str] = []
    print("| family | kind | verdict |\n|---|---|---|")
    for name in sorted(DATASETS, key=lambda one: hashlib.sha256(f"testbed-2 {one}".encode()).digest()):
        if name in first:
            verdict = "in the first testbed"
        elif name in MANY_ANSWERS:
            verdict = "several right answers, or right to a tolerance"
        elif name in APART:
            verdict = "a mixture, not installed, or slow"
        elif digests[0][name] != digests[1][name]:
            verdict = "depends on Python's hash seed"
        else:
            of_kind = sum(kinds[one] == kinds[name] for one in taken)
            verdict = fault(family_of(name), encoder) or (
                "passes" if of_kind < MOST_OF_A_KIND else "passes; three of its kind"
            )
        if verdict == "passes" and len(taken) < len(POOLS):
            verdict = f"taken, pool {POOLS[len(taken)]:,}"
            taken.append(name)
        print(f"| {name} | {kinds[name]} | {verdict} |", flush=True)


def looked_at(names: object) -> list[str]:
    """The families whose items are made."""
    return sorted(set(names) - MANY_ANSWERS - APART)  # type: ignore[call-overload]


def digest(name: str) -> str:
    """Of a family's first items."""
    rows = [row for row, _ in items(family_of(name), 0, LOOKED_AT // 10)]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def digests_under(seed: str) -> dict[str, str]:
    """The digests of all families in a process with that hash seed."""
    made = subprocess.run(
        [sys.executable, "-m", "testbed.family_choice", "digests"],
        env={**os.environ, "PYTHONHASHSEED": seed},
        check=True,
        stdout=subprocess.PIPE,
    )
    found: dict[str, str] = json.loads(made.stdout.splitlines()[-1])
    return found


def family_of(name: str) -> Family:
    """A family that could fill the largest pool."""
    return Family(name=name, pool=POOLS[-1], options=OPTIONS.get(name, {}))


def fault(family: Family, encoder: Encoder, longest_whole: int = LONGEST) -> str | None:
    """What keeps a family out, or None."""
    rows = [row for row, _ in items(family, 0, LOOKED_AT)]
    answers = len({row["answer"].casefold() for row in rows})
    if 4 * answers < 3 * LOOKED_AT:
        return f"{answers} different answers among {LOOKED_AT:,}"
    encoded = encoder.encode_all([record_of(family.name, row) for row in rows])
    longest = max(len(one.response_ids) for one in encoded)
    whole = max(len(one.prompt_ids) + len(one.response_ids) for one in encoded)
    if whole > longest_whole or longest > LONGEST_ANSWER:
        return f"up to {whole} tokens, {longest} of an answer"
    try:
        parted(family, 0)
    except DataError as error:
        return str(error).split(": ", 1)[1]
    return None


def record_of(name: str, row: dict[str, str]) -> Record:
    """A row as the encoder takes it."""
    return Record(
        source=name,
        record_id="",
        prompt_hash="",
        prompt=(Message(role="user", content=row["prompt"]),),
        completion=row["completion"],
        answer=None,
        original={},
    )


if __name__ == "__main__":
    main()
