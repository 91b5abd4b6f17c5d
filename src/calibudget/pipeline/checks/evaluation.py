"""Does an evaluation in the run directory say what its predictions say, and do these follow from their texts?"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import groupby

from calibudget.errors import ArtefactError
from calibudget.evaluation.aggregates import PANELS
from calibudget.evaluation.benchmarks import HELD_OUT, TASKS, bare_id
from calibudget.evaluation.generation import SUFFIX, chosen_again
from calibudget.evaluation.judge import judged_again
from calibudget.evaluation.results import (
    EVALUATION,
    PREDICTIONS_NAME,
    Evaluation,
    Prediction,
    read_predictions,
    task_result,
)
from calibudget.pipeline.checks.findings import Findings
from calibudget.pipeline.run_directory import calibration_set
from calibudget.pipeline.user_tasks import held_out_benchmarks
from calibudget.store.artefacts import ids_sha256
from calibudget.store.checksums import file_digest
from calibudget.store.scores import SCORES_NAME, read_scores
from calibudget.store.splits import SPLITS_NAME, SplitIds
from calibudget.store.train_set import TRAIN_NAMES
from calibudget.tasks.answers import EARLIER_PARSERS, PARSER_VERSION, AnswerSpec


def check_evaluation(findings: Findings, splits: SplitIds | None) -> None:
    """Compare an evaluation with its predictions, and these with their texts; nothing where the run has none."""
    if not any((findings.directory / name).exists() for name in (EVALUATION.name, PREDICTIONS_NAME)):
        return
    evaluation = findings.read(EVALUATION.name, EVALUATION.read)
    predictions = findings.read(PREDICTIONS_NAME, read_predictions)
    if evaluation is None or predictions is None:
        return
    ordered = sorted(predictions, key=lambda one: one.task)
    by_task = {task: list(own) for task, own in groupby(ordered, key=lambda one: one.task)}
    if not findings.compare(EVALUATION.name, list(by_task), sorted(evaluation.tasks), field="tasks"):
        return
    known = {} if splits is None or evaluation.calibration_set is None else splits.sources
    held_out = {bare_id(one) for own in known.values() for one in own.calibration}
    _check_held_out(findings, evaluation, by_task)
    _check_frame(findings, evaluation)
    _check_results(findings, evaluation, by_task, held_out)
    for task, own in by_task.items():
        _check_judgements(findings, evaluation, task, own)
    findings.checked.append("evaluation: items, verdicts, scores, panels and mean NLLs, from the predictions")
    findings.checked.append(
        "predictions: parsed answers and verdicts, from the texts; not those of code, of instructions, "
        "or that need math-verify"
    )


def _spec(value: object) -> AnswerSpec:
    """How the answers of a task of the user's own were checked, from the evidence."""
    if not isinstance(value, Mapping):
        raise ArtefactError("a task that is neither of this version nor says how its answers are checked")
    try:
        return AnswerSpec(**{**value, "labels": tuple(value["labels"])})
    except (KeyError, TypeError) as error:
        raise ArtefactError(f"answers aren't checked by {dict(value)}") from error


def _check_held_out(findings: Findings, evaluation: Evaluation, by_task: Mapping[str, Sequence[Prediction]]) -> None:
    """Hold the tasks of a run's own records to these: which they are, what is right, and how that is checked."""
    asked = [name for name in by_task if name.removesuffix(SUFFIX).startswith(HELD_OUT)]
    if not asked:
        return
    read = findings.derive(EVALUATION.name, "held-out records", lambda: held_out_benchmarks(findings.directory))
    known = {one.name: one for one in read or ()}
    for name in asked:
        own, stored = known.get(name.removesuffix(SUFFIX)), evaluation.tasks[name]
        if own is None:
            findings.add(EVALUATION.name, f"tasks.{name}", "a source with held-out records", "another")
            continue
        gold = {item.record.record_id: item.record.answer for item in own.items}
        found = {one.item_id: one.gold for one in by_task[name]}
        if stored.subset is not None:
            gold = {one: gold[one] for one in found if one in gold}
        findings.compare(PREDICTIONS_NAME, gold, found, field=f"{name}: right answers")
        findings.compare(
            EVALUATION.name, list(map(asdict, own.files)), list(map(asdict, stored.files)), field=f"tasks.{name}.files"
        )
        if not name.endswith(SUFFIX):
            answer = asdict(own.items[0].answer)
            findings.compare(
                EVALUATION.name, answer, stored.checker.get("answer"), field=f"tasks.{name}.checker.answer"
            )


