"""Which files a source is read from: found below the data directory, in an order that only their names decide."""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from calibudget.errors import DataError, InputError
from calibudget.sources.file_formats import SUFFIXES
from calibudget.sources.remote import COPIES, FILE, SAVED, SAVED_SPLITS, find_remote, is_url
from calibudget.sources.spec import SourceSpec, are_disjoint
from calibudget.sources.split_names import check_named, first_glob, is_hidden, listed, of_split
from calibudget.store.canonical import read_object
from calibudget.store.files import confined, is_dangling, resolved

#: What is kept beside data to describe it: no row stands in it.
_OF_A_SET: Final = frozenset(("dataset_info.json", "dataset_infos.json", "dataset_dict.json", "package.json"))


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


class Found(NamedTuple):
    """What the paths of a source name.

    Attributes:
        files: those to read.
        beside: names of those of another split or an unknown kind, in folders and globs of this machine; hidden ones
            aren't told.
    """

    files: tuple[DataFile, ...] = ()
    beside: tuple[str, ...] = ()


def find_files(spec: SourceSpec, data_dir: Path) -> Found:
    """The files of a source, each once, sorted by name, and those beside them.

    A relative path or glob stays below the data directory, links included; an absolute one is taken at its word, and
    so is a URL, whose objects are copied here. A directory stands for the data files in it, at any depth, or for the
    data set that `datasets` saved there. Hidden files are never found by a directory or a glob, and of files of several
    splits only those of the source's own are.

    Raises:
        DataError: nothing is found, a path leads out of the data directory, something is no regular file, it isn't
            clear which files are of the split, or a saved data set isn't whole.
        InputError: the data directory's links can't be followed.
    """
    data_dir = resolved(data_dir)
    found: dict[Path, DataFile] = {}
    beside: set[Path] = set()
    named: set[Path] = set()
    for pattern in spec.paths:
        try:
            files, others = (
                (_copied(pattern, spec), set[Path]())
                if is_url(pattern)
                else _local(pattern.removeprefix(FILE), data_dir, spec)
            )
        except UnicodeEncodeError:  # the system's encoding has no such name, which the command line explains
            raise
        except (InputError, OSError) as error:
            raise DataError(f"{spec.name}: {error}") from error
        except ValueError as error:  # pathlib's, of a pattern that is none or a name that no file has
            raise DataError(f"{spec.name}: {pattern!r}: {error}") from error
        if not files:
            here = f" below {data_dir}" if data_dir.is_dir() else f": there is no folder {data_dir}"
            below = "" if is_url(pattern) else here
            is_of_hidden = any(
                is_hidden(part) for part in pattern.split("/") if part.strip(".") and glob.has_magic(pattern)
            )
            hidden = "; a glob finds no hidden file, so name those one by one" if is_of_hidden else ""
            raise DataError(f"{spec.name}: no file matches {pattern!r}{below}{hidden}")
        if len(files) == 1 and not glob.has_magic(pattern):
            own = files[0].path.resolve()
            if own in named:
                raise DataError(
                    f"{spec.name}: {pattern!r} names {files[0].name} again, and a file is read once; drop it"
                )
            named.add(own)
        for file in files:
            found.setdefault(file.path.resolve(), file)
            others |= {file.path}
        beside |= others
    read = {file.path for file in found.values()}
    return Found(
        files=tuple(sorted(found.values(), key=lambda file: (file.name, str(file.path)))),
        beside=tuple(sorted(_name(path, data_dir) for path in beside - read)),
    )


def _local(pattern: str, data_dir: Path, spec: SourceSpec) -> tuple[list[DataFile], set[Path]]:
    """The files that a path of this machine names, and those beside them."""
    found = _matches(pattern, data_dir)
    outside = Path(pattern).is_absolute()
    saved = [file for path in found if _is_saved(path) for file in _saved(path, spec)]
    if len(found) == 1 and found[0].is_file() and found[0] == data_dir / pattern:
        check_named(_name(found[0], data_dir), spec.split)
        return [_data_file(found[0], data_dir, outside=outside)], set()
    base = _base(pattern, data_dir)
    inside = {path: _below(path) if path.is_dir() else [path] for path in found if not _is_saved(path)}
    expanded = {
        file.relative_to(base).as_posix(): file
        for path, files in inside.items()
        for file in files
        if not path.is_dir() or (file.name.lower().endswith(SUFFIXES) and file.name not in _OF_A_SET)
    }
    if found and not expanded and not saved:
        hidden = [file.relative_to(base).as_posix() for path in found if path.is_dir() for file in path.rglob("*")]
        others = [file.relative_to(base).as_posix() for path in found if path.is_dir() for file in inside[path]]
        if others:
            raise DataError(
                f"{pattern!r} holds no data file: there is {listed(others)}; known endings are {', '.join(SUFFIXES)}"
            )
        if hidden:
            raise DataError(f"{pattern!r} holds only hidden files, which aren't read: {listed(hidden)}; rename them")
    chosen = of_split(list(expanded), spec.split, pattern, only=spec.only_split) if expanded else []
    read = [_data_file(path, data_dir, outside=outside) for path in (*saved, *(expanded[name] for name in chosen))]
    return read, {file for files in inside.values() for file in files} - {file.path for file in read}


