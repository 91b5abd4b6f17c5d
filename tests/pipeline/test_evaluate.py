from __future__ import annotations

import gzip
import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from calibudget.errors import ArtefactError, DataError, DependencyError, InputError
from calibudget.evaluation import benchmarks, judge
from calibudget.evaluation.aggregates import PanelResult
from calibudget.evaluation.benchmarks import GROUPS, TASKS
from calibudget.evaluation.results import EVALUATION, read_predictions, task_result, write_predictions
from calibudget.evaluation.sandbox import open_sandbox
from calibudget.pipeline.checks.evaluation import check_evaluation
from calibudget.pipeline.checks.findings import Findings
from calibudget.pipeline.evaluate import EvaluationRequest, evaluate, rejudge
from calibudget.pipeline.evaluated_models import Generation
from calibudget.pipeline.run import run
from calibudget.pipeline.verify import verify
from calibudget.recipe.load import load_recipe
from calibudget.scoring.fake import FakeScorer
from calibudget.sources.spec import SourceSpec
from calibudget.sources.whole_source import read_source
from calibudget.store.canonical import canonical_json
from calibudget.store.checksums import check_sums, extend_sums, write_sums
from calibudget.store.scores import read_scores, write_scores
from calibudget.store.splits import read_splits
from tests.conftest import adapter_of, write_rows

RECIPE = """\
engine: fake
budget: 4
policy: equal
sources:
  piqa: {path: commonsense/piqa.test.jsonl, preset: piqa}
"""


def piqa(number: int) -> dict[str, Any]:
    return {"goal": f"Goal {number}.", "sol1": "Twist.", "sol2": "Sing.", "label": number % 2}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with a few items of some tasks, plain JSON lines."""
    rows = {
        "commonsense/piqa.test.jsonl": [piqa(number) for number in range(6)],
        "math/gsm8k.test.jsonl": [{"question": f"{n}+1?", "answer": f"#### {n + 1}"} for n in range(4)],
        "modern/humaneval.test.jsonl": [
            {"task_id": "H/0", "prompt": "def f():\n", "entry_point": "f"}
            | {"test": "def check(c):\n    assert c() == 1\n"}
        ],
    }
    for name, own in rows.items():
        write_rows(tmp_path / "data" / name, own)
    return tmp_path / "data"


def asking(data: Path, *names: str, **more: Any) -> EvaluationRequest:
    files = {"piqa": "commonsense/piqa", "gsm8k": "math/gsm8k", "humaneval": "modern/humaneval"}
    tasks = tuple(f"{name}={files[name]}.test.jsonl" for name in names)
    return EvaluationRequest(tasks=tasks, data_dir=data, **more)


@pytest.fixture
def run_dir(tmp_path: Path, data: Path) -> Path:
    directory = tmp_path / "run"
    directory.mkdir()
    (directory / "recipe.resolved.yaml").write_text(RECIPE)
    row = {"source": "piqa", "record_id": "r", "role": "source", "prompt": "Something else.", "completion": "x"}
    write_rows(directory / "train.jsonl", [row | {"original": {}}])
    write_sums(directory, ["recipe.resolved.yaml", "train.jsonl"])
    return directory


def test_a_run_is_evaluated_into_its_own_directory_and_bound(run_dir: Path, data: Path) -> None:
    found = evaluate(run_dir, asking(data, "piqa", "gsm8k"))[""]
    assert set(found.tasks) == {"piqa", "gsm8k"}
    assert check_sums(run_dir) == []
    assert EVALUATION.read(run_dir / "evaluation.json").to_json() == found.to_json()
    rows = read_predictions(run_dir / "predictions.parquet")
    assert [row.task for row in rows] == ["gsm8k"] * 4 + ["piqa"] * 6
    assert all(row.nll is not None for row in rows)
    assert found.training_set is not None
    assert not (run_dir / ".evaluation").exists()
    assert found.tasks["piqa"].right == sum(row.verdict == "right" for row in rows if row.task == "piqa")
    with pytest.raises(ArtefactError, match="holds an evaluation already"):
        evaluate(run_dir, asking(data, "piqa"))


@pytest.fixture(scope="module")
def evaluated(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with an evaluation of one task by both protocols; to be copied, never changed."""
    root = tmp_path_factory.mktemp("evaluated")
    shutil.copytree(finished / "run", root / "run")
    write_rows(root / "piqa.jsonl", [piqa(number) for number in range(6)])
    evaluate(root / "run", EvaluationRequest(tasks=("piqa=piqa.jsonl",), data_dir=root, likelihood=True))
    return root / "run"