def _check_frame(findings: Findings, evaluation: Evaluation) -> None:
    """Compare panels with the paper's, the training set with the run's, and the model with the one that scored.

    Panels of the user's own, a training set from elsewhere, the adapter and how the model ran are taken as given.
    """
    directory = findings.directory
    panels = {name: list(one.of) if (one := evaluation.panels.get(name)) else [] for name in PANELS}
    findings.compare(EVALUATION.name, {name: list(parts) for name, parts in PANELS.items()}, panels, field="panels")
    trained_on = evaluation.training_set
    if trained_on is not None and "/" not in (
        name := str(trained_on.get("file"))
    ):  # another's is named with its folder
        made = next((own for own in TRAIN_NAMES if (directory / own).exists()), None)
        findings.compare(EVALUATION.name, made, name, field="training_set.file")
    if trained_on is not None and name in TRAIN_NAMES:
        own = findings.derive(name, "the training set of the evaluation", lambda: file_digest(directory / name).sha256)
        if own is not None:
            findings.compare(EVALUATION.name, own, trained_on.get("sha256"), field="training_set.sha256")
        if evaluation.calibration_set is not None:
            held = findings.derive(SPLITS_NAME, "calibration records", lambda: calibration_set(directory / SPLITS_NAME))
            findings.compare(EVALUATION.name, held, dict(evaluation.calibration_set), field="calibration_set")
    scored = findings.read(SCORES_NAME, read_scores) if (directory / SCORES_NAME).exists() else None
    model = scored.model if scored is not None else {}
    if model.get("sha256") is not None:
        names = ["kind", "sha256", "revision"]
        names += ["name"] if model.get("kind") in ("hub", "embedded") else []  # a directory may be renamed
        expected, found = ({name: own.get(name) for name in names} for own in (model, evaluation.model))
        findings.compare(EVALUATION.name, expected, found, field="model")


def _check_results(
    findings: Findings, evaluation: Evaluation, by_task: Mapping[str, Sequence[Prediction]], held_out: Collection[str]
) -> None:
    """Sum up every task again, and the panels over these; items whose ids were held out are calibration records."""
    tasks = {}
    for task, own in by_task.items():
        stored = evaluation.tasks[task]
        ids = [one.item_id for one in own]
        evidence = {**stored.evidence, "items_sha256": ids_sha256(sorted(ids))}
        shared = sorted({*stored.shared_with_training} & {*ids})
        calibration = stored.shared_with_calibration
        if calibration is not None:  # of items with ids of their own it is taken as given
            calibration = tuple(sorted(one for one in ids if bare_id(one) in held_out or one in calibration))
        tasks[task] = task_result(own, evidence=evidence, shared=shared, calibration=calibration)
    findings.compare(EVALUATION.name, evaluation.with_tasks(tasks).to_json(), evaluation.to_json())


def _check_judgements(findings: Findings, evaluation: Evaluation, task: str, own: Sequence[Prediction]) -> None:
    """Judge a task's predictions again where their own rows are enough for it."""
    known = TASKS.get(task.removesuffix(SUFFIX))
    found = evaluation.tasks[task].checker
    own_answer = found.get("answer") if isinstance(found, Mapping) else None
    checker: dict[str, object]
    judge: Callable[[Prediction], tuple[str | None, str]]
    if task.endswith(SUFFIX):
        checker, judge = {"check": "likelihood"}, chosen_again
    elif known is None:
        answer = findings.derive(EVALUATION.name, "how answers of its own are checked", lambda: _spec(own_answer))
        if answer is None:
            return
        checker = {"check": "answer", "version": PARSER_VERSION, "answer": own_answer}
        judge = partial(judged_again, own=answer)
    elif known.check == "answer":
        checker, judge = {"check": "answer", "version": PARSER_VERSION}, judged_again
    else:
        return
    if found in [checker | {"version": version} for version in EARLIER_PARSERS]:
        return  # what an earlier version read can't be read again
    if findings.compare(EVALUATION.name, checker, found, field=f"tasks.{task}.checker"):
        again = {one.item_id: dict(zip(("prediction", "verdict"), judge(one), strict=True)) for one in own}
        stated = {one.item_id: {"prediction": one.prediction, "verdict": one.verdict} for one in own}
        findings.compare(PREDICTIONS_NAME, again, stated, field=task)
