"""The keyed draw, in examples or in tokens, and the digests of what it drew.

It is uniform within a source, nested in the quota, and depends on nothing but seed and ids. A candidate may be drawn
again once all candidates of its source were; its id then says so.

How a draw of tokens ends: with whole examples in key order, never above the budget. Call B the budget, q the quotas
(they sum to B), s <= q what the first pass took and d = q - s the deficits. A source with d > 0 has a next example,
since its pool holds at least q, and that example is longer than d.

- *Never above B*: the second pass checks every example that it takes.
- *Within one example of each quota*: a source that takes its next example ends above q by less than that example;
  one that doesn't stays below q by d, less than its next example.
- *Within one example of B*: if every source with a deficit took its next example, each would end above its quota, and
  all together above B, which was checked; so either no source has a deficit, and nothing is missing, or one was
  refused its next example because what was missing then, and so what is missing in the end, is less than that.

Digests: paper, appendix "Selection Identity".
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import accumulate, islice
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from calibudget.errors import InputError, InputTypeError
from calibudget.keys import canonical_array
from calibudget.messages import shown
from calibudget.records import Selection, TokenUse
from calibudget.selection.selectors import UNIFORM, Scored, Selector, Uniform
from calibudget.store.canonical import sha256_hex

#: What the second and later exposures of a candidate append to its id: "#r2", "#r3", ...
REPEAT_MARK: Final = re.compile(r"#r([1-9][0-9]*)$")


def exposures(label: str, queue: Sequence[str], max_repeats: int) -> Sequence[str]:
    """The queue of a source whose candidates may each be drawn up to `max_repeats` times, at least 1.

    First all candidates in key order, then all of them once more, in the same order and marked, and so on: nothing
    is seen a second time before everything was seen once, and a larger quota keeps a smaller one's picks.

    Raises:
        InputError: an id of the queue ends like a marked one.
    """
    if max_repeats == 1:
        return queue
    for record_id in queue:
        if REPEAT_MARK.search(record_id):
            raise InputError(f"{label}: the id {record_id!r} looks like a repeat's; drop `max_repeats` or `id_field`")
    return [marked(record_id, number) for number in range(1, max_repeats + 1) for record_id in queue]


def marked(record_id: str, number: int) -> str:
    """The id of a candidate's n-th exposure; the first bears no mark."""
    return record_id if number == 1 else f"{record_id}#r{number}"


def unmarked(exposure: str) -> tuple[str, int]:
    """The candidate's own id, and which of its exposures this is."""
    match = REPEAT_MARK.search(exposure)
    return (exposure, 1) if match is None else (exposure[: match.start()], int(match[1]))


def draw_queues(
    queues: Mapping[str, Sequence[str]],
    quotas: Mapping[str, int],
    *,
    selection_seed: int,
    selector: Selector = UNIFORM,
) -> Selection:
    """Pick each source's quota: by default the first records of its pool.

    For one pool and seed a larger quota keeps the smaller one's picks. `queues` hold the record ids of each source's
    candidates in the order of their "selection" keys, each once; quotas are integers from 0 to the size of each pool.
    A selector says which of a pool's records a quota takes; the keys break its ties.

    Returns:
        The picks in key order, sources in code-point order; no companion.

    Raises:
        InputError: the selector has fewer candidates than a quota.
    """
    picks = {
        label: _in_key_order(queues[label], selector.take(label, queues[label], quotas[label]))
        for label in sorted(queues)
    }
    return Selection(seed=selection_seed, selector=selector.name, picks=picks, details=details(selector))


def details(selector: Selector) -> dict[str, object] | None:
    """What a selection records of its selector; None for the uniform draw, which knows nothing of the records."""
    return None if selector == UNIFORM else selector.describe()


def draw_tokens(
    queues: Mapping[str, Sequence[str]],
    quotas: Mapping[str, int],
    *,
    tokens: Mapping[str, Mapping[str, int]],
    selection_seed: int,
    selector: Uniform | Scored = UNIFORM,
) -> Selection:
    """Pick whole examples up to each source's quota of tokens; `queues` and what is returned are as of `draw_queues`.

    First every source takes its records in the selector's order (key order by default) until the next would pass its
    quota. Then, in the order of the deficit's share of that next example, largest first and ties by label, each
    source with a deficit takes it if all picks together stay within the budget, which is the sum of the quotas.

    `quotas` are from 0 to the tokens of each pool, `tokens` those of each candidate by label and id, at least 1.

    Raises:
        InputError: a quota above the tokens of the candidates that may be taken.
    """
    orders = {label: selector.order(label, queues[label]) for label in sorted(queues)}
    lengths = {label: [tokens[label][record_id] for record_id in order] for label, order in orders.items()}
    counts, taken = dict.fromkeys(orders, 0), dict.fromkeys(orders, 0)
    for label, own in lengths.items():
        ends = [0, *accumulate(own)]
        if quotas[label] > ends[-1]:
            raise InputError(f"the quota of {label!r} is {quotas[label]} tokens, but its pool holds {ends[-1]} tokens")
        counts[label] = bisect_right(ends, quotas[label]) - 1
        taken[label] = ends[counts[label]]
    deficits = {label: quotas[label] - taken[label] for label in orders if taken[label] < quotas[label]}
    left = sum(deficits.values())
    for label in sorted(deficits, key=lambda name: (-Fraction(deficits[name], lengths[name][counts[name]]), name)):
        following = lengths[label][counts[label]]
        if following <= left:
            left -= following
            counts[label] += 1
            taken[label] += following
    return Selection(
        seed=selection_seed,
        selector=selector.name,
        picks={label: _in_key_order(queues[label], orders[label][:count]) for label, count in counts.items()},
        tokens={label: TokenUse(quota=quotas[label], taken=used) for label, used in taken.items()},
        details=details(selector),
    )


def _in_key_order(queue: Sequence[str], taken: Sequence[str]) -> tuple[str, ...]:
    chosen = set(taken)
    return tuple(islice((one for one in queue if one in chosen), len(chosen)))


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
    is_ordered = isinstance(indices, Sequence | Iterator) and not isinstance(
        indices, str | bytes | bytearray | memoryview
    )
    if not is_ordered and not (isinstance(indices, np.ndarray) and indices.ndim == 1):
        kind = type(indices).__name__
        raise InputTypeError(f"needs a list or another ordered sequence of ids, not {kind}: {shown(indices)}")
    plain = [int(index) if isinstance(index, np.integer) else index for index in indices]
    data = canonical_array(plain)
    if len({isinstance(index, str) for index in plain}) > 1:
        raise InputTypeError("indices must be all integers or all strings, not a mixture")
    if len(set(plain)) != len(plain):
        raise InputError(
            f"the index {next(value for value, count in Counter(plain).items() if count > 1)!r} is selected twice"
        )
    return sha256_hex(data)
