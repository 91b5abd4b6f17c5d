"""`calibudget influence`: from a recipe's sources to proxy scores of every candidate, shard by shard."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from calibudget.errors import ArtefactError, RecipeError, requires
from calibudget.hardware import Device
from calibudget.influence.config import WARM_UP, InfluenceConfig
from calibudget.keys import order_keys
from calibudget.pipeline.prepare import Prepared
from calibudget.pipeline.progress import Progress, silent
from calibudget.pipeline.proxy_files import MERGED_NAME, Shards, read_proxy_pool
from calibudget.pipeline.run_directory import check_no_run, recipe_of_run
from calibudget.pipeline.score import check_scorer
from calibudget.pipeline.shared_resources import read_sources
from calibudget.pipeline.training_encoding import ENCODED, training_encoder
from calibudget.recipe.load import load_recipe
from calibudget.recipe.schema import Recipe
from calibudget.recipe.yaml import parse_assignment
from calibudget.records import Record
from calibudget.selection.proxy import ProxyHeader, ProxyPool, proxy_pool
from calibudget.selection.train_rows import train_row
from calibudget.sequences import chunks
from calibudget.store.files import check_writable, refuse_links
from calibudget.training.config import Execution, TrainingConfig, parse_options
from calibudget.training.report import Listener

if TYPE_CHECKING:
    from calibudget.influence.scorer import InfluenceScorer
    from calibudget.training.devices import Devices

WARM_UP_NAME: Final = "warm-up"


@dataclass(frozen=True, slots=True, kw_only=True)
class InfluenceResult:
    """What was made.

    `shards` are those that were asked for, all whole; `merged` is None while some are missing.
    """

    shards: tuple[Path, ...]
    merged: Path | None
    header: ProxyHeader
    warm_up_examples: int
    warm_up_steps: int

    def to_json(self) -> dict[str, Any]:
        """The `--json` output of `calibudget influence`."""
        return {
            "schema": "calibudget.influence/1",
            "pool_size": self.header.pool_size,
            "pool_sha256": self.header.pool_sha256,
            "subgroups": list(self.header.subgroups),
            "shards": self.header.shards,
            "warm_up": {"examples": self.warm_up_examples, "steps": self.warm_up_steps},
            "files": [path.name for path in self.shards],
            "merged": None if self.merged is None else self.merged.name,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class InfluencePreview:
    """What influence would work on.

    `calibration` counts the records whose gradients the candidates are compared with, by source; `tokens` are those of
    all candidates, as they go through the model, and `longest` those of the longest.
    """

    candidates: int
    calibration: Mapping[str, int]
    warm_up_examples: int
    tokens: int
    longest: int

    def to_json(self) -> dict[str, Any]:
        """The `--json` output of `calibudget influence --dry-run`."""
        return {"schema": "calibudget.influence-dry-run/1", **asdict(self)}


def influence_config(recipe: Recipe, warm_up: Sequence[str] = (), **given: Any) -> InfluenceConfig:
    """The configuration from what the command line says.

    Raises:
        TrainingError: an unknown field, or a value of the wrong type or out of range; the field is named.
        InputError: a value out of range.
    """
    asked = dict(parse_assignment(text, "--warm-up") for text in warm_up)
    fields = WARM_UP | {"seed": recipe.training_seed} | asked
    return InfluenceConfig(warm_up=parse_options(TrainingConfig, fields), **given)


def influence_recipe(target: Path, overrides: Sequence[str] = (), data_dir: Path | None = None) -> Recipe:
    """The recipe that a path stands for: itself, or that of a run directory.

    Raises:
        RecipeError: a run directory without a word on where its data lies.
    """
    if not target.is_dir():
        return load_recipe(target, overrides)
    if data_dir is None:
        raise RecipeError(f"{target}: a run directory doesn't say where its data lies; add --data-dir")
    return recipe_of_run(target, [*overrides, f"data_dir={data_dir.absolute()}"])


def preview_influence(
    recipe: Recipe, config: InfluenceConfig, *, run_dir: Path | None = None, progress: Progress = silent
) -> InfluencePreview:
    """What `influence` would do, with every record's length checked; no weights are loaded and nothing is written.

    Raises:
        InputError: whatever `influence` would refuse before its warm-up.
    """
    _check_recipe(recipe)
    with requires("influence", "train"):
        from calibudget.influence import scorer  # noqa: F401 - it is only to be there
    task = _task(recipe, config, run_dir, progress)
    lengths = task.lengths(progress)
    return InfluencePreview(
        candidates=task.pool.size,
        calibration={label: len(split.calibration) for label, split in task.prepared.splits.items()},
        warm_up_examples=len(task.warm_up_rows()),
        tokens=sum(lengths),
        longest=max(lengths, default=0),
    )


def influence(
    recipe: Recipe,
    output_dir: str | Path,
    config: InfluenceConfig,
    *,
    execution: Execution | None = None,
    only: Sequence[int] = (),
    run_dir: Path | None = None,
    progress: Progress = silent,
    listener: Listener | None = None,
) -> InfluenceResult:
    """Score every candidate of a recipe by its influence on each source's calibration split.

    What is there already is kept: a finished warm-up, finished shards, and finished chunks of an unfinished shard.
    `only` names the shards to score, from 0; all by default. Of several processes that were started together (torchrun)
    each takes its share of them, and each returns the result. The pool must be that of `run_dir`, where one is named.

    Raises:
        RecipeError: nothing to calibrate on, no model, or an adapter that calibration puts on the model.
        ArtefactError: the directory holds work of another pool, model or configuration.
        TrainingError, ScoringError, DataError: data or model can't be used.
        DependencyError: torch, transformers, peft or accelerate isn't installed.
        InterruptedRunError: the warm-up was stopped; the same call goes on.
    """
    _check_recipe(recipe)
    directory = Path(output_dir)
    if unknown := [shard for shard in only if not 0 <= shard < config.shards]:
        raise RecipeError(f"--shard {unknown[0]}: there are shards 0 to {config.shards - 1}")
    shards = sorted(set(only)) or list(range(config.shards))
    execution = execution or Execution()
    with requires("influence", "train"):
        from calibudget.influence.scorer import InfluenceScorer
        from calibudget.training.devices import Devices
    devices = Devices(execution.device)
    check_no_run(directory)
    check_writable(directory / f".started-{os.getpid()}")  # not itself: others may start on other shards just now
    refuse_links(directory / WARM_UP_NAME)
    task = _task(recipe, config, run_dir, progress)
    task.lengths(progress)
    load = partial(_load, recipe, str(devices.device), execution)
    scorer = InfluenceScorer(load, recipe.template, config, execution, devices)
    chosen = task.warm_up_rows()
    scorer.warm_up(chosen, directory / WARM_UP_NAME, {"pool_sha256": task.pool.sha256}, listener)
    work = Shards(directory=directory, pool=task.pool, header=task.header(scorer.describe()))
    _score_shards(task, work, shards, scorer, devices, progress)
    merged = directory / MERGED_NAME
    return InfluenceResult(
        shards=tuple(map(work.file, shards)),
        merged=merged if merged.exists() else None,
        header=work.header,
        warm_up_examples=len(chosen),
        warm_up_steps=scorer.warm_up_steps,
    )


def _score_shards(
    task: _Task, work: Shards, shards: Sequence[int], scorer: InfluenceScorer, devices: Devices, progress: Progress
) -> None:
    """Score those of this process that aren't whole yet, and merge all once they are."""
    own = shards[devices.rank :: devices.count]
    mine = [shard for shard in own if not work.is_whole(shard)]
    work.tidy_up(shard for shard in own if shard not in mine)
    if mine:
        progress("influence, calibration", 0, None)
        scorer.calibrate({label: _rows(split.calibration) for label, split in task.prepared.splits.items()})
    for shard in mine:
        work.score(shard, task.rows(work.entries(shard)), scorer, progress)
    devices.wait()
    if devices.is_main:
        work.merge()
    devices.wait()


