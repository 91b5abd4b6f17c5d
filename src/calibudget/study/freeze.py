"""Freezing a study before it runs: what was said is kept, and what is changed later is known for a change.

Files of data and models and this package's code are bound too, since results depend on them.

`frozen.json` holds the protocol and the digests of all that results depend on, then the amendments in their order.
An amendment never touches the cells that are there; a part of the study that it changed is exploratory from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import Field

from calibudget.errors import ArtefactError, CheckFailedError, StudyError
from calibudget.hardware import own_version
from calibudget.lm.model_files import portable_model, resolve_model
from calibudget.pipeline.evaluate import benchmarks_of
from calibudget.pipeline.progress import Progress, each
from calibudget.pipeline.run_directory import check_no_run
from calibudget.pipeline.shared_resources import Shared
from calibudget.recipe.load import recipe_from_fields, resolved_fields
from calibudget.recipe.schema import Recipe
from calibudget.records import SourceFile
from calibudget.sources.files import find_files
from calibudget.sources.spec import SourceSpec
from calibudget.sources.whole_source import read_source
from calibudget.store.canonical import canonical_json, sha256_hex
from calibudget.store.checksums import code_sha256, source_file
from calibudget.store.files import held_names
from calibudget.store.json_records import Artefact
from calibudget.study.cell import (
    CellSettings,
    PipelineRunner,
    asking_of,
    base_recipe,
    settings_of_all,
    settings_sha256,
)
from calibudget.study.cell_records import Cell
from calibudget.study.execution import Planned
from calibudget.study.grid import cells_of
from calibudget.study.protocol import Protocol
from calibudget.values import ByName, Digest

#: Parts of the package that no cell's outcome depends on: they show and compare what was measured.
SHOWS: Final = ("cli/", "report/", "export/", "study/reporting/")
#: Files by the name of what reads them: name to [bytes, SHA-256].
Data = Mapping[str, Mapping[str, tuple[int, str]]]


def data_of(protocol: Protocol, settings: Mapping[str, CellSettings], shared: Shared, progress: Progress) -> Data:
    """The files that a study reads, by "source <label>", "task <name>" and "model <name>", each with its digest.

    Models are bound where they are local files; one of the hub is bound by what each cell says of it.

    Raises:
        DataError, ScoringError: a file or a model can't be found or read.
    """
    named = {one.model for one in settings.values()} | {one.recipe.model for one in settings.values()}
    names = {name for name in named if name}
    found = {f"model {portable_model(name).removeprefix('./')}": _by_name(_model_files(name)) for name in sorted(names)}
    recipes: dict[bytes, Recipe] = {}
    for one in settings.values():
        fields = resolved_fields(one.recipe)
        recipes[canonical_json([str(one.recipe.data_root), fields["sources"], fields["companion"]])] = one.recipe
    specs = [(spec, recipe.data_root) for recipe in recipes.values() for spec in recipe.all_specs.values()]
    for spec, root in each(progress, "reading what the study depends on", specs):
        found.setdefault(f"source {spec.label}", {}).update(_by_name(_files(spec, root)))
    if any(one.train for one in settings.values()):
        for asked in protocol.evaluation:
            for benchmark in benchmarks_of(asking_of(protocol, asked), shared, progress):
                found.setdefault(f"task {benchmark.name}", {}).update(_by_name(benchmark.files))
    return {name: dict(sorted(files.items())) for name, files in sorted(found.items()) if files}


def _files(spec: SourceSpec, root: Path) -> Iterable[SourceFile]:
    """The files of a source; a data set of the hub has to be read to be bound."""
    if spec.hub is not None:
        return read_source(spec, root).files
    return [source_file(file.path, file.name) for file in find_files(spec, root).files]


def _model_files(name: str) -> Iterable[SourceFile]:
    source = resolve_model(name)
    if source.path is None:
        return []
    paths = [source.path] if source.path.is_file() else [path for path in source.path.iterdir() if path.is_file()]
    return [source_file(path, path.name) for path in paths]


def _by_name(files: Iterable[SourceFile]) -> dict[str, tuple[int, str]]:
    return {file.name: (file.bytes, file.sha256) for file in files}


_Part = Literal["protocol", "recipe", "data", "code"]
_PARTS: Final = get_args(_Part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One state of a study's protocol and of what it depends on.

    Attributes:
        protocol: as JSON values.
        data: files by what reads them, see `data_of`.
        digests: SHA-256 of "protocol", "recipe", "data" and "code".
        cells: digest of each cell's settings, by the cell's name.
        changed: what differs from the version before, in words; empty for the first.
    """

    protocol: Mapping[str, Any]
    recipe: Mapping[str, Any]
    data: Mapping[str, Any]
    digests: Annotated[Mapping[_Part, Digest], Field(min_length=len(_PARTS))]
    cells: ByName[Digest]
    calibudget: str
    changed: tuple[str, ...] = ()

    def depends(self, cell: str) -> dict[str, str] | None:
        """Digests of all that a cell's outcome depends on; None where the version has no such cell."""
        if cell not in self.cells:
            return None
        return {"protocol": self.cells[cell], "data": self.digests["data"], "code": self.digests["code"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """All versions of a study, the frozen one first."""

    versions: Annotated[tuple[Version, ...], Field(min_length=1)]

    @property
    def last(self) -> Version:
        """The version in force."""
        return self.versions[-1]

    def to_json(self) -> dict[str, Any]:
        """The `--json` output of `calibudget study freeze`."""
        last = self.last
        return {
            "schema": "calibudget.study-freeze/1",
            "version": len(self.versions) - 1,
            "digests": dict(last.digests),
            "cells": len(last.cells),
            "changed": list(last.changed),
        }

    def origin(self, cell: str) -> int:
        """Number of the first version from which on a cell has depended on the same settings, data and code."""
        return next(number for number, one in enumerate(self.versions) if one.depends(cell) == self.last.depends(cell))


FROZEN: Final = Artefact("calibudget.frozen/1", Frozen, seal="frozen_sha256")


def version_of(
    protocol: Protocol, settings: Mapping[Cell, CellSettings], shared: Shared, progress: Progress
) -> Version:
    """What a protocol would freeze as now: with the digests of what its cells depend on.

    Raises:
        InputError: what the cells need can't be read, or a part of the protocol can't be put together.
    """
    document = base_recipe(protocol)
    recipe = resolved_fields(recipe_from_fields(document.value, document, base_dir=protocol.base_dir))
    data = data_of(protocol, {cell.name: one for cell, one in settings.items()}, shared, progress)
    stated = protocol.to_json()
    digests: dict[_Part, str] = {
        "protocol": sha256_hex(canonical_json(stated)),
        "recipe": sha256_hex(canonical_json(recipe)),
        "data": sha256_hex(canonical_json(data)),
        "code": code_sha256(*SHOWS),
    }
    return Version(
        protocol=stated,
        recipe=recipe,
        data=data,
        digests=digests,
        cells={cell.name: settings_sha256(one) for cell, one in settings.items()},
        calibudget=own_version(),
    )


def check_freezable(directory: Path, *, amend: bool) -> None:
    """Refuse a directory that a protocol can't be frozen in, before anything is read."""
    check_no_run(directory)
    if amend:
        read_frozen(directory)
    elif (directory / FROZEN.name).exists():
        raise ArtefactError(f"{directory}: holds a frozen study; `--amend` keeps a change of it, as exploratory")
    elif held_names(directory):
        raise ArtefactError(f"{directory}: holds other files; name a new or an empty directory")


def freeze(version: Version, directory: Path, *, amend: bool = False) -> Frozen:
    """Write `frozen.json`: the first version, or with `amend` one more.

    Raises:
        ArtefactError: the directory can't be written.
        StudyError: nothing has changed that could be amended.
    """
    if amend:
        frozen = read_frozen(directory)
        changed = tuple(differences(frozen.last, version))
        if not changed:
            raise StudyError(f"{directory}: nothing differs from what is frozen, so there is nothing to amend")
        frozen = Frozen(versions=(*frozen.versions, replace(version, changed=changed)))
    else:
        frozen = Frozen(versions=(version,))
    FROZEN.write(directory / FROZEN.name, frozen)
    return frozen


def differences(before: Version, after: Version) -> Iterator[str]:
    """What differs between two versions, in words."""
    for part in _PARTS:
        if before.digests[part] == after.digests[part]:
            continue
        if part == "code":
            yield f"code: calibudget {before.calibudget} then, {after.calibudget} now, with other source files"
            continue
        yield from (f"{part}: {one}" for one in _changes(getattr(before, part), getattr(after, part), ""))


def read_frozen(directory: Path) -> Frozen:
    """Read `frozen.json`.

    Raises:
        ArtefactError: nothing is frozen there, or the file isn't what was written.
    """
    path = directory / FROZEN.name
    if not path.exists():
        raise ArtefactError(f"{directory}: no study is frozen there; `calibudget study freeze` begins one")
    return FROZEN.read(path)


def _changes(before: object, after: object, place: str) -> Iterator[str]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in sorted(before.keys() | after.keys()):
            where = f"{place}.{name}" if place else str(name)
            if name not in after:
                yield f"{where}: is gone"
            elif name not in before:
                yield f"{where}: is new"
            else:
                yield from _changes(before[name], after[name], where)
    elif canonical_json(before) != canonical_json(after):
        yield f"{place}: {_short(before)} then, {_short(after)} now"


def _short(value: object) -> str:
    text = canonical_json(value).decode("utf-8")
    return text if len(text) <= 60 else f"{text[:56]} …"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """What a study runs: all its cells, finished or not, and who makes them in this process."""

    planned: tuple[Planned, ...]
    runner: PipelineRunner


def make_ready(protocol: Protocol, frozen: Frozen, directory: Path, progress: Progress) -> Ready:
    """Hold a protocol and all that it needs to what is frozen, and plan its cells.

    Raises:
        CheckFailedError: protocol, recipe, data or code aren't what is frozen.
        InputError: what the cells need can't be read.
    """
    shared = Shared()
    settings = settings_of_all(protocol)
    version = version_of(protocol, settings, shared, progress)
    if changed := list(differences(frozen.last, version)):
        listed = "\n".join(f"  {one}" for one in changed)
        raise CheckFailedError(
            f"{directory}: isn't what was frozen:\n{listed}\nput it back, or keep the change as an exploratory one: "
            "calibudget study freeze --amend"
        )
    digests = {name: version.digests[name] for name in ("data", "code")}
    runner = PipelineRunner(protocol=protocol, settings=settings, directory=directory, digests=digests, shared=shared)
    return Ready(planned=plan_cells(protocol, frozen, directory), runner=runner)


def plan_cells(protocol: Protocol, frozen: Frozen, directory: Path) -> tuple[Planned, ...]:
    """Every cell of the version in force, in the folder of the version from which on nothing that it needs changed."""
    return tuple(
        Planned(
            cell=cell,
            directory=directory
            / (f"amended-{number}" if (number := frozen.origin(cell.name)) else "cells")
            / cell.name,
            digests=frozen.last.depends(cell.name) or {},
        )
        for cell in cells_of(protocol)
    )
