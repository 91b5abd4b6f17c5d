"""Does an evaluation in the run directory say what its predictions say, and do these follow from their texts?"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from calibudget.evaluation import Evaluation, Prediction
from calibudget.evaluation.aggregates import PANELS
from calibudget.evaluation.benchmarks import TASKS, bare_id, ids_sha256
from calibudget.evaluation.judge import judged_again
from calibudget.evaluation.likelihood import SUFFIX, chosen_again
from calibudget.evaluation.predictions import PREDICTIONS_NAME, read_predictions
from calibudget.evaluation.results import EVALUATION_NAME, read_evaluation, task_result
from calibudget.pipeline.checks.findings import Findings
from calibudget.store import SCORES_NAME, SPLITS_NAME, TRAIN_NAMES, file_digest, read_scores, read_splits
from calibudget.tasks import EARLIER_PARSERS, PARSER_VERSION


def check_evaluation(findings: Findings, directory: Path) -> None:
    """Compare an evaluation with its predictions, and these with their texts; nothing where the run has none."""
    if not any((directory / name).exists() for name in (EVALUATION_NAME, PREDICTIONS_NAME)):
        return
    evaluation = findings.read(EVALUATION_NAME, read_evaluation)
    predictions = findings.read(PREDICTIONS_NAME, read_predictions)
    if evaluation is None or predictions is None:
        return
    ordered = sorted(predictions, key=lambda one: one.task)
    by_task = {task: list(own) for task, own in groupby(ordered, key=lambda one: one.task)}
    if not findings.compare(EVALUATION_NAME, list(by_task), sorted(evaluation.tasks), field="tasks"):
        return
    splits = findings.read(SPLITS_NAME, read_splits) if evaluation.calibration_set is not None else None
    held_out = {bare_id(one) for own in splits.sources.values() for one in own.calibration} if splits else set()
    _check_frame(findings, evaluation, directory)
    _check_results(findings, evaluation, by_task, held_out)
    for task, own in by_task.items():
        _check_judgements(findings, evaluation, task, own)
    findings.checked.append("evaluation: items, verdicts, scores, panels and mean NLLs, from the predictions")
    findings.checked.append(
        "predictions: parsed answers and verdicts, from the texts; not those of code, of instructions, "
        "or that need math-verify"
    )


def _check_frame(findings: Findings, evaluation: Evaluation, directory: Path) -> None:
    """Compare panels with the paper's, the training set with the run's, and the model with the one that scored.

    Panels of the user's own, a training set from elsewhere, the adapter and how the model ran are taken as given.
    """
    panels = {name: list(evaluation.panels.get(name, ())) for name in PANELS}
    findings.compare(EVALUATION_NAME, {name: list(parts) for name, parts in PANELS.items()}, panels, field="panels")
    trained_on = evaluation.training_set
    if trained_on is not None and trained_on.get("file") in TRAIN_NAMES:
        name = str(trained_on["file"])
        own = findings.derive(name, "the training set of the evaluation", lambda: file_digest(directory / name).sha256)
        if own is not None:
            findings.compare(EVALUATION_NAME, own, trained_on.get("sha256"), field="training_set.sha256")
    scored = findings.read(SCORES_NAME, read_scores) if (directory / SCORES_NAME).exists() else None
    model = (scored.provenance or {}).get("model") if scored is not None else None
    if isinstance(model, Mapping) and model.get("sha256") is not None:
        names = ["kind", "sha256", "revision"]
        names += ["name"] if model.get("kind") in ("hub", "embedded") else []  # a directory may be renamed
        expected, found = ({name: own.get(name) for name in names} for own in (model, evaluation.model))
        findings.compare(EVALUATION_NAME, expected, found, field="model")


def _check_results(
    findings: Findings, evaluation: Evaluation, by_task: Mapping[str, Sequence[Prediction]], held_out: Collection[str]
) -> None:
    """Sum up every task again, and the panels over these; items whose ids were held out are calibration records."""
    tasks = {}
    for task, own in by_task.items():
        stored = evaluation.tasks[task]
        ids = [one.item_id for one in own]
        evidence = {**stored.evidence, "items_sha256": ids_sha256(ids)}
        shared = sorted({*stored.shared} & {*ids})
        calibration = stored.calibration
        if calibration is not None:  # of items with ids of their own it is taken as given
            calibration = tuple(sorted(one for one in ids if bare_id(one) in held_out or one in calibration))
        tasks[task] = task_result(own, evidence=evidence, shared=shared, calibration=calibration)
    findings.compare(EVALUATION_NAME, replace(evaluation, tasks=tasks).to_json(), evaluation.to_json())


def _check_judgements(findings: Findings, evaluation: Evaluation, task: str, own: Sequence[Prediction]) -> None:
    """Judge a task's predictions again where their own rows are enough for it."""
    known = TASKS.get(task.removesuffix(SUFFIX))
    if known is None:
        findings.add(EVALUATION_NAME, f"tasks.{task}", "a task of this version", "another")
        return
    if task.endswith(SUFFIX):
        checker, judge = {"check": "likelihood"}, chosen_again
    elif known.check == "answer":
        checker, judge = {"check": "answer", "version": PARSER_VERSION}, judged_again
    else:
        return
    found = evaluation.tasks[task].evidence["checker"]
    if found in [checker | {"version": version} for version in EARLIER_PARSERS]:
        return  # what an earlier version read can't be read again
    if findings.compare(EVALUATION_NAME, checker, found, field=f"tasks.{task}.checker"):
        again = {one.item_id: dict(zip(("prediction", "verdict"), judge(one), strict=True)) for one in own}
        stated = {one.item_id: {"prediction": one.prediction, "verdict": one.verdict} for one in own}
        findings.compare(PREDICTIONS_NAME, again, stated, field=task)
