"""`calibudget study run --dry-run`: cells, hours and memory that a study will take, from rates that were measured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

from calibudget.errors import CalibudgetError
from calibudget.pipeline.evaluate import benchmarks_of
from calibudget.pipeline.progress import Progress, silent
from calibudget.pipeline.shared import Shared
from calibudget.pipeline.training_options import options_from
from calibudget.recipe import Recipe
from calibudget.sources import read_source
from calibudget.study.grid import cells_of
from calibudget.study.protocol import Protocol
from calibudget.study.records import Cell, CellResult
from calibudget.study.settings import CellSettings, asking_of, base_recipe, settings_of, settings_sha256

#: Characters of English text that one token stands for, about.
_CHARACTERS: Final = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """What was measured with a model of one size on one GPU.

    Attributes:
        parameters: of the model.
        train_tokens: trained a second.
        items: evaluated a second, over the tasks that were asked; None where it wasn't measured.
        gib: GPU memory that training took.
        source: where the figures stand.
    """

    parameters: float
    train_tokens: float
    items: float | None
    gib: float
    source: str


#: Measured on one H200, see the files that are named.
RATES: Final = (
    Rate(
        parameters=134.5e6,
        train_tokens=75_043,
        items=57_668 / 230,
        gib=4.7,
        source="benchmarks/results/training_gpu.md and evaluation_full.md, SmolLM2-135M",
    ),
    Rate(
        parameters=6.738e9,
        train_tokens=18_377,
        items=None,
        gib=50.3,
        source="benchmarks/results/training_gpu.md, the LLaMA-2-7B shape",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the cells of one backbone will take.

    Attributes:
        cells: in the protocol.
        left: pieces of work that aren't finished, each counted once.
        train_tokens: of all that is left, None where the sources can't be read and the protocol has no `estimates`.
        items: to be evaluated in all that is left, None where the tasks can't be read likewise.
        hours: for all that is left, None where the backbone's size or one of these counts isn't known.
        gib: GPU memory, None where the backbone's size isn't known.
        by: what the hours come from.
        unread: what couldn't be read, why, and what stands in for it; empty where everything could.
    """

    cells: int
    left: int
    train_tokens: int | None
    items: int | None
    hours: float | None
    gib: float | None
    by: str
    unread: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {name: getattr(self, name) for name in self.__slots__} | {"unread": list(self.unread)}


def expect(
    protocol: Protocol, finished: Iterable[CellResult] = (), *, progress: Progress = silent
) -> dict[str, Expected]:
    """What is left of a study, by backbone that is trained.

    Rates are those of this study's own finished cells; where there are none, those of `RATES` between which the
    backbone's size lies. Sizes of examples, companion set and tasks are read from the data; where it isn't at hand, the
    `estimates` that the protocol gives are taken, and without any the counts are unknown.
    """
    document = base_recipe(protocol)
    settings = {cell: settings_of(protocol, cell, document) for cell in cells_of(protocol)}
    done = list(finished)
    sizes = _sizes(protocol, next(iter(settings.values())).recipe, progress)
    found = {}
    for backbone in protocol.backbones:
        own = {cell: one for cell, one in settings.items() if cell.backbone == backbone}
        if own:
            found[backbone] = _expect(protocol, backbone, own, done, sizes)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    """Means and counts of the data; None where they aren't known, and why."""

    companion: int | None
    tokens_per_example: float | None
    items: int | None
    unread: tuple[str, ...]


def _expect(
    protocol: Protocol, backbone: str, cells: Mapping[Cell, CellSettings], done: Sequence[CellResult], sizes: _Sizes
) -> Expected:
    finished = {one.cell.name for one in done}
    known = {settings_sha256(one) for cell, one in cells.items() if cell.name in finished}
    left = {digest: (cell, one) for cell, one in cells.items() if (digest := settings_sha256(one)) not in known}
    trained = [(cell, one) for cell, one in left.values() if one.train]
    tokens = _train_tokens(trained, sizes)
    items = 0 if not trained else None if sizes.items is None else sizes.items * len(trained)
    measured = [one for one in done if one.cell.backbone == backbone and one.outcome.tasks]
    if measured:
        seconds: float | None = len(trained) * fmean(sum(one.outcome.seconds.values()) for one in measured)
        peaks = [
            one.outcome.counts["peak_memory_bytes"] for one in measured if "peak_memory_bytes" in one.outcome.counts
        ]
        gib = max(peaks) / 2**30 if peaks else None
        by = f"the {len(measured)} cells of this study that are finished"
    else:
        seconds, gib, by = _by_rates(protocol.backbones[backbone].parameters, tokens, items)
    return Expected(
        cells=len(cells),
        left=len(left),
        train_tokens=tokens,
        items=items,
        hours=None if seconds is None else seconds / 3600,
        gib=gib,
        by=by,
        unread=sizes.unread,
    )


