"""`calibudget influence`: from a recipe's sources to proxy scores of every candidate, shard by shard."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from math import ceil
from pathlib import Path
from typing import Any, Final

from calibudget.errors import ArtefactError, DependencyError, RecipeError
from calibudget.influence import WARM_UP, InfluenceConfig
from calibudget.keys import order_keys
from calibudget.pipeline.preparing import Prepared, prepare
from calibudget.pipeline.progress import Progress, silent
from calibudget.pipeline.proxies import merge_proxy_files, read_proxy_file, read_proxy_pool, write_proxy_file
from calibudget.pipeline.rounds import earlier_rounds
from calibudget.pipeline.rundir import RECIPE_NAME
from calibudget.recipe import Recipe, load_recipe
from calibudget.recipe.strict_yaml import parse_value
from calibudget.records import Record
from calibudget.selection import (
    ProxyContract,
    ProxyHeader,
    ProxyPool,
    ProxyRecord,
    ProxyScores,
    check_shard,
    proxy_pool,
    train_layout,
    train_row,
)
from calibudget.store import Journal, canonical_json, directory_lock, loads_object
from calibudget.training import Execution, Listener, TrainingConfig, parse_options

MERGED_NAME: Final = "influence.jsonl"
WARM_UP_NAME: Final = "warm-up"
#: Candidates between two entries of a journal.
_CHUNK: Final = 128
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


def influence_config(recipe: Recipe, warm_up: Sequence[str] = (), **given: Any) -> InfluenceConfig:
    """The configuration from what the command line says.

    Args:
        recipe: its training seed is the warm-up's.
        warm_up: `key=value` texts, keys being fields of `TrainingConfig`.
        given: fields of `InfluenceConfig`.

    Raises:
        TrainingError: an unknown field, or a value of the wrong type or out of range; the field is named.
        InputError: a value out of range.
    """
    fields: dict[str, Any] = WARM_UP | {"seed": recipe.training_seed}
    for text in warm_up:
        name, _, value = text.partition("=")
        fields[name] = parse_value(value, f"--warm-up {name}")
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
    return load_recipe(target / RECIPE_NAME, [*overrides, f"data_dir={data_dir.absolute()}"])


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
    shards = _asked_shards(only, config.shards)
    execution = execution or Execution()
    devices, scorer_of = _heavy_parts(execution)
    prepared = prepare(recipe, earlier_rounds(recipe), progress=progress)
    task = _Task(recipe=recipe, prepared=prepared, pool=_checked_pool(prepared, run_dir), config=config)
    directory = Path(output_dir)
    load = partial(_load, recipe, str(devices.device), execution)
    scorer = scorer_of(load, recipe.template, config, execution, devices)
    chosen = task.warm_up_rows()
    scorer.warm_up(chosen, directory / WARM_UP_NAME, {"pool_sha256": task.pool.sha256}, listener)
    header = task.header(scorer.describe())
    mine = [shard for shard in shards[devices.rank :: devices.count] if not _is_whole(task, directory, header, shard)]
    if mine:
        scorer.calibrate(task.subgroup_rows())
    for shard in mine:
        _score_shard(task, scorer, directory, header, shard, progress)
    devices.wait()
    if devices.is_main:
        _merge(task, directory)
    devices.wait()
    return InfluenceResult(
        shards=tuple(shard_file(directory, shard, config.shards) for shard in shards),
        merged=directory / MERGED_NAME if (directory / MERGED_NAME).exists() else None,
        header=header,
        warm_up_examples=len(chosen),
        warm_up_steps=scorer.warm_up_steps,
    )


def shard_file(directory: Path, shard: int, shards: int) -> Path:
    """Where one shard's scores go."""
    return directory / f"influence-{shard}-of-{shards}.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """What is to be scored: the sources, the positions of their candidates, and how."""

    recipe: Recipe
    prepared: Prepared
    pool: ProxyPool
    config: InfluenceConfig

    @property
    def contract(self) -> ProxyContract:
        """The subgroups are the sources, in code-point order."""
        return ProxyContract(subgroups=tuple(self.prepared.splits), shards=self.config.shards)

    def header(self, provenance: Mapping[str, object]) -> ProxyHeader:
        """What all shards share."""
        contract = self.contract
        return ProxyHeader(
            pool_size=self.pool.size,
            pool_sha256=self.pool.sha256,
            subgroups=contract.subgroups,
            shards=contract.shards,
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

    def subgroup_rows(self) -> dict[str, list[dict[str, object]]]:
        """Rows of each subgroup's calibration split."""
        return {label: self._rows(split.calibration) for label, split in self.prepared.splits.items()}

    def shard_rows(self, shard: int) -> Iterator[tuple[int, dict[str, object]]]:
        """Position and row of each of a shard's candidates, in the order of positions."""
        records = {
            (label, record.record_id): record
            for label, split in self.prepared.splits.items()
            for record in split.candidates
        }
        for position, entry in islice(enumerate(self.pool.entries()), shard, None, self.config.shards):
            yield position, self._rows([records[entry]])[0]

    def _rows(self, records: Sequence[Record]) -> list[dict[str, object]]:
        chat = self.recipe.template == "chat"
        return [train_row(one, "source", layout=train_layout([one], chat=chat)) for one in records]


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
    from calibudget.lm import load_model

    return load_model(recipe.model or "", device="cpu" if device == "cpu" else "cuda", dtype=execution.dtype)


