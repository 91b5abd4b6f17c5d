"""The resolved recipe: every effective value written out, the same bytes for the same recipe.

Reading a recipe from a file, with `key=value` overrides; every refusal names the file, the line and the field.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args, get_type_hints

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from calibudget.errors import RecipeError
from calibudget.lm.model_files import portable_model
from calibudget.messages import fault, redacted
from calibudget.recipe.mixture_weights import read_weights
from calibudget.recipe.schema import Recipe
from calibudget.recipe.yaml import Document, Location, parse_assignment, parse_document
from calibudget.sources.spec import SourceSpec
from calibudget.store.files import expanded
from calibudget.values import MAX_SAFE_INTEGER

_HEADER = "# Every value that this run used, defaults included.\n"


def resolved_fields(recipe: Recipe) -> dict[str, Any]:
    """The recipe as plain JSON values, with the answers and rules that presets and defaults imply.

    An absolute `data_dir` is left out: it says where data lies on one machine, and evidence must be the same on all.
    Nor does it say where reading and scoring ran, which changes no byte: `engine` reads "local" for "ray", `workers`
    1, `address` and `cache` read as by default, and of a server only the model's name there stays. Of a model's
    directory or file, and of an absolute path to an adapter, an earlier round or a selector's file, only the last name
    stays; their digests are in the evidence. `evaluation`, `calibration.too_long`, `calibration.gpus` and a source's
    `prompt` are told where they say something else than by default, as in the evidence of versions that didn't know
    them.
    """
    by_default = {"engine": recipe.scorer, "workers": 1, "address": None, "cache": True}
    fields = recipe.model_dump(mode="json") | by_default
    server = fields.pop("server")
    del fields["base_url"]
    if recipe.engine == "openai" and server["model"] is not None:
        fields["server"] = {"model": server["model"]}
    if Path(recipe.data_dir).is_absolute():
        del fields["data_dir"]
    if recipe.model is not None:
        fields["model"] = portable_model(recipe.model)
    if recipe.evaluation == "none":
        del fields["evaluation"]
    if recipe.calibration != "none" and recipe.skips_beyond is None:
        del fields["calibration"]["too_long"]
    if recipe.calibration != "none" and recipe.calibration.gpus == 1:
        del fields["calibration"]["gpus"]
    if recipe.calibration != "none" and recipe.calibration.adapter is not None:
        fields["calibration"]["adapter"] = _portable(recipe.calibration.adapter)
    if recipe.rounds is not None:
        fields["rounds"]["previous"] = [_portable(path) for path in recipe.rounds.previous]
    for name, path in (("scores", "file"), ("influence", "file")):
        part = fields["selector"].get(name) if isinstance(fields["selector"], dict) else None
        if part is not None and part[path] is not None:
            part[path] = _portable(part[path])
    fields["sources"] = {label: _implied(fields["sources"][label], spec) for label, spec in recipe.specs.items()}
    if recipe.companion_spec is not None:
        fields["companion"] = _implied(fields["companion"], recipe.companion_spec)
    for source in (*fields["sources"].values(), fields["companion"], *fields["hygiene"]["evaluation"].values()):
        if source is not None and source["prompt"] is None:
            del source["prompt"]
    return fields


def _portable(path: str) -> str:
    return Path(path).name if Path(path).is_absolute() else path


def _implied(source: dict[str, Any], spec: SourceSpec) -> dict[str, Any]:
    answer = {name: getattr(spec.answers, name) for name in ("kind", "labels", "pattern", "field")}
    answer["labels"] = list(spec.answers.labels)
    implied = {"answer": answer, "duplicates": spec.duplicates, "on_error": spec.on_error, "split": spec.split}
    return source | implied


def resolved_yaml(recipe: Recipe) -> bytes:
    """`recipe.resolved.yaml`: reading it back gives an equal recipe."""
    body = yaml.safe_dump(resolved_fields(recipe), sort_keys=False, allow_unicode=True, width=1_000_000)
    return (_HEADER + body).encode("utf-8")


#: Fields whose paths start at the recipe in a recipe, and at the working directory on the command line.
_PATHS = frozenset(
    {"data_dir", "calibration.adapter", "rounds.previous", "weights"}
    | {f"selector.{field}" for field in ("scores", "scores.file", "influence", "influence.file")}
)


def load_recipe(path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read and validate a recipe.

    Overrides are `key=value` texts that replace or add fields; keys are dotted (`calibration.per_source=50`), values
    are YAML; of one key the last counts. A `data_dir`, `calibration.adapter`, `rounds.previous` or file of `weights` or
    a `selector` given in one is relative to the working directory.

    Raises:
        RecipeError: the file can't be read, isn't a recipe, or a field of it isn't right.
    """
    document = read_document(path)
    for override in overrides:
        key, value = parse_override(override)
        keys = key.split(".")
        document = document.overridden(tuple(keys), override, _with_value(document.value, keys, value, override))
    return recipe_from_fields(document.value, document, base_dir=Path(path).parent)


