"""`calibudget evaluate`: benchmarks on a model, a finished run's adapter, or several adapters of one base."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, NamedTuple

from calibudget.errors import ArtefactError, DataError, InputError
from calibudget.evaluation import Benchmark, Evaluation, Judge, Prediction
from calibudget.evaluation.aggregates import MODERN_TASKS
from calibudget.evaluation.benchmarks import expand_tasks, load_benchmark
from calibudget.evaluation.engine import MakeScorer, judge_again, predict, predict_by_likelihood, scorer_of
from calibudget.evaluation.judging import open_judge
from calibudget.evaluation.likelihood import SUFFIX
from calibudget.evaluation.overlap import shared_items, training_prompts
from calibudget.evaluation.panel import PANEL, on_panel
from calibudget.evaluation.predictions import PREDICTIONS_NAME, read_predictions, write_predictions
from calibudget.evaluation.results import EVALUATION_NAME, TaskResult, declared_panels, read_evaluation, task_result
from calibudget.pipeline.progress import Progress, silent
from calibudget.pipeline.subjects import Engine, find_subject, scorers_of
from calibudget.store import (
    SUMS_NAME,
    canonical_json,
    directory_lock,
    extend_sums,
    file_digest,
    write_atomic,
)

#: Folder of an unfinished evaluation's journals, below its output; gone when it is whole.
_WORK: Final = ".evaluation"
_LIBRARIES: Final = ("torch", "transformers", "peft", "math-verify", "if-verifiable", "langdetect")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """What is asked of every model.

    Attributes:
        tasks: task names and groups, "name=file" for another file, or "panel-320" for the frozen panel.
        data_dir: where the tasks' files lie; None reads the hub.
        limit: only so many items a task, the first in keyed order.
        likelihood: multiple-choice tasks by likelihood too, under names of their own.
        panels: own panels beside the paper's, name to the tasks or panels that they are the mean of.
        train: training set to look for the tasks' prompts in; None is a run's own.
        strict: refuse tasks of which the training set holds a prompt.
        defer_code: evaluate code tasks without a sandbox: texts now, verdicts by `rejudge`.
    """

    tasks: Sequence[str] = ("paper",)
    data_dir: Path | None = None
    limit: int | None = None
    likelihood: bool = False
    panels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    train: Path | None = None
    strict: bool = False
    defer_code: bool = False


def evaluate(
    target: str | Path,
    asking: Asking,
    *,
    adapters: Sequence[Path] = (),
    output_dir: Path | None = None,
    engine: Engine | None = None,
    resume: bool = False,
    progress: Progress = silent,
) -> dict[str, Evaluation]:
    """Evaluate a model or a run, and write `evaluation.json` and `predictions.parquet`.

    Args:
        target: a run directory (its recipe's model under its own `adapter/`, if it was trained), or a model's name.
        asking: the tasks and how they are asked.
        adapters: directories of adapters to evaluate instead, one after another over one loaded base; each gets a
            folder of the output, by its name.
        output_dir: where the results go; a run directory's own by default.
        engine: how texts are generated.
        resume: go on with an unfinished evaluation.
        progress: told how far each task is.

    Returns:
        The evaluations by adapter name; the only name is "" unless several adapters were given.

    Raises:
        InputError: an unknown task or panel, no output directory for a model.
        DataError: data can't be read, or `strict` and a training set that holds prompts of a task.
        DependencyError: a package or bubblewrap is missing; nothing has been generated then.
        ArtefactError: the output holds an evaluation, or an unfinished one of other work.
        ScoringError: the model or an adapter can't be used.
    """
    panels = declared_panels(asking.panels)
    subject = find_subject(target, adapters, output_dir)
    for name in subject.adapters:
        _check_output(subject.output / name, resume=resume)
    benchmarks, subset = _benchmarks(asking, progress)
    train = asking.train or subject.train
    shared = _overlap(benchmarks, train, strict=asking.strict)
    judge = open_judge(benchmarks, defer_code=asking.defer_code)
    frame = Evaluation(
        model={},
        tasks={},
        panels=panels,
        training_set=None if train is None else {"file": train.name, "sha256": file_digest(train.resolve()).sha256},
        versions={} if subject.is_fake else _versions(),
    )
    evaluations = {}
    for name, make_scorer, model in scorers_of(subject, engine or Engine()):
        output = subject.output / name
        output.mkdir(parents=True, exist_ok=True)
        with directory_lock(output):
            tasks: dict[str, TaskResult] = {}
            predictions: list[Prediction] = []
            for way in _ways(benchmarks, judge, likelihood=asking.likelihood):
                found = _ask(way, make_scorer, output / _WORK, progress)
                tasks[way.name] = task_result(
                    way.benchmark,
                    found,
                    shared=shared[way.benchmark.name],
                    subset=subset,
                    checked_by=way.checked_by,
                    scored_by=scorer_of(make_scorer, way.benchmark).describe(),
                )
                predictions += found
            evaluations[name] = replace(frame, model=model, tasks=tasks)
            _write(output, evaluations[name], predictions)
            shutil.rmtree(output / _WORK)
    return evaluations


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
        kept = [one for name, own in by_task.items() if name.endswith(SUFFIX) for one in own.values()]
        names = [name for name in by_task if not name.endswith(SUFFIX)]
        files = (
            expand_tasks(text for text in asking.tasks if "=" in text) if any("=" in t for t in asking.tasks) else {}
        )
        benchmarks = [load_benchmark(name, asking.data_dir, path=files.get(name)).only(by_task[name]) for name in names]
        judge = open_judge(benchmarks, defer_code=asking.defer_code)
        tasks = dict(old.tasks)
        for done, benchmark in enumerate(benchmarks):
            progress("judging", done, len(benchmarks))
            judged = judge_again(benchmark, judge, by_task[benchmark.name])
            tasks[benchmark.name] = _rejudged(tasks[benchmark.name], benchmark, judged, judge)
            kept += judged
        renewed = replace(old, tasks=tasks)
        _write(directory, renewed, kept)
    return renewed


def _rejudged(old: TaskResult, benchmark: Benchmark, judged: Sequence[Prediction], judge: Judge) -> TaskResult:
    new = task_result(benchmark, judged, shared=old.shared, checked_by=judge.describe(benchmark), scored_by=None)
    kept = {name: old.evidence[name] for name in ("scorer", "subset")}
    return replace(new, evidence={**new.evidence, **kept})


def _benchmarks(asking: Asking, progress: Progress) -> tuple[list[Benchmark], str | None]:
    """The tasks' items, and which part of each task they are."""
    if asking.limit is not None and asking.limit < 1:
        raise InputError(f"limit: at least one item a task, not {asking.limit}")
    is_panel = list(asking.tasks) == [PANEL]
    wanted = expand_tasks(MODERN_TASKS if is_panel else asking.tasks)
    benchmarks = []
    for done, (name, path) in enumerate(wanted.items()):
        progress("reading tasks", done, len(wanted))
        benchmark = load_benchmark(name, asking.data_dir, path=path)
        benchmark = on_panel(benchmark) if is_panel else benchmark
        benchmarks.append(benchmark if asking.limit is None else benchmark.limited(asking.limit))
    progress("reading tasks", len(wanted), len(wanted))
    parts = [PANEL] if is_panel else []
    parts += [f"first {asking.limit} in keyed order"] if asking.limit is not None else []
    return benchmarks, ", ".join(parts) or None


def _check_output(output: Path, *, resume: bool) -> None:
    if (output / EVALUATION_NAME).exists():
        raise ArtefactError(f"{output}: holds an evaluation already; name another --output-dir, or move it away")
    if (output / _WORK).exists() and not resume:
        raise ArtefactError(f"{output}: holds an unfinished evaluation; go on with --resume, or delete {_WORK} in it")


def _overlap(benchmarks: Sequence[Benchmark], train: Path | None, *, strict: bool) -> dict[str, tuple[str, ...]]:
    prompts = frozenset() if train is None else training_prompts(train)
    shared = {benchmark.name: shared_items(benchmark, prompts) for benchmark in benchmarks}
    for name, ids in shared.items():
        if ids and strict:
            raise DataError(
                f"task {name!r}: {len(ids)} of its prompts are in the training set {train} (the first: {ids[0]}); "
                "train without them, or leave --strict out to have them reported"
            )
    return shared


class _Way(NamedTuple):
    """A benchmark under one protocol."""

    name: str
    benchmark: Benchmark
    ask: Callable[..., list[Prediction]]
    checked_by: Mapping[str, object]


def _ways(benchmarks: Sequence[Benchmark], judge: Judge, *, likelihood: bool) -> Iterator[_Way]:
    """Every task's own protocol, and for multiple choice the other one behind it if it is wanted."""
    for benchmark in benchmarks:
        yield _Way(benchmark.name, benchmark, partial(predict, judge=judge), judge.describe(benchmark))
        if likelihood and all(item.answer.kind == "choice" for item in benchmark.items):
            yield _Way(benchmark.name + SUFFIX, benchmark, predict_by_likelihood, {"check": "likelihood"})


def _ask(way: _Way, make_scorer: MakeScorer, work: Path, progress: Progress) -> list[Prediction]:
    work.mkdir(exist_ok=True)
    journal = work / f"{way.name}.journal"
    return way.ask(way.benchmark, make_scorer, journal_path=journal, progress=partial(progress, way.name))


def _write(output: Path, evaluation: Evaluation, predictions: Sequence[Prediction]) -> None:
    write_predictions(output / PREDICTIONS_NAME, predictions)
    write_atomic(output / EVALUATION_NAME, canonical_json(evaluation.to_json()))
    if (output / SUMS_NAME).exists():
        extend_sums(output, [EVALUATION_NAME, PREDICTIONS_NAME])


def _versions() -> dict[str, str]:
    found = {}
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
