"""Weights made elsewhere: the files that RegMix, olmix and DoReMi write, as a number for each source label.

| who | file | what is read |
|---|---|---|
| RegMix | its configuration, YAML | the mapping `train`; each name loses the `train_` that RegMix puts before it |
| olmix | `*_optimal.json` | the list of `{domain, weight}` |
| DoReMi | `avg_domain_weights.json` | the mapping |
| DoReMi | `configs/NAME.json` | `train_domain_weights` |

Otherwise a name is a source's label, letter for letter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from calibudget.errors import RecipeError
from calibudget.recipe.yaml import Document, Location, parse_document

#: Where mappings of weights stand in files that hold more, and what is put before their labels there.
_INSIDE: Final = {"train": "train_", "train_domain_weights": ""}


def read_weights(path: Path) -> dict[str, float]:
    """A mixture's weights by label, as they stand there: they needn't sum to 1.

    Raises:
        RecipeError: the file can't be read, or has none of these forms; a weight that isn't a number of 0 or more, or a
            label that stands there twice.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise RecipeError(f"weights: {path}: can't be read: {getattr(error, 'strerror', None) or error}") from error
    is_list = text.lstrip().startswith("[")
    document = parse_document(f'{{"weights": {text}}}' if is_list else text, str(path))
    weights: dict[str, float] = {}
    for label, weight, location in _named(document):
        where = f"{document.where(location)}: the weight of {label!r}"
        if label in weights:
            raise RecipeError(f"{where} stands there twice")
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < math.inf:
            raise RecipeError(f"{where} must be a number of 0 or more, not {weight!r}")
        weights[label] = weight
    return weights


def _named(document: Document) -> Iterable[tuple[str, object, Location]]:
    """Label, weight and place of each entry."""
    fields = document.value
    if isinstance(fields.get("weights"), list):
        for number, entry in enumerate(fields["weights"]):  # type: ignore[arg-type, var-annotated]
            match entry:
                case {"domain": str(label), "weight": weight, **more} if not more:
                    yield label, weight, ("weights", number)
                case _:
                    raise RecipeError(
                        f"{document.where(('weights', number))}: must be {{domain, weight}}, not {entry!r}"
                    )
        return
    inside = next((name for name in _INSIDE if isinstance(fields.get(name), dict)), None)
    if inside is None:
        yield from ((label, weight, (label,)) for label, weight in fields.items())
        return
    for name, weight in fields[inside].items():  # type: ignore[attr-defined]
        yield name.removeprefix(_INSIDE[inside]), weight, (inside, name)
