"""Warm-ups: small trainings on nested parts of every source, and the calibration NLLs that they leave.

Each has a run directory of its own under the work directory, so that it is drawn, trained, resumed and verified like
any run. What a warm-up left is journalled when it is scored; a finished one is never done again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Final, cast

from calibudget.errors import ArtefactError, RecipeError
from calibudget.pipeline.exposures import exposure_shares, exposures_of, warm_up_plan, warm_up_recipe
from calibudget.pipeline.pools import pools_of_run
from calibudget.pipeline.preparing import Prepared
from calibudget.pipeline.progress import Progress, silent
from calibudget.pipeline.rundir import is_finished
from calibudget.pipeline.scoring import adapted_scorer
from calibudget.pipeline.selecting import select_prepared
from calibudget.pipeline.shared import Shared, read_sources
from calibudget.pipeline.tokens import with_tokens
from calibudget.pipeline.train import TrainingOptions, options_from, train
from calibudget.recipe import Recipe, resolved_yaml
from calibudget.records import AllocationPlan
from calibudget.scoring import CalibrationItem, measure_all
from calibudget.store import (
    MANIFEST_NAME,
    Journal,
    WarmUpFile,
    WarmUpNll,
    WarmUpRun,
    directory_lock,
    file_digest,
    read_manifest,
    read_object,
    sha256_hex,
    write_warm_ups,
)
from calibudget.tasks import AnswerSpec
from calibudget.training import ADAPTER_NAME, Listener
from calibudget.training.job import SEEN_NAME

_SCHEMA: Final = "calibudget.warm-up-journal/1"
_JOURNAL: Final = "journal"
_WEIGHTS: Final = "adapter_model.safetensors"


def warm_up(
    recipe: Recipe,
    output: str | Path,
    *,
    shared: Shared | None = None,
    progress: Progress = silent,
    listener: Listener | None = None,
) -> WarmUpFile:
    """Train and score a recipe's warm-ups, and write them to a `warm-ups.parquet` that `run --warm-ups` takes.

    Their run directories, adapters included, lie in a folder beside the output and stay there; what is finished is
    not done again.

    Raises:
        RecipeError: the recipe has no warm-ups, or a scorer that can't be trained.
        ArtefactError: the output exists, or the folder beside it is of another recipe.
        InputError: data, model or options can't be used.
    """
    path = Path(output)
    if path.exists():
        raise ArtefactError(f"{path}: exists already; name another output, or move it away")
    prepared = with_tokens(recipe, read_sources(recipe, shared, progress=progress), progress=progress)
    work = path.with_name(f"{path.stem}.work")
    made = measure_warm_ups(recipe, prepared, work, shared=shared, progress=progress, listener=listener)
    write_warm_ups(path, made)
    return made


def check_trainable(recipe: Recipe) -> None:
    """Refuse a recipe whose warm-ups can't be trained, before anything costly.

    Raises:
        RecipeError: the fake engine, no warm-ups, or nothing to calibrate on.
        TrainingError: training options that can't be used.
    """
    if recipe.warm_up is None or recipe.calibration == "none":
        raise RecipeError("the recipe has no `warm_up`, or no calibration to measure it on")
    if recipe.engine == "fake":
        raise RecipeError("engine: fake can't be trained; give warm-ups that were made elsewhere (--warm-ups)")
    _options(recipe)


def measure_warm_ups(
    recipe: Recipe,
    prepared: Prepared,
    work: Path,
    *,
    shared: Shared | None = None,
    progress: Progress = silent,
    listener: Listener | None = None,
) -> WarmUpFile:
    """Train and score the warm-ups of sources that are read already; see `warm_up`.

    Args:
        recipe: its `warm_up` says what is trained.
        prepared: its sources.
        work: folder of the warm-ups' run directories and of their journal.
        shared: the model that this has in common with runs in this process.
        progress: told how far it is.
        listener: told after each training step.
    """
    check_trainable(recipe)
    pools = pools_of_run(recipe, prepared)
    exposures = exposures_of(recipe, pools)
    shares = exposure_shares(recipe, exposures)
    work.mkdir(parents=True, exist_ok=True)
    header = {"schema": _SCHEMA, "recipe_sha256": sha256_hex(resolved_yaml(recipe))}
    with directory_lock(work), Journal.open(work / _JOURNAL, header) as journal:
        task = _Task(
            recipe=recipe,
            prepared=prepared,
            plans=[warm_up_plan(recipe, pools, exposures, number) for number in range(len(shares))],
            shares=shares,
            shared=shared or Shared(),
            work=work,
            journal=journal,
            progress=progress,
        )
        trained = task.from_checkpoints(listener) if recipe.reads_checkpoints else task.from_runs(listener)
        scored = [task.scored(number, one) for number, one in enumerate(trained, start=1)]
    return WarmUpFile(
        nlls=tuple(sorted(one for each in scored for one in each.nlls)),
        unit=recipe.unit,
        model=scored[-1].model,
        runs=tuple(each.run for each in scored),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trained:
    """A warm-up that is trained.

    Attributes:
        adapter: directory of its adapter.
        exposures: units of each source that it trained on.
        examples: source examples that it trained on.
        selected_sha256: digest of their ids; of a checkpoint, of its whole training's.
        steps: optimizer steps.
        seconds: of training.
    """

    adapter: Path
    exposures: Mapping[str, int]
    examples: int
    selected_sha256: str
    steps: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scored:
    """A warm-up with what it left."""

    run: WarmUpRun
    nlls: Sequence[WarmUpNll]
    model: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Task:
    """The warm-ups of one recipe."""

    recipe: Recipe
    prepared: Prepared
    plans: Sequence[AllocationPlan]
    shares: Sequence[Fraction]
    shared: Shared
    work: Path
    journal: Journal
    progress: Progress

    def from_runs(self, listener: Listener | None) -> list[_Trained]:
        """A training for each exposure."""
        return [self._trained(number, None, listener) for number in range(1, len(self.plans) + 1)]

    def from_checkpoints(self, listener: Listener | None) -> list[_Trained]:
        """One training on the largest exposure, and its adapters on the way there."""
        output = self.work / "training"
        whole = self._trained(len(self.plans), output, listener)
        parts = []
        for number in range(1, len(self.shares)):
            adapter = output / f"{ADAPTER_NAME}-{number}"
            seen = read_object(adapter / SEEN_NAME)
            counts = dict(cast(Mapping[str, int], seen["examples"]))
            parts.append(
                _Trained(
                    adapter=adapter,
                    exposures=counts,
                    examples=sum(counts.values()),
                    selected_sha256=whole.selected_sha256,
                    steps=cast(int, seen["step"]),
                    seconds=0.0,
                )
            )
        return [*parts, whole]

    def _trained(self, number: int, output: Path | None, listener: Listener | None) -> _Trained:
        """Draw and train one warm-up in its run directory, or in another output directory."""
        plan, directory = self.plans[number - 1], self.work / str(number)
        recipe = warm_up_recipe(self.recipe)
        if not is_finished(directory):
            prepared = self.prepared if recipe.companion is not None else replace(self.prepared, companion=None)
            select_prepared(recipe, prepared, plan, directory, resume=True)
        known = self._entry("training", number)
        if known is None:
            started = time.monotonic()
            result = train(
                directory,
                output_dir=output,
                options=_options(self.recipe),
                snapshots=tuple(self.shares[:-1]) if output is not None else (),
                resume=True,
                shared=self.shared,
                progress=self.progress,
                listener=listener,
            )
            known = {
                "stage": "training",
                "warm_up": number,
                "steps": result.steps,
                "seconds": time.monotonic() - started,
            }
            self.journal.append(known)
        selection = read_manifest(directory / MANIFEST_NAME).selection
        return _Trained(
            adapter=(output or directory) / ADAPTER_NAME,
            exposures=plan.quotas,
            examples=selection.count,
            selected_sha256=selection.selected_sha256,
            steps=cast(int, known["steps"]),
            seconds=float(cast(float, known["seconds"])),
        )

    def scored(self, number: int, trained: _Trained) -> _Scored:
        """Score the calibration records with a warm-up's adapter; no answer is decoded."""
        known = self._entry("scoring", number)
        if known is None:
            started = time.monotonic()
            model, nlls = self._nlls(number, trained.adapter)
            seconds = time.monotonic() - started
            known = {"stage": "scoring", "warm_up": number, "seconds": seconds, "model": dict(model), "nlls": nlls}
            self.journal.append(known)
        rows = cast(Sequence[tuple[str, str, float]], known["nlls"])
        return _Scored(
            run=WarmUpRun(
                examples=trained.examples,
                steps=trained.steps,
                seconds=round(trained.seconds + float(cast(float, known["seconds"])), 3),
                selected_sha256=trained.selected_sha256,
                adapter_sha256=file_digest(trained.adapter / _WEIGHTS).sha256,
                training=_plain(asdict(_options(self.recipe).config)),
            ),
            nlls=[
                WarmUpNll(
                    source=source, warm_up=number, exposure=trained.exposures[source], record_id=one, nll=float(nll)
                )
                for source, one, nll in rows
            ],
            model=cast(Mapping[str, object], known["model"]),
        )

    def _nlls(self, number: int, adapter: Path) -> tuple[Mapping[str, object], list[list[object]]]:
        """The bare model's identity, and source, record id and NLL of every calibration record."""
        items = [
            CalibrationItem(record=record, answer=AnswerSpec(kind="none"))
            for split in self.prepared.splits.values()
            for record in split.calibration
        ]
        name = f"scoring warm-up {number}"
        with adapted_scorer(self.recipe, self.shared, adapter) as (model, scorer):
            measured = measure_all(scorer, items, progress=lambda done, total: self.progress(name, done, total))
        return model, [[one.source, one.record_id, one.nll] for one in measured]

    def _entry(self, stage: str, number: int) -> dict[str, object] | None:
        """What the journal holds of a stage of a warm-up."""
        kept = (entry for entry in self.journal.entries if (entry["stage"], entry["warm_up"]) == (stage, number))
        return next(kept, None)


def _options(recipe: Recipe) -> TrainingOptions:
    """How warm-ups are trained; for its checkpoints a training passes once over its examples, at a constant rate."""
    given: dict[str, object] = {} if recipe.warm_up is None else dict(recipe.warm_up.training)
    if recipe.reads_checkpoints:
        given = {"epochs": 1, "schedule": "constant"} | given
        if given["epochs"] != 1:
            raise RecipeError(
                f"warm_up.training: epochs: {given['epochs']!r}; checkpoints tell exposures apart only within one epoch"
            )
    return options_from(recipe, given)


def _plain(fields: Mapping[str, object]) -> dict[str, object]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}