def _task(recipe: Recipe, config: InfluenceConfig, run_dir: Path | None, progress: Progress) -> _Task:
    check_scorer(recipe)
    prepared = read_sources(recipe, None, progress=progress)
    pool = proxy_pool({label: [one.record_id for one in split.candidates] for label, split in prepared.splits.items()})
    if run_dir is not None and read_proxy_pool(run_dir).sha256 != pool.sha256:
        raise ArtefactError(f"{run_dir}: its candidates aren't those that these sources give; is it the same data?")
    return _Task(recipe=recipe, prepared=prepared, pool=pool, config=config)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """What is to be scored: the sources, the positions of their candidates, and how."""

    recipe: Recipe
    prepared: Prepared
    pool: ProxyPool
    config: InfluenceConfig

    def header(self, provenance: Mapping[str, object]) -> ProxyHeader:
        """What all shards share; the subgroups are the sources, in code-point order."""
        return ProxyHeader(
            pool_size=self.pool.size,
            pool_sha256=self.pool.sha256,
            subgroups=tuple(self.prepared.splits),
            shards=self.config.shards,
            shard=None,
            provenance=provenance,
        )

    def warm_up_rows(self) -> list[dict[str, object]]:
        """Rows of the warm-up: the first of each source's candidates under the "warm-up" key."""
        rows = []
        for label, split in self.prepared.splits.items():
            key = order_keys("warm-up", self.recipe.selection_seed, label)
            count = ceil(self.config.warm_up_share * split.pool_size)
            rows += _rows(sorted(split.candidates, key=lambda record, key=key: key(record.record_id))[:count])  # type: ignore[misc]
        return rows

    def rows(self, entries: Iterable[tuple[int, tuple[str, str]]]) -> Iterator[dict[str, object]]:
        """The candidates of some positions, one at a time."""
        records = {
            (label, record.record_id): record
            for label, split in self.prepared.splits.items()
            for record in split.candidates
        }
        for _, entry in entries:
            yield from _rows([records[entry]])

    def lengths(self, progress: Progress) -> list[int]:
        """Tokens of each candidate, by source; so a record that can't be encoded is told before hours of warm-up."""
        from calibudget.training.data import encode_examples

        encoder, config = training_encoder(self.recipe), self.config.warm_up
        lengths: list[int] = []
        if encoder is None:
            raise RecipeError(f"model: {self.recipe.model} can't be had here, and influence takes its gradients")
        for split in self.prepared.splits.values():
            progress("checking lengths", len(lengths), self.pool.size)
            for chosen, of_pool in ((split.calibration, False), (split.candidates, True)):
                for chunk in chunks(chosen, ENCODED):
                    with warnings.catch_warnings():  # cut prompts are told when they are used
                        warnings.simplefilter("ignore")
                        encoded = encode_examples(
                            _rows(chunk), encoder, max_length=config.max_length, too_long=config.too_long
                        )
                    lengths += [len(one.ids) for one in encoded] if of_pool else []
        progress("checking lengths", self.pool.size, self.pool.size)
        return lengths


def _rows(records: Iterable[Record]) -> list[dict[str, object]]:
    return [train_row(one, "source", layout="turns") for one in records]


def _check_recipe(recipe: Recipe) -> None:
    if recipe.calibration == "none":
        raise RecipeError("calibration: influence is measured on the calibration splits, so `none` can't be")
    if recipe.engine == "fake" or recipe.model is None:
        raise RecipeError("model: influence takes gradients of a model; `engine: fake` has none")
    if recipe.adapter is not None:
        raise RecipeError("calibration.adapter: influence warms up an adapter of its own; say calibration.adapter=null")


def _load(recipe: Recipe, device: str, execution: Execution) -> Any:
    from calibudget.lm.loading import load_model

    return load_model(recipe.model or "", device=cast(Device, device.partition(":")[0]), dtype=execution.dtype)
