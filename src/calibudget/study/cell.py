"""What one cell is made with: its recipe, its training options and its evaluations, put together from the protocol.

Cells made by the pipeline itself: select, train and evaluate, as the commands do, in one process.
"""

from __future__ import annotations

import gc
import json
import math
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from filelock import FileLock

from calibudget.errors import StudyError
from calibudget.evaluation.benchmarks import HELD_OUT
from calibudget.evaluation.results import OPEN, PREDICTIONS_NAME, Evaluation, answer_nll, read_predictions
from calibudget.lm.model_files import portable_model
from calibudget.pipeline.evaluate import EvaluationRequest, evaluate, versions_of
from calibudget.pipeline.evaluated_models import ADAPTER_NAME, Generation
from calibudget.pipeline.progress import Progress
from calibudget.pipeline.run import run
from calibudget.pipeline.score import WORK_SUFFIX, score
from calibudget.pipeline.shared_resources import Shared
from calibudget.pipeline.train import options_from, train
from calibudget.recipe.load import read_document, recipe_from_fields, replaced, resolved_fields
from calibudget.recipe.schema import Recipe
from calibudget.recipe.yaml import Document
from calibudget.store.canonical import canonical_json, loads_object, sha256_hex
from calibudget.store.files import clean_stale, expanded, make_directory
from calibudget.store.scores import SCORES_NAME
from calibudget.study.cell_records import ITEMS_NAME, RUN_NAME, Cell, CellOutcome, ItemScore, TaskMetrics, write_items
from calibudget.study.grid import cells_of
from calibudget.study.protocol import EvaluationFields, Protocol
from calibudget.training.job import CHECKPOINTS_NAME
from calibudget.training.report import LOG_NAME

