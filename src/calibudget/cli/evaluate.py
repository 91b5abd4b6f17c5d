"""`calibudget evaluate`: benchmarks on a model, a run or several adapters; the table that a person reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from calibudget.cli.options import Json, ReportTo
from calibudget.hardware import Device, Dtype

if TYPE_CHECKING:
    from calibudget.evaluation.results import Evaluation, TaskResult


Tasks = Annotated[
    list[str] | None,
    typer.Option(
        help="Tasks or groups (paper, commonsense, modern, code, all), panel-320, held-out for the run's own "
        "held-out records, name=file for your own. Default: held-out if the run has it, else paper."
    ),
]
TrainSet = Annotated[
    Path | None, typer.Option(help="The training set to compare prompts with. Default: the run's own.")
]
Likelihood = Annotated[
    bool, typer.Option("--likelihood", help="Also answer multiple choice by likelihood, under names of its own.")
]
MaxNewTokens = Annotated[int | None, typer.Option(min=1, help="Most tokens of an answer. Default: each task's own.")]
DeferCode = Annotated[bool, typer.Option("--defer-code", help="Generate code now and judge it later, by --rejudge.")]
Rejudge = Annotated[bool, typer.Option("--rejudge", help="Judge the texts in RUN_DIR again, without a model.")]


def evaluate(
    target: Annotated[str, typer.Argument(metavar="RUN_DIR|MODEL", help="A run directory, or a model's name.")],
    tasks: Tasks = None,
    data_dir: Annotated[Path | None, typer.Option(help="The folder of the tasks' files. Default: the hub.")] = None,
    output_dir: Annotated[Path | None, typer.Option(help="Where the results go. Default: the run directory.")] = None,
    model: Annotated[str | None, typer.Option(help="The place of a run's model, if it has moved.")] = None,
    adapter: Annotated[list[Path] | None, typer.Option(help="An adapter of the model; may repeat.")] = None,
    train: TrainSet = None,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse items that were trained or calibrated on.")] = False,
    likelihood: Likelihood = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Ask only so many items per task, in keyed order.")] = None,
    max_new_tokens: MaxNewTokens = None,
    defer_code: DeferCode = False,
    rejudge: Rejudge = False,
    template: Annotated[Literal["alpaca", "chat"] | None, typer.Option(help="The prompt template.")] = None,
    device: Annotated[Device, typer.Option(help="Where the model runs.")] = "auto",
    dtype: Annotated[Dtype, typer.Option(help="Precision of the model; int8 and nf4 quantise it.")] = "auto",
    batch_tokens: Annotated[int | None, typer.Option(help="Most tokens per batch.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an unfinished evaluation.")] = False,
    report_to: ReportTo = None,
    as_json: Json = False,
) -> None:
    """Evaluate a model, a run's adapter, or several adapters of one model on benchmarks.

    Generated code runs in bubblewrap only. Without it code tasks are refused before anything starts.
    """
    from calibudget.cli.progress import progress_bar
    from calibudget.cli.tables import print_json
    from calibudget.evaluation.benchmarks import HELD_OUT
    from calibudget.pipeline import evaluate as pipeline
    from calibudget.pipeline.evaluated_models import Generation
    from calibudget.store.train_set import HELD_OUT_NAME
    from calibudget.training.trackers import check_trackers, report_once

    check_trackers(report_to or ())
    asking = pipeline.EvaluationRequest(
        tasks=tuple(tasks or (HELD_OUT if (Path(target) / HELD_OUT_NAME).is_file() else "paper",)),
        data_dir=data_dir,
        limit=limit,
        max_new_tokens=max_new_tokens,
        likelihood=likelihood,
        train=train,
        strict=strict,
        defer_code=defer_code,
    )
    with progress_bar() as progress:
        if rejudge:
            found = {"": pipeline.rejudge(Path(target), asking, progress=progress)}
        else:
            found = pipeline.evaluate(
                target,
                asking,
                model=model,
                adapters=adapter or (),
                output_dir=output_dir,
                engine=Generation(template=template, device=device, dtype=dtype, batch_tokens=batch_tokens),
                resume=resume,
                progress=progress,
            )
    for name, evaluation in found.items():
        output = (Path(target) if rejudge else output_dir or Path(target)) / name
        print_json(evaluation.to_json()) if as_json else _print(name, evaluation, output)
        report_once(report_to or (), Path(f"{output_dir or 'evaluation'}.tensorboard"), evaluation.to_json())


def _notes(evaluation: Evaluation, output: Path) -> Iterator[str]:
    """What the table's scores are scores of, and where they are kept."""
    from calibudget.evaluation.generation import SUFFIX
    from calibudget.pipeline.evaluated_models import FAKE

    if evaluation.model == FAKE:
        yield "NO MODEL: this run was made with `engine: fake`; name a model to have one evaluated"
    elif not evaluation.model.get("adapter"):
        yield "no adapter: these are the base model's scores"
    for subset in sorted({one.subset for one in evaluation.tasks.values() if one.subset}):
        on = sorted(name for name, one in evaluation.tasks.items() if one.subset == subset)
        yield f"not whole tasks: {subset}" + ("" if len(on) == len(evaluation.tasks) else f" ({', '.join(on)})")
    if any(name.endswith(SUFFIX) for name in evaluation.tasks):
        without = [n for n in evaluation.tasks if not n.endswith(SUFFIX) and n + SUFFIX not in evaluation.tasks]
        if without:
            yield f"by likelihood only where there are choices: not {', '.join(without)}"
    for name, one in evaluation.tasks.items():
        if one.shared_with_calibration:
            yield f"{name}: {len(one.shared_with_calibration):,} of its items are calibration records of the run"
    unknown = list(map(str, (evaluation.calibration_set or {}).get("not_compared", ())))  # type: ignore[call-overload]
    if unknown:
        yield f"not compared with calibration records, whose ids are the data's own: {', '.join(unknown)}"
    yield f"results are in {output}: evaluation.json, predictions.parquet"


