"""Families and difficulties that no testbed has used yet, from which a pilot takes those of the third one.

Each can fill the largest pool with prompts and answers of its own, and doesn't depend on Python's hash seed. A game of
an earlier testbed stands here with another difficulty; `KNOWN` names them. Which of them move between few and many
examples, a pilot measures.
"""

from __future__ import annotations

from typing import Final

from testbed.family import Family

#: Pools rotate over the families; every family can fill the largest one.
POOLS: Final = (900, 1200, 1500, 2000, 3000, 4000, 5000, 6000)

#: Games of the earlier testbeds, here with other difficulties.
KNOWN: Final = frozenset(
    """
    base_conversion chain_sum complex_arithmetic decimal_chain_sum group_anagrams number_filtering number_format
    number_sorting path_star products rotate_matrix spell_backward time_intervals word_sequence_reversal word_sorting
    """.split()  # noqa: SIM905
)


def _family(name: str, game: str, **options: object) -> Family:
    return Family(name=name, game=game, pool=POOLS[-1], options=options, spare=300)


CANDIDATES: Final = (
    _family("lcm_small", "lcm", min_value=2, max_value=200),
    _family("lcm_large", "lcm", min_value=10, max_value=999),
    _family("fractions", "fraction_simplification", styles=("plain",)),
    _family("arithmetic_two", "basic_arithmetic", min_terms=2, max_terms=2, min_digits=2, max_digits=4),
    _family("bitwise_one", "bitwise_arithmetic", difficulty=1),
    _family("bitwise_two", "bitwise_arithmetic", difficulty=2),
    _family("dice_odds", "dice"),
    _family(
        "equations_two",
        "simple_equations",
        min_terms=2,
        max_terms=2,
        max_value=20000,
        operators_weights=(0.5, 0.5, 0.0),
    ),
    _family("equations_three", "simple_equations", min_terms=3, max_terms=3, max_value=20000),
    _family("legs_one", "leg_counting", min_animals=1, max_animals=1, min_instances=10, max_instances=9999),
    _family("legs_two", "leg_counting", min_animals=2, max_animals=2, min_instances=10, max_instances=2000),
    _family("insertion_short", "string_insertion", min_string_length=5, max_string_length=9),
    _family("insertion_long", "string_insertion", min_string_length=10, max_string_length=14),
    _family("jumble_short", "letter_jumble", min_words=2, max_words=3, consecutive_words=False),
    _family("jumble_long", "letter_jumble", min_words=5, max_words=7, consecutive_words=False),
    _family(
        "matrix_steps",
        "manipulate_matrix",
        min_rows=5,
        max_rows=5,
        min_cols=5,
        max_cols=5,
        max_transforms=1,
        w_crop=0,
        w_remove_every_nth_row=0,
        w_remove_every_nth_col=0,
    ),
    _family(
        "matrix_two_steps",
        "manipulate_matrix",
        min_rows=5,
        max_rows=5,
        min_cols=5,
        max_cols=5,
        min_transforms=2,
        max_transforms=2,
        w_crop=0,
        w_remove_every_nth_row=0,
        w_remove_every_nth_col=0,
    ),
    _family("life", "game_of_life", grid_size_x=5, grid_size_y=5, filled_cells=10),
    _family("life_small", "game_of_life", grid_size_x=4, grid_size_y=4, filled_cells=7),
    _family("spiral_four", "spiral_matrix", min_n=4, max_n=4),
    _family("clock", "time_intervals", task_types=["time_seconds"]),
    _family("base_four", "base_conversion", min_base=2, max_base=5, min_value=100, max_value=99999),
    _family("sum_two", "chain_sum", min_terms=2, max_terms=2, min_digits=4, max_digits=6),
    _family("sum_three", "chain_sum", min_terms=3, max_terms=3, min_digits=3, max_digits=4),
    _family(
        "complex_sums",
        "complex_arithmetic",
        min_real=-99,
        max_real=99,
        min_imag=-99,
        max_imag=99,
        operations=("+", "-"),
        operations_weights=(0.5, 0.5),
    ),
    _family(
        "decimal_two",
        "decimal_chain_sum",
        min_terms=2,
        max_terms=2,
        min_digits=2,
        max_digits=3,
        min_decimal_places=1,
        max_decimal_places=2,
    ),
    _family(
        "decimal_three",
        "decimal_chain_sum",
        min_terms=3,
        max_terms=3,
        min_digits=2,
        max_digits=3,
        min_decimal_places=1,
        max_decimal_places=2,
    ),
    _family(
        "anagrams_two",
        "group_anagrams",
        min_anagram_groups=2,
        max_anagram_groups=2,
        min_words_per_group=2,
        max_words_per_group=3,
    ),
    _family("filter_short", "number_filtering", min_numbers=3, max_numbers=6, max_decimals=2),
    _family(
        "filter_integers",
        "number_filtering",
        min_numbers=6,
        max_numbers=10,
        max_decimals=0,
        min_value=-1000.0,
        max_value=1000.0,
    ),
    _family("format_two", "number_format", min_num_candidates=2, max_num_candidates=3, max_delta=1000.0),
    _family(
        "sorting_six", "number_sorting", min_numbers=6, max_numbers=7, max_decimals=0, min_value=-999.0, max_value=999.0
    ),
    _family("star_three", "path_star", degree=3, node_range=1000, min_path_length=3, max_path_length=3),
    _family("product_small", "products", min_digits=2, max_digits=3),
    _family("rotate_four", "rotate_matrix", min_n=4, max_n=4, min_rotations=1, max_rotations=3),
    _family("backward_long", "spell_backward", min_word_len=6, max_word_len=10),
    _family("reversal_short", "word_sequence_reversal", min_words=4, max_words=5),
    _family("reversal_long", "word_sequence_reversal", min_words=9, max_words=11),
    _family("words_short", "word_sorting", min_words=3, max_words=5),
    _family("words_long", "word_sorting", min_words=9, max_words=11),
)
