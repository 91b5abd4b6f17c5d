"""Quotas in tokens: whole examples in key order, never above the budget, within one example of every quota.

How the draw ends. Call B the budget, q the quotas (they sum to B), s <= q what the first pass took and d = q - s the
deficits. A source with d > 0 has a next example, since its pool holds at least q, and that example is longer than d.

- *Never above B*: the second pass checks every example that it takes.
- *Within one example of each quota*: a source that takes its next example ends above q by less than that example;
  one that doesn't stays below q by d, less than its next example.
- *Within one example of B*: if every source with a deficit took its next example, each would end above its quota, and
  all together above B, which was checked; so either no source has a deficit, and nothing is missing, or one was
  refused its next example because what was missing then, and so what is missing in the end, is less than that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from calibudget.errors import InputError
from calibudget.records import Selection, TokenUse
from calibudget.selection.draw import check_quotas, details
from calibudget.selection.selectors import UNIFORM, Scored, Uniform


def draw_tokens(
    queues: Mapping[str, Sequence[str]],
    quotas: Mapping[str, int],
    *,
    tokens: Mapping[str, Mapping[str, int]],
    selection_seed: int,
    selector: Uniform | Scored = UNIFORM,
) -> Selection:
    """Pick whole examples up to each source's quota of tokens.

    First every source takes its records in the selector's order (key order by default) until the next would pass its
    quota. Then, in the order of the deficit's share of that next example, largest first and ties by label, each
    source with a deficit takes it if all picks together stay within the budget, which is the sum of the quotas.

    Args:
        queues: ids of each source's candidates in key order, each once.
        quotas: tokens to pick of each source; integers from 0 to the tokens of its pool.
        tokens: tokens of each candidate by label and id, integers of at least 1.
        selection_seed: seed of the keys, for the record.
        selector: what orders a source's candidates; those that it leaves out are never taken.

    Returns:
        The picks in key order, sources in code-point order, with the tokens that they use.

    Raises:
        InputError, InputTypeError: as `draw`; or a candidate without a number of tokens.
    """
    orders = {label: selector.order(label, queues[label]) for label in sorted(queues)}
    check_quotas(orders, quotas, {label: _total(label, order, tokens) for label, order in orders.items()}, " tokens")
    ends = {label: _first_pass(order, tokens[label], int(quotas[label])) for label, order in orders.items()}
    left = sum(end.deficit for end in ends.values())
    for label in sorted((label for label in ends if ends[label].deficit), key=lambda name: (-ends[name].claim, name)):
        end = ends[label]
        if end.following <= left:
            left -= end.following
            ends[label] = _End(count=end.count + 1, taken=end.taken + end.following, deficit=0, following=0)
    return Selection(
        seed=selection_seed,
        selector=selector.name,
        picks={label: _in_key_order(queues[label], orders[label][: end.count]) for label, end in ends.items()},
        tokens={label: TokenUse(quota=int(quotas[label]), taken=end.taken) for label, end in ends.items()},
        details=details(selector),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    """Where a source stands: examples and tokens taken, tokens missing to its quota, tokens of its next example."""

    count: int
    taken: int
    deficit: int
    following: int

    @property
    def claim(self) -> Fraction:
        """How much of its next example the deficit would pay for."""
        return Fraction(self.deficit, self.following)


def _in_key_order(queue: Sequence[str], taken: Sequence[str]) -> tuple[str, ...]:
    chosen = set(taken)
    return tuple(one for one in queue if one in chosen)


def _first_pass(queue: Sequence[str], tokens: Mapping[str, int], quota: int) -> _End:
    taken = 0
    for count, record_id in enumerate(queue):
        following = tokens[record_id]
        if taken + following > quota:
            return _End(count=count, taken=taken, deficit=quota - taken, following=following)
        taken += following
    return _End(count=len(queue), taken=taken, deficit=0, following=0)


def _total(label: str, queue: Sequence[str], tokens: Mapping[str, Mapping[str, int]]) -> int:
    counts = [tokens.get(label, {}).get(record_id, 0) for record_id in queue]
    for record_id, count in zip(queue, counts, strict=True):
        if count < 1:
            raise InputError(f"the record {record_id!r} of {label!r} has no number of tokens")
    return sum(counts)
