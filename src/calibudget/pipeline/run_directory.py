"""Opening a run directory: one recipe, one writer; what is half done is resumed, what is foreign is refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from calibudget.errors import ArtefactError
from calibudget.recipe import Recipe, load_recipe
from calibudget.store import SUMS_NAME, file_digest, held_names, output_directory, read_bytes

RECIPE_NAME: Final = "recipe.resolved.yaml"
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


def check_usable(directory: Path, resolved: bytes, *, resume: bool) -> None:
    """Refuse a directory that this recipe can't write to, before anything is read or made.

    Raises:
        ArtefactError: it holds other things, a run of another recipe, or an unfinished run and `resume` is off.
    """
    if directory.exists() and not directory.is_dir():
        raise ArtefactError(f"{directory}: is a file; name a directory for the run")
    held = held_names(directory)
    if not held:
        return
    recipe = directory / RECIPE_NAME
    if not recipe.exists():
        raise ArtefactError(f"{directory}: holds other files ({held[0]} ...); name a new or an empty directory")
    if read_bytes(recipe) != resolved:
        raise ArtefactError(
            f"{directory}: holds a run of another recipe (its {RECIPE_NAME} differs); name another directory"
        )
    if not resume:
        state = "a finished" if is_finished(directory) else "an unfinished"
        raise ArtefactError(
            f"{directory}: holds {state} run of this recipe; go on with --resume, or name another directory"
        )


def recipe_of_run(directory: Path, overrides: Sequence[str] = ()) -> Recipe:
    """The resolved recipe of a run directory; see `load_recipe`.

    Raises:
        RecipeError: it is missing or no recipe.
        ArtefactError: it is no regular file, whose text could be waited for without end.
    """
    path = directory / RECIPE_NAME
    if path.exists():
        file_digest(path)
    return load_recipe(path, overrides)


@contextmanager
def open_run(directory: Path, resolved: bytes, *, resume: bool) -> Iterator[None]:
    """Hold the directory for one run, from before anything is read.

    Raises:
        ArtefactError: see `check_usable` and `output_directory`.
    """
    check_usable(directory, resolved, resume=resume)
    with output_directory(directory):
        check_usable(directory, resolved, resume=resume)  # again, for what another run did meanwhile
        yield
