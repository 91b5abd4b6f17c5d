"""The shards of a pool's influence: each scored chunk by chunk into a journal, written whole, and merged at the end.

`calibudget influence`: from a recipe's sources to proxy scores of every candidate, shard by shard.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from math import ceil
from pathlib import Path
from typing import Any, Final, cast

from calibudget.errors import ArtefactError, DependencyError, RecipeError
from calibudget.hardware import Device
from calibudget.influence.config import WARM_UP, InfluenceConfig
from calibudget.keys import order_keys
from calibudget.pipeline.encoding import training_encoder
from calibudget.pipeline.prepare import Prepared, prepare
from calibudget.pipeline.progress import Progress, silent
from calibudget.pipeline.proxies import merge_proxy_files, read_proxy_file, read_proxy_pool, write_proxy_file
from calibudget.pipeline.rounds import earlier_rounds
from calibudget.pipeline.run_directory import recipe_of_run
from calibudget.pipeline.score import check_scorer
from calibudget.recipe import Recipe, load_recipe
from calibudget.recipe.yaml import parse_assignment
from calibudget.records import Record
from calibudget.selection.proxy import ProxyContract, ProxyHeader, ProxyPool, ProxyRecord, ProxyScores, proxy_pool
from calibudget.selection.proxy_checks import check_shard
from calibudget.selection.rows import train_row
from calibudget.store.canonical import canonical_json, loads_object
from calibudget.store.files import check_writable, work_directory
from calibudget.store.journal import Journal
from calibudget.training.config import Execution, TrainingConfig, parse_options
from calibudget.training.report import Listener

MERGED_NAME: Final = "influence.jsonl"
#: Candidates between two entries of a journal.
_CHUNK: Final = 128
#: Records whose lengths are checked at a time.
_ENCODED: Final = 1024
#: A candidate as `selection.train_row` makes it.
Row = Mapping[str, object]
#: Similarities of rows, in their order, to each subgroup.
Score = Callable[[Sequence[Row]], Sequence[Sequence[float]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shards:
    """A pool's shards in a directory."""

    directory: Path
    pool: ProxyPool
    header: ProxyHeader

    @property
    def contract(self) -> ProxyContract:
        """What each file must agree with."""
        return ProxyContract(subgroups=self.header.subgroups, shards=self.header.shards)

    def journal_folder(self, shard: int) -> Path:
        """What is done of an unfinished shard; gone when its file is whole, unless a kill came between."""
        return self.directory / f".shard-{shard}"

    def file(self, shard: int) -> Path:
        """Where one shard's scores go."""
        return self.directory / f"influence-{shard}-of-{self.header.shards}.jsonl"

    def entries(self, shard: int) -> Iterable[tuple[int, tuple[str, str]]]:
        """Position, source and id of each of a shard's candidates, in the order of positions."""
        return islice(enumerate(self.pool.entries()), shard, None, self.header.shards)

    def is_whole(self, shard: int) -> bool:
        """Whether a shard's file is there.

        Raises:
            ArtefactError: it is there and of other work.
        """
        path = self.file(shard)
        if not path.exists():
            return False
        found = read_proxy_file(path)
        check_shard(found, contract=self.contract, name=path.name)
        if found.header != replace(self.header, shard=shard, provenance=_as_read(self.header.provenance)):
            raise ArtefactError(f"{path}: was made of another pool, model or configuration; name another directory")
        return True

    def score(self, shard: int, rows: Iterable[Row], score: Score, progress: Progress) -> None:
        """Score a shard, going on where an earlier call was interrupted, and write its file.

        Args:
            shard: which one.
            rows: its candidates in the order of positions.
            score: scores some of them; called with one chunk after another, so that chunks depend on the pool alone.
            progress: told how many are scored.

        Raises:
            ArtefactError: work of another configuration was begun here, another process is at it, or the disk is full.
        """
        work = self.journal_folder(shard)
        total = len(range(shard, self.pool.size, self.header.shards))
        of_this = {"pool_sha256": self.header.pool_sha256, "shard": shard, "shards": self.header.shards}
        with work_directory(work):
            header = {**of_this, "provenance": dict(self.header.provenance)}
            with Journal.open(work / "journal", header) as journal:
                means = [_means(row) for entry in journal.entries for row in cast(list[list[float]], entry["means"])]
                left = islice(rows, len(means), None)
                while chunk := list(islice(left, _CHUNK)):
                    progress(f"influence, shard {shard}", len(means), total)
                    scored = [_means(values) for values in score(chunk)]
                    journal.append({"means": [list(values) for values in scored]})
                    means += scored
            progress(f"influence, shard {shard}", total, total)
            self._write(shard, means)

    def merge(self) -> None:
        """Write all shards in rank order, once all are there."""
        files = [self.file(shard) for shard in range(self.header.shards)]
        if all(file.exists() for file in files):
            merge_proxy_files(files, self.directory / MERGED_NAME, contract=self.contract, pool=self.pool)

    def _write(self, shard: int, means: Sequence[tuple[float, ...]]) -> None:
        subgroups = self.header.subgroups
        records = tuple(
            ProxyRecord(
                position=position,
                source=source,
                record_id=record_id,
                subgroups=subgroups,
                subgroup_means=values,
                score=max(values),
            )
            for (position, (source, record_id)), values in zip(self.entries(shard), means, strict=True)
        )
        write_proxy_file(self.file(shard), ProxyScores(header=replace(self.header, shard=shard), records=records))


