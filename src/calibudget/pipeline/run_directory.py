"""Opening a run directory: one recipe, one writer; what is half done is resumed, what is foreign is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, cast

from calibudget.errors import ArtefactError, CalibudgetError, ScoringError
from calibudget.lm.gguf import cache_root
from calibudget.lm.model_files import portable_model
from calibudget.messages import first_of
from calibudget.recipe.load import load_recipe
from calibudget.recipe.schema import Recipe
from calibudget.records import Record
from calibudget.selection.train_rows import RowRole
from calibudget.sources.row_records import RecordMaker
from calibudget.store.canonical import read_bytes, read_object
from calibudget.store.checksums import SUMS_NAME, file_digest
from calibudget.store.files import expanded, held_names, output_directory, resolved, write_atomic
from calibudget.store.manifest import MANIFEST
from calibudget.store.splits import SPLITS_NAME
from calibudget.store.train_set import read_train

RECIPE_NAME: Final = "recipe.resolved.yaml"
#: A field of it, and all that stands below.
_FIELD: Final = re.compile(r"^(\w+):(.*?)(?=^\w|\Z)", re.MULTILINE | re.DOTALL)
#: Finished scores of an unfinished run; gone when the run is whole.
JOURNAL_NAME: Final = ".scores.journal"
#: The folder of an unfinished evaluation's journals; gone when it is whole.
EVALUATION_WORK: Final = ".evaluation"
#: The folders of work that may be begun in a finished run, and how the names of what it makes begin.
UNFINISHED: Final = {
    ".training": ("training.jsonl", "adapter"),
    EVALUATION_WORK: ("evaluation.json", "predictions.parquet"),
}


def is_finished(directory: Path) -> bool:
    """Whether a run directory is whole: its sums are the last thing that a run writes."""
    return (directory / SUMS_NAME).exists()


def check_no_run(directory: Path) -> None:
    """Refuse a place for files of other work in a run's directory, which wouldn't verify any more.

    Raises:
        ArtefactError: it is one, finished or not, or lies in one.
    """
    place = resolved(directory)
    made = SUMS_NAME, SPLITS_NAME, JOURNAL_NAME
    for one in (place, *place.parents):
        if (one / RECIPE_NAME).exists() and any((one / name).exists() for name in made):
            raise ArtefactError(f"{one}: is a run's, which wouldn't verify with other files in it; name another place")


def check_usable(directory: Path, resolved_recipe: bytes, *, resume: bool) -> None:
    """Refuse a directory that this recipe can't write to, before anything is read or made."""
    check_no_run(resolved(directory).parent)
    if directory.exists() and not directory.is_dir():
        raise ArtefactError(f"{directory}: is a file; name a directory for the run")
    held = held_names(directory)
    if not held:
        return
    recipe = directory / RECIPE_NAME
    if not recipe.exists():
        raise ArtefactError(f"{directory}: holds other files ({held[0]} ...); name a new or an empty directory")
    found = read_bytes(recipe)
    if found != resolved_recipe:
        own, asked = (dict(_FIELD.findall(text.decode("utf-8", "replace"))) for text in (found, resolved_recipe))
        parts = sorted(name for name in own.keys() | asked.keys() if own.get(name) != asked.get(name))
        raise ArtefactError(
            f"{directory}: holds a run of another recipe (its {RECIPE_NAME} differs in {first_of(parts) or 'form'}); "
            "name another directory, or give what that run was given"
        )
    if not resume:
        state = "a finished" if is_finished(directory) else "an unfinished"
        raise ArtefactError(
            f"{directory}: holds {state} run of this recipe; go on with --resume, or name another directory"
        )


def recipe_of_run(directory: Path, overrides: Sequence[str] = (), *, model: str | None = None) -> Recipe:
    """The resolved recipe of a run directory on the model as this machine has it; see `load_recipe`.

    `model` says where the model lies, or names another one; None looks where a run that ended here found it.

    Raises:
        RecipeError: it is missing or no recipe.
        ArtefactError: it is no regular file, whose text could be waited for without end.
    """
    path = directory / RECIPE_NAME
    if path.exists():
        file_digest(path)
    recipe = load_recipe(path, overrides)
    place = model or model_place(directory, recipe)
    return recipe if place is None else recipe.model_copy(update={"model": place})


def keep_model_place(recipe: Recipe, manifest_sha256: str) -> None:
    """Note in the cache where a run found its model, since no file of the run says so; what can't be kept isn't."""
    if recipe.model is None or portable_model(recipe.model) == recipe.model:
        return
    with suppress(ScoringError, OSError, ValueError):
        path = _place_of(manifest_sha256)
        path.parent.mkdir(parents=True, exist_ok=True)
        places = dict.fromkeys([str(Path(expanded(recipe.model)).absolute()), *_places(path)])
        write_atomic(path, "\0".join(places).encode())


def model_place(directory: Path, recipe: Recipe) -> str | None:
    """Where a run that ended on this machine found its model; None if that isn't known, or isn't asked."""
    name = recipe.model
    if name is None or not name.startswith("./") or Path(name).exists():
        return None
    with suppress(CalibudgetError, OSError, ValueError):
        manifest = read_object(directory / MANIFEST.name)
        return next(iter(_places(_place_of(str(manifest.get("manifest_sha256"))))), None)
    return None


def _places(path: Path) -> list[str]:
    """Where a run's model and copies of it lie, the last one first; those that left are forgotten."""
    places = path.read_text(encoding="utf-8").split("\0") if path.exists() else []
    return [place for place in places if Path(place).exists()]


def _place_of(manifest_sha256: str) -> Path:
    return cache_root() / f"{manifest_sha256}.place"


def records_again(recipe: Recipe, path: Path) -> Iterator[tuple[RowRole, Record]]:
    """The records of a file's rows, each made of its original fields again, with its role.

    Raises:
        ArtefactError: a row isn't of a source of the recipe, or its filter leaves it out.
    """
    makers = {label: RecordMaker(spec) for label, spec in recipe.all_specs.items()}
    for row in read_train(path):
        label, record_id = str(row["source"]), str(row["record_id"])
        record = makers[label](cast(Mapping[str, object], row["original"])) if label in makers else None
        if record is None:
            raise ArtefactError(
                f"{path}: {label}/{record_id}: isn't of a source of the recipe, or its filter leaves it out"
            )
        yield cast(RowRole, row["role"]), replace(record, record_id=record_id)


def calibration_set(splits: Path) -> dict[str, object]:
    """What an evaluation holds to be calibration records: a run's, but of sources whose ids don't tell the text."""
    specs = load_recipe(splits.parent / RECIPE_NAME).specs
    not_compared = [label for label, spec in specs.items() if spec.id_field is not None]
    return {"file": splits.name, "sha256": file_digest(splits).sha256, "not_compared": not_compared}


@contextmanager
def open_run(directory: Path, resolved_recipe: bytes, *, resume: bool) -> Iterator[None]:
    """Hold the directory for one run, from before anything is read."""
    check_usable(directory, resolved_recipe, resume=resume)
    with output_directory(directory):
        check_usable(directory, resolved_recipe, resume=resume)  # again, for what another run did meanwhile
        yield
