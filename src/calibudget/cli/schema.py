"""`calibudget schema`: what the files that people write and those that CaliBudget writes may hold, as JSON Schema."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from calibudget.errors import InputError
from calibudget.messages import meant


def schemas() -> dict[str, Any]:
    """The JSON Schema (2020-12) of each file, by the name of what it holds."""
    from pydantic import BaseModel

    from calibudget.evaluation.results import EVALUATION
    from calibudget.pipeline.round_ledger import ROUNDS
    from calibudget.recipe.schema import Recipe
    from calibudget.selection.proxy import HEADER
    from calibudget.sources.hygiene.artefact import HYGIENE
    from calibudget.store.artefacts import ALLOCATION, SELECTION, STATISTICS
    from calibudget.store.json_records import DIALECT, Artefact
    from calibudget.store.manifest import MANIFEST
    from calibudget.study.cell_records import CELL
    from calibudget.study.freeze import FROZEN
    from calibudget.study.protocol import Protocol

    written: dict[str, type[BaseModel]] = {"recipe": Recipe, "protocol": Protocol}
    artefacts: dict[str, Artefact[Any]] = {
        "allocation": ALLOCATION,
        "cell": CELL,
        "evaluation": EVALUATION,
        "frozen": FROZEN,
        "hygiene": HYGIENE,
        "manifest": MANIFEST,
        "proxy": HEADER,
        "rounds": ROUNDS,
        "selection": SELECTION,
        "statistics": STATISTICS,
    }
    found = {name: {"$schema": DIALECT, **model.model_json_schema()} for name, model in written.items()}
    return found | {name: artefact.json_schema() for name, artefact in artefacts.items()}


def as_text(name: str) -> str:
    """A schema as it is printed."""
    known = schemas()
    if name not in known:
        raise InputError(f"there is no schema {name!r}; {meant(name, known)}")
    return json.dumps(known[name], indent=2, ensure_ascii=False) + "\n"


def schema(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="recipe, protocol, manifest and so on. Default: list all names."),
    ] = None,
) -> None:
    """Print the JSON Schema of a recipe, a study's protocol or a file of a run directory."""
    typer.echo("\n".join(sorted(schemas())) if name is None else as_text(name), nl=name is None)
