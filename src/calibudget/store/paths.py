"""Paths and names that come from outside: they stay where they belong, or are refused."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from pathlib import Path, PurePosixPath, PureWindowsPath

from calibudget.errors import InputError


def confined(root: Path, relative: str, *, follow_symlinks: bool = False) -> Path:
    """The path of `relative` below `root`, refused if it could name anything outside.

    Args:
        root: the directory that bounds it.
        relative: a relative path as a recipe, a manifest or an archive names it.
        follow_symlinks: whether a link below `root` may lead out of it (as in a hub cache, whose files are links
            to another folder); the name itself is confined either way.

    Raises:
        InputError: an empty or absolute path (of POSIX or Windows), a ".." part, a NUL, or a link that leads out or
            nowhere.
    """
    windows = PureWindowsPath(relative)
    if not relative or "\0" in relative or PurePosixPath(relative).is_absolute() or windows.anchor:
        raise InputError(f"the path {relative!r} must be relative and stay below {root}")
    if ".." in windows.parts:
        raise InputError(f"the path {relative!r} must not climb with '..'; it has to stay below {root}")
    path = root / relative
    if not follow_symlinks and not resolved(path).is_relative_to(resolved(root)):
        raise InputError(f"the path {relative!r} leads out of {root} through a symbolic link")
    return path


def resolved(path: Path) -> Path:
    """The path without links and dots.

    Raises:
        InputError: its links can't be followed.
    """
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:  # Python before 3.13 raises the latter for links in a circle
        raise InputError(f"{path}: its symbolic links lead round in a circle, or can't be followed") from error


def expanded(path: str) -> str:
    """The path with the home folder that a leading `~` or `~user` stands for; any other as it is.

    Raises:
        InputError: there is no such home.
    """
    if not path.startswith("~"):
        return path
    try:
        return str(Path(path).expanduser())
    except RuntimeError as error:
        raise InputError(
            f"{path!r} begins with a home folder that isn't known; write it out, or begin with './' for a name with '~'"
        ) from error


def check_labels(labels: Iterable[str]) -> None:
    """Check that labels can name sources in files, tables and paths on every platform.

    Raises:
        InputError: a label that is empty, begins with a dot, holds a slash or backslash, "..", white space at an
            end, an invisible or control character or a lone surrogate; or two labels that only case or Unicode
            form part.
    """
    seen: dict[str, str] = {}
    for label in labels:
        fault = _label_fault(label)
        if fault:
            raise InputError(f"the source label {label!r} {fault}")
        form = _folded(label)
        if form in seen:
            raise InputError(
                f"the source labels {seen[form]!r} and {label!r} differ only by case or Unicode form; rename one"
            )
        seen[form] = label


def _label_fault(label: str) -> str | None:
    if not label or label != label.strip():
        return "must not be empty or begin or end with white space"
    if label.startswith(".") or ".." in label or "/" in label or "\\" in label:
        return "must not begin with a dot or hold '..', '/' or '\\'"
    if any(unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"} for character in label):
        return "holds a control or invisible character"
    return None


def _folded(label: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", label).casefold())