#: Fields of a recipe that a cell's place in the grid decides; a protocol sets them nowhere else.
_DECIDED = ("model", "budget", "seed", "split_seed", "bootstrap_seed", "selection_seed", "training_seed")
#: Metrics of whole answers.
OF_ANSWERS: Final = frozenset({"answer_nll", "answer_probability"})
#: Fields of a recipe that calibration scores go by, beside the data.
_SCORED_BY = ("model", "template", "engine", "sources", "duplicates", "on_error", "calibration", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSettings:
    """Everything that decides a cell's outcome but the data, the code and the machine.

    Attributes:
        recipe: of selection, on the model that calibrates.
        model: name of the model that is trained and evaluated.
        train: whether it is; else quotas are all that the cell has.
    """

    recipe: Recipe
    model: str
    train: bool
    options: Mapping[str, Any]
    evaluation: tuple[EvaluationFields, ...]

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values, every default written out."""
        options = options_from(self.recipe, self.options)
        return {
            "recipe": resolved_fields(self.recipe),
            "model": portable_model(self.model),
            "training": {**asdict(options.config), **asdict(options.execution)} if self.train else None,
            "evaluation": [one.model_dump(mode="json") for one in self.evaluation] if self.train else None,
        }


def settings_of(protocol: Protocol, cell: Cell, document: Document) -> CellSettings:
    """Put a cell's settings together: the protocol's, then the backbone's, the point's and the policy's own.

    Raises:
        RecipeError: what comes out is no recipe.
        StudyError: a part of the protocol sets what the grid decides.
        TrainingError: a training option that is none.
    """
    point, policy = protocol.points[cell.point], protocol.policies[cell.policy]
    trained, calibrated = protocol.backbones[cell.backbone], protocol.backbones[cell.calibrated_on]
    own = calibrated.recipe | point.recipe | policy.recipe
    taken = [name for name in _DECIDED if name in own]
    if taken:
        raise StudyError(f"cell {cell.name}: `recipe.{taken[0]}` is decided by the grid and can't be set")
    decided = {
        "policy": cell.policy,
        "model": calibrated.model,
        "budget": {"tokens": cell.budget} if cell.unit == "tokens" else cell.budget,
        "floor": cell.floor,
        "seed": cell.seed,
        "split_seed": cell.split_seed,
        "bootstrap_seed": cell.split_seed,
        "selection_seed": cell.selection_seed,
        "training_seed": cell.seed,
    }
    fields = replaced(document.value, decided | own)
    recipe = recipe_from_fields(fields, document, base_dir=(protocol.base_dir / protocol.recipe).parent)
    asks_own = any(HELD_OUT in asked.tasks for asked in protocol.evaluation)
    if point.train and asks_own and not recipe.evaluation_size:
        raise StudyError(
            f"cell {cell.name}: `evaluation` asks {HELD_OUT!r}, and the recipe holds no records out; say `evaluation: "
            "{per_source: 200}` in it"
        )
    options = protocol.training | trained.training | point.training | policy.training
    if "seed" in options:
        raise StudyError(f"cell {cell.name}: `training.seed` is decided by the grid and can't be set")
    return CellSettings(
        recipe=recipe,
        model=trained.model,
        train=point.train,
        options=options,
        evaluation=protocol.evaluation,
    )


def settings_of_all(protocol: Protocol) -> dict[Cell, CellSettings]:
    """`settings_of` of every cell, in the order in which cells are run."""
    document = base_recipe(protocol)
    return {cell: settings_of(protocol, cell, document) for cell in cells_of(protocol)}


def base_recipe(protocol: Protocol) -> Document:
    """The document of the recipe that all cells start from."""
    return read_document(protocol.base_dir / protocol.recipe)


def settings_sha256(settings: CellSettings) -> str:
    """Digest of what protocol and recipe say of a cell.

    Cells of one digest are one piece of work, whatever point or policy they are named by.
    """
    return sha256_hex(canonical_json(settings.to_json()))


def scored_by(recipe: Recipe, cell: Cell) -> list[Any]:
    """What calibration scores go by, beside data and code; cells of which it is the same share them."""
    fields = resolved_fields(recipe)
    return [{name: fields[name] for name in _SCORED_BY}, cell.split_seed]


def asking_of(protocol: Protocol, asked: EvaluationFields) -> EvaluationRequest:
    """An evaluation as the pipeline takes it; relative folders start at the protocol."""
    directory = None if asked.data_dir is None else protocol.base_dir / expanded(asked.data_dir)
    return EvaluationRequest(**asked.model_dump(exclude={"data_dir", "batch_tokens"}), data_dir=directory)


TRAINING_NAME: Final = "training"
#: Folder of the study where calibration scores lie, which policies share.
CALIBRATION_NAME: Final = "calibration"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRunner:
    """Makes the cells of a protocol.

    Sources, base models and benchmarks are read and loaded once for cells that follow one another; the calibration
    split of a seed and a model is scored once for all policies.
    """

    protocol: Protocol
    settings: Mapping[Cell, CellSettings]
    directory: Path
    digests: Mapping[str, str]
    shared: Shared = field(default_factory=Shared)

    def run(self, cell: Cell, directory: Path, progress: Progress) -> CellOutcome:
        """See `CellRunner`; what an interrupted attempt finished isn't done again."""
        settings = self.settings[cell]
        seconds: dict[str, float] = {}
        torch = sys.modules.get("torch")  # counts the most GPU memory held from here on
        if torch is not None and torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        with _timed(seconds, "calibrate"):
            scores = self._scores(settings.recipe, cell, progress)
        with _timed(seconds, "select"):
            selected = run(
                settings.recipe, directory / RUN_NAME, resume=True, scores=scores, shared=self.shared, progress=progress
            )
        environment = versions_of(("calibudget", "torch", "transformers", "peft"))
        if not settings.train:
            return CellOutcome(quotas=selected.plan.quotas, tasks={}, seconds=seconds, environment=environment)
        with _timed(seconds, "train"), _released():
            self._train(cell, directory, progress)
        with _timed(seconds, "evaluate"), _released():
            evaluations = list(self._evaluate(settings, directory, progress))
        measured = _measured(directory, len(evaluations), self.protocol)
        write_items(directory / ITEMS_NAME, measured)
        lines = (directory / TRAINING_NAME / LOG_NAME).read_bytes().splitlines()
        steps: list[dict[str, Any]] = [loads_object(line, f"{LOG_NAME}:{n}") for n, line in enumerate(lines, 1)]
        counts = {"steps": len(steps), "train_tokens": sum(step["tokens"] for step in steps)} | _memory()
        if not self.protocol.keep_adapters:
            shutil.rmtree(directory / TRAINING_NAME / ADAPTER_NAME)
        return CellOutcome(
            quotas=selected.plan.quotas,
            tasks=_tasks(cell, evaluations, measured),
            seconds=seconds,
            counts=counts,
            environment=environment | _model(evaluations),
        )

    def _scores(self, recipe: Recipe, cell: Cell, progress: Progress) -> Path | None:
        """The calibration scores of the cell's split and model, made by whichever cell needs them first."""
        if recipe.calibration == "none":
            return None
        parts = [*scored_by(recipe, cell), dict(self.digests)]
        folder = f"{cell.calibrated_on}-{cell.split_seed}-{sha256_hex(canonical_json(parts))[:16]}"
        path = self.directory / CALIBRATION_NAME / folder / SCORES_NAME
        make_directory(path.parent)
        with FileLock(path.with_name(f"{path.name}.lock")):  # another worker may be at it
            clean_stale(path.parent)
            if not path.exists() or path.with_name(path.name + WORK_SUFFIX).exists():
                score(recipe, output=path, shared=self.shared, progress=progress)
        return path

    def _train(self, cell: Cell, directory: Path, progress: Progress) -> None:
        settings, output = self.settings[cell], directory / TRAINING_NAME
        if (output / ADAPTER_NAME).is_dir() and not (output / CHECKPOINTS_NAME).exists():
            return
        result = train(
            directory / RUN_NAME,
            [f"{name}={json.dumps(value)}" for name, value in settings.options.items()],
            output_dir=output,
            model=settings.model,
            allow_other_model=cell.kind == "transferred",  # such a cell trains another model: that is its point
            resume=True,
            shared=self.shared,
            progress=progress,
            listener=lambda report: progress("training", report.step, report.total),
        )
        result.heed_stop()

    def _evaluate(self, settings: CellSettings, directory: Path, progress: Progress) -> Iterator[Evaluation]:
        run_dir = directory / RUN_NAME
        calibration = settings.recipe.calibration
        engine = Generation(template=settings.recipe.template)
        if calibration != "none":
            engine = replace(engine, device=calibration.device, dtype=calibration.dtype)
        for number, asked in enumerate(settings.evaluation):
            train_set = next(path for path in sorted(run_dir.glob("train.*")))
            found = evaluate(
                settings.model,
                replace(asking_of(self.protocol, asked), train=train_set),
                adapters=[directory / TRAINING_NAME / ADAPTER_NAME],
                output_dir=_evaluation_dir(directory, number),
                engine=replace(engine, batch_tokens=asked.batch_tokens),
                resume=True,
                shared=self.shared,
                progress=progress,
            )
            yield found[""]


def _evaluation_dir(directory: Path, number: int) -> Path:
    return directory / f"evaluation-{number}"


def _tasks(cell: Cell, evaluations: list[Evaluation], measured: Sequence[ItemScore]) -> dict[str, TaskMetrics]:
    of_answers: dict[str, dict[str, list[float]]] = {}
    for item in measured:
        if item.metric in OF_ANSWERS and item.value is not None:
            of_answers.setdefault(item.task, {}).setdefault(item.metric, []).append(item.value)
    tasks: dict[str, TaskMetrics] = {}
    for evaluation in evaluations:
        for name, one in evaluation.tasks.items():
            if name in tasks:
                raise StudyError(f"cell {cell.name}: the task {name!r} is asked by two evaluations")
            metrics = {"accuracy": one.score, "nll": one.mean_nll}
            metrics |= {metric: fmean(values) for metric, values in of_answers.get(name, {}).items()}
            tasks[name] = TaskMetrics(
                items=one.items,
                metrics=metrics,
                shared=len(one.shared_with_training),
                calibration=len(one.shared_with_calibration or ()),
            )
    return tasks


def _measured(directory: Path, evaluations: int, protocol: Protocol) -> list[ItemScore]:
    """Every item by every metric: what is measured of whole answers only where an endpoint is of it."""
    asked = OF_ANSWERS & {endpoint.measure for endpoint in protocol.endpoints.values()}
    found = []
    for number in range(evaluations):
        for one in read_predictions(_evaluation_dir(directory, number) / PREDICTIONS_NAME):
            nats = answer_nll(one)
            values = {
                "accuracy": None if one.verdict in OPEN else float(one.verdict == "right"),
                "nll": one.nll,
                "answer_nll": nats,
                "answer_probability": None if nats is None else math.exp(-nats),
            }
            found += [
                ItemScore(task=one.task, item=one.item_id, metric=metric, value=value)
                for metric, value in values.items()
                if metric not in OF_ANSWERS or metric in asked
            ]
    return found


def _memory() -> dict[str, int]:
    """The most GPU memory that the cell held at once; nothing without a GPU."""
    import torch

    return {"peak_memory_bytes": torch.cuda.max_memory_allocated()} if torch.cuda.is_available() else {}


def _model(evaluations: list[Evaluation]) -> dict[str, str]:
    """Which model it was, and what it ran on."""
    import torch

    identity = evaluations[0].model
    names = ("name", "sha256", "revision", "dtype", "device")
    found = {f"model_{name}": str(identity[name]) for name in names if identity.get(name) is not None}
    return found | ({"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {})


@contextmanager
def _timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    seconds[stage] = time.perf_counter() - started


@contextmanager
def _released() -> Iterator[None]:
    """Give back what a stage held of the GPU: models with factors hold each other, so collecting has to be asked."""
    try:
        yield
    finally:
        import torch

        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
