"""What a study's results depend on beside its protocol: files of data and models, and this package's code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import calibudget
from calibudget.lm.resolve import resolve_model
from calibudget.pipeline.evaluate import benchmarks_of
from calibudget.pipeline.progress import Progress
from calibudget.pipeline.shared import Shared
from calibudget.recipe import Recipe, resolved_fields
from calibudget.sources import SourceSpec, read_source
from calibudget.sources.files import find_files
from calibudget.store import SourceFile, canonical_json, file_digest, sha256_hex
from calibudget.study.protocol import Protocol
from calibudget.study.settings import CellSettings, asking_of

#: Parts of the package that no cell's outcome depends on: they show and compare what was measured.
_SHOWS: Final = ("cli/", "report/", "export/", "study/reporting/", "study/statistics/")
_CODE: Final = (".py", ".json")

#: Files by the name of what reads them: name to [bytes, SHA-256].
Data = Mapping[str, Mapping[str, tuple[int, str]]]


@cache
def code_sha256() -> str:
    """Digest of this package's own code, but for what only shows results."""
    root = Path(calibudget.__file__).parent
    paths = sorted(path for path in root.rglob("*") if path.suffix in _CODE)
    names = {path.relative_to(root).as_posix(): path for path in paths}
    kept = {name: path for name, path in names.items() if not name.startswith(_SHOWS) and "__pycache__" not in name}
    return sha256_hex(canonical_json([[name, file_digest(path.resolve()).sha256] for name, path in kept.items()]))


def data_of(protocol: Protocol, settings: Mapping[str, CellSettings], shared: Shared, progress: Progress) -> Data:
    """The files that a study reads, by "source <label>", "task <name>" and "model <name>", each with its digest.

    Models are bound where they are local files; one of the hub is bound by what each cell says of it.

    Raises:
        DataError, ScoringError: a file or a model can't be found or read.
    """
    names = {one.model for one in settings.values()} | {one.recipe.model or "" for one in settings.values()}
    found = {f"model {_portable(name)}": _by_name(_model_files(name)) if name else {} for name in sorted(names)}
    recipes = {canonical_json(_sources(one.recipe)): one.recipe for one in settings.values()}
    specs = [(spec, recipe.data_root) for recipe in recipes.values() for spec in _specs(recipe)]
    for done, (spec, root) in enumerate(specs):
        progress("reading what the study depends on", done, len(specs))
        found.setdefault(f"source {spec.label}", {}).update(_by_name(_files(spec, root)))
    if any(one.train for one in settings.values()):
        for asked in protocol.evaluation:
            for benchmark in benchmarks_of(asking_of(protocol, asked), shared, progress):
                found.setdefault(f"task {benchmark.name}", {}).update(_by_name(benchmark.files))
    progress("reading what the study depends on", len(specs), len(specs))
    return {name: dict(sorted(files.items())) for name, files in sorted(found.items()) if files}


def data_sha256(data: Data) -> str:
    """Digest of the files' names, lengths and digests."""
    return sha256_hex(canonical_json(data))


def _specs(recipe: Recipe) -> Iterator[SourceSpec]:
    yield from recipe.source_specs()
    companion = recipe.companion_spec()
    if companion is not None:
        yield companion


def _sources(recipe: Recipe) -> dict[str, object]:
    fields = resolved_fields(recipe)
    return {"root": str(recipe.data_root), "sources": fields["sources"], "companion": fields["companion"]}


def _files(spec: SourceSpec, root: Path) -> Iterable[SourceFile]:
    """The files of a source; a data set of the hub has to be read to be bound."""
    if spec.hub is not None:
        return read_source(spec, root).files
    return [_bound(file.name, file.path) for file in find_files(spec, root)]


def _model_files(name: str) -> Iterable[SourceFile]:
    source = resolve_model(name)
    if source.path is None:
        return []
    paths = [source.path] if source.path.is_file() else [path for path in source.path.iterdir() if path.is_file()]
    return [_bound(path.name, path) for path in paths]


def _portable(model: str) -> str:
    """A model's name without where it lies on this machine."""
    return Path(model).name if Path(model).is_absolute() else model


def _bound(name: str, path: Path) -> SourceFile:
    digest = file_digest(path.resolve())
    return SourceFile(name=name, bytes=digest.bytes, sha256=digest.sha256)


def _by_name(files: Iterable[SourceFile]) -> dict[str, tuple[int, str]]:
    return {file.name: (file.bytes, file.sha256) for file in files}