def _train_tokens(trained: Sequence[tuple[Cell, CellSettings]], sizes: _Sizes) -> int | None:
    if not trained:
        return 0
    if sizes.companion is None or sizes.tokens_per_example is None:
        return None
    total = 0
    for cell, settings in trained:
        epochs = options_from(settings.recipe, settings.options).config.epochs
        selected = cell.budget if cell.unit == "tokens" else cell.budget * sizes.tokens_per_example
        total += round(epochs * (selected + sizes.companion * sizes.tokens_per_example))
    return total


def _by_rates(parameters: int | None, tokens: int | None, items: int | None) -> tuple[float | None, float | None, str]:
    if parameters is None:
        return None, None, "nothing: the protocol doesn't say how many `parameters` the backbone has"
    small, large = RATES
    share = math.log(parameters / small.parameters) / math.log(large.parameters / small.parameters)

    def between(first: float, second: float) -> float:
        return first * math.exp(share * math.log(second / first))

    gib = between(small.gib, large.gib)
    if tokens is None or items is None:
        return None, gib, "nothing: what is to be trained on or asked isn't known"
    per_second = (small.items or 0.0) * small.parameters / parameters
    seconds = tokens / between(small.train_tokens, large.train_tokens) + items / per_second
    nearest = min(RATES, key=lambda one: abs(math.log(parameters / one.parameters)))
    by = (
        f"one H200: training between or beyond the sizes measured, nearest {nearest.source}; evaluation scaled by "
        f"parameters from {small.source}, an assumption"
    )
    return seconds, gib, by


def _sizes(protocol: Protocol, recipe: Recipe, progress: Progress) -> _Sizes:
    """How much is trained on and asked, from the data where it can be read."""
    estimates, given = protocol.estimates, protocol.estimates.model_fields_set
    unread: list[str] = []
    companion: int | None
    per_example: float | None
    items: int | None
    try:
        companion, per_example = _examples(recipe)
    except (CalibudgetError, OSError) as error:
        has_companion = recipe.companion is None or "companion_examples" in given
        companion = estimates.companion_examples if has_companion else None
        per_example = estimates.tokens_per_example if "tokens_per_example" in given else None
        unread.append(_unread("sources", "token counts", error, is_known=None not in (companion, per_example)))
    shared = Shared()
    try:
        items = sum(
            len(one.items)
            for asked in protocol.evaluation
            for one in benchmarks_of(asking_of(protocol, asked), shared, progress)
        )
    except (CalibudgetError, OSError) as error:
        items = estimates.items if "items" in given else None
        unread.append(_unread("tasks", "the items asked", error, is_known=items is not None))
    return _Sizes(companion=companion, tokens_per_example=per_example, items=items, unread=tuple(unread))


def _unread(what: str, counts: str, error: Exception, *, is_known: bool) -> str:
    instead = f"{counts} go by the protocol's `estimates`" if is_known else f"{counts} are unknown"
    return f"{what} can't be read, so {instead}: {error}"


def _examples(recipe: Recipe) -> tuple[int, float]:
    """Size of the companion set, and mean tokens of an example, as the data has them."""
    specs = [*recipe.source_specs(), *([spec] if (spec := recipe.companion_spec()) else [])]
    reads = [read_source(spec, recipe.data_root) for spec in specs]
    records = [record for read in reads for record in read.records]
    characters = sum(sum(len(turn.content) for turn in one.prompt) + len(one.completion) for one in records)
    companion = len(reads[-1].records) if recipe.companion is not None else 0
    return companion, characters / _CHARACTERS / len(records)
