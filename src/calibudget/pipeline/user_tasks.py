"""Tasks of the user's own: the records that a run holds out, and files that are named with how they are read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from calibudget.errors import InputError
from calibudget.evaluation.benchmarks import HELD_OUT, Benchmark, Task
from calibudget.pipeline.run_directory import recipe_of_run, records_again
from calibudget.recipe.load import recipe_from_fields
from calibudget.recipe.yaml import parse_document
from calibudget.records import SourceFile
from calibudget.scoring.scorer import CalibrationItem
from calibudget.sources.spec import SourceSpec
from calibudget.store.checksums import file_digest
from calibudget.store.train_set import HELD_OUT_NAME


def held_out_task(label: str) -> str:
    """Name of the task that a source's held-out records make."""
    return f"{HELD_OUT}.{label}"


def held_out_benchmarks(directory: Path) -> list[Benchmark]:
    """The records that a run holds out, a task a source, read from the run's own file.

    Raises:
        InputError: the run holds none out.
        ArtefactError: a row isn't what the recipe makes of its original.
    """
    path = directory / HELD_OUT_NAME
    if not path.is_file():
        raise InputError(
            f"{directory}: holds no records out for evaluation; say `evaluation: {{per_source: 200}}` in the recipe, "
            "or name tasks (--tasks)"
        )
    recipe = recipe_of_run(directory)
    items: dict[str, list[CalibrationItem]] = {}
    for _, record in records_again(recipe, path):
        item = CalibrationItem(record=record, answer=recipe.specs[record.source].answers)
        items.setdefault(record.source, []).append(item)
    digest = file_digest(path)
    file = SourceFile(name=path.name, bytes=digest.bytes, sha256=digest.sha256)
    return [
        Benchmark(task=Task(name=held_out_task(label)), items=tuple(own), files=(file,), left_out=0)
        for label, own in sorted(items.items())
    ]


def own_source(name: str, given: str) -> SourceSpec:
    """What `name=file` or `name={path: file, ...}` says of a task of the user's own, in a source's fields."""
    words = f"task {name}"
    fields = parse_document(given, words).value if given.lstrip().startswith("{") else {"path": given}
    recipe = {"budget": 0, "policy": "equal", "calibration": "none", "sources": {name: fields}}
    read = recipe_from_fields(recipe, parse_document("{}", words), base_dir=Path())
    return replace(read.specs[name], kind="task", only_split=read.sources[name].split is None)