def _as_read(fields: Mapping[str, object]) -> dict[str, object]:
    """An object as it comes back from a file: whole floats as integers, tuples as arrays."""
    return loads_object(canonical_json(dict(fields)), "provenance")


def _means(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(float(value) + 0.0 for value in values)  # -0.0 becomes 0.0, as in canonical JSON


WARM_UP_NAME: Final = "warm-up"
_INSTALL: Final = "pip install 'calibudget[train]'"


@dataclass(frozen=True, slots=True, kw_only=True)
class InfluenceResult:
    """What was made.

    Attributes:
        shards: the shards' files that were asked for, all whole.
        merged: all shards in rank order, None while some are missing.
        header: what all of them share.
        warm_up_examples: examples that the warm-up trained on.
        warm_up_steps: its optimizer steps.
    """

    shards: tuple[Path, ...]
    merged: Path | None
    header: ProxyHeader
    warm_up_examples: int
    warm_up_steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InfluencePreview:
    """What influence would work on.

    Attributes:
        candidates: of all sources, each of which gets a score.
        calibration: the records whose gradients they are compared with, by source.
        warm_up_examples: examples that the warm-up trains on.
        tokens: of all candidates, as they go through the model.
        longest: of them, in tokens.
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
    fields: dict[str, Any] = WARM_UP | {"seed": recipe.training_seed}
    for text in warm_up:
        name, value = parse_assignment(text, "--warm-up")
        fields[name] = value
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
    _heavy_parts(Execution())
    check_scorer(recipe)
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

    Args:
        recipe: its sources, model, template, seeds and calibration splits are used.
        output_dir: where the warm-up, the shards and the merged scores go.
        config: what the scores depend on.
        execution: how the model is run.
        only: which shards to score, from 0; all by default. In several processes that were started together (torchrun)
            each takes its share of them.
        run_dir: a run whose pool must be the same.
        progress: told how far each shard is.
        listener: told after each step of the warm-up.

    Returns:
        The result, in every process.

    Raises:
        RecipeError: nothing to calibrate on, no model, or an adapter that calibration puts on the model.
        ArtefactError: the directory holds work of another pool, model or configuration.
        TrainingError, ScoringError, DataError: data or model can't be used.
        DependencyError: torch, transformers, peft or accelerate isn't installed.
        InterruptedRunError: the warm-up was stopped; the same call goes on.
    """
    _check_recipe(recipe)
    directory = Path(output_dir)
    shards = _asked_shards(only, config.shards)
    execution = execution or Execution()
    devices, scorer_of = _heavy_parts(execution)
    check_writable(directory / f".started-{os.getpid()}")  # not itself: others may start on other shards just now
    check_scorer(recipe)
    task = _task(recipe, config, run_dir, progress)
    task.lengths(progress)
    load = partial(_load, recipe, str(devices.device), execution)
    scorer = scorer_of(load, recipe.template, config, execution, devices)
    chosen = task.warm_up_rows()
    scorer.warm_up(chosen, directory / WARM_UP_NAME, {"pool_sha256": task.pool.sha256}, listener)
    work = Shards(directory=directory, pool=task.pool, header=task.header(scorer.describe()))
    own = shards[devices.rank :: devices.count]
    mine = [shard for shard in own if not work.is_whole(shard) or work.journal_folder(shard).exists()]
    if mine:
        progress("influence, calibration", 0, None)
        scorer.calibrate({label: task._rows(split.calibration) for label, split in task.prepared.splits.items()})
    for shard in mine:
        work.score(shard, task.rows(work.entries(shard)), scorer, progress)
    devices.wait()
    if devices.is_main:
        work.merge()
    devices.wait()
    merged = directory / MERGED_NAME
    return InfluenceResult(
        shards=tuple(map(work.file, shards)),
        merged=merged if merged.exists() else None,
        header=work.header,
        warm_up_examples=len(chosen),
        warm_up_steps=scorer.warm_up_steps,
    )


def _task(recipe: Recipe, config: InfluenceConfig, run_dir: Path | None, progress: Progress) -> _Task:
    prepared = prepare(recipe, earlier_rounds(recipe), progress=progress)
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
            rows += self._rows(sorted(split.candidates, key=lambda record, key=key: key(record.record_id))[:count])  # type: ignore[misc]
        return rows

    def rows(self, entries: Iterable[tuple[int, tuple[str, str]]]) -> Iterator[dict[str, object]]:
        """The candidates of some positions, one at a time."""
        records = {
            (label, record.record_id): record
            for label, split in self.prepared.splits.items()
            for record in split.candidates
        }
        for _, entry in entries:
            yield from self._rows([records[entry]])

    def lengths(self, progress: Progress) -> list[int]:
        """Tokens of each candidate, by source; so a record that can't be encoded is told before hours of warm-up.

        Raises:
            TrainingError, ScoringError: a candidate or a calibration record is too long, or can't be encoded.
        """
        from calibudget.training.data import encode_examples

        encoder, config = training_encoder(self.recipe), self.config.warm_up
        lengths: list[int] = []
        if encoder is None:
            raise RecipeError(f"model: {self.recipe.model} can't be had here, and influence takes its gradients")
        for split in self.prepared.splits.values():
            progress("checking lengths", len(lengths), self.pool.size)
            for chosen, of_pool in ((split.calibration, False), (split.candidates, True)):
                records = iter(chosen)
                while chunk := list(islice(records, _ENCODED)):
                    with warnings.catch_warnings():  # cut prompts are told when they are used
                        warnings.simplefilter("ignore")
                        encoded = encode_examples(
                            self._rows(chunk), encoder, max_length=config.max_length, too_long=config.too_long
                        )
                    lengths += [len(one.ids) for one in encoded] if of_pool else []
        progress("checking lengths", self.pool.size, self.pool.size)
        return lengths

    def _rows(self, records: Sequence[Record]) -> list[dict[str, object]]:
        return [train_row(one, "source", layout="turns") for one in records]


def _check_recipe(recipe: Recipe) -> None:
    if recipe.calibration == "none":
        raise RecipeError("calibration: influence is measured on the calibration splits, so `none` can't be")
    if recipe.engine == "fake" or recipe.model is None:
        raise RecipeError("model: influence takes gradients of a model; `engine: fake` has none")
    if recipe.adapter is not None:
        raise RecipeError("calibration.adapter: influence warms up an adapter of its own; say calibration.adapter=null")


def _asked_shards(only: Sequence[int], shards: int) -> list[int]:
    for shard in only:
        if not 0 <= shard < shards:
            raise RecipeError(f"--shard {shard}: there are shards 0 to {shards - 1}")
    return sorted(set(only)) or list(range(shards))


def _heavy_parts(execution: Execution) -> tuple[Any, Any]:
    """The processes that work together, and the scorer's class; or the line that installs what they need."""
    try:
        from calibudget.influence.scorer import InfluenceScorer
        from calibudget.training.devices import Devices
    except ImportError as error:
        raise DependencyError(f"influence needs {error.name}; install: {_INSTALL}") from error
    return Devices(execution.device), InfluenceScorer


def _load(recipe: Recipe, device: str, execution: Execution) -> Any:
    from calibudget.lm.loading import load_model

    return load_model(recipe.model or "", device=cast(Device, device.partition(":")[0]), dtype=execution.dtype)
