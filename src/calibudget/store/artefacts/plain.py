"""Values of source rows as JSON says them, and JSON lines that keep them as they are."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal

import numpy as np

from calibudget.errors import InputError


def plain_json(value: object) -> object:
    """A value of an original record as JSON says it (docs/formats.md): nothing lost but NaN, which becomes null.

    Raises:
        InputError: an infinity, a key that is no string, or a type without a form.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return _plain_float(value)
        case Mapping():
            return {_plain_key(key): plain_json(item) for key, item in value.items()}
        case list() | tuple():
            return [plain_json(item) for item in value]
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode("ascii")
        case np.generic() | np.ndarray():
            return plain_json(value.tolist())
        case _:
            raise InputError(f"a value of type {type(value).__name__} has no JSON form")


def compact_json(value: object) -> str:
    """JSON without white space, keys in their order and integers of any size, unlike the canonical form."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _plain_float(value: float) -> float | None:
    if math.isinf(value):
        raise InputError("an infinity has no JSON form")
    return None if math.isnan(value) else value


def _plain_key(key: object) -> str:
    if not isinstance(key, str):
        raise InputError(f"the key {key!r} is no string")
    return key
