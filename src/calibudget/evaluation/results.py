"""What an evaluation found: `predictions.parquet`, item by item, and `evaluation.json`, summed up.

The first holds what the model wrote on each item, what was read from it, and the verdict; the second per-task scores
and their panels, with everything that they were measured with.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, get_args

import pyarrow as pa

from calibudget.allocation.exact.numbers import mean_of
from calibudget.errors import ArtefactError, InputError
from calibudget.evaluation.aggregates import PanelResult, TaskScore, aggregate
from calibudget.evaluation.benchmarks import Benchmark
from calibudget.records import SourceFile
from calibudget.store.json_records import Artefact
from calibudget.store.parquet import columns, read_table, write_table
from calibudget.values import ByLabel, ByName, Count, Digest, Number

PREDICTIONS_NAME: Final = "predictions.parquet"
_SCHEMA: Final = "calibudget.predictions/1"
#: What no float32 logits give, so that sums of NLLs can't overflow.
_MOST_NLL: Final = 1e100

#: How an item was judged. Only "right" is right; "deferred" waits for a machine with a sandbox, and "unchecked" is what
#: has no answer that could be judged.
ItemVerdict = Literal["right", "wrong", "unparsable", "timeout", "deferred", "unchecked"]

_COLUMNS: Final = columns(
    "task string, item_id string, text string, prediction string?, gold string?, verdict string, reason string, "
    "nll double?, response_tokens int64?"
)


#: Verdicts that leave open what a task's score is.
OPEN: Final = frozenset({"deferred", "unchecked"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One item's outcome.

    Attributes:
        text: the model's text as it stands, cut only where nothing after it could change the parsed answer.
        prediction: the parsed answer, None where nothing could be parsed or the task has its own checker.
        gold: the gold answer, None where the task has its own checker.
        reason: why, where the verdict alone doesn't say; else empty.
        nll: mean NLL of the reference response, nats a token; None where the data set has none.
        response_tokens: tokens that the NLL is over, None where there is none.
    """

    task: str
    item_id: str
    text: str
    prediction: str | None
    gold: str | None
    verdict: ItemVerdict
    reason: str = ""
    nll: float | None = None
    response_tokens: int | None = None


def answer_nll(one: Prediction) -> float | None:
    """NLL of the whole reference response, nats; None where there is none, or nobody knows how long it is."""
    return None if one.nll is None or not one.response_tokens else one.nll * one.response_tokens


def write_predictions(path: Path, predictions: Iterable[Prediction]) -> None:
    """Write `predictions.parquet`, atomically, ordered by task and item id; same predictions, same bytes."""
    ordered = sorted(predictions, key=lambda one: (one.task, one.item_id))
    values = {name: [getattr(one, name) for one in ordered] for name in _COLUMNS.names}
    write_table(path, pa.table(values, schema=_COLUMNS), {"schema": _SCHEMA}, dictionary=["task", "verdict"])


def read_predictions(path: Path) -> tuple[Prediction, ...]:
    """Read `predictions.parquet`.

    Raises:
        ArtefactError: the file is missing or damaged, or a row isn't what it should be; it is named.
    """
    table, metadata = read_table(path, _COLUMNS)
    if metadata.get("schema") != _SCHEMA:
        raise ArtefactError(f"{path.name}: schema: expected {_SCHEMA!r}, found {metadata.get('schema')!r}")
    rows: list[dict[str, Any]] = table.to_pylist()
    for number, row in enumerate(rows, start=1):
        if row["verdict"] not in get_args(ItemVerdict):
            raise ArtefactError(f"{path.name}, row {number}: verdict: {row['verdict']!r} is none")
        if row["nll"] is not None and not math.fabs(row["nll"]) <= _MOST_NLL:
            raise ArtefactError(f"{path.name}, row {number}: nll: {row['nll']!r} is no NLL of a token")
    if len({(row["task"], row["item_id"]) for row in rows}) != len(rows):
        raise ArtefactError(f"{path.name}: an item stands there twice")
    return tuple(Prediction(**row) for row in rows)


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
        return replace(self, tasks=tasks, panels=aggregate(scores, {name: one.of for name, one in self.panels.items()}))

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
