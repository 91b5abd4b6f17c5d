"""Experiment trackers: what a training, a run, an evaluation or a study reports to them when asked.

They are given numbers, settings and digests; no text of the data, no path and no name of this machine. The key of an
account is the tracker's own affair and is never read here.
"""

from __future__ import annotations

import atexit
import importlib.util
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Final

from calibudget.errors import ArtefactError, DependencyError, InputError
from calibudget.messages import meant
from calibudget.training.config import TRACKERS

_PROJECT: Final = "calibudget"
#: What every tracker takes in a metric's name.
_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9_./ -]")


class Trackers:
    """The trackers of one training, run, evaluation or study; without any it does nothing."""

    def __init__(self, names: Sequence[str], directory: Path, settings: Mapping[str, object]) -> None:
        check_trackers(names)
        self._trackers = [_start(name, directory) for name in names]
        for tracker in self._trackers:
            tracker.store_init_configuration({key: value for key, value in settings.items() if value is not None})

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Report the numbers of one step."""
        for tracker in self._trackers:
            tracker.log(dict(values), step=step)

    def finish(self) -> None:
        """Close them."""
        for tracker in self._trackers:
            tracker.finish()


def check_trackers(names: Sequence[str]) -> None:
    """Refuse trackers that aren't known or can't be started, before anything is loaded."""
    for name in names:
        if name not in TRACKERS:
            raise InputError(f"report_to: there is no tracker {name!r}; {meant(name, TRACKERS)}")
        missing = importlib.util.find_spec(name) is None
        if name == "tensorboard":
            missing = missing and importlib.util.find_spec("tensorboardX") is None
        if missing:
            raise DependencyError(f"report_to: {name} isn't installed; install it with: {TRACKERS[name]}")
        if importlib.util.find_spec("accelerate") is None:
            raise DependencyError(
                "report_to: accelerate isn't installed; install it with: pip install 'calibudget[lm]'"
            )


def report_once(names: Sequence[str], directory: Path, found: Mapping[str, object]) -> None:
    """Report an artefact's object: its numbers by their place in it, and its texts (digests, names) as settings.

    Without names nothing is done. A tracker that writes files writes them into the directory.

    Raises:
        DependencyError: a tracker isn't installed.
        ArtefactError: a tracker can't take it; the results themselves are whole.
    """
    if not names:
        return
    check_trackers(names)
    from accelerate import PartialState  # type: ignore[import-untyped]

    leaves = dict(_leaves(found, ()))
    numbers = {place: float(value) for place, value in leaves.items() if isinstance(value, int | float)}
    shown = _shown([*leaves])
    settings = {shown[place]: value for place, value in leaves.items() if place not in numbers}
    try:
        with redirect_stdout(sys.stderr):  # what a tracker says is none of the command's output
            PartialState()  # without it accelerate's trackers can't say that they are the only process
            trackers = Trackers(names, directory, settings)
            trackers.log({shown[place]: value for place, value in numbers.items()}, step=0)
            trackers.finish()
    except Exception as error:  # of its store or its server, of any type
        raise ArtefactError(f"report_to: {error}; what was made is whole, only the report isn't") from error
    finally:
        atexit.register(_say_the_rest_on_stderr)  # after trackio's own, so that it runs before it


def _say_the_rest_on_stderr() -> None:
    sys.stdout.flush()
    sys.stdout = sys.stderr


def _leaves(value: object, place: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object]]:
    """Numbers and texts of an object of objects; what is null or a list is left to the artefact."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from _leaves(part, (*place, str(name)))
    elif isinstance(value, bool | str):
        yield place, str(value)
    elif isinstance(value, int | float):
        yield place, value


def _shown(places: Collection[tuple[str, ...]]) -> dict[tuple[str, ...], str]:
    """A name for each place that all trackers take; names that become equal are numbered."""
    shown: dict[tuple[str, ...], str] = {}
    taken: set[str] = set()
    for place in places:
        plain = name = _UNUSUAL.sub("_", "/".join(place))
        number = 1
        while name in taken:
            number += 1
            name = f"{plain}-{number}"
        taken.add(name)
        shown[place] = name
    return shown


def _start(name: str, directory: Path) -> Any:
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS  # type: ignore[import-untyped]

    kind = LOGGER_TYPE_TO_CLASS[name]
    tracker = kind(_PROJECT, logging_dir=str(directory)) if kind.requires_logging_directory else kind(_PROJECT)
    if hasattr(tracker, "start"):
        tracker.start()
    return tracker
