"""Which of the files that a folder or a glob names are read: those of one split, and none that is hidden."""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Final

from calibudget.errors import DataError
from calibudget.messages import first_of

#: The split that a source has unless its recipe names another.
DEFAULT: Final = "train"
_WORDS: Final = {
    **dict.fromkeys(("train", "training", "trn"), "train"),
    **dict.fromkeys(("validation", "valid", "validate", "val", "vali", "dev", "devel"), "validation"),
    **dict.fromkeys(("test", "tests", "testing", "tst", "eval", "evals", "evaluation", "heldout", "holdout"), "test"),
}
#: What may stand around such a word with no mark between: `mytest`, `testset`, `valdata`.
_AFFIXED: Final = re.compile(rf"(?:my|our|the)?({'|'.join(_WORDS)})(?:sets?|data|files?)?")
#: Where a capital begins a word: `testSet`, `HTTPTest`.
_CAPITAL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
#: What systems and tools leave beside data: hidden files, archives of macOS, notebooks' copies, jobs of Spark.
_LEFT_BEHIND: Final = re.compile(
    r"\..*|__.*|.*-checkpoint(?:\.[a-z0-9.]+)?|.*~|thumbs\.db|desktop\.ini"
    r"|_(?:temporary|success|metadata|common_metadata|delta_log|spark_metadata|committed_.*|started_.*)(?:\.crc)?",
    re.IGNORECASE,
)
_SHOWN: Final = 5


def is_hidden(below: str) -> bool:
    """Whether a file or a folder above it is hidden, or what a system or tool leaves beside data."""
    return any(_LEFT_BEHIND.fullmatch(part) for part in PurePosixPath(below).parts)


def first_glob(parts: Sequence[str], otherwise: int) -> int:
    """The number of the first part of a path that is a glob."""
    return next((number for number, part in enumerate(parts) if glob.has_magic(part)), otherwise)


def split_shown(below: str) -> str | None:
    """The split that a file's name shows, or else the nearest folder that shows one; None where nothing does.

    A split is shown by one of its usual words, parted from others by something that is no letter, or by a capital:
    `x.test.jsonl`, `train-00000-of-00002.parquet`, `dev/0.csv`, `testSet`, `held_out`; or with a word that often goes
    with it, as in `mytest` or `testset`. A name with the words of training and of another split shows none.
    """
    for part in reversed(PurePosixPath(below).parts):
        shown = (_AFFIXED.fullmatch(word) for word in _words(part))
        found = list(dict.fromkeys(_WORDS[match[1]] for match in shown if match))
        if found:
            return None if len(found) > 1 and "train" in found else found[0]
    return None


def _words(name: str) -> list[str]:
    """The words of a name, each without the number at its end, then those parted by capitals, and every two as one."""
    whole = re.split(r"[\W_]+", name)
    parts = [part for word in whole for part in _CAPITAL.split(word)]
    pairs = [one + two for one, two in pairwise(parts)]
    return [word.casefold().rstrip("0123456789") for word in (*whole, *parts, *pairs)]


def of_split(names: Sequence[str], split: str, pattern: str, *, only: bool = False) -> list[str]:
    """Those of the files which belong to a split.

    Args:
        names: what a folder or a glob names, each relative to the folder or to what stands before the glob.
        split: the split that is wanted.
        pattern: the path as the recipe has it; a glob whose own words show a split is taken at its word.
        only: take all, whatever split they show, if no two show different ones.

    Raises:
        DataError: files of other splits are there, and which ones are wanted isn't clear; they are named.
    """
    wanted = _WORDS.get(split.casefold(), split)
    if wanted not in _WORDS.values():
        own = [name for name in names if _names(split, name)]
        if not own:
            raise DataError(f"{pattern!r} holds no file whose name shows the split {split!r}: {listed(names)}")
        return own
    shown = {name: split_shown(name) for name in names}
    splits, said = set(shown.values()), split_shown(pattern)
    if only and len(splits) == 1:
        return list(names)
    is_meant = wanted in (DEFAULT, said)
    if splits == {wanted} or (is_meant and splits == {None}) or (is_meant and said is not None and splits == {said}):
        return list(names)
    own = [name for name, one in shown.items() if one == wanted]
    if own and not only and (None not in splits or wanted != DEFAULT):
        return own
    told = "; ".join(
        f"{'no split' if one is None else one}: {listed([name for name in names if shown[name] == one])}"
        for one in sorted(splits, key=str)
    )
    others = " or ".join(sorted(one for one in splits if one is not None and (only or one != wanted)))
    way = (
        f"name {'one' if only else 'another'} under `split` ({others}), or the files under `path`"
        if others
        else "name the files"
    )
    which = "to measure on" if only else f"are {split!r}"
    raise DataError(f"{pattern!r} holds files of {told}; which of them {which} isn't clear: {way}")


def check_named(below: str, split: str) -> None:
    """Refuse a file that the recipe names, if it also asks for a split that the name doesn't show."""
    if split == DEFAULT:
        return
    wanted = _WORDS.get(split.casefold(), split)
    shown = split_shown(below)
    if shown != wanted and not _names(split, below):
        raise DataError(
            f"{below} is asked for its split {split!r}, but is a file that shows {shown or 'none'}; drop `split`, or "
            "say which of its rows are read (`where`)"
        )


def listed(names: Sequence[str]) -> str:
    """Names for a message: the first few, and how many more."""
    return first_of(sorted(names), _SHOWN)


def _names(split: str, below: str) -> bool:
    return re.search(rf"(?<![a-z0-9]){re.escape(split.casefold())}(?![a-z0-9])", below.casefold()) is not None
