"""What the machine gives: names of what a model runs on, where temporary files lie, and which version is installed."""

import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from calibudget.errors import DataError

#: Where a model runs; "auto" is a CUDA GPU where there is one, else the CPU.
Device = Literal["auto", "cpu", "cuda", "mps", "xpu"]
#: A model's precision, or how its linear layers are quantised while it is loaded.
Dtype = Literal["auto", "float32", "bfloat16", "float16", "int8", "nf4"]
#: Of a frozen model that factors are trained on.
FrozenDtype = Literal["auto", "float32", "bfloat16", "int8", "nf4"]


def temporary_folder() -> Path:
    """Where the system keeps temporary files.

    Raises:
        DataError: none of the places for it can be written to, as on a full disk.
    """
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise DataError(
            "no temporary folder can be written to; make room, or set TMPDIR to a folder with room"
        ) from error


def own_version() -> str:
    """This package's version; "source tree" where it wasn't installed, so that nothing says a number."""
    try:
        return version("calibudget")
    except PackageNotFoundError:
        return "source tree"