@pytest.fixture
def directory(evaluated: Path, tmp_path: Path) -> Path:
    """An evaluated run to be changed."""
    return shutil.copytree(evaluated, tmp_path / "run")


def differing(directory: Path) -> set[tuple[str, str]]:
    """What differs in a directory whose sums were rewritten to fit."""
    extend_sums(directory, ["evaluation.json", "predictions.parquet"])
    return {(one.file, one.field) for one in verify(directory).differences}


def restate(directory: Path, **change: Any) -> None:
    """Write other fields of an evaluation."""
    stored = EVALUATION.read(directory / "evaluation.json")
    tasks = change.pop("tasks", stored.tasks)
    (directory / "evaluation.json").write_bytes(canonical_json(replace(stored, **change).with_tasks(tasks).to_json()))


def restate_task(directory: Path, task: str, **change: Any) -> None:
    stored = EVALUATION.read(directory / "evaluation.json")
    own = stored.tasks[task]
    restate(directory, tasks={**stored.tasks, task: replace(own, **change)})


ALL_RIGHT: dict[str, Any] = {"right": 6, "score": 1.0, "standard_error": 0.0, "verdicts": {"right": 6}}


@pytest.mark.parametrize(
    ("task", "change", "fields"),
    [
        ("piqa", ALL_RIGHT, {"right", "score"}),
        ("piqa_likelihood", ALL_RIGHT, {"right", "score"}),
        ("piqa", {"mean_nll": 9.0}, {"mean_nll"}),
        ("piqa", {"shared_with_training": ("nowhere",)}, {"shared_with_training"}),
        ("piqa", {"items_sha256": "0" * 64}, {"items_sha256"}),
        ("piqa", {"checker": {"check": "answer", "version": "0"}}, {"checker.version"}),
        # what an earlier parser read is not read again
        ("piqa", {"checker": {"check": "answer", "version": "1"}}, set()),
    ],
)
def test_statements_of_a_task_that_its_predictions_do_not_give_are_found(
    directory: Path, task: str, change: Any, fields: set[str]
) -> None:
    restate_task(directory, task, **change)
    differences = differing(directory)
    assert {("evaluation.json", f"tasks.{task}.{field}") for field in fields} <= differences
    assert bool(differences) == bool(fields)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (
            {
                "panels": {
                    "FragileAvg": PanelResult(of=("piqa", "boolq", "gsm8k", "math"), score=None, standard_error=None)
                }
            },
            "panels.FragileAvg[0]",
        ),
        ({"training_set": {"file": "train.jsonl", "sha256": "0" * 64}}, "training_set.sha256"),
        ({"training_set": {"file": "train.jsonlx"}}, "training_set.file"),
        ({"calibration_set": {"sha256": "0" * 64}}, "calibration_set.sha256"),
    ],
)
def test_a_frame_that_a_forger_changed_is_found(directory: Path, change: Any, field: str) -> None:
    stored = EVALUATION.read(directory / "evaluation.json")
    restate(directory, **{name: {**getattr(stored, name), **value} for name, value in change.items()})
    assert ("evaluation.json", field) in differing(directory)


def test_another_model_than_the_one_that_scored_is_found(directory: Path) -> None:
    scores = read_scores(directory / "scores.parquet")
    model = {"name": "m", "kind": "directory", "sha256": "a" * 64, "revision": None}
    write_scores(directory / "scores.parquet", scores.scores, error=scores.error, provenance={"model": model})
    for other, expected in ((model, []), (model | {"sha256": "b" * 64, "device": "cuda"}, ["model.sha256"])):
        restate(directory, model=other)
        check_evaluation(found := Findings(directory), read_splits(directory / "splits.parquet"))
        assert [one.field for one in found.differences] == expected


