"""`evaluation.json`: per-task scores and their panels, with everything that they were measured with."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from calibudget.allocation.exact.numbers import mean_of
from calibudget.errors import InputError
from calibudget.evaluation.aggregates import Panels, TaskScore, aggregate
from calibudget.evaluation.benchmarks import Benchmark
from calibudget.evaluation.predictions import OPEN, Prediction, answer_nll
from calibudget.records import SourceFile
from calibudget.store.json_records import Artefact
from calibudget.values import ByLabel, ByName, Count, Digest, Number

EVALUATION_NAME: Final = "evaluation.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """One task's outcome, field by field as `evaluation.json` has it.

    Attributes:
        items: items asked.
        right: those answered rightly; None while verdicts are deferred, and so are score and standard error.
        score: their share, 0 to 1.
        standard_error: of the share, binomial.
        verdicts: how many items got each verdict, by verdict in code-point order.
        mean_nll: mean over items of the reference's NLL, nats a token; None where there is no reference.
        shared_with_training: ids of items whose prompt the training set holds.
        shared_with_calibration: ids of items that are calibration records of the run; None where no run is evaluated.
        mean_answer_nll: mean over items of the reference's NLL, nats an answer; None but for tasks of the user's own.
        mean_answer_probability: S, the mean probability of the whole reference answer, 0 to 1; None likewise.
        subset: which part of the task was asked, in words; None for all.
        items_sha256: digest of the ids asked.
        left_out: records that the task doesn't ask.
        files: what was read.
        checker: what judged, as `Judge.describe` says.
        scorer: what wrote the texts, model left out; None if not known.
    """

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

    @property
    def evidence(self) -> dict[str, Any]:
        """What the score depends on; see `task_evidence`."""
        return {name: getattr(self, name) for name in _EVIDENCE}


#: The fields of a task that `task_evidence` makes.
_EVIDENCE: Final = ("subset", "items_sha256", "left_out", "files", "checker", "scorer")


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelResult:
    """What a panel is the mean of, with the mean and its standard error; None where one of its tasks has no score."""

    of: tuple[str, ...]
    score: Number | None
    standard_error: Number | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """A model's (or adapter's) outcome on all tasks asked, field by field as `evaluation.json` has it.

    Attributes:
        model: the model's identity, adapter included.
        tasks: by name.
        panels: every declared panel.
        training_set: file and number of prompts that overlap was looked for in, or None.
        versions: of the libraries that took part.
        calibration_set: file of the run's splits and sources whose records couldn't be told, or None.
    """

    model: Mapping[str, object]
    tasks: ByLabel[TaskResult]
    panels: ByLabel[PanelResult]
    training_set: Mapping[str, object] | None
    versions: ByName[str]
    calibration_set: Mapping[str, object] | None = None

    def with_tasks(self, tasks: Mapping[str, TaskResult]) -> Evaluation:
        """The same of other tasks, and the panels over these."""
        scores = {n: TaskScore(items=one.items, right=one.right) for n, one in tasks.items() if one.right is not None}
        found = aggregate(scores, {name: one.of for name, one in self.panels.items()})
        panels = {
            name: replace(one, score=None, standard_error=None)
            if (mean := found[name]) is None
            else replace(one, score=mean.score, standard_error=mean.standard_error)
            for name, one in self.panels.items()
        }
        return replace(self, tasks=tasks, panels=panels)

    def to_json(self) -> dict[str, Any]:
        """The object of `evaluation.json`."""
        return EVALUATION.to_json(self)


def _fault(evaluation: Evaluation) -> str | None:
    """Whether scores and panels are those of the items and right answers."""
    try:
        again = evaluation.with_tasks(
            {name: replace(one, **_score(one.verdicts, one.right)) for name, one in evaluation.tasks.items()}
        )
    except InputError as error:
        return str(error)
    return None if again == evaluation else "its scores or panels aren't those of its items and right answers"


def _score(verdicts: Mapping[str, int], right: int | None) -> dict[str, Any]:
    items = sum(verdicts.values())
    score = None if right is None else TaskScore(items=items, right=right)
    return {
        "items": items,
        "right": right,
        "score": score and score.score,
        "standard_error": score and score.standard_error,
    }


EVALUATION: Final = Artefact("calibudget.evaluation/1", Evaluation, check=_fault)


def unscored(panels: Panels) -> dict[str, PanelResult]:
    """Panels before any task has a score."""
    return {name: PanelResult(of=parts, score=None, standard_error=None) for name, parts in panels.items()}


def task_evidence(
    benchmark: Benchmark,
    *,
    checked_by: Mapping[str, object],
    scored_by: Mapping[str, object] | None,
) -> dict[str, object]:
    """What a task's score depends on, known before anything is generated.

    What judges (`Judge.describe`) and what writes the texts, as the scorer describes itself; None if not known.
    """
    return {
        "subset": benchmark.subset,
        "items_sha256": benchmark.items_sha256,
        "left_out": benchmark.left_out,
        "files": benchmark.files,
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
    """Sum up one task under what `task_evidence` says.

    `shared` are ids of items whose prompt the training set holds, `calibration` those of items that are calibration
    records; None where no run is evaluated.

    Raises:
        AllocationError: NLLs that sum to more than the largest double.
    """
    verdicts: Counter[str] = Counter(one.verdict for one in predictions)
    nlls = [one.nll for one in predictions if one.nll is not None]
    checker = evidence["checker"]
    is_own = isinstance(checker, Mapping) and "answer" in checker
    answers = [total for one in predictions if (total := answer_nll(one)) is not None] if is_own else []
    fields: Any = evidence
    return TaskResult(
        **_score(verdicts, None if OPEN & verdicts.keys() else verdicts["right"]),
        verdicts=dict(sorted(verdicts.items())),
        mean_nll=mean_of(nlls, "the NLLs of the items") if nlls else None,
        shared_with_training=tuple(shared),
        shared_with_calibration=None if calibration is None else tuple(calibration),
        mean_answer_nll=mean_of(answers, "the NLLs of the answers") if answers else None,
        mean_answer_probability=mean_of([math.exp(-one) for one in answers], "probabilities") if answers else None,
        **fields,
    )
