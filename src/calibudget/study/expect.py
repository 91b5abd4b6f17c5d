"""Whether the points of a study can be met by its pools, told before anything is frozen or run.

`calibudget study run --dry-run`: cells, hours and memory that a study will take, from rates that were measured.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Final

from calibudget.errors import AllocationError, CalibudgetError, DataError, StudyError
from calibudget.evaluation.benchmarks import HELD_OUT
from calibudget.pipeline.allocate import feasible_floors
from calibudget.pipeline.evaluate import benchmarks_of
from calibudget.pipeline.progress import Progress, silent
from calibudget.pipeline.run_inputs import Run
from calibudget.pipeline.shared_resources import Shared, read_sources
from calibudget.pipeline.train import options_from
from calibudget.recipe.load import resolved_fields
from calibudget.recipe.schema import Recipe
from calibudget.sources.inputs import from_the_cache
from calibudget.sources.whole_source import read_source
from calibudget.store.canonical import canonical_json
from calibudget.study.cell import (
    CellSettings,
    asking_of,
    scored_by,
    settings_of_all,
    settings_sha256,
)
from calibudget.study.cell_records import Cell, CellResult
from calibudget.study.execution import read_finished
from calibudget.study.freeze import plan_cells, read_frozen
from calibudget.study.protocol import Protocol

#: Fields of a recipe that bounds don't go by. Seeds move a pool by a few examples at most: by those that share a prompt
#: with a calibration record.
_APART: Final = ("model", "seed", "split_seed", "bootstrap_seed", "selection_seed", "training_seed")


def check_feasible(settings: Mapping[Cell, CellSettings], shared: Shared, progress: Progress) -> None:
    """Refuse points whose budget, floors or caps no quotas over their pools can meet.

    Of cells that differ by seeds and models alone the first is looked at. A budget of tokens is left to the cells: its
    pools are known once the model's tokenizer has counted them.
    """
    refused: dict[str, str] = {}
    for cell, recipe in _first_of_each(settings).items():
        if recipe.unit == "tokens" or cell.point in refused:
            continue
        try:
            prepared = read_sources(recipe, shared, progress=progress)
            feasible_floors(recipe, Run(recipe=recipe, prepared=prepared).pools)
        except AllocationError as error:
            refused[cell.point] = f"points.{cell.point}: cell {cell.name}: {error}"
    if refused:
        raise StudyError("\n".join(refused.values()))


def _first_of_each(settings: Mapping[Cell, CellSettings]) -> dict[Cell, Recipe]:
    """Of cells with equal bounds the first; those of one split follow one another, so that it is read once."""
    first: dict[bytes, Cell] = {}
    for cell, one in settings.items():
        bounds = {name: value for name, value in resolved_fields(one.recipe).items() if name not in _APART}
        first.setdefault(canonical_json([cell.point, bounds]), cell)
    ordered = sorted(first.values(), key=lambda cell: (cell.split_seed, cell.selection_seed))
    return {cell: settings[cell].recipe for cell in ordered}


#: Characters of English text that one token stands for, about.
_CHARACTERS: Final = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """What was measured with a model of one size on one GPU.

    Attributes:
        train_tokens: trained a second.
        scored: calibration records a second, likelihood and decoded answer; the 7B shape's are those of a model that
            agrees with none of its references, the slowest case.
        items: of the ten tasks, evaluated a second by greedy decoding; None where it wasn't measured.
        gib: GPU memory that training took.
        source: where the figures stand.
    """

    parameters: float
    train_tokens: float
    scored: float
    items: float | None
    gib: float
    source: str


#: Measured on one H200, see the files that are named.
RATES: Final = (
    Rate(
        parameters=134.5e6,
        train_tokens=75_043,
        scored=800 / 1.68,
        items=28_738 / 181,
        gib=4.7,
        source="benchmarks/results/training_gpu.md, scoring_gpu.md and evaluation_full.md, SmolLM2-135M",
    ),
    Rate(
        parameters=6.738e9,
        train_tokens=18_377,
        scored=800 / 5.52,
        items=None,
        gib=50.3,
        source="benchmarks/results/training_gpu.md and scoring_gpu.md, the LLaMA-2-7B shape",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the cells of one backbone will take.

    Attributes:
        left: pieces of work that aren't finished, each counted once.
        train_tokens: of all that is left, None where the sources can't be read and the protocol has no `estimates`.
        items: to be evaluated in all that is left, None where the tasks can't be read likewise. A second pass by
            likelihood isn't counted.
        scored: calibration records to be scored on this backbone; those of a split that cells share count once.
        hours: for all that is left, None where the backbone's size or one of these counts isn't known.
        gib: GPU memory, None where the backbone's size isn't known.
        unread: what couldn't be read, why, and what stands in for it; empty where everything could.
    """

    cells: int
    left: int
    train_tokens: int | None
    items: int | None
    scored: int
    hours: float | None
    gib: float | None
    by: str
    unread: tuple[str, ...]


