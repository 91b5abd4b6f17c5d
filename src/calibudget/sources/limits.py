"""How much a data file may ask of the machine that reads it; every bound has a name and a default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from calibudget.values import CHECKED, Count, Integer, Positive

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

    __pydantic_config__ = CHECKED

    line_bytes: Annotated[Integer, Field(ge=1, le=2**31 - 2)] = 64 * _MIB
    array_bytes: Positive = 1024 * _MIB
    nesting: Annotated[Integer, Field(ge=1, le=200)] = 100
    expansion: Positive = 200
    free_bytes: Count = 64 * _MIB
    expanded_bytes: Count = 1024 * 1024 * _MIB


#: The bounds that hold where nobody asks for others.
LIMITS = Limits()
