"""Identity of a selection, apart from the identity of its quotas (paper, appendix "Selection Identity")."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from calibudget.errors import InputError, InputTypeError
from calibudget.keys import canonical_array
from calibudget.sequences import require_ordered
from calibudget.store import sha256_hex

Index: TypeAlias = int | np.integer[Any] | str


def canonical_selected_indices_sha256(
    indices: Sequence[Index] | NDArray[np.integer[Any] | np.str_] | Iterator[Index],
) -> str:
    """Digest of a sequence of selected indices: SHA-256 hex of its RFC 8785 array, in the given order.

    Order counts on purpose: the same set in another order is another selection. An empty sequence has the digest
    of `[]`.

    Args:
        indices: all integers (numpy's included) or all strings, in a list, a tuple or another sequence, a numpy array
            of one dimension, or an iterator. A text is no sequence of ids, a set has no order, and what a mapping
            stands for isn't clear.

    Raises:
        InputTypeError: something else than such a sequence, a bool, a float or another type in it, or integers and
            strings together.
        InputError: an index stands twice, is beyond 2**53 - 1, or holds a lone surrogate.
    """
    require_ordered(indices, "ids")
    plain = [int(index) if isinstance(index, np.integer) else index for index in indices]
    data = canonical_array(plain)
    if len({isinstance(index, str) for index in plain}) > 1:
        raise InputTypeError("indices must be all integers or all strings, not a mixture")
    if len(set(plain)) != len(plain):
        raise InputError(f"the index {_first_twin(plain)!r} is selected twice")
    return sha256_hex(data)


def _first_twin(values: list[int | str]) -> int | str:
    return next(value for value, count in Counter(values).items() if count > 1)
