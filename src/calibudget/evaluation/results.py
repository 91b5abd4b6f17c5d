"""`evaluation.json`: per-task scores and their panels, with everything that they were measured with."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from calibudget.allocation.exact.numbers import mean_of
from calibudget.errors import ArtefactError, InputError
from calibudget.evaluation.aggregates import PANELS, Panels, PanelScore, TaskScore, aggregate, task_weights
from calibudget.evaluation.benchmarks import TASKS, Benchmark
from calibudget.evaluation.likelihood import SUFFIX
from calibudget.evaluation.predictions import OPEN, Prediction, answer_nll
from calibudget.records import SourceFile
from calibudget.store.canonical import read_object
from calibudget.store.codec import Artefact, plain
from calibudget.values import ByLabel, ByName, Count, Digest, Number

EVALUATION_NAME: Final = "evaluation.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """One task's outcome.

    Attributes:
        score: items and right ones; None while verdicts are deferred.
        verdicts: how many items got each verdict, by verdict in code-point order.
        mean_nll: mean over items of the reference's NLL, nats a token; None where there is no reference.
        shared: ids of items whose prompt the training set holds.
        calibration: ids of items that are calibration records of the run; None where no run is evaluated.
        answer_nll: mean over items of the reference's NLL, nats an answer; None but for tasks of the user's own.
        answer_probability: S, the mean probability of the whole reference answer, 0 to 1; None likewise.
        evidence: what the score depends on: files, ids, checker, scorer, subset.
    """

    score: TaskScore | None
    verdicts: Mapping[str, int]
    mean_nll: float | None
    shared: tuple[str, ...]
    evidence: Mapping[str, object]
    calibration: tuple[str, ...] | None = None
    answer_nll: float | None = None
    answer_probability: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Its part of `evaluation.json`."""
        calibration = {} if self.calibration is None else {"shared_with_calibration": list(self.calibration)}
        means = {"mean_answer_nll": self.answer_nll, "mean_answer_probability": self.answer_probability}
        answers = {name: value for name, value in means.items() if value is not None}
        return {
            "items": sum(self.verdicts.values()),
            "right": self.score.right if self.score else None,
            "score": self.score.score if self.score else None,
            "standard_error": self.score.standard_error if self.score else None,
            "verdicts": dict(self.verdicts),
            "mean_nll": self.mean_nll,
            **answers,
            "shared_with_training": list(self.shared),
            **calibration,
            **self.evidence,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """A model's (or adapter's) outcome on all tasks asked.

    Attributes:
        model: the model's identity, adapter included.
        tasks: by name.
        panels: what each declared panel is the mean of.
        training_set: file and number of prompts that overlap was looked for in, or None.
        versions: of the libraries that took part.
        calibration_set: file of the run's splits and sources whose records couldn't be told, or None.
    """

    model: Mapping[str, object]
    tasks: Mapping[str, TaskResult]
    panels: Panels
    training_set: Mapping[str, object] | None
    versions: Mapping[str, str]
    calibration_set: Mapping[str, object] | None = None

    @property
    def panel_scores(self) -> dict[str, PanelScore | None]:
        """Every declared panel; None where one of its tasks has no score."""
        return aggregate({name: one.score for name, one in self.tasks.items() if one.score is not None}, self.panels)

    def to_json(self) -> dict[str, Any]:
        """The object of `evaluation.json`."""
        scores = self.panel_scores
        panels = {
            name: {
                "of": list(parts),
                "score": one.score if (one := scores[name]) else None,
                "standard_error": one.standard_error if one else None,
            }
            for name, parts in self.panels.items()
        }
        calibration = {} if self.calibration_set is None else {"calibration_set": dict(self.calibration_set)}
        return {
            "schema": EVALUATION.schema,
            **calibration,
            "model": dict(self.model),
            "tasks": {name: self.tasks[name].to_json() for name in sorted(self.tasks)},
            "panels": panels,
            "training_set": None if self.training_set is None else dict(self.training_set),
            "versions": dict(self.versions),
        }


def task_evidence(
    benchmark: Benchmark,
    *,
    checked_by: Mapping[str, object],
    scored_by: Mapping[str, object] | None,
) -> dict[str, object]:
    """What a task's score depends on, known before anything is generated.

    Args:
        benchmark: the items.
        checked_by: what judges, as `Judge.describe` says.
        scored_by: what writes the texts, as the scorer describes itself, model left out; None if not known.
    """
    return {
        "subset": benchmark.subset,
        "items_sha256": benchmark.items_sha256,
        "left_out": benchmark.left_out,
        "files": [{"name": file.name, "bytes": file.bytes, "sha256": file.sha256} for file in benchmark.files],
        "checker": dict(checked_by),
        "scorer": None if scored_by is None else {k: v for k, v in scored_by.items() if k != "model"},
    }


def task_result(
    predictions: Sequence[Prediction],
    *,
    evidence: Mapping[str, object],
    shared: Iterable[str] = (),
    calibration: Iterable[str] | None = None,
) -> TaskResult:
    """Sum up one task.

    Args:
        predictions: one an item.
        evidence: what `task_evidence` says.
        shared: ids of items whose prompt the training set holds.
        calibration: ids of items that are calibration records; None where no run is evaluated.

    Raises:
        AllocationError: NLLs that sum to more than the largest double.
    """
    verdicts = Counter(one.verdict for one in predictions)
    right = verdicts["right"]
    nlls = [one.nll for one in predictions if one.nll is not None]
    checker = evidence["checker"]
    is_own = isinstance(checker, Mapping) and "answer" in checker
    answers = [total for one in predictions if (total := answer_nll(one)) is not None] if is_own else []
    return TaskResult(
        score=None if OPEN & verdicts.keys() else TaskScore(items=len(predictions), right=right),
        verdicts={verdict: verdicts[verdict] for verdict in sorted(verdicts)},
        mean_nll=mean_of(nlls, "the NLLs of the items") if nlls else None,
        shared=tuple(shared),
        calibration=None if calibration is None else tuple(calibration),
        answer_nll=mean_of(answers, "the NLLs of the answers") if answers else None,
        answer_probability=mean_of([math.exp(-total) for total in answers], "probabilities") if answers else None,
        evidence=evidence,
    )


def declared_panels(
    own: Mapping[str, Sequence[str]] | None, own_tasks: Collection[str] = ()
) -> dict[str, tuple[str, ...]]:
    """The paper's panels and the user's own, which may be of the user's own tasks.

    Raises:
        InputError: one of the paper's panels with other parts; a part that is neither task nor panel, a panel without
            parts, or one that is a part of itself.
    """
    panels = {**PANELS, **{name: tuple(parts) for name, parts in (own or {}).items()}}
    known = {*TASKS, *own_tasks}
    for name in panels:
        if name in PANELS and panels[name] != PANELS[name]:
            raise InputError(
                f"the panel {name!r} is the paper's, the mean of {', '.join(PANELS[name])}; name yours apart"
            )
        unknown = sorted(task for task in task_weights(name, panels) if task.removesuffix(SUFFIX) not in known)
        if unknown:
            raise InputError(f"the panel {name!r} names {unknown[0]!r}, which is neither a task nor a panel")
    return panels


@dataclass(frozen=True, slots=True, kw_only=True)
class _PanelRow:
    of: tuple[str, ...]
    score: Number | None
    standard_error: Number | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _TaskRow:
    items: Count
    right: Count | None
    score: Number | None
    standard_error: Number | None
    verdicts: ByName[Count]
    mean_nll: Number | None
    shared_with_training: tuple[str, ...]
    shared_with_calibration: tuple[str, ...] | None = None
    mean_answer_nll: Number | None = None
    mean_answer_probability: Number | None = None
    subset: str | None
    items_sha256: Digest
    left_out: Count
    files: tuple[SourceFile, ...]
    checker: Mapping[str, object]
    scorer: Mapping[str, object] | None


#: The fields of a task that `task_evidence` makes.
_EVIDENCE: Final = ("subset", "items_sha256", "left_out", "files", "checker", "scorer")


@dataclass(frozen=True, slots=True, kw_only=True)
class _EvaluationFile:
    """`evaluation.json` field by field."""

    model: Mapping[str, object]
    tasks: ByLabel[_TaskRow]
    panels: ByLabel[_PanelRow]
    training_set: Mapping[str, object] | None
    versions: ByName[str]
    calibration_set: Mapping[str, object] | None = None


EVALUATION: Final = Artefact("calibudget.evaluation/1", _EvaluationFile)


def read_evaluation(path: Path) -> Evaluation:
    """Read `evaluation.json`.

    Raises:
        ArtefactError: the file is missing, of another schema, or a field isn't what it should be; it is named.
    """
    document = read_object(path)
    file = EVALUATION.parse(document, path.name)
    try:
        evaluation = Evaluation(
            model=file.model,
            tasks={name: _result_of(row) for name, row in file.tasks.items()},
            panels={name: row.of for name, row in file.panels.items()},
            training_set=file.training_set,
            versions=file.versions,
            calibration_set=file.calibration_set,
        )
        is_same = evaluation.to_json() == document
    except InputError as error:
        raise ArtefactError(f"{path.name}: {error}") from error
    if not is_same:
        raise ArtefactError(f"{path.name}: its scores or panels aren't those of its items and right answers")
    return evaluation


def _result_of(row: _TaskRow) -> TaskResult:
    return TaskResult(
        score=None if row.right is None else TaskScore(items=row.items, right=row.right),
        verdicts=row.verdicts,
        mean_nll=row.mean_nll,
        shared=row.shared_with_training,
        calibration=row.shared_with_calibration,
        answer_nll=row.mean_answer_nll,
        answer_probability=row.mean_answer_probability,
        evidence={name: plain(getattr(row, name)) for name in _EVIDENCE},
    )
