"""Which files a source is read from: found below the data directory, in an order that only their names decide."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from calibudget.errors import DataError, InputError
from calibudget.sources.filters import are_disjoint
from calibudget.sources.remote import COPIES, SAVED, SAVED_SPLITS, find_remote, is_url, local_path
from calibudget.sources.rows import SUFFIXES
from calibudget.sources.spec import SourceSpec
from calibudget.store import confined, read_object, resolved


class DataFile(NamedTuple):
    """A file to read.

    Attributes:
        path: where it lies; of an object of a store, where its copy does.
        name: what to call it in messages and evidence: a URL, or a path that is never absolute.
        version: size and modification time (nanoseconds) when it was found.
    """

    path: Path
    name: str
    version: tuple[int, int]


def find_files(spec: SourceSpec, data_dir: Path) -> tuple[DataFile, ...]:
    """The files of a source, each once, sorted by name.

    A relative path or glob stays below the data directory, links included; an absolute one is taken at its word, and
    so is a URL, whose objects are copied here. A directory stands for the data files in it, at any depth, or for the
    data set that `datasets` saved there.

    Raises:
        DataError: nothing is found, a path leads out of the data directory, something is no regular file, or a
            saved data set isn't whole.
        InputError: the data directory's links can't be followed.
    """
    data_dir = resolved(data_dir)
    found: dict[Path, DataFile] = {}
    for pattern in spec.paths:
        try:
            files = _copied(pattern) if is_url(pattern) else _local(local_path(pattern), data_dir, spec.split)
        except (InputError, OSError) as error:
            raise DataError(f"source {spec.label!r}: {error}") from error
        if not files:
            here = f" below {data_dir}" if data_dir.is_dir() else f": there is no folder {data_dir}"
            below = "" if is_url(pattern) else here
            raise DataError(f"source {spec.label!r}: no file matches {pattern!r}{below}")
        for file in files:
            found.setdefault(file.path.resolve(), file)
    return tuple(sorted(found.values(), key=lambda file: (file.name, str(file.path))))


def _local(pattern: str, data_dir: Path, split: str) -> list[DataFile]:
    paths = (file for path in _matches(pattern, data_dir) for file in _expand(path, split))
    return [_data_file(path, data_dir, outside=Path(pattern).is_absolute()) for path in paths]


def _copied(url: str) -> list[DataFile]:
    return [_with_version(COPIES.path(remote), remote.url) for remote in find_remote(url)]


def check_distinct_files(
    specs: Iterable[SourceSpec], data_dir: Path, found: Callable[[int], None] = lambda _: None
) -> None:
    """Check that no two sources, the companion included, read the same file or the same split of a hub data set.

    Two sources may share one if their `where` filters ask a field for different values.

    Args:
        specs: the sources.
        data_dir: the directory below which relative paths lie.
        found: told of how many sources the files are found.

    Raises:
        DataError: two do; the message names them and what they share.
    """
    readers: dict[object, list[SourceSpec]] = {}
    for number, spec in enumerate(specs, start=1):
        keys = [(spec.hub, spec.subset, spec.split, spec.revision)] if spec.hub else []
        places: list[tuple[object, str]] = [(key, f"the hub data set {spec.hub}") for key in keys]
        if spec.paths:
            places = [(_identity(file.path), file.name) for file in find_files(spec, data_dir)]
        for key, name in places:
            for other in readers.setdefault(key, []):
                if not are_disjoint(spec.where, other.where):
                    raise DataError(f"sources {other.label!r} and {spec.label!r} both read {name}; drop one of them")
            readers[key].append(spec)
        found(number)


def _identity(path: Path) -> object:
    """What two names of one file share, links of either kind included; the path where files aren't numbered."""
    status = path.stat()
    return (status.st_dev, status.st_ino) if status.st_ino else path.resolve()


def _matches(pattern: str, data_dir: Path) -> list[Path]:
    path = Path(pattern)
    if path.is_absolute():
        return [path] if path.exists() else sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
    literal = confined(data_dir, pattern)
    return [literal] if literal.exists() else sorted(data_dir.glob(pattern))


def _data_file(path: Path, data_dir: Path, *, outside: bool) -> DataFile:
    """A found path as a file to read, refused if it leads out of the data directory unasked."""
    if path.is_relative_to(data_dir):
        name = path.relative_to(data_dir).as_posix()
        if not outside:
            confined(data_dir, name)
    else:
        name = path.name
    if not path.is_file():
        raise DataError(f"{name}: is no regular file")
    return _with_version(path, name)


def _with_version(path: Path, name: str) -> DataFile:
    status = path.stat()
    return DataFile(path=path, name=name, version=(status.st_size, status.st_mtime_ns))


def _expand(path: Path, split: str) -> list[Path]:
    """A file as itself, a directory as its files."""
    if not path.is_dir():
        return [path]
    if (path / SAVED_SPLITS).is_file():
        splits = read_object(path / SAVED_SPLITS).get("splits")
        if not isinstance(splits, list) or split not in splits:
            raise DataError(f"{path.name} has the splits {splits}, not {split!r}; name another under split")
        path = confined(path, split)
    if (path / SAVED).is_file():
        return _saved_files(path)
    files = (file for file in path.rglob("*") if file.is_file() and file.name.lower().endswith(SUFFIXES))
    return sorted(file for file in files if not file.name.startswith("."))


def _saved_files(directory: Path) -> list[Path]:
    """The Arrow files of a data set that `Dataset.save_to_disk` wrote."""
    entries = read_object(directory / SAVED).get("_data_files")
    names = (
        [entry.get("filename") for entry in entries if isinstance(entry, Mapping)] if isinstance(entries, list) else []
    )
    if not names or not all(isinstance(name, str) and (directory / name).is_file() for name in names):
        raise DataError(f"{directory.name}/{SAVED}: names files that aren't there; save the data set again")
    return [confined(directory, str(name)) for name in names]
