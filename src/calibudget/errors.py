"""Every error that calibudget raises on purpose, and the exit code that the command line gives it.

CalibudgetError (4)
├── InputError, also a ValueError (2)
│   ├── RecipeError          a recipe's field, line or value
│   ├── DataError            a source's file, line or record
│   ├── AllocationError      a budget, floor, capacity or utility that can't be met
│   │   └── UnfedPolicyError a policy without the input that it allocates by
│   ├── ScoringError         a model, an encoding or a score that can't be used
│   ├── TrainingError        a training set, a setting or a step that can't be trained on
│   ├── StudyError           a protocol, a grid or cells that can't be studied
│   ├── ArtefactError        a file of a run directory that isn't what it should be
│   └── DependencyError      an optional package that is missing, with the line that installs it
├── InputTypeError, also a TypeError (2)
├── CheckFailedError (1)     a verification or a gate that says no
└── InterruptedRunError (3)  stopped on request; what was done is kept and resumable
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar


class CalibudgetError(Exception):
    """Root of the tree; by itself it means a fault of calibudget's own."""

    exit_code: ClassVar[int] = 4


class InputError(CalibudgetError, ValueError):
    """What the user gave can't be used; the message names the file, line or field and the way out."""

    exit_code = 2


class InputTypeError(CalibudgetError, TypeError):
    """A value of the wrong type was given: a bool or a fraction where an integer is counted, say."""

    exit_code = 2


class RecipeError(InputError):
    """A recipe that can't be read, or whose fields contradict each other."""


class DataError(InputError):
    """A source whose file, line or record can't be used."""


class AllocationError(InputError):
    """Numbers that no quota vector satisfies, or that aren't counts, floors or utilities."""


class UnfedPolicyError(AllocationError):
    """A policy lacks the input that it allocates by, or is given constraints that it doesn't know."""


class ScoringError(InputError):
    """A model, a tokenizer, an encoding or a score that can't be used."""


class TrainingError(InputError):
    """A training set, a setting or a step that can't be trained on."""


class StudyError(InputError):
    """A protocol that can't be run, or cells that can't be compared."""


class ArtefactError(InputError):
    """A file of a run directory that is missing, torn, of another schema or of another run."""


class DependencyError(InputError):
    """An optional package that this step needs isn't installed."""


class CheckFailedError(CalibudgetError):
    """A check was made and its answer is no."""

    exit_code = 1


class InterruptedRunError(CalibudgetError):
    """The user or the system stopped the run; everything journalled is kept."""

    exit_code = 3


@contextmanager
def refuse_as(kind: type[CalibudgetError], place: str, *faults: type[Exception]) -> Iterator[None]:
    """While the block runs, an error of one of these types is refused as another, its place before what it says.

    Of an error of the system only the words are told.
    """
    try:
        yield
    except faults as error:
        raise kind(f"{place}: {getattr(error, 'strerror', None) or error}") from error


@contextmanager
def requires(what: str, extra: str) -> Iterator[None]:
    """An import in the block that fails is refused with the line that installs what is missing."""
    try:
        yield
    except ImportError as error:
        lacks = error.name or error  # a package that finds another of the wrong version says so, and names none
        raise DependencyError(f"{what} needs {lacks}; install: pip install 'calibudget[{extra}]'") from error
