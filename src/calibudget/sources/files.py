"""Which files a source is read from: found below the data directory, in an order that only their names decide."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from calibudget.errors import DataError, InputError
from calibudget.sources.rows import SUFFIXES
from calibudget.sources.spec import SourceSpec
from calibudget.store import confined, read_object

_SAVED: Final = "state.json"
_SAVED_SPLITS: Final = "dataset_dict.json"


class DataFile(NamedTuple):
    """A file to read: where it lies, and its name in messages and evidence (never absolute)."""

    path: Path
    name: str


def find_files(spec: SourceSpec, data_dir: Path) -> tuple[DataFile, ...]:
    """The files of a source, each once, sorted by name.

    A relative path or glob stays below the data directory, links included; an absolute one is taken at its word.
    A directory stands for the data files in it, at any depth, or for the data set that `datasets` saved there.

    Raises:
        DataError: nothing is found, a path leads out of the data directory, or a saved data set isn't whole.
    """
    found: dict[Path, DataFile] = {}
    for pattern in spec.paths:
        matches = [file for path in _matches(pattern, data_dir, spec.label) for file in _expand(path, spec)]
        if not matches:
            raise DataError(f"source {spec.label!r}: no file matches {pattern!r} below {data_dir}")
        for path in matches:
            found.setdefault(path.resolve(), DataFile(path=path, name=_name(path, data_dir)))
    return tuple(sorted(found.values(), key=lambda file: (file.name, str(file.path))))


def check_distinct_files(specs: Iterable[SourceSpec], data_dir: Path) -> None:
    """Check that no two sources, the companion included, read the same file or the same split of a hub data set.

    Two sources may share one if their `where` filters ask a field for different values.

    Raises:
        DataError: two do; the message names them and what they share.
    """
    readers: dict[object, list[SourceSpec]] = {}
    for spec in specs:
        keys = [(spec.hub, spec.subset, spec.split, spec.revision)] if spec.hub else []
        places: list[tuple[object, str]] = [(key, f"the hub data set {spec.hub}") for key in keys]
        if spec.paths:
            places = [(file.path.resolve(), file.name) for file in find_files(spec, data_dir)]
        for key, name in places:
            for other in readers.setdefault(key, []):
                if not _disjoint(spec, other):
                    raise DataError(f"sources {other.label!r} and {spec.label!r} both read {name}; drop one of them")
            readers[key].append(spec)


def _disjoint(one: SourceSpec, two: SourceSpec) -> bool:
    return any(
        not wanted_values(one.where, name) & wanted_values(two.where, name) for name in one.where if name in two.where
    )


def wanted_values(where: Mapping[str, object], name: str) -> frozenset[str]:
    """The values that a filter lets pass for a field, as text: CSV has nothing else."""
    value = where[name]
    return frozenset(map(str, value)) if isinstance(value, tuple | list) else frozenset((str(value),))


def _matches(pattern: str, data_dir: Path, label: str) -> list[Path]:
    """What a path or glob names; below the data directory unless it is absolute."""
    path = Path(pattern)
    if path.is_absolute():
        return [path] if path.exists() else sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
    try:
        literal = confined(data_dir, pattern)
        found = [literal] if literal.exists() else sorted(data_dir.glob(pattern))
        return [confined(data_dir, match.relative_to(data_dir).as_posix()) for match in found]
    except InputError as error:
        raise DataError(f"source {label!r}: {error}") from error


def _expand(path: Path, spec: SourceSpec) -> list[Path]:
    """A file as itself, a directory as its files."""
    if not path.is_dir():
        return [path]
    if (path / _SAVED_SPLITS).is_file():
        splits = read_object(path / _SAVED_SPLITS).get("splits")
        if not isinstance(splits, list) or spec.split not in splits:
            raise DataError(f"source {spec.label!r}: {path.name} has the splits {splits}, not {spec.split!r}")
        path = confined(path, spec.split)
    if (path / _SAVED).is_file():
        return _saved_files(path)
    return sorted(file for file in path.rglob("*") if file.name.endswith(SUFFIXES) and file.is_file())


def _saved_files(directory: Path) -> list[Path]:
    """The Arrow files of a data set that `Dataset.save_to_disk` wrote."""
    state = read_object(directory / _SAVED)
    entries = state.get("_data_files")
    if not isinstance(entries, list) or not entries:
        raise DataError(f"{directory.name}/{_SAVED}: lists no data files; save the data set again")
    names = [entry.get("filename") if isinstance(entry, Mapping) else None for entry in entries]
    files = [confined(directory, name) for name in names if isinstance(name, str)]
    missing = [file.name for file in files if not file.is_file()]
    if missing or len(files) != len(entries):
        raise DataError(f"{directory.name}/{_SAVED}: names files that aren't there: {', '.join(missing) or names}")
    return files


def _name(path: Path, data_dir: Path) -> str:
    try:
        return path.relative_to(data_dir).as_posix()
    except ValueError:
        return path.name
