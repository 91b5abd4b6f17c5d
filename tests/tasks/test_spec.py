from __future__ import annotations

import pytest

from calibudget.errors import RecipeError
from calibudget.tasks.answers import AnswerSpec


def test_what_no_recipe_can_mean_is_refused(subtests: pytest.Subtests) -> None:
    for fields, message in [
        ({"kind": "multiple"}, "answer.kind: 'multiple' is unknown"),
        ({"kind": "choice"}, "answer.labels: the kind 'choice' needs at least two"),
        ({"kind": "choice", "labels": ("a",)}, "answer.labels"),
        ({"kind": "choice", "labels": ("Yes", "yes")}, "'Yes' and 'yes' are the same label"),
        ({"kind": "choice", "labels": ("stra\u00dfe", "STRASSE")}, "the same label"),
        ({"kind": "choice", "labels": ("a", "a")}, "the same label"),
        ({"kind": "choice", "labels": ("a", " ")}, "answer.labels"),
        ({"kind": "choice", "labels": ("a", 1)}, "answer.labels"),
        ({"kind": "number", "labels": ("1", "2")}, "takes no labels"),
        ({"kind": "regex"}, "answer.pattern: the kind 'regex' needs a pattern"),
        ({"kind": "exact", "pattern": "x"}, "answer.pattern"),
        ({"kind": "regex", "pattern": "("}, "answer.pattern: '\\(' is no regular expression"),
    ]:
        with subtests.test(fields=fields, message=message), pytest.raises(RecipeError, match=message):
            AnswerSpec(**fields)  # type: ignore[arg-type]
