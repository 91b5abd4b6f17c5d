"""Reporting to experiment trackers beside `training.jsonl`, through accelerate's."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from calibudget.errors import DependencyError
from calibudget.training.config import TRACKERS

_PROJECT: Final = "calibudget"


class Trackers:
    """The trackers of one run; without any it does nothing."""

    def __init__(self, names: Sequence[str], directory: Path, settings: Mapping[str, object]) -> None:
        """Start them.

        Args:
            names: trackers by their import names.
            directory: where those that write files write.
            settings: what the run is made of.

        Raises:
            DependencyError: one isn't installed; the line that installs it is named.
        """
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
    """Refuse trackers that can't be started, before anything is loaded.

    Raises:
        DependencyError: one isn't installed; the line that installs it is named.
    """
    for name in names:
        missing = importlib.util.find_spec(name) is None
        if name == "tensorboard":
            missing = missing and importlib.util.find_spec("tensorboardX") is None
        if missing:
            raise DependencyError(f"report_to: {name} isn't installed; install it with: {TRACKERS[name]}")


def _start(name: str, directory: Path) -> Any:
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS  # type: ignore[import-untyped]

    kind = LOGGER_TYPE_TO_CLASS[name]
    tracker = kind(_PROJECT, logging_dir=str(directory)) if kind.requires_logging_directory else kind(_PROJECT)
    if hasattr(tracker, "start"):
        tracker.start()
    return tracker
