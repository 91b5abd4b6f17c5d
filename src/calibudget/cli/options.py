"""Arguments and options that several commands share, declared once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from calibudget.errors import InputError

Number = TypeVar("Number", int, float)

RecipePath = Annotated[Path, typer.Argument(metavar="RECIPE", help="The recipe, a YAML file.")]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Fields of the recipe to replace, dotted keys.")
]
Json = Annotated[bool, typer.Option("--json", help="Canonical JSON on stdout instead of a table.")]


def named_integers(texts: Sequence[str] | None, option: str) -> dict[str, int] | None:
    """Read repeated `label=n` texts; None where the option wasn't given.

    Raises:
        InputError: a text without `=`, a number that isn't a plain integer, or a label given twice.
    """
    return _named(texts, option, int, "an integer")


def named_numbers(texts: Sequence[str] | None, option: str) -> dict[str, float] | None:
    """Read repeated `label=x` texts; None where the option wasn't given."""
    return _named(texts, option, float, "a number")


def _named(
    texts: Sequence[str] | None, option: str, read: Callable[[str], Number], kind: str
) -> dict[str, Number] | None:
    if not texts:
        return None
    named: dict[str, Number] = {}
    for text in (part for given in texts for part in given.split()):
        label, equals, number = text.rpartition("=")
        if not equals or not label:
            raise InputError(f"{option} {text!r}: write label=number")
        if label in named:
            raise InputError(f"{option} names {label!r} twice")
        if "_" in number or number != number.strip():
            raise InputError(f"{option} {text!r}: {number!r} isn't {kind}")
        try:
            named[label] = read(number)
        except ValueError as error:
            raise InputError(f"{option} {text!r}: {number!r} isn't {kind}") from error
    return named
