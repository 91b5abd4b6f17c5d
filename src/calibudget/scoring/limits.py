"""How many tokens an answer may be decoded for."""

from __future__ import annotations

from typing import Final

from calibudget.lm.encoding import Encoded
from calibudget.tasks.answers import AnswerSpec

_LIMITS: Final = {"choice": 32, "true_false": 32, "number": 512, "math": 512, "regex": 128, "none": 0}
_EXACT_MARGIN: Final = 8
#: Most new tokens by answer kind, as a scorer describes them. `exact` may use as many as the reference has and a few
#: more, since a longer text can't be equal to it.
ANSWER_LIMITS: Final = {**_LIMITS, "exact": f"reference + {_EXACT_MARGIN}"}


def answer_limit(
    answer: AnswerSpec,
    example: Encoded,
    *,
    max_new_tokens: int | None,
    context_length: int | None,
    early_end: bool = True,
    otherwise: int,
) -> int:
    """Most tokens that are decoded for one answer; 0 where none is checked.

    Args:
        answer: how it is checked.
        example: the record's ids.
        max_new_tokens: what the user asks for; None goes by the answer's kind.
        context_length: positions that the model has, None where that isn't known.
        early_end: whether `exact` answers end soon after the reference's length.
        otherwise: the limit of a kind that has none of its own.
    """
    if answer.kind == "none":
        return 0
    limit = max_new_tokens or _LIMITS.get(answer.kind, otherwise)
    if answer.kind == "exact" and early_end:
        limit = min(limit, len(example.response_ids) + _EXACT_MARGIN)
    return limit if context_length is None else min(limit, context_length - len(example.prompt_ids))