def expect_study(protocol: Protocol, directory: Path | None, *, progress: Progress = silent) -> dict[str, Expected]:
    """What a study will take, or what is left of one where a directory is given, by backbone that is trained.

    Nothing is run or written. Rates are those of this study's own finished cells; where there are none, those of
    `RATES` between which the backbone's size lies. Sizes of examples, companion set and tasks are read from the data;
    where it isn't at hand, the `estimates` that the protocol gives are taken, and without any the counts are unknown.

    Raises:
        ArtefactError: nothing is frozen in the directory, or a folder holds a foreign cell.
        StudyError: the sources are at hand, and a point can't be met by its pools.
    """
    planned = () if directory is None else plan_cells(protocol, read_frozen(directory), directory)
    done = [one for one in map(read_finished, planned) if one is not None]
    settings = settings_of_all(protocol)
    sizes = _sizes(protocol, settings, progress)
    scored = _scored(settings, {one.cell.name for one in done})
    found = {}
    for backbone in protocol.backbones:
        own = {cell: one for cell, one in settings.items() if cell.backbone == backbone}
        if own:
            found[backbone] = _expect(protocol, backbone, own, done, sizes, scored[backbone])
    return found


def _scored(settings: Mapping[Cell, CellSettings], finished: Collection[str]) -> Counter[str]:
    """Calibration records that are still to be scored, by the backbone that scores them."""
    there: set[bytes] = set()
    scored = Counter[str]()
    for cell, one in sorted(settings.items(), key=lambda pair: pair[0].name not in finished):
        if one.recipe.calibration == "none":
            continue
        split = canonical_json([cell.calibrated_on, *scored_by(one.recipe, cell)])
        if split not in there and cell.name not in finished:
            scored[cell.calibrated_on] += one.recipe.calibration_size * len(one.recipe.sources)
        there.add(split)
    return scored


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    """Means and counts of the data; None where they aren't known, and why."""

    companion: int | None
    tokens_per_example: float | None
    items: int | None
    unread: tuple[str, ...]


