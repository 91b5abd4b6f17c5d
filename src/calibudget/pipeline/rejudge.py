"""`calibudget evaluate --rejudge`: verdicts anew on texts that were generated before, no model needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from calibudget.evaluation import Benchmark, Evaluation, Judge, Prediction
from calibudget.evaluation.benchmarks import expand_tasks, load_benchmark
from calibudget.evaluation.engine import judge_again
from calibudget.evaluation.judging import open_judge
from calibudget.evaluation.likelihood import SUFFIX
from calibudget.evaluation.predictions import PREDICTIONS_NAME, read_predictions
from calibudget.evaluation.results import EVALUATION_NAME, TaskResult, read_evaluation, task_evidence, task_result
from calibudget.pipeline.evaluate import CHECKERS, Asking, versions_of, write_evaluation
from calibudget.pipeline.progress import Progress, silent
from calibudget.store import directory_lock


def rejudge(directory: Path, asking: Asking, *, progress: Progress = silent) -> Evaluation:
    """Judge an evaluation's texts anew, no model needed: code that was deferred, or by this version's parsers.

    Args:
        directory: where `evaluation.json` and `predictions.parquet` lie; both are written again.
        asking: only `data_dir`, `defer_code` and files named in `tasks` are used.
        progress: told of each task.

    Raises:
        ArtefactError, DataError, DependencyError: a file, an item or a checker is missing.
    """
    with directory_lock(directory):
        old = read_evaluation(directory / EVALUATION_NAME)
        by_task: dict[str, dict[str, Prediction]] = {}
        for one in read_predictions(directory / PREDICTIONS_NAME):
            by_task.setdefault(one.task, {})[one.item_id] = one
        benchmarks = _benchmarks(asking, by_task)
        judge = open_judge(benchmarks, defer_code=asking.defer_code)
        results = dict(old.tasks)
        for done, benchmark in enumerate(benchmarks):
            progress("judging", done, len(benchmarks))
            judged = judge_again(benchmark, judge, by_task[benchmark.name])
            by_task[benchmark.name] = {one.item_id: one for one in judged}
            results[benchmark.name] = _rejudged(results[benchmark.name], benchmark, judged, judge)
        renewed = replace(old, tasks=results, versions=_renewed_versions(old.versions))
        write_evaluation(directory, renewed, (one for own in by_task.values() for one in own.values()))
    return renewed


def _benchmarks(asking: Asking, by_task: Mapping[str, Mapping[str, Prediction]]) -> list[Benchmark]:
    """The items of the texts, from the files that were named or the tasks' own; likelihoods have no text to judge."""
    given = [text for text in asking.tasks if "=" in text]
    files = expand_tasks(given) if given else {}
    names = [name for name in by_task if not name.endswith(SUFFIX)]
    return [load_benchmark(name, asking.data_dir, path=files.get(name)).only(by_task[name]) for name in names]


def _rejudged(old: TaskResult, benchmark: Benchmark, judged: Sequence[Prediction], judge: Judge) -> TaskResult:
    evidence = task_evidence(benchmark, checked_by=judge.describe(benchmark), scored_by=None)
    kept = {name: old.evidence[name] for name in ("scorer", "subset")}
    return task_result(judged, evidence={**evidence, **kept}, shared=old.shared)


def _renewed_versions(old: Mapping[str, str]) -> dict[str, str]:
    """The checkers' versions are those of now, the others those of then."""
    now = versions_of(CHECKERS)
    return {name: now.get(name, version) for name, version in old.items()}
