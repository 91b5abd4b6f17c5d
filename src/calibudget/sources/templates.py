"""A prompt that is put together from several columns of a row, as `prompt: "{question} A: {a}"` says."""

from __future__ import annotations

from collections.abc import Mapping
from string import Formatter

from calibudget.errors import RecipeError


def template_columns(template: str) -> tuple[str, ...]:
    """The columns that a template names, each once, in its order.

    Raises:
        RecipeError: a brace that stands alone, a name that is missing or says more than a column, or no column at all.
    """
    try:
        parts = list(Formatter().parse(template))
    except ValueError as error:
        raise RecipeError(f"`prompt`: {error}; a brace of the text itself is written twice, {{{{ or }}}}") from error
    for _, name, form, conversion in parts:
        if name is not None and (not name or form or conversion):
            raise RecipeError(
                "`prompt`: between braces stands the name of a column and nothing else, as in {question}; a brace of "
                "the text itself is written twice, {{ or }}"
            )
    names = tuple(dict.fromkeys(name for _, name, _, _ in parts if name))
    if not names:
        raise RecipeError("`prompt` names no column, as {question} does, so all prompts would be the same text")
    return names


def filled(template: str, texts: Mapping[str, str]) -> str:
    """A template with the text of each column in its place; braces in these texts are text."""
    return "".join(text + (texts[name] if name else "") for text, name, _, _ in Formatter().parse(template))
