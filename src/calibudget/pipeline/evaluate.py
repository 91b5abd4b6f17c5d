"""`calibudget evaluate`: benchmarks on a model, a finished run's adapter, or several adapters of one base.

`calibudget evaluate --rejudge`: verdicts anew on texts that were generated before, no model needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from calibudget.errors import ArtefactError, DataError, InputError
from calibudget.evaluation.aggregates import PANELS, aggregate
from calibudget.evaluation.benchmarks import (
    HELD_OUT,
    PANEL,
    TASKS,
    Benchmark,
    calibration_items,
    check_likelihood,
    expand_tasks,
    load_benchmark,
    on_panel,
    own_benchmark,
    shared_items,
    training_prompts,
)
from calibudget.evaluation.generation import (
    SUFFIX,
    MakeScorer,
    judge_again,
    predict,
    scorer_of,
)
from calibudget.evaluation.judge import Judge, open_judge
from calibudget.evaluation.results import (
    EVALUATION,
    PREDICTIONS_NAME,
    Evaluation,
    Prediction,
    read_predictions,
    task_evidence,
    task_result,
    write_predictions,
)
from calibudget.pipeline.evaluated_models import (
    Generation,
    Scored,
    Subject,
    check_subject,
    check_unbegun,
    find_subject,
    scorers_of,
)
from calibudget.pipeline.progress import Progress, each, silent
from calibudget.pipeline.run_directory import EVALUATION_WORK, calibration_set, check_no_run, records_again
from calibudget.pipeline.shared_resources import Shared
from calibudget.pipeline.train import finished_run, is_rendered
from calibudget.pipeline.user_tasks import held_out_benchmarks, own_source
from calibudget.store.canonical import canonical_json
from calibudget.store.checksums import SUMS_NAME, extend_sums, file_digest
from calibudget.store.files import (
    check_writable,
    directory_lock,
    make_directory,
    output_directory,
    refuse_links,
    remove_directory,
    resolved,
    write_atomic,
)
from calibudget.store.json_records import plain
from calibudget.store.manifest import MANIFEST
from calibudget.store.splits import SPLITS_NAME, read_splits

#: Packages that verdicts depend on, beside this one's own parsers.
CHECKERS: Final = ("math-verify", "if-verifiable", "langdetect")
_LIBRARIES: Final = ("torch", "transformers", "peft", *CHECKERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRequest:
    """What is asked of every model.

    Attributes:
        tasks: task names and groups, "name=file" for another file or a task of the user's own, "held-out" for what the
            run holds out, "panel-320" for the six tasks of the frozen panel.
        data_dir: where the tasks' files lie; None reads the hub.
        limit: only so many items a task, the first in keyed order.
        max_new_tokens: most tokens decoded an answer, of every task; None goes by the task.
        likelihood: multiple-choice tasks by likelihood too, under names of their own; there has to be one.
        train: training set to look for the tasks' prompts in; None is a run's own.
        strict: refuse tasks of which the training set holds a prompt, or of which an item calibrated the run.
        defer_code: evaluate code tasks without a sandbox: texts now, verdicts by `rejudge`.
    """

    tasks: Sequence[str] = ("paper",)
    data_dir: Path | None = None
    limit: int | None = None
    max_new_tokens: int | None = None
    likelihood: bool = False
    train: Path | None = None
    strict: bool = False
    defer_code: bool = False


def evaluate(
    target: str | Path,
    asking: EvaluationRequest,
    *,
    model: str | None = None,
    adapters: Sequence[Path] = (),
    output_dir: Path | None = None,
    engine: Generation | None = None,
    resume: bool = False,
    shared: Shared | None = None,
    progress: Progress = silent,
) -> dict[str, Evaluation]:
    """Evaluate a model or a run, and write `evaluation.json` and `predictions.parquet`.

    Args:
        target: a run directory (its recipe's model under its own `adapter/`, if it was trained), or a model's name.
        asking: the tasks and how they are asked.
        model: where the run's model lies on this machine, or another one; the recipe's name for it by default.
        adapters: directories of adapters to evaluate instead, one after another over one loaded base; each gets a
            folder of the output, by its name.
        output_dir: where the results go; a run directory's own by default.
        engine: how texts are generated.
        resume: go on with an unfinished evaluation; what is finished of it stays as it is.
        shared: what this evaluation has in common with runs in this process.
        progress: told how far each task is.

    Returns:
        The evaluations by adapter name; the only name is "" unless several adapters were given.

    Raises:
        InputError: an unknown task, no output directory for a model.
        DataError: data can't be read, or `strict` and prompts of a task in the training set or among what calibrated.
        DependencyError: a package or bubblewrap is missing; nothing has been generated then.
        ArtefactError: the output holds an evaluation, or (with `resume`) one of other work, finished or not.
        ScoringError: the model or an adapter can't be used.
    """
    subject = find_subject(target, adapters, output_dir, model)
    if not resume:
        check_unbegun(subject)
    for output in subject.outputs:
        if resolved(output) != resolved(Path(target)):
            check_no_run(output)
        check_writable(output)
    engine = engine or Generation()
    if shared is None:
        check_subject(subject, engine)
    plan = _plan(asking, subject, shared, progress)
    scored = scorers_of(subject, engine, shared, progress)
    return {one.name: _evaluate_one(plan, one, subject.output / one.name, progress, resume=resume) for one in scored}


class _Way(NamedTuple):
    """A benchmark under one protocol."""

    name: str
    benchmark: Benchmark
    ask: Callable[..., list[Prediction]]
    checked_by: Mapping[str, object]


class _Plan(NamedTuple):
    """What is the same for every adapter; the frame lacks model and tasks."""

    ways: tuple[_Way, ...]
    shared: Mapping[str, tuple[str, ...]]
    calibration: Mapping[str, tuple[str, ...]] | None
    frame: Evaluation


def _plan(asking: EvaluationRequest, subject: Subject, shared: Shared | None, progress: Progress) -> _Plan:
    """Read everything and refuse what can't be done, before a model is loaded."""
    train = asking.train or subject.train
    folder = None if train is None else train.absolute().parent
    benchmarks = benchmarks_of(asking, shared, progress, run_dir=folder)
    panels = dict(PANELS)
    if HELD_OUT in asking.tasks:
        panels[HELD_OUT] = tuple(one.name for one in benchmarks if one.name.startswith(HELD_OUT))
    lies_by_itself = folder is None or not (folder / SPLITS_NAME).is_file()
    splits = None if folder is None or lies_by_itself else folder / SPLITS_NAME
    prompts = frozenset() if train is None else _prompts_of(train)
    trained = {one.name: shared_items(one, prompts) for one in benchmarks}
    calibration = None
    if splits is not None:  # the records that calibrated the run are excluded from evaluation (paper 3.1)
        held = frozenset(one for ids in read_splits(splits).sources.values() for one in ids.calibration)
        calibration = {one.name: calibration_items(one, held) for one in benchmarks}
    if asking.strict:
        _refuse_shared(trained, f"prompts are in the training set {train}", "train without them")
        advice = "name the task's file under `hygiene: evaluation` of the recipe"
        _refuse_shared(calibration or {}, f"items are calibration records of {folder}", advice)
    judge = open_judge(benchmarks, defer_code=asking.defer_code)
    training_set = None
    if train is not None:  # the run's own by its name, which `verify` compares; another with its folder
        name = train.name if train == subject.train else f"{train.resolve().parent.name}/{train.name}"
        training_set = {"file": name, "sha256": file_digest(train.resolve()).sha256}
    frame = Evaluation(
        model={},
        tasks={},
        panels=aggregate({}, panels),
        training_set=training_set,
        versions={} if subject.is_fake else versions_of(_LIBRARIES),
        calibration_set=None if splits is None else calibration_set(splits),
    )
    ways = tuple(_ways(benchmarks, judge, likelihood=asking.likelihood))
    return _Plan(ways, trained, calibration, frame)


def _evaluate_one(plan: _Plan, scored: Scored, output: Path, progress: Progress, *, resume: bool) -> Evaluation:
    """One adapter's evaluation, generated and written, or the one that stands there finished."""
    evidence = {way.name: _evidence(way, scored.make_scorer) for way in plan.ways}
    with output_directory(output):
        refuse_links(output / EVALUATION_WORK)
        if (output / EVALUATION.name).exists():
            if not resume:  # asked before, but another command may have ended meanwhile
                raise ArtefactError(f"{output}: holds an evaluation already; name another --output-dir")
            found = _finished(output, replace(plan.frame, model=scored.model), evidence)
        else:
            asked = {way.name: _ask(way, scored.make_scorer, output / EVALUATION_WORK, progress) for way in plan.ways}
            tasks = {
                way.name: task_result(
                    asked[way.name],
                    evidence=evidence[way.name],
                    shared=plan.shared[way.benchmark.name],
                    calibration=None if plan.calibration is None else plan.calibration[way.benchmark.name],
                )
                for way in plan.ways
            }
            found = replace(plan.frame, model=scored.model).with_tasks(tasks)
            write_evaluation(output, found, chain.from_iterable(asked.values()))
        if (output / EVALUATION_WORK).exists():
            remove_directory(output / EVALUATION_WORK)
    return found


def _evidence(way: _Way, make_scorer: MakeScorer) -> dict[str, object]:
    scored_by = scorer_of(make_scorer, way.benchmark).describe()
    return task_evidence(way.benchmark, checked_by=way.checked_by, scored_by=scored_by)


def _finished(output: Path, wanted: Evaluation, evidence: Mapping[str, Mapping[str, object]]) -> Evaluation:
    """The evaluation that was finished before the others of its adapters were, if it is of the same work."""
    found = EVALUATION.read(output / EVALUATION.name)
    own = {name: one.evidence for name, one in found.tasks.items()}
    if _work(found, own) != _work(wanted, evidence):
        raise ArtefactError(f"{output}: holds an evaluation of other work; name another --output-dir")
    _bind(output)
    return found


def _work(evaluation: Evaluation, evidence: Mapping[str, Mapping[str, object]]) -> bytes:
    """What was asked of what, as bytes that can be compared."""
    frame = replace(evaluation.with_tasks({}), versions={}).to_json()
    return canonical_json({"frame": frame, "tasks": plain(evidence)})


def benchmarks_of(
    asking: EvaluationRequest, shared: Shared | None, progress: Progress, *, run_dir: Path | None = None
) -> list[Benchmark]:
    """The tasks' items, or the part of them that is asked.

    `run_dir` is the run whose own records may be asked; without one they are left out.
    """
    wanted = expand_tasks(asking.tasks)
    if asking.likelihood:
        check_likelihood(wanted)
    on = frozenset(expand_tasks([PANEL])) if PANEL in asking.tasks else frozenset()
    benchmarks = []
    for name, path in each(progress, "reading tasks", wanted.items()):
        if name == HELD_OUT:
            benchmarks += [] if run_dir is None else held_out_benchmarks(run_dir)
        else:
            benchmark = _load(name, path, asking.data_dir, shared)
            benchmarks.append(on_panel(benchmark) if name in on else benchmark)
    if asking.limit is not None:
        benchmarks = [one.limited(asking.limit) for one in benchmarks]
    if asking.max_new_tokens is None:
        return benchmarks
    return [replace(one, task=replace(one.task, max_new_tokens=asking.max_new_tokens)) for one in benchmarks]


def _load(name: str, path: str | None, data_dir: Path | None, shared: Shared | None = None) -> Benchmark:
    if name not in TASKS:
        return own_benchmark(own_source(name, path or ""), data_dir)
    return (load_benchmark if shared is None else shared.benchmark)(name, data_dir, path=path)


def _prompts_of(train: Path) -> frozenset[str]:
    """Prompt hashes of a training set; a run's rendered rows hold no bare prompts, so their records are made again."""
    if (train.parent / MANIFEST.name).is_file() and (train.parent / SUMS_NAME).is_file():
        run = finished_run(train.parent)
        if run.train_file == train and is_rendered(run):
            return frozenset(record.prompt_hash for _, record in records_again(run.recipe, train))
    return training_prompts(train)


def _refuse_shared(shared: Mapping[str, Sequence[str]], what: str, advice: str) -> None:
    for name, ids in shared.items():
        if ids:
            raise DataError(
                f"task {name!r}: {len(ids)} of its {what} (the first: {ids[0]}); {advice}, or leave --strict out to "
                "have them reported"
            )


def _ways(benchmarks: Sequence[Benchmark], judge: Judge, *, likelihood: bool) -> Iterator[_Way]:
    """Every task's own protocol, and for multiple choice the other one behind it if it is wanted."""
    for benchmark in benchmarks:
        yield _Way(benchmark.name, benchmark, partial(predict, judge=judge), judge.describe(benchmark))
        if likelihood and all(item.answer.kind == "choice" for item in benchmark.items):
            yield _Way(benchmark.name + SUFFIX, benchmark, partial(predict, judge=None), {"check": "likelihood"})


def _ask(way: _Way, make_scorer: MakeScorer, work: Path, progress: Progress) -> list[Prediction]:
    make_directory(work)
    journal = work / f"{way.name}.journal"
    return way.ask(way.benchmark, make_scorer, journal_path=journal, progress=partial(progress, way.name))


def write_evaluation(output: Path, evaluation: Evaluation, predictions: Iterable[Prediction]) -> None:
    """Write both files, the evaluation last, and bind them in the directory's sums if it has any."""
    write_predictions(output / PREDICTIONS_NAME, predictions)
    write_atomic(output / EVALUATION.name, canonical_json(evaluation.to_json()))
    _bind(output)


def _bind(output: Path) -> None:
    if (output / SUMS_NAME).exists():
        extend_sums(output, [EVALUATION.name, PREDICTIONS_NAME])


def versions_of(packages: Iterable[str]) -> dict[str, str]:
    """The versions of those that are installed."""
    found = {}
    for name in packages:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def rejudge(directory: Path, asking: EvaluationRequest, *, progress: Progress = silent) -> Evaluation:
    """Judge an evaluation's texts anew, no model needed: code that was deferred, or by this version's parsers.

    Of `asking` only `data_dir`, `defer_code` and files named in `tasks` are used; both files are written again.

    Raises:
        ArtefactError, DataError, DependencyError: a file, an item or a checker is missing.
    """
    with directory_lock(directory):
        old = EVALUATION.read(directory / EVALUATION.name)
        by_task: dict[str, dict[str, Prediction]] = {}
        for one in read_predictions(directory / PREDICTIONS_NAME):
            by_task.setdefault(one.task, {})[one.item_id] = one
        benchmarks = _benchmarks(asking, by_task, directory)
        judge = open_judge(benchmarks, defer_code=asking.defer_code)
        results = dict(old.tasks)
        for benchmark in each(progress, "judging", benchmarks):
            judged = judge_again(benchmark, judge, by_task[benchmark.name])
            by_task[benchmark.name] = {one.item_id: one for one in judged}
            evidence = task_evidence(benchmark, checked_by=judge.describe(benchmark), scored_by=None)
            kept = results[benchmark.name]
            evidence |= {name: kept.evidence[name] for name in ("scorer", "subset")}
            results[benchmark.name] = task_result(
                judged,
                evidence=evidence,
                shared=kept.shared_with_training,
                calibration=kept.shared_with_calibration,
            )
        now = versions_of(CHECKERS)
        renewed = replace(
            old.with_tasks(results), versions={name: now.get(name, version) for name, version in old.versions.items()}
        )
        write_evaluation(directory, renewed, (one for own in by_task.values() for one in own.values()))
    return renewed


def _benchmarks(
    asking: EvaluationRequest, by_task: Mapping[str, Mapping[str, Prediction]], directory: Path
) -> list[Benchmark]:
    """The items of the texts, from the files that were named or the tasks' own; likelihoods have no text to judge."""
    given = [text for text in asking.tasks if "=" in text]
    files = expand_tasks(given) if given else {}
    held_out = any(name.startswith(HELD_OUT) for name in by_task)
    own = {one.name: one for one in held_out_benchmarks(directory)} if held_out else {}
    found = []
    for name in by_task:
        if name not in (*TASKS, *files, *own) and not name.endswith(SUFFIX):
            raise InputError(f"task {name!r}: is of your own; name its file (--tasks {name}=file) to judge it again")
        if not name.endswith(SUFFIX):
            found.append((own.get(name) or _load(name, files.get(name), asking.data_dir)).only(by_task[name]))
    return found