def read_document(path: str | Path) -> Document:
    """The recipe's text as a document, before it is validated."""
    return _read(Path(path), "no such recipe; `calibudget init DATA_DIR` writes one")


def read_mapping(given: str, name: str) -> dict[str, object]:
    """A mapping as people give it to an option: written out as `{...}`, or the name of a YAML or JSON file.

    Raises:
        RecipeError: the file can't be read, or there is no mapping.
    """
    if given.lstrip().startswith("{"):
        return parse_document(given, name).value
    return _read(Path(given), f"no such file; {name} takes a file, or a mapping written out as {{name: value}}").value


def recipe_from_fields(fields: dict[str, Any], document: Document, *, base_dir: Path) -> Recipe:
    """Validate fields read from a document; relative paths start at `base_dir`."""
    refuse_secrets(fields, document)
    if isinstance(fields.get("weights"), str):
        fields = fields | {"weights": read_weights(base_dir / expanded(fields["weights"]))}
    try:
        recipe = Recipe.model_validate(fields)
    except ValidationError as error:
        raise RecipeError("\n".join(explained(error, document, Recipe.model_fields))) from error
    unwritable = [f"{document.field(location)}: {words}" for location, words in _unwritable(fields)]
    if unwritable:
        raise RecipeError("\n".join(unwritable))
    recipe._base_dir = base_dir
    return recipe


def refuse_secrets(fields: object, document: Document) -> None:
    """Refuse a document that holds a credential, whose fields go into evidence that people hand on."""
    for at, value in _scalars(fields):
        if isinstance(value, str) and redacted(value) != value:
            raise RecipeError(
                f"{redacted(document.field(at))}: holds a credential, and what is said here goes into the evidence; "
                "put it into the environment"
            )


def _scalars(value: object, at: Location = ()) -> Iterator[tuple[Location, object]]:
    """Everything that a document says, its keys too, with where it stands."""
    match value:
        case Mapping():
            for key, inner in value.items():
                yield (*at, key), key
                yield from _scalars(inner, (*at, key))
        case list() | tuple():
            for index, inner in enumerate(value):
                yield from _scalars(inner, (*at, index))
        case _:
            yield at, value


def _unwritable(fields: object) -> Iterator[tuple[Location, str]]:
    """The values that the evidence can't hold, since canonical JSON has no form for them, and the way out of each."""
    for at, value in _scalars(fields):
        match value:
            case float() if not math.isfinite(value):
                yield at, f"{value} isn't a finite number; write one, or put it in quotes if it is meant as text"
            case int() | float() if abs(value) > MAX_SAFE_INTEGER and (isinstance(value, int) or abs(value) < 1e21):
                yield at, f"{value!s:.60} is beyond 2**53 - 1, where JSON's integers end; put it in quotes, as text"
            case str() if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
                yield at, f"{value!a:.60} holds half of a surrogate pair, which is no character"


def _read(path: Path, otherwise: str) -> Document:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise RecipeError(f"{path}: {otherwise}") from error
    except (OSError, ValueError) as error:  # bytes that are no UTF-8, a name that no file system holds
        raise RecipeError(f"{path}: can't be read as UTF-8 text: {error}") from error
    return parse_document(text, str(path))


def parse_override(override: str) -> tuple[str, object]:
    """The dotted key and the value of a `key=value` override; a path of its own starts at the working directory."""
    key, value = parse_assignment(override, "override")
    if not override.partition("=")[2].strip():
        raise RecipeError(f"override `{override}`: its value is empty (an unset variable?); `null` says none")
    if key in _PATHS:
        value = [_absolute(path) for path in value] if isinstance(value, list) else _absolute(value)
    return key, value


def _absolute(path: object) -> object:
    if not isinstance(path, str) or path.startswith("~") or "://" in path:  # the field's own rule sees to these
        return path
    return str(Path(path).absolute())


