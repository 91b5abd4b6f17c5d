"""What a budget is spent on: every source's candidates in key order, measured in the budget's unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING

from calibudget.errors import AllocationError, ArtefactError, InputError
from calibudget.keys import order_keys
from calibudget.pipeline.round_ledger import Ledger
from calibudget.records import AllocationPlan, Selection, Unit
from calibudget.selection.draw import draw_queues, draw_tokens, exposures, marked, unmarked
from calibudget.selection.selectors import UNIFORM, Mix, Scored, Uniform

if TYPE_CHECKING:
    from calibudget.recipe.schema import Recipe
    from calibudget.store.splits import SourceIds


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """The candidates that may be drawn; mappings are by label in code-point order.

    Attributes:
        queues: ids in the order in which they are drawn: key order, and repeats (see `selection.draw.exposures`) after
            the first exposures.
        tokens: tokens of each of them, prompt and response together; None where examples are counted.
        spent: units of each source that earlier rounds used; empty in a first round.
    """

    queues: Mapping[str, Sequence[str]]
    tokens: Mapping[str, Mapping[str, int]] | None
    selection_seed: int
    max_repeats: int = 1
    spent: Mapping[str, int] = field(default_factory=dict)

    @property
    def unit(self) -> Unit:
        """What sizes and quotas count."""
        return "examples" if self.tokens is None else "tokens"

    @property
    def sizes(self) -> dict[str, int]:
        """N_k of each source, in the budget's unit."""
        if self.tokens is None:
            return {label: len(queue) for label, queue in self.queues.items()}
        return {label: sum(map(self.tokens[label].__getitem__, queue)) for label, queue in self.queues.items()}

    def candidates(self, label: str) -> int:
        """How many different candidates a source's queue holds."""
        return len({self._own(one)[0] for one in self.queues[label]})

    def keys(self, label: str) -> list[bytes]:
        """What merges a source's queue with others': which exposure it is, big-endian, then the candidate's key."""
        key = order_keys("selection", self.selection_seed, label)
        return [number.to_bytes(8, "big") + key(one) for one, number in map(self._own, self.queues[label])]

    def longest(self, label: str) -> int:
        """Tokens of a source's longest candidate; 0 where there is none, or nothing is counted."""
        return 0 if self.tokens is None else max(map(self.tokens[label].__getitem__, self.queues[label]), default=0)

    def within(self, limits: Mapping[str, int]) -> Pools:
        """Without the candidates that are longer than their source's limit, where it has one."""
        if self.tokens is None:
            return self
        counts = self.tokens
        queues = {
            label: [one for one in queue if counts[label][one] <= limits[label]] if label in limits else queue
            for label, queue in self.queues.items()
        }
        return replace(self, queues=queues)

    def of_plan(self, plan: AllocationPlan) -> Pools:
        """The pools that a plan was made for: of a token budget, each source's shortest candidates.

        Raises:
            ArtefactError: the plan counts in another unit, or is of other pools.
        """
        if plan.unit != self.unit:
            raise ArtefactError(f"the allocation counts {plan.unit}, but the budget {self.unit}")
        planned = {label: row.pool_size for label, row in plan.sources.items()}
        fitting = self.within({label: self._limit(label, planned.get(label, 0)) for label in self.queues})
        found = fitting.sizes
        for label in sorted({*planned, *found}):
            if planned.get(label) != found.get(label):
                raise ArtefactError(
                    f"the allocation is of other pools than these ({label!r}: {planned.get(label)} {self.unit} there, "
                    f"{found.get(label)} here)"
                )
        return fitting

    def draw(self, plan: AllocationPlan, selector: Uniform | Scored | Mix = UNIFORM) -> Selection:
        """The picks of a plan's quotas; no companion yet.

        Raises:
            ArtefactError: the plan is of other pools.
            InputError: the selector has less to take from than a quota, or parts numbers where tokens are counted.
        """
        pools = self.of_plan(plan)
        if pools.tokens is None:
            return draw_queues(pools.queues, plan.quotas, selection_seed=self.selection_seed, selector=selector)
        if isinstance(selector, Mix):
            raise InputError("a mix of selectors parts a number of examples; a budget of tokens takes one selector")
        return draw_tokens(
            pools.queues, plan.quotas, tokens=pools.tokens, selection_seed=self.selection_seed, selector=selector
        )

    def require_room(self, budget: int) -> None:
        """Refuse a token budget that holds no example at all."""
        if self.tokens is None:
            return
        lengths = [(self.tokens[label][one], label, one) for label, queue in self.queues.items() for one in queue]
        if lengths and budget < min(lengths)[0]:
            shortest, label, record_id = min(lengths)
            raise AllocationError(
                f"the budget of {budget:,} tokens is below the shortest example of all sources, which has "
                f"{shortest:,} ({label}, record {record_id})"
            )

    def _own(self, exposure: str) -> tuple[str, int]:
        return (exposure, 1) if self.max_repeats == 1 else unmarked(exposure)

    def _limit(self, label: str, size: int) -> int:
        """The length up to which a source's candidates have `size` tokens or more together."""
        total = limit = 0
        if self.tokens is not None:
            for length, alike in groupby(sorted(map(self.tokens[label].__getitem__, self.queues[label]))):
                if total >= size:
                    break
                total, limit = total + length * len(list(alike)), length
        return limit


def pools_of(recipe: Recipe, ids: Mapping[str, SourceIds], ledger: Ledger | None) -> Pools:
    """The pools of splits, after the rounds of a ledger."""
    return make_pools(ids, recipe.unit, recipe.selection_seed, recipe.max_repeats, ledger)


def make_pools(
    ids: Mapping[str, SourceIds], unit: Unit, selection_seed: int, max_repeats: int, ledger: Ledger | None = None
) -> Pools:
    """The pools of splits; candidates without a count can't be encoded, so that a budget of tokens can't hold them."""
    numbers = range(1, max_repeats + 1)
    queues: dict[str, Sequence[str]] = {}
    tokens: dict[str, dict[str, int]] = {}
    for label, own in sorted(ids.items()):
        fit = own.candidates if unit == "examples" else [one for one in own.candidates if one in own.tokens]
        spent = frozenset() if ledger is None else ledger.spent(label)
        queue = exposures(label, fit, max_repeats)
        queues[label] = [one for one in queue if one not in spent] if spent else queue
        tokens[label] = {marked(one, number): sum(count) for one, count in own.tokens.items() for number in numbers}
    return Pools(
        queues=queues,
        tokens=None if unit == "examples" else tokens,
        selection_seed=selection_seed,
        max_repeats=max_repeats,
        spent={} if ledger is None else {label: ledger.units(label) for label in queues},
    )
