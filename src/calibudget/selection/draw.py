"""The keyed draw: uniform within a source, nested in the quota, independent of everything but seed and ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from calibudget.errors import InputError, InputTypeError
from calibudget.keys import order_keys
from calibudget.records import Selection
from calibudget.selection.selectors import UNIFORM, Selector, take_quota


def draw(
    pools: Mapping[str, Sequence[str]],
    quotas: Mapping[str, int],
    *,
    selection_seed: int,
    selector: Selector = UNIFORM,
) -> Selection:
    """Pick each source's quota: by default the first records of its pool in the order of their "selection" keys.

    For one pool and seed a larger quota keeps the smaller one's picks.

    Args:
        pools: record ids of each source's candidates, in any order, each once.
        quotas: how many to pick of each source; integers from 0 to the size of its pool.
        selection_seed: seed of the keys.
        selector: which of a pool's records a quota takes; the keys break its ties.

    Returns:
        The picks in key order, sources in code-point order; no companion.

    Raises:
        InputError: pools and quotas name different sources, a quota is negative or above its pool, an id stands
            twice in a pool, or the selector has fewer candidates than a quota.
        InputTypeError: a quota is no integer (a bool or a float is none).
    """
    if set(pools) != set(quotas):
        stray = sorted(set(pools) ^ set(quotas))
        raise InputError(f"pools and quotas must name the same sources; only one of them names {', '.join(stray)}")
    picks = {label: _pick(label, pools[label], quotas[label], selection_seed, selector) for label in sorted(pools)}
    return Selection(seed=selection_seed, selector=selector.name, picks=picks)


def _pick(label: str, pool: Sequence[str], quota: int, seed: int, selector: Selector) -> tuple[str, ...]:
    if isinstance(quota, bool | np.bool_) or not isinstance(quota, int | np.integer):
        raise InputTypeError(f"the quota of {label!r} must be an integer, not {quota!r}")
    if not 0 <= quota <= len(pool):
        raise InputError(f"the quota of {label!r} is {quota}, but its pool holds {len(pool)}")
    if len(set(pool)) != len(pool):
        twin = next(record_id for i, record_id in enumerate(pool) if record_id in set(pool[:i]))
        raise InputError(f"the pool of {label!r} holds the record {twin!r} twice")
    in_order = sorted(pool, key=order_keys("selection", seed, label))
    return take_quota(selector, label, in_order, int(quota))