def replaced(fields: dict[str, Any], values: Mapping[str, object]) -> dict[str, Any]:
    """Fields with some of them replaced or added; keys are dotted, like those of overrides."""
    for key, value in values.items():
        fields = _with_value(fields, key.split("."), value, key)
    return fields


def _with_value(fields: dict[str, Any], keys: list[str], value: object, override: str) -> dict[str, Any]:
    head, *rest = keys
    if not rest:
        return fields | {head: value}
    inner = fields.get(head, {})
    if not isinstance(inner, dict):
        raise RecipeError(f"override {override!r}: {head!r} isn't a mapping in the recipe")
    return fields | {head: _with_value(inner, rest, value, override)}


def explained(error: ValidationError, document: Document, fields: Mapping[str, FieldInfo]) -> list[str]:
    """What is wrong with a document's fields, a line each, with file and line (or override) and field."""
    found: dict[Location, list[str]] = {}
    for problem in error.errors(include_url=False):
        words = found.setdefault(_location_in_file(problem["loc"], document, fields), [])
        words.extend({_words(problem, fields)}.difference(words))
    # of a mapping that may be something else too, only what is wrong in it is told
    inner = {location[:end] for location in found for end in range(1, len(location))}
    found = {location: words for location, words in found.items() if location not in inner}
    # a value that others default to is wrong once, where it stands
    written = {tuple(words) for location, words in found.items() if document.gives(location)}
    told = {
        location: words for location, words in found.items() if document.gives(location) or tuple(words) not in written
    }
    return [f"{document.field(location)}: {_either(words)}" for location, words in told.items()]


def _either(faults: Sequence[str]) -> str:
    """What is wrong with a field that may be this or that: "must be 'auto' or at least 1, not 0"."""
    heads, _, values = zip(*(words.rpartition(", not ") for words in faults), strict=True)
    if not all(heads) or len(set(values)) > 1:
        return ", or ".join(faults)
    return f"{' or '.join([heads[0], *(one.removeprefix('must be ') for one in heads[1:])])}, not {values[0]}"


def _location_in_file(location: tuple[str | int, ...], document: Document, fields: Collection[str]) -> Location:
    """Pydantic's location without the names of union members, which are no keys of the file."""
    kept: Location = ()
    for part in location:
        is_last_key = document.gives((*kept, part)) or part in fields
        known = is_last_key or (
            isinstance(part, str) and part.isidentifier() and part.islower() and part not in _UNION_TAGS
        )
        kept = (*kept, part) if known else kept
    return kept


_UNION_TAGS = frozenset({"int", "float", "str", "bool", "none", "dict", "tuple"})


def _nearest(location: tuple[str | int, ...], fields: Mapping[str, FieldInfo]) -> list[str]:
    """The field, if any, whose name is like an unknown one's, among those of the mapping where that stands."""
    known = {name: one.annotation for name, one in fields.items()}
    for part in location[:-1]:
        if part in known:
            known = _members(known[str(part)])
    return get_close_matches(str(location[-1]), known, n=1)


def _members(annotation: Any) -> dict[str, Any]:
    """The fields of the mappings that a type names, each with its type."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {name: one.annotation for name, one in annotation.model_fields.items()}
    if is_dataclass(annotation):
        return get_type_hints(annotation)
    return {name: one for inner in get_args(annotation) for name, one in _members(inner).items()}


def _words(problem: Any, fields: Mapping[str, FieldInfo]) -> str:
    given = problem.get("input")
    shown = f", not {given!r}" if isinstance(given, str | int | float | bool | None) else ""
    match problem["type"]:
        case "extra_forbidden" | "unexpected_keyword_argument":
            nearest = _nearest(problem["loc"], fields)
            return (
                f"unknown field; {f'did you mean `{nearest[0]}`?' if nearest else 'see the fields in the user guide'}"
            )
        case "missing":
            return "missing"
        case "value_error":
            return str(problem["ctx"]["error"])
        case "model_type" | "model_attributes_type" | "dict_type" | "dataclass_type":
            return f"must be a mapping of its fields{shown}"
        case _:
            words = fault(problem["type"], problem.get("ctx", {}))
            message = str(problem["msg"])
            shown += "; put it in quotes" if problem["type"] == "string_type" and shown and given is not None else ""
            return (words or message[0].lower() + message[1:]) + shown
