"""Objects of S3 and of the Hugging Face hub, through fsspec: found by URL, copied once, then read like local files.

Credentials, endpoints, timeouts and numbers of retries come from the environment and from the files that the clients
read by themselves (AWS_*, ~/.aws, HF_TOKEN, fsspec's own configuration), never from a recipe. A copy lasts as long as
the process, on the disk that TMPDIR names, and is bound by its bytes like any file; what a store says of an object's
version only decides whether it has to be copied again.
"""

from __future__ import annotations

import glob
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

from calibudget.errors import CalibudgetError, DataError, DependencyError, RecipeError
from calibudget.sources.file_formats import SUFFIXES
from calibudget.sources.identity_table import Scratch, writing
from calibudget.sources.split_names import first_glob, is_hidden

#: The schemes of URLs, each with the extra that installs its client.
_EXTRAS: Final = {"s3": "s3", "hf": "lm"}
#: Before an absolute path of this machine, as it stands.
FILE: Final = "file://"
_BLOCK: Final = 8 * 2**20
#: The files by which a folder is known that `datasets` saved: a split, or several.
SAVED: Final = "state.json"
SAVED_SPLITS: Final = "dataset_dict.json"
#: What stores call the version of an object's bytes.
_VERSIONS: Final = ("ETag", "blob_id")


class RemoteFile(NamedTuple):
    """An object of a store.

    Attributes:
        url: its name.
        bytes: its length.
        version: what the store says of its version, None where it says nothing.
    """

    url: str
    bytes: int
    version: str | None


def is_url(path: str) -> bool:
    """Whether a recipe's path names something elsewhere than on this machine."""
    return "://" in path and not path.startswith(FILE)


def check_path(path: str) -> None:
    """Check that a recipe's path can name a source: a URL of a known scheme, and without credentials.

    Raises:
        RecipeError: it can't; credentials are not repeated in the message.
    """
    scheme, parted, rest = path.partition("://")
    if not parted:
        return
    bucket = rest.partition("/")[0]
    if "@" in bucket:
        raise RecipeError(f"a {scheme} URL must not hold credentials; put them into the environment")
    if scheme == "file":
        if not Path(rest).is_absolute():
            raise RecipeError(f"{path!r} must name an absolute path, as in file:///data/rows.jsonl")
    elif scheme not in _EXTRAS:
        raise RecipeError(f"{path!r} has an unknown scheme; known are file, {', '.join(_EXTRAS)}")
    elif not bucket or glob.has_magic(bucket):
        raise RecipeError(f"{path!r} must name its bucket, as in {scheme}://bucket/rows/*.jsonl")


def find_remote(url: str) -> list[RemoteFile]:
    """The objects that a URL names: one, those that a glob matches, or the data files below a folder, sorted by URL.

    Raises:
        DataError: the store doesn't answer or says no.
        DependencyError: its client isn't installed.
    """
    with _telling(url):
        system, path = _opened(url)
        system.invalidate_cache()
        try:
            found = [system.info(path)]
        except FileNotFoundError:
            globbed = system.glob(path, detail=True) if glob.has_magic(path) else {}
            depth = first_glob(path.split("/"), 0)
            found = [one for name, one in globbed.items() if not is_hidden("/".join(name.split("/")[depth:]))]
        bucket = path.partition("/")[0]
        if not found and url.startswith("s3://") and not system.exists(bucket):
            raise DataError(f"there is no bucket {bucket!r}, or it isn't yours to see")
        infos = [info for one in found for info in _expanded(system, one)]
        return sorted({_remote_file(system, info) for info in infos})


def _expanded(system: Any, info: dict[str, Any]) -> list[dict[str, Any]]:
    """An object as itself, a folder as its data files; what is both is the one that can be read."""
    folder = info["name"].rstrip("/")
    if info["type"] != "directory" and folder.lower().endswith(SUFFIXES):
        return [info]
    below = {name: one for name, one in system.find(folder, detail=True).items() if name.startswith(f"{folder}/")}
    if any(f"{folder}/{name}" in below for name in (SAVED, SAVED_SPLITS)):
        raise DataError("is a data set that `datasets` saved; name its files, as in data/*.arrow")
    lasts = {name: name.rpartition("/")[2] for name in below}
    files = [
        below[name]
        for name, last in lasts.items()
        if last.lower().endswith(SUFFIXES) and not is_hidden(name[len(folder) + 1 :])
    ]
    return files if files or info["type"] == "directory" else [info]


def _remote_file(system: Any, info: dict[str, Any]) -> RemoteFile:
    version = next((str(info[name]) for name in _VERSIONS if info.get(name)), None)
    return RemoteFile(url=system.unstrip_protocol(info["name"]), bytes=int(info["size"]), version=version)


class Copies:
    """Copies of objects on this machine's disk, each as long as this object lasts."""

    def __init__(self) -> None:
        self._scratch = Scratch()
        self._paths: dict[RemoteFile, Path] = {}

    def path(self, file: RemoteFile) -> Path:
        """Where an object's copy lies; it is made unless one of this version is there.

        Raises:
            DataError: the store stopped answering, the object isn't what it was, or the disk has no room for it.
        """
        if file not in self._paths:
            ending = next((ending for ending in SUFFIXES if file.url.lower().endswith(ending)), None)
            if ending is None:
                raise DataError(f"{file.url}: unknown kind of file; known endings are {', '.join(SUFFIXES)}")
            path = self._scratch.path(sha256(repr(file).encode()).hexdigest()[:16] + ending)
            try:
                _copy(file, path)
            except BaseException:
                path.unlink(missing_ok=True)
                raise
            self._paths[file] = path
        return self._paths[file]


def _copy(file: RemoteFile, target: Path) -> None:
    if shutil.disk_usage(target.parent).free < file.bytes:
        raise DataError(f"{file.url}: {target.parent} has no room for its {file.bytes:,} bytes; set TMPDIR")
    with _telling(file.url), target.open("wb") as handle:
        system, path = _opened(file.url)
        for start in range(0, file.bytes, _BLOCK):  # a block a request, so that a retry repeats no more than one
            block = system.cat_file(path, start=start, end=min(start + _BLOCK, file.bytes))
            with writing(target.parent):
                handle.write(block)
        system.invalidate_cache()
        if _remote_file(system, system.info(path)) != file or handle.tell() != file.bytes:
            raise DataError("changed while it was read; run again when it is complete")


def _opened(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the URL's path in it."""
    from fsspec.core import url_to_fs

    system, path = url_to_fs(url)
    return system, path


@contextmanager
def _telling(url: str) -> Iterator[None]:
    """Say of which URL something is that goes wrong."""
    try:
        yield
    except ImportError as error:
        extra = _EXTRAS[url.partition("://")[0]]
        raise DependencyError(f"{url}: its client isn't installed: pip install 'calibudget[{extra}]'") from error
    except CalibudgetError as error:
        raise DataError(f"{url}: {error}") from error
    except FileNotFoundError as error:
        raise DataError(f"{url}: there is no such object") from error
    except Exception as error:  # the clients raise dozens of types, none of them in common
        first, *others = str(error).strip().splitlines() or [type(error).__name__]
        reason = f"{first} {others[0].strip()}" if first.endswith(":") and others else first
        raise DataError(f"{url}: can't be read: {reason}") from error


#: The copies of this process.
COPIES: Final = Copies()
