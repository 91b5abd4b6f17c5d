"""Names of a package that are imported when they are first asked for, so that a package costs what is used of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module


def on_first_use(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """The `__getattr__` of a package (PEP 562).

    Args:
        package: its `__name__`.
        homes: its public names, each with the module of the package that defines it.
    """

    def find(name: str) -> object:
        if name in homes:
            return getattr(import_module(f"{package}.{homes[name]}"), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find