@pytest.mark.parametrize("task", ["piqa", "piqa_likelihood"])
def test_predictions_that_their_texts_do_not_give_are_found(directory: Path, task: str) -> None:
    stored = EVALUATION.read(directory / "evaluation.json")
    rows = read_predictions(directory / "predictions.parquet")
    odd = next(row for row in rows if row.task == task and row.verdict != "right")
    forged = [replace(row, prediction=row.gold, verdict="right") if row is odd else row for row in rows]
    write_predictions(directory / "predictions.parquet", forged)
    again = task_result([row for row in forged if row.task == task], evidence=stored.tasks[task].evidence)
    restate(directory, tasks={**stored.tasks, task: again})
    wanted = {("predictions.parquet", f"{task}.{odd.item_id}.{name}") for name in ("prediction", "verdict")}
    assert differing(directory) == wanted
    (directory / "evaluation.json").unlink()
    assert ("evaluation.json", "") in {(one.file, one.field) for one in verify(directory).differences}


def test_predictions_of_other_tasks_are_found(directory: Path) -> None:
    rows = [row for row in read_predictions(directory / "predictions.parquet") if row.task == "piqa"]
    write_predictions(directory / "predictions.parquet", rows)
    assert differing(directory) == {("evaluation.json", "tasks")}


def test_an_interrupted_evaluation_goes_on(
    run_dir: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[str] = []
    plain = FakeScorer.measure

    def counted(self: FakeScorer, items: Any) -> Any:
        measured.extend(item.record.source for item in items)
        if "gsm8k" in measured[-1:] and not measured.count("again"):
            raise KeyboardInterrupt
        return plain(self, items)

    monkeypatch.setattr(FakeScorer, "measure", counted)
    wanted = asking(data, "piqa", "gsm8k")
    with pytest.raises(KeyboardInterrupt):
        evaluate(run_dir, wanted, output_dir=tmp_path / "out")
    with pytest.raises(ArtefactError, match="--resume"):
        evaluate(run_dir, wanted, output_dir=tmp_path / "out")
    measured.append("again")
    evaluate(run_dir, wanted, output_dir=tmp_path / "out", resume=True)
    assert measured.count("piqa") == 6  # not generated again
    evaluate(run_dir, wanted, output_dir=tmp_path / "fresh")
    for name in ("evaluation.json", "predictions.parquet"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "fresh" / name).read_bytes()


@pytest.fixture
def overlapping(tmp_path: Path) -> tuple[Path, Path, dict[str, list[str]]]:
    """A run, a task of nine items (three of its calibration split, two of its train set, four new), and these ids."""
    write_rows(tmp_path / "data/piqa.jsonl", [piqa(number) for number in range(40)])
    recipe = "engine: fake\nbudget: 10\nfloor: 2\ndata_dir: data\ncalibration: {per_source: 6, resamples: 4}\n"
    (tmp_path / "recipe.yaml").write_text(recipe + "sources: {piqa: {path: piqa.jsonl, preset: piqa}}\n")
    run(load_recipe(tmp_path / "recipe.yaml"), tmp_path / "run")
    read = read_source(SourceSpec(label="piqa", path="piqa.jsonl", preset="piqa"), tmp_path / "data")
    records = {one.record_id: one.original for one in read.records}
    calibration = list(read_splits(tmp_path / "run/splits.parquet").sources["piqa"].calibration[:3])
    lines = (tmp_path / "run/train.jsonl").read_text().splitlines()
    trained = [json.loads(line)["record_id"] for line in lines[:2]]
    items = [records[one] for one in (*calibration, *trained)] + [piqa(number) for number in range(100, 104)]
    write_rows(tmp_path / "task.jsonl", items)
    return tmp_path / "run", tmp_path, {"calibration": sorted(calibration), "trained": sorted(trained)}


def test_calibration_records_stay_out_of_evaluation(overlapping: Any) -> None:
    directory, root, ids = overlapping
    asked = EvaluationRequest(tasks=("piqa=task.jsonl",), data_dir=root)
    own = evaluate(directory, asked)[""].tasks["piqa"]
    assert sum(own.verdicts.values()) == 9
    assert list(own.shared_with_training) == ids["trained"]
    assert list(own.shared_with_calibration or ()) == ids["calibration"]
    assert verify(directory).differences == ()
    restate_task(
        directory, "piqa", shared_with_calibration=()
    )  # a count that was made smaller is found from the splits
    assert ("evaluation.json", "tasks.piqa.shared_with_calibration") in differing(directory)


def test_strict_refuses_calibration_records_too(overlapping: Any, tmp_path: Path) -> None:
    directory, root, ids = overlapping
    lines = (root / "task.jsonl").read_text().splitlines(keepends=True)
    (root / "task.jsonl").write_text("".join(lines[:3] + lines[5:]))
    asked = EvaluationRequest(tasks=("piqa=task.jsonl",), data_dir=root, strict=True)
    with pytest.raises(DataError, match=f"3 of its items are calibration records .*the first: {ids['calibration'][0]}"):
        evaluate(directory, asked, output_dir=tmp_path / "out")
    (root / "task.jsonl").write_text("".join(lines[5:]))
    assert evaluate(directory, asked, output_dir=tmp_path / "out")[""].tasks["piqa"].shared_with_calibration == ()


def test_shared_prompts_are_reported_with_ids_and_strict_refuses(run_dir: Path, data: Path, tmp_path: Path) -> None:
    train = tmp_path / "train.jsonl"
    write_rows(train, [{"question": "2+1?", "answer": "#### 3"}])
    found = evaluate(run_dir, asking(data, "gsm8k", "piqa", train=train), output_dir=tmp_path / "out")[""]
    assert len(found.tasks["gsm8k"].shared_with_training) == 1
    assert found.tasks["piqa"].shared_with_training == ()
    with pytest.raises(DataError, match=r"gsm8k.*1 of its prompts"):
        evaluate(run_dir, asking(data, "gsm8k", train=train, strict=True), output_dir=tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_code_is_refused_without_a_sandbox_or_deferred_and_judged_later(
    run_dir: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise DependencyError("apt-get install bubblewrap")

    monkeypatch.setattr(judge, "open_sandbox", refuse)
    with pytest.raises(DependencyError, match="bubblewrap"):
        evaluate(run_dir, asking(data, "humaneval"), output_dir=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    found = evaluate(run_dir, asking(data, "humaneval", "piqa", defer_code=True), output_dir=tmp_path / "out")[""]
    assert found.tasks["humaneval"].score is None
    assert found.tasks["piqa"].score is not None
    monkeypatch.setattr(judge, "open_sandbox", lambda: SimpleNamespace(describe=dict))
    monkeypatch.setattr(judge, "judge_code", lambda *_: judge.Judgement("right"))
    again = rejudge(tmp_path / "out", asking(data, "humaneval", "piqa"))
    assert again.tasks["humaneval"].score == 1.0
    assert again.tasks["piqa"] == found.tasks["piqa"]
    assert EVALUATION.read(tmp_path / "out" / "evaluation.json").to_json() == again.to_json()


def adapter_files(root: Path, *names: str) -> list[Path]:
    """Folders that look like adapters from outside, which is all that the fake scorer asks of them."""
    folders = [root / name for name in names]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "adapter_config.json").write_text("{}")
        (folder / "adapter_model.safetensors").write_bytes(b"")
    return folders


def test_adapters_of_one_name_are_refused_by_their_paths(run_dir: Path, data: Path, tmp_path: Path) -> None:
    for names in (("a/run/adapter", "b/run/adapter"), ("c/Run/adapter", "d/run/adapter"), ("e/x", "f/x")):
        pair = adapter_files(tmp_path, *names)
        with pytest.raises(InputError, match=r"^adapters .* and .*: both would have the folder '(run|x)'"):
            evaluate(run_dir, asking(data, "piqa"), adapters=pair, output_dir=tmp_path / "out")
    odd = adapter_files(tmp_path, "g/.x", "g/y")
    with pytest.raises(InputError, match=r"adapter .*g/\.x: no folder can have its name, '\.x'"):
        evaluate(run_dir, asking(data, "piqa"), adapters=odd, output_dir=tmp_path / "out")


def test_the_frozen_panel_beside_other_tasks(
    run_dir: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"question": f"{n}+2?", "answer": str(n + 2), "solution": f"#### {n + 2}"} for n in range(3)]
    write_rows(data / "plus.jsonl", rows)
    plus = benchmarks.load_benchmark("gsm_plus", data, path="plus.jsonl")
    picks = {"gsm_plus": (plus.items[1].record.record_id,)}
    monkeypatch.setattr(benchmarks, "frozen_panel", lambda: picks)
    monkeypatch.setattr(benchmarks, "GROUPS", {**GROUPS, "panel-320": ("gsm_plus",)})
    monkeypatch.setattr(benchmarks, "TASKS", {**TASKS, "gsm_plus": replace(TASKS["gsm_plus"], path="plus.jsonl")})
    wanted = asking(data, "piqa")
    found = evaluate(run_dir, replace(wanted, tasks=("panel-320", *wanted.tasks)), output_dir=tmp_path / "out")[""]
    assert {name: one.evidence["subset"] for name, one in found.tasks.items()} == {
        "gsm_plus": "panel-320",
        "piqa": None,
    }
    assert sum(found.tasks["gsm_plus"].verdicts.values()) == 1
    assert sum(found.tasks["piqa"].verdicts.values()) == 6


def test_a_limit_and_a_likelihood_without_choices(run_dir: Path, data: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none of the tasks asked \(gsm8k\) is multiple choice; those are boolq"):
        evaluate(run_dir, asking(data, "gsm8k", likelihood=True), output_dir=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    wanted = asking(data, "piqa", "gsm8k", limit=3)
    found = evaluate(run_dir, wanted, output_dir=tmp_path / "out")[""]
    assert found.panels["Overall"].score is None
    assert {sum(one.verdicts.values()) for one in found.tasks.values()} == {3}
    assert found.tasks["piqa"].subset == "first 3 in keyed order"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft's own
def test_several_adapters_of_one_base_without_loading_it_again(
    tiny_directory: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("peft")
    from calibudget.lm import loading

    model = loading.load_model(str(tiny_directory), device="cpu").model
    adapters = [adapter_of(model, tmp_path / name / "adapter", seed=seed) for seed, name in enumerate(("one", "two"))]
    loads: list[str] = []
    plain = loading.load_model
    monkeypatch.setattr(loading, "load_model", lambda name, **more: loads.append(name) or plain(name, **more))  # type: ignore[func-returns-value]
    wanted, engine = asking(data, "piqa", limit=2), Generation(device="cpu")
    found = evaluate(str(tiny_directory), wanted, adapters=adapters, output_dir=tmp_path / "out", engine=engine)
    assert len(loads) == 1
    assert set(found) == {"one", "two"}
    assert found["one"].model["adapter"] != found["two"].model["adapter"]
    assert found["one"].tasks["piqa"].mean_nll != found["two"].tasks["piqa"].mean_nll
    alone = evaluate(str(tiny_directory), wanted, adapters=adapters[1:], output_dir=tmp_path / "alone", engine=engine)
    assert alone[""].to_json() == found["two"].to_json()
    check_that_texts_end_at_a_bound(tiny_directory, data, tmp_path)
    check_that_a_finished_adapter_stays(tiny_directory, data, tmp_path, adapters)


def check_that_texts_end_at_a_bound(model: Path, data: Path, tmp_path: Path) -> None:
    """`max_new_tokens` bounds every task's texts, and the results name it."""
    texts = []
    for bound in (2, 6):
        output = tmp_path / f"bound-{bound}"
        wanted = asking(data, "piqa", limit=2, max_new_tokens=bound)
        found = evaluate(str(model), wanted, output_dir=output, engine=Generation(device="cpu"))[""]
        scorer = found.tasks["piqa"].scorer
        assert isinstance(scorer, dict)
        assert scorer["max_new_tokens"] == bound
        texts.append([one.text for one in read_predictions(output / "predictions.parquet")])
    for short, long in zip(*texts, strict=True):
        assert long.startswith(short)
        assert len(short) < len(long)


def check_that_a_finished_adapter_stays(model: Path, data: Path, tmp_path: Path, adapters: list[Path]) -> None:
    """Interrupted between two adapters, an evaluation goes on with the second, and only if it is the same work."""
    output, engine = tmp_path / "out", Generation(device="cpu")
    before = {path: path.stat().st_mtime_ns for path in (output / "one").iterdir()}
    second = {path: path.read_bytes() for path in (output / "two").iterdir()}
    for path in second:
        path.unlink()
    wanted = asking(data, "piqa", limit=2)
    with pytest.raises(ArtefactError, match="1 of the 2 adapters; go on with --resume, or name another"):
        evaluate(str(model), wanted, adapters=adapters, output_dir=output, engine=engine)
    evaluate(str(model), wanted, adapters=adapters, output_dir=output, engine=engine, resume=True)
    with pytest.raises(ArtefactError, match=r"out: holds an evaluation already; name another --output-dir$"):
        evaluate(str(model), wanted, adapters=adapters, output_dir=output, engine=engine)
    assert {path: path.stat().st_mtime_ns for path in (output / "one").iterdir()} == before
    assert {path: path.read_bytes() for path in (output / "two").iterdir()} == second
    others = (asking(data, "piqa", limit=3), asking(data, "piqa", "gsm8k", limit=2), replace(wanted, max_new_tokens=2))
    for other in others:
        with pytest.raises(ArtefactError, match="other work"):
            evaluate(str(model), other, adapters=adapters, output_dir=output, engine=engine, resume=True)


@pytest.mark.model
@pytest.mark.data
@pytest.mark.slow
@pytest.mark.usefixtures("embedded_once")
@pytest.mark.parametrize("tokens", [2, pytest.param(16, marks=pytest.mark.full)])
def test_the_embedded_model_on_every_real_task(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokens: int
) -> None:
    """The full evaluation of SmolLM2 cut down to an item a task and a few tokens: every prompt and checker.

    Of most files there are some 40 rows here; test_benchmarks.py shows that the whole ones are read.
    """
    for path in (*data_dir.rglob("*.test.jsonl.gz"), *data_dir.rglob("*.all.jsonl.gz")):
        few = tmp_path / "data" / path.relative_to(data_dir)
        few.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(path) as whole, gzip.open(few, "wb") as out:
            lines = whole.readlines()
            step = 1 if path.name.startswith("bbh") else -(-len(lines) // 40)  # not every item of bbh has choices
            out.writelines(lines[::step])
    short = {name: replace(task, max_new_tokens=tokens) for name, task in TASKS.items()}
    monkeypatch.setattr(benchmarks, "TASKS", short)
    wanted = EvaluationRequest(
        tasks=("all",), data_dir=tmp_path / "data", limit=1, likelihood=True, defer_code=not has_sandbox()
    )
    found = evaluate("embedded", wanted, output_dir=tmp_path / "out", engine=Generation(device="cpu"))[""]
    likelihood = {f"{name}_likelihood" for name in GROUPS["commonsense"]}
    assert set(found.tasks) == set(TASKS) | likelihood
    assert {sum(one.verdicts.values()) for one in found.tasks.values()} == {1}
    without_reference = {"humaneval", "mbpp", "ifeval"} | likelihood
    assert {name for name, one in found.tasks.items() if one.mean_nll is None} == without_reference
    assert all(one.mean_nll is None or 0.1 < one.mean_nll < 8 for one in found.tasks.values())
    unknown = {name for name, mean in found.panels.items() if mean.score is None}
    assert unknown == ({"ModernMacro", "CodeMacro"} if wanted.defer_code else set())
    rows = {row.task: row for row in read_predictions(tmp_path / "out" / "predictions.parquet")}
    assert all(row.text.strip() for name, row in rows.items() if name not in likelihood)


def has_sandbox() -> bool:
    try:
        open_sandbox()
    except DependencyError:
        return False
    return True