def _base(pattern: str, data_dir: Path) -> Path:
    """What stands before a glob, or the folder that is named."""
    path = data_dir / pattern
    if path.exists():
        return path
    return Path(*path.parts[: first_glob(path.parts, len(path.parts) - 1)])


def _copied(url: str, spec: SourceSpec) -> list[DataFile]:
    found = find_remote(url)
    if len(found) != 1 or found[0].url.rpartition("/")[2] != url.rpartition("/")[2]:
        parts = url.split("/")
        depth = first_glob(parts, len([*filter(None, parts)]) + 1)
        below = {"/".join(remote.url.split("/")[depth:]): remote for remote in found}
        chosen = of_split(list(below), spec.split, url, only=spec.only_split) if found else []
        found = [below[name] for name in chosen]
    return [_with_version(COPIES.path(remote), remote.url) for remote in found]


def check_distinct_files(
    specs: Iterable[SourceSpec], data_dir: Path, found: Callable[[int], None] = lambda _: None
) -> None:
    """Check that no two sources, the companion included, read the same file or the same split of a hub data set.

    Two sources may share one if their `where` filters ask a field for different values.

    Raises:
        DataError: two do; the message names them and what they share.
    """
    readers: dict[object, list[SourceSpec]] = {}
    for number, spec in enumerate(specs, start=1):
        places: list[tuple[object, str]] = (
            [((spec.hub, spec.subset, spec.split, spec.revision), f"the hub data set {spec.hub}")]
            if spec.hub
            else [(_identity(file.path), file.name) for file in find_files(spec, data_dir).files]
        )
        for key, name in places:
            for other in readers.setdefault(key, []):
                if not are_disjoint(spec.where, other.where):
                    raise DataError(f"{other.name} and {spec.name} both read {name}; drop one of them")
            readers[key].append(spec)
        found(number)


def _identity(path: Path) -> object:
    """What two names of one file share, links of either kind included; the path where files aren't numbered."""
    status = path.stat()
    return (status.st_dev, status.st_ino) if status.st_ino else path.resolve()


def _matches(pattern: str, data_dir: Path) -> list[Path]:
    """What a path names: itself, or what a glob finds that isn't hidden."""
    path = Path(pattern)
    if path.is_absolute():
        if path.exists() or is_dangling(path):
            return [path]
        root, rest = Path(path.anchor), str(path.relative_to(path.anchor))
    else:
        literal = confined(data_dir, pattern)
        if literal.exists() or is_dangling(literal):
            return [literal]
        root, rest = data_dir, pattern
    base = _base(pattern, data_dir)
    return sorted(one for one in root.glob(rest) if not is_hidden(one.relative_to(base).as_posix()))


def _data_file(path: Path, data_dir: Path, *, outside: bool) -> DataFile:
    """A found path as a file to read, refused if it leads out of the data directory unasked."""
    name = _name(path, data_dir)
    if path.is_relative_to(data_dir) and not outside:
        confined(data_dir, name)
    if not path.is_file():
        raise DataError(f"{name}: {'is a link to nothing' if is_dangling(path) else 'is no regular file'}")
    return _with_version(path, name)


def _name(path: Path, data_dir: Path) -> str:
    return path.relative_to(data_dir).as_posix() if path.is_relative_to(data_dir) else path.name


def _with_version(path: Path, name: str) -> DataFile:
    status = path.stat()
    return DataFile(path=path, name=name, version=(status.st_size, status.st_mtime_ns))


def _below(folder: Path) -> list[Path]:
    """The files in a folder, at any depth, that aren't hidden."""
    files = (file for file in folder.rglob("*") if not is_hidden(file.relative_to(folder).as_posix()))
    return sorted(file for file in files if file.is_file() or is_dangling(file))


def _is_saved(path: Path) -> bool:
    """Whether a folder is a data set that `datasets` saved."""
    return any((path / name).is_file() for name in (SAVED, SAVED_SPLITS))


def _saved(path: Path, spec: SourceSpec) -> list[Path]:
    """The Arrow files of a data set that `Dataset.save_to_disk` wrote, or of the split that is read of several."""
    if (path / SAVED_SPLITS).is_file():
        splits = read_object(path / SAVED_SPLITS).get("splits")
        only = splits if spec.only_split and isinstance(splits, list) and len(splits) == 1 else [spec.split]
        if not isinstance(splits, list) or only[0] not in splits or (spec.only_split and len(splits) > 1):
            asked = "and which one to measure on isn't said" if spec.only_split else f"not {spec.split!r}"
            raise DataError(f"{path.name} has the splits {splits}, {asked}; name one under `split`")
        path = confined(path, str(only[0]))
    entries = read_object(path / SAVED).get("_data_files")
    names = (
        [entry.get("filename") for entry in entries if isinstance(entry, Mapping)] if isinstance(entries, list) else []
    )
    if not names or not all(isinstance(name, str) and (path / name).is_file() for name in names):
        raise DataError(f"{path.name}/{SAVED}: names files that aren't there; save the data set again")
    return [confined(path, str(name)) for name in names]
