"""Known data sets, and how answers are parsed and compared: shared by calibration and evaluation, and versioned."""

from calibudget.tasks.answers import (
    EARLIER_PARSERS,
    PARSER_VERSION,
    AnswerKind,
    AnswerSpec,
    answer_is_final,
    answers_equal,
    equal_at_sight,
    gold_answer,
    parse_answer,
)
from calibudget.tasks.presets import PRESETS, Preset, Rendered, preset

__all__ = [
    "EARLIER_PARSERS",
    "PARSER_VERSION",
    "PRESETS",
    "AnswerKind",
    "AnswerSpec",
    "Preset",
    "Rendered",
    "answer_is_final",
    "answers_equal",
    "equal_at_sight",
    "gold_answer",
    "parse_answer",
    "preset",
]