def _expect(
    protocol: Protocol,
    backbone: str,
    cells: Mapping[Cell, CellSettings],
    done: Sequence[CellResult],
    sizes: _Sizes,
    scored: int,
) -> Expected:
    finished = {one.cell.name for one in done}
    known = {settings_sha256(one) for cell, one in cells.items() if cell.name in finished}
    left = {digest: (cell, one) for cell, one in cells.items() if (digest := settings_sha256(one)) not in known}
    trained = [(cell, one) for cell, one in left.values() if one.train]
    tokens = _train_tokens(trained, sizes)
    items = 0 if not trained else None if sizes.items is None else sizes.items * len(trained)
    measured = [one for one in done if one.cell.backbone == backbone and one.tasks]
    if measured:
        own = [dict(one.seconds) for one in measured]
        a_split = max(one.pop("calibrate", 0.0) for one in own)  # of a cell that scored, not of one that found scores
        largest = max(one.recipe.calibration_size * len(one.recipe.sources) for one in cells.values())
        splits = scored / max(largest, 1)
        seconds: float | None = len(trained) * fmean(sum(one.values()) for one in own) + splits * a_split
        peaks = [one.counts["peak_memory_bytes"] for one in measured if "peak_memory_bytes" in one.counts]
        gib = max(peaks) / 2**30 if peaks else None
        by = f"the {len(measured)} cells of this study that are finished"
    else:
        seconds, gib, by = _by_rates(protocol.backbones[backbone].parameters, tokens, items, scored)
    return Expected(
        cells=len(cells),
        left=len(left),
        train_tokens=tokens,
        items=items,
        scored=scored,
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


def _by_rates(
    parameters: int | None, tokens: int | None, items: int | None, scored: int
) -> tuple[float | None, float | None, str]:
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
    seconds = (
        tokens / between(small.train_tokens, large.train_tokens)
        + scored / between(small.scored, large.scored)
        + items / per_second
    )
    nearest = min(RATES, key=lambda one: abs(math.log(parameters / one.parameters)))
    by = (
        f"one H200: training and calibration between or beyond the sizes measured, nearest {nearest.source}; "
        f"evaluation scaled by parameters from {small.source}, an assumption"
    )
    return seconds, gib, by


def _sizes(protocol: Protocol, settings: Mapping[Cell, CellSettings], progress: Progress) -> _Sizes:
    """How much is trained on and asked, from the data where it can be read."""
    recipe, shared = next(iter(settings.values())).recipe, Shared()
    estimates, given = protocol.estimates, protocol.estimates.model_fields_set
    unread: list[str] = []
    companion: int | None
    per_example: float | None
    items: int | None
    try:
        # a hub that doesn't answer is asked again for half a minute, which estimates spare
        with from_the_cache() if "tokens_per_example" in given else nullcontext():
            companion, per_example = _examples(recipe)
            try:
                check_feasible(settings, shared, progress)
            except DataError as error:
                unread.append(f"whether the points can be met isn't known: {error}")
    except StudyError:
        raise
    except (CalibudgetError, OSError) as error:
        has_companion = recipe.companion is None or "companion_examples" in given
        companion = estimates.companion_examples if has_companion else None
        per_example = estimates.tokens_per_example if "tokens_per_example" in given else None
        unread.append(_unread("sources", "token counts", error, is_known=None not in (companion, per_example)))
    try:
        with from_the_cache() if "items" in given else nullcontext():
            items = sum(
                len(one.items)
                for asked in protocol.evaluation
                for one in benchmarks_of(asking_of(protocol, asked), shared, progress)
            ) + recipe.evaluation_size * len(recipe.sources) * sum(HELD_OUT in o.tasks for o in protocol.evaluation)
    except (CalibudgetError, OSError) as error:
        items = estimates.items if "items" in given else None
        unread.append(_unread("tasks", "the items asked", error, is_known=items is not None))
    return _Sizes(companion=companion, tokens_per_example=per_example, items=items, unread=tuple(unread))


def _unread(what: str, counts: str, error: Exception, *, is_known: bool) -> str:
    instead = f"{counts} go by the protocol's `estimates`" if is_known else f"{counts} are unknown"
    return f"{what} can't be read, so {instead}: {error}"


def _examples(recipe: Recipe) -> tuple[int, float]:
    """Size of the companion set, and mean tokens of an example, as the data has them."""
    reads = [read_source(spec, recipe.data_root) for spec in recipe.all_specs.values()]
    records = [record for read in reads for record in read.records]
    characters = sum(sum(len(turn.content) for turn in one.prompt) + len(one.completion) for one in records)
    companion = len(reads[-1].records) if recipe.companion is not None else 0
    return companion, characters / _CHARACTERS / len(records)