def _print(name: str, evaluation: Evaluation, output: Path) -> None:
    from rich.table import Table

    from calibudget.cli.tables import print_table
    from calibudget.pipeline.evaluated_models import FAKE

    is_own = any(one.mean_answer_nll is not None for one in evaluation.tasks.values())
    of_answers = ("NLL an answer", "S %") if is_own else ()
    columns = ("task", "items", "score %", "± se", "unparsable", "NLL", *of_answers, "in training")
    title = [name, "FAKE SCORER, NO MODEL" if evaluation.model == FAKE else ""]
    table = Table(*columns, title=": ".join(filter(None, title)) or None)
    for column in table.columns[1:]:
        column.justify = "right"
    for task, one in evaluation.tasks.items():
        unjudged = "deferred" if "deferred" in one.verdicts else "unchecked"
        score = _percents(one.score, one.standard_error) or (unjudged, "")
        nll = "" if one.mean_nll is None else f"{one.mean_nll:.3f}"
        lost = one.verdicts.get("unparsable", 0)
        answers, trained = _of_answers([one]) if is_own else (), len(one.shared_with_training)
        table.add_row(task, f"{one.items:,}", *score, f"{lost:,}", nll, *answers, f"{trained:,}" if trained else "")
    table.add_section()
    for panel, mean in evaluation.panels.items():
        rows = [evaluation.tasks[task] for task in mean.of if task in evaluation.tasks]
        own = [one for one in rows if one.mean_answer_nll is not None]
        if mean.score is not None or own:
            score = _percents(mean.score, mean.standard_error) or ("", "")
            nll = f"{fmean(one.mean_nll or 0.0 for one in own):.3f}" if own else ""
            table.add_row(panel, "", *score, "", nll, *(_of_answers(own) if is_own else ()), "")
    print_table(table)
    typer.echo("\n".join(_notes(evaluation, output)))


def _of_answers(rows: Sequence[TaskResult]) -> tuple[str, str]:
    """NLL an answer and the probability of whole answers in percent, each the unweighted mean of some tasks."""
    known = [one for one in rows if one.mean_answer_nll is not None]
    if not known:
        return "", ""
    nats = fmean(one.mean_answer_nll or 0.0 for one in known)
    return f"{nats:.2f}", f"{100 * fmean(one.mean_answer_probability or 0.0 for one in known):.2f}"


def _percents(score: float | None, standard_error: float | None) -> tuple[str, str] | None:
    return None if score is None or standard_error is None else (f"{100 * score:.2f}", f"{100 * standard_error:.2f}")
