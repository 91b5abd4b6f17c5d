"""The keyed draw: uniform within a source, nested in the quota, independent of everything but seed and ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

import numpy as np

from calibudget.allocation.apportionment import require_mapping, require_text
from calibudget.errors import InputError, InputTypeError
from calibudget.keys import order_keys
from calibudget.records import Selection
from calibudget.selection.selectors import UNIFORM, Selector, take_quota
from calibudget.wording import shown


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
    require_mapping(pools, "pools")
    queues = {label: in_key_order(label, pool, selection_seed) for label, pool in sorted(pools.items())}
    return draw_queues(queues, quotas, selection_seed=selection_seed, selector=selector)


def draw_queues(
    queues: Mapping[str, Sequence[str]],
    quotas: Mapping[str, int],
    *,
    selection_seed: int,
    selector: Selector = UNIFORM,
) -> Selection:
    """`draw` from pools that stand in key order already."""
    check_quotas(queues, quotas, {label: len(queue) for label, queue in queues.items()})
    picks = {label: take_quota(selector, label, queues[label], int(quotas[label])) for label in sorted(queues)}
    return Selection(seed=selection_seed, selector=selector.name, picks=picks, details=details(selector))


def details(selector: Selector) -> dict[str, object] | None:
    """What a selection records of its selector; None for the uniform draw, which knows nothing of the records."""
    return None if selector == UNIFORM else selector.describe()


def in_key_order(label: str, pool: Sequence[str], selection_seed: int) -> list[str]:
    """A source's pool in the order of its "selection" keys.

    Raises:
        InputTypeError: no sequence of ids, an id that is no string, or a seed that is no integer.
        InputError: an id stands twice.
    """
    require_text(label, "a source's label")
    if isinstance(selection_seed, bool) or not isinstance(selection_seed, int | np.integer):
        raise InputTypeError(f"the selection seed must be an integer, not {shown(selection_seed)}")
    if isinstance(pool, str | bytes) or not isinstance(pool, Sequence | AbstractSet):
        raise InputTypeError(f"the pool of {label!r} must be a sequence of ids, not {shown(pool)}")
    if set(map(type, pool)) - {str}:
        for record_id in pool:
            require_text(record_id, f"an id in the pool of {label!r}")
    if len(set(pool)) != len(pool):
        twin = next(record_id for i, record_id in enumerate(pool) if record_id in set(pool[:i]))
        raise InputError(f"the pool of {label!r} holds the record {twin!r} twice")
    return sorted(pool, key=order_keys("selection", int(selection_seed), label))


def check_quotas(
    pools: Mapping[str, Sequence[str]], quotas: Mapping[str, int], sizes: Mapping[str, int], unit: str = ""
) -> None:
    """Refuse quotas that these pools can't give; `sizes` are the pools' in the quotas' unit.

    Raises:
        InputError, InputTypeError: as `draw`.
    """
    require_mapping(quotas, "quotas")
    if set(pools) != set(quotas):
        stray = sorted(set(pools) ^ set(quotas), key=str)
        raise InputError(
            f"pools and quotas must name the same sources; only one of them names {', '.join(map(str, stray))}"
        )
    for label, quota in sorted(quotas.items()):
        if isinstance(quota, bool | np.bool_) or not isinstance(quota, int | np.integer):
            raise InputTypeError(f"the quota of {label!r} must be an integer, not {shown(quota)}")
        if not 0 <= quota <= sizes[label]:
            raise InputError(f"the quota of {label!r} is {shown(quota)}{unit}, but its pool holds {sizes[label]}{unit}")
