"""How much a data file may ask of the machine that reads it; every bound has a name and a default."""

from __future__ import annotations

from dataclasses import dataclass

_MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on one data file.

    Attributes:
        line_bytes: longest line of a JSON lines file and longest cell of a table (CSV, Parquet, Arrow).
        array_bytes: largest JSON array, which is held in memory whole (JSON lines aren't).
        nesting: deepest nesting of objects and arrays in a row.
        expansion: bytes that a compressed file may give for each of its own, once it has given `free_bytes`.
        free_bytes: what a compressed file may give whatever its size.
        expanded_bytes: what a compressed file may give in all.
    """

    line_bytes: int = 64 * _MIB
    array_bytes: int = 1024 * _MIB
    nesting: int = 100
    expansion: int = 200
    free_bytes: int = 64 * _MIB
    expanded_bytes: int = 1024 * 1024 * _MIB


#: The bounds that hold where nobody asks for others.
LIMITS = Limits()
