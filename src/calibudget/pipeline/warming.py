"""One recipe's warm-ups, each drawn, trained and scored, or taken from the journal of those that were."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Final, cast

from calibudget.pipeline.exposures import warm_up_recipe
from calibudget.pipeline.prepare import Prepared
from calibudget.pipeline.progress import Progress
from calibudget.pipeline.resources import Shared
from calibudget.pipeline.run_directory import is_finished
from calibudget.pipeline.score import adapted_scorer
from calibudget.pipeline.select import select_prepared
from calibudget.pipeline.train import train
from calibudget.pipeline.training_options import warm_up_options, warm_up_training
from calibudget.recipe import Recipe
from calibudget.records import AllocationPlan
from calibudget.scoring import CalibrationItem, measure_all
from calibudget.store import (
    MANIFEST_NAME,
    Journal,
    WarmUpNll,
    WarmUpRun,
    file_digest,
    read_manifest,
    read_object,
)
from calibudget.tasks import AnswerSpec
from calibudget.training import ADAPTER_NAME, Listener
from calibudget.training.job import SEEN_NAME

_WEIGHTS: Final = "adapter_model.safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A warm-up that is trained.

    Attributes:
        adapter: directory of its adapter.
        exposures: units of each source that it trained on.
        examples: source examples that it trained on.
        selected_sha256: digest of their ids; of a checkpoint, of its whole training's.
        steps: optimizer steps.
        seconds: of training.
        max_length: most tokens of an example; None in the journal of a version that didn't say, which took the option.
    """

    adapter: Path
    exposures: Mapping[str, int]
    examples: int
    selected_sha256: str
    steps: int
    seconds: float
    max_length: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """A warm-up with what it left."""

    run: WarmUpRun
    nlls: Sequence[WarmUpNll]
    model: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Task:
    """The warm-ups of one recipe.

    Attributes:
        recipe: whose warm-ups they are.
        prepared: its sources.
        plans: one for each warm-up, in their order.
        shares: what part of the largest exposure each is, for checkpoints.
        shared: the model.
        work: folder of the warm-ups' run directories.
        journal: of what is finished.
        progress: told how far scoring is.
    """

    recipe: Recipe
    prepared: Prepared
    plans: Sequence[AllocationPlan]
    shares: Sequence[Fraction]
    shared: Shared
    work: Path
    journal: Journal
    progress: Progress

    def from_runs(self, listener: Listener | None) -> list[Trained]:
        """A training for each plan."""
        return [self.trained(number, None, listener) for number in range(1, len(self.plans) + 1)]

    def from_checkpoints(self, listener: Listener | None) -> list[Trained]:
        """One training on the largest exposure, and its adapters on the way there."""
        output = self.work / "training"
        whole = self.trained(len(self.plans), output, listener)
        parts = []
        for number in range(1, len(self.shares)):
            adapter = output / f"{ADAPTER_NAME}-{number}"
            seen = read_object(adapter / SEEN_NAME)
            counts = dict(cast(Mapping[str, int], seen["examples"]))
            parts.append(
                Trained(
                    adapter=adapter,
                    exposures=counts,
                    examples=sum(counts.values()),
                    selected_sha256=whole.selected_sha256,
                    steps=cast(int, seen["step"]),
                    seconds=0.0,
                    max_length=whole.max_length,
                )
            )
        return [*parts, whole]

    def trained(self, number: int, output: Path | None, listener: Listener | None) -> Trained:
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
                options=warm_up_options(self.recipe),
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
                "max_length": result.config.max_length,
                "seconds": time.monotonic() - started,
            }
            self.journal.append(known)
            result.heed_stop()
        selection = read_manifest(directory / MANIFEST_NAME).selection
        return Trained(
            adapter=(output or directory) / ADAPTER_NAME,
            exposures=plan.quotas,
            examples=selection.count,
            selected_sha256=selection.selected_sha256,
            steps=cast(int, known["steps"]),
            seconds=float(cast(float, known["seconds"])),
            max_length=cast("int | None", known.get("max_length")),
        )

    def scored(self, number: int, trained: Trained) -> Scored:
        """Score the calibration records with a warm-up's adapter; no answer is decoded."""
        known = self._entry("scoring", number)
        if known is None:
            started = time.monotonic()
            model, nlls = self._nlls(number, trained.adapter)
            seconds = time.monotonic() - started
            known = {"stage": "scoring", "warm_up": number, "seconds": seconds, "model": dict(model), "nlls": nlls}
            self.journal.append(known)
        rows = cast(Sequence[tuple[str, str, float]], known["nlls"])
        return Scored(
            run=WarmUpRun(
                examples=trained.examples,
                steps=trained.steps,
                seconds=round(trained.seconds + float(cast(float, known["seconds"])), 3),
                selected_sha256=trained.selected_sha256,
                adapter_sha256=file_digest(trained.adapter / _WEIGHTS).sha256,
                training=warm_up_training(self.recipe, trained.max_length),
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