def _checked_pool(prepared: Prepared, run_dir: Path | None) -> ProxyPool:
    """The pool of the sources; it must be that of the run, where one is named."""
    pool = proxy_pool({label: [one.record_id for one in split.candidates] for label, split in prepared.splits.items()})
    if run_dir is not None and read_proxy_pool(run_dir).sha256 != pool.sha256:
        raise ArtefactError(f"{run_dir}: its candidates aren't those that these sources give; is it the same data?")
    return pool


def _is_whole(task: _Task, directory: Path, header: ProxyHeader, shard: int) -> bool:
    """Whether a shard's file is there; one of other work is refused."""
    path = shard_file(directory, shard, task.config.shards)
    if not path.exists():
        return False
    found = read_proxy_file(path)
    check_shard(found, contract=task.contract, name=path.name)
    if found.header != replace(header, shard=shard, provenance=_as_read(header.provenance)):
        raise ArtefactError(f"{path}: was made of another pool, model or configuration; name another directory")
    return True


def _score_shard(
    task: _Task, scorer: Any, directory: Path, header: ProxyHeader, shard: int, progress: Progress
) -> None:
    """Score a shard's candidates chunk by chunk, each kept in a journal, then write the shard."""
    work = directory / f".shard-{shard}"
    work.mkdir(parents=True, exist_ok=True)
    total = len(range(shard, task.pool.size, task.config.shards))
    with directory_lock(work):
        identity = {"pool_sha256": header.pool_sha256, "shard": shard, "shards": header.shards}
        with Journal.open(work / "journal", {**identity, "provenance": dict(header.provenance)}) as journal:
            means = [_means(row) for entry in journal.entries for row in entry["means"]]  # type: ignore[attr-defined]
            rows = islice(task.shard_rows(shard), len(means), None)
            while chunk := list(islice(rows, _CHUNK)):
                progress(f"influence, shard {shard}", len(means), total)
                scored = scorer([row for _, row in chunk])
                journal.append({"means": [list(values) for values in scored]})
                means += [_means(values) for values in scored]
        progress(f"influence, shard {shard}", total, total)
        _write_shard(task, directory, replace(header, shard=shard), means)
        (work / "journal").unlink()
    for leftover in work.iterdir():
        leftover.unlink()
    work.rmdir()


def _as_read(fields: Mapping[str, object]) -> dict[str, object]:
    """An object as it comes back from a file: whole floats as integers, tuples as arrays."""
    return loads_object(canonical_json(dict(fields)), "provenance")


def _means(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(float(value) + 0.0 for value in values)  # -0.0 becomes 0.0, as in canonical JSON


def _write_shard(task: _Task, directory: Path, header: ProxyHeader, means: Sequence[tuple[float, ...]]) -> None:
    shard = header.shard or 0
    entries = islice(enumerate(task.pool.entries()), shard, None, header.shards)
    records = tuple(
        ProxyRecord(
            position=position,
            source=source,
            record_id=record_id,
            subgroups=header.subgroups,
            subgroup_means=values,
            score=max(values),
        )
        for (position, (source, record_id)), values in zip(entries, means, strict=True)
    )
    write_proxy_file(shard_file(directory, shard, header.shards), ProxyScores(header=header, records=records))


def _merge(task: _Task, directory: Path) -> None:
    """Merge the shards once all are there."""
    files = [shard_file(directory, shard, task.config.shards) for shard in range(task.config.shards)]
    if all(file.exists() for file in files):
        merge_proxy_files(files, directory / MERGED_NAME, contract=task.contract, pool=task.pool)
