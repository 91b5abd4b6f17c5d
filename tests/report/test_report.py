"""Every number of a report is its artefact's; what doesn't verify says so; texts of the data are texts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from calibudget.pipeline.evaluate import EvaluationRequest, evaluate
from calibudget.pipeline.explain import explain, read_evidence
from calibudget.pipeline.verify import verify
from calibudget.recipe.load import load_recipe
from calibudget.report.page import write_report
from calibudget.store.scores import read_scores
from tests.report.conftest import CANARIES, LABEL, Page, make_run, shown


def _document(run_dir: Path, name: str) -> Any:
    return json.loads((run_dir / name).read_text(encoding="utf-8"))


def test_every_number_of_the_tables_is_its_artefact_s(hostile_run: Path, reported: Page) -> None:
    allocation, statistics = _document(hostile_run, "allocation.json"), _document(hostile_run, "statistics.json")
    manifest, hygiene = _document(hostile_run, "manifest.json"), _document(hostile_run, "hygiene.json")
    heads = {"quota": "quota", "floor quota": "floor_quota", "above floor": "residual_quota", "pool": "pool_size"}
    factors = {name: name for name in ("need", "availability", "reliability", "utility", "share", "quota")}
    for table, columns in (("quota-table", heads), ("factor-table", factors)):
        for head, field in columns.items():
            expected = {label: shown(row[field]) for label, row in allocation["sources"].items()}
            assert reported.column(table, head) == expected, head
    assert reported.column("quota-table", "limit reached") == {label: "cap" * (label == "pears") for label in expected}
    for _, cells in reported.tables["group-table"][1:]:
        rows = [allocation["sources"][label] for label in allocation["groups"][cells[0]]["sources"]]
        sums = [sum(row[field] for row in rows) for field in heads.values()]
        assert cells == [cells[0], *map(shown, [len(rows), *sums])]
    assert len(reported.tables["group-table"]) == 3
    expected = {label: "{:,} to {:,}".format(*row["interval"]) for label, row in allocation["sources"].items()}
    assert reported.column("quota-table", "95% interval") == expected
    heads = {"mean NLL": "mean_nll", "wrong": "error_rate", "mean error": "mean_error", "its deviation": "bootstrap_sd"}
    for head, field in heads.items():
        expected = {label: shown(row[field]) for label, row in statistics["sources"].items()}
        assert reported.column("calibration-table", head) == expected, head
    heads = {"records read": "read", "duplicates": "duplicates", "calibration": "calibration_size", "pool": "pool_size"}
    for head, field in heads.items():
        expected = {label: shown(row[field]) for label, row in manifest["sources"].items()}
        assert reported.column("data-table", head) == expected, head
    repeats = [cells[:2] for _, cells in reported.tables["noticed-table"] if "repeat an earlier record" in cells[2]]
    assert repeats == [[label, shown(row["duplicates"])] for label, row in hygiene["sources"].items()]
    assert len(repeats) == 3
    facts = {
        "budget": allocation["budget"],
        "floor": allocation["floor"],
        "residual_budget": allocation["residual_budget"],
        "count": manifest["selection"]["count"],
    }
    assert reported.facts == {name: shown(value) for name, value in facts.items()}
    sums = [line.split("\t") for line in (hostile_run / "SHA256SUMS.tsv").read_text().splitlines()]
    assert [cells for _, cells in reported.tables["file-table"][1:]] == [
        [name, f"{int(size):,}", digest] for name, size, digest in sums
    ]


def test_training_and_evaluation_are_shown_as_their_files_have_them(hostile_run: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    shutil.copytree(hostile_run, run_dir)
    rows = [{"goal": f"Goal {n}.", "sol1": "Twist.", "sol2": "Sing.", "label": n % 2} for n in range(5)]
    (tmp_path / "piqa.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    evaluate(str(run_dir), EvaluationRequest(tasks=("piqa=piqa.jsonl",), data_dir=tmp_path))
    losses = [2.5, 1.25, 0.123456]
    (run_dir / "training.jsonl").write_text(
        "".join(json.dumps({"loss": loss, "step": step}) + "\n" for step, loss in enumerate(losses, start=1))
    )
    page = Page.read(write_report(run_dir))
    tasks = _document(run_dir, "evaluation.json")["tasks"]
    assert list(tasks) == ["piqa"]
    for (_, cells), (name, row) in zip(page.tables["evaluation-table"][1:], tasks.items(), strict=True):
        fields = [row[field] for field in ("items", "right", "score", "standard_error", "mean_nll")]
        assert cells == [name, *map(shown, fields), shown(len(row["shared_with_training"]))]
    assert "made from hashes" in (run_dir / "report.html").read_text()
    evaluation = _document(run_dir, "evaluation.json")
    del evaluation["model"]["note"]  # as where a model was asked
    (run_dir / "evaluation.json").write_text(json.dumps(evaluation))
    assert Page.read(write_report(run_dir)).tables["evaluation-table"] == page.tables["evaluation-table"]
    told = {name: page.facts[name] for name in ("steps", "first_loss", "last_loss")}
    assert told == {"steps": "3", "first_loss": shown(losses[0]), "last_loss": shown(losses[-1])}


def test_the_arithmetic_the_policies_and_the_sliders_are_those_of_the_commands(
    hostile_run: Path, reported: Page, calibudget: Any
) -> None:
    plan, statistics = read_evidence(hostile_run)
    steps = [step for label in plan.sources for step in explain(plan, statistics, label).steps]
    told = [cells for name, rows in reported.tables.items() if name.startswith("table ") for _, cells in rows]
    assert [(cells[0], cells[2]) for cells in told[: len(steps)]] == [(step.name, step.formula) for step in steps]
    common = ["--floors", f"{LABEL}=12", "--caps", "pears=45", "--groups", json.dumps(dict(plan.groups or {}))]
    files = [hostile_run / "statistics.json", "--splits", hostile_run / "splits.parquet"]
    compared = json.loads(
        calibudget("allocate", *files, *common, "--json", "--budget", 120, "--floor", 20, "--compare").out
    )
    for policy, quotas in compared["quotas"].items():
        assert reported.column("policy-table", policy) == {label: shown(quota) for label, quota in quotas.items()}
    assert all(why.rstrip(".") in reported.text for why in compared["left_out"].values())
    grid = json.loads(reported.scripts["grid"])
    budgets, floors = ([",".join(map(str, grid[name]))] for name in ("budgets", "floors"))
    told = calibudget("whatif", *files, *common, "--json", "--budget", *budgets, "--floor", *floors)
    points = json.loads(told.out)["points"]
    assert len(points) == len(grid["budgets"]) * len(grid["floors"]) == len(grid["points"]) > 20
    for point, stop in zip(points, grid["points"], strict=True):
        quotas = None if point["quotas"] is None else [point["quotas"][label] for label in grid["labels"]]
        assert (quotas, point["residual_budget"], point["refusal"]) == (
            stop["quotas"],
            stop["residual"],
            stop["refusal"],
        )
    asked = grid["asked"][0] * len(grid["floors"]) + grid["asked"][1]
    assert grid["points"][asked]["quotas"] == list(plan.quotas.values())


def test_texts_of_the_data_are_texts_and_the_page_loads_nothing(hostile_run: Path, reported: Page) -> None:
    allowed = {"html", "meta", "title", "style", "body", "script", "svg", "path"}
    page = (hostile_run / "report.html").read_text(encoding="utf-8")
    assert [tag for tag, _ in reported.tags if tag == "script"] == ["script", "script"]
    assert "document.title" not in "".join(reported.scripts.values())
    for tag, attributes in reported.tags:
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)
        assert "src" not in attributes
        assert tag not in ("img", "iframe", "link", "object") or tag in allowed
        assert str(attributes.get("href", "#")).startswith("#")
    assert "http" not in page.replace('http-equiv="Content-Security-Policy"', "")
    assert all(text.split("</")[0][:20] in reported.text for text in CANARIES)
    assert LABEL in reported.column("quota-table", "quota")
    assert len(page.encode()) < 2_000_000


def test_each_example_has_the_score_of_its_record_and_its_own_text(hostile_run: Path, reported: Page) -> None:
    scores = {score.record_id: score for score in read_scores(hostile_run / "scores.parquet").scores}
    page = (hostile_run / "report.html").read_text(encoding="utf-8")
    records = page.split('<div class="record">')[1:]
    assert len(records) == 3 * 6
    for record in records:
        record_id = record.split("<code>")[1].split("</code>")[0]
        score = scores[record_id]
        assert f"error <b>{shown(score.error)}</b> = NLL {shown(score.nll)} + {0 if score.correct else 1}" in record
        assert "source " in record.split("<pre>")[1]


def test_a_report_leaves_a_run_verified(hostile_run: Path, reported: Page) -> None:
    assert verify(hostile_run).differences == ()
    assert "This run verifies." in reported.text


def test_a_run_that_does_not_verify_says_so_first(hostile_run: Path, tmp_path: Path) -> None:
    shutil.copytree(hostile_run, tmp_path / "run")
    path = tmp_path / "run" / "allocation.json"
    path.write_text(path.read_text().replace('"quota":', '"quota":1', 1))
    page = write_report(tmp_path / "run").read_text(encoding="utf-8")
    assert "This run does not verify." in page
    assert page.index("This run does not verify.") < page.index('<section id="quotas"')
    path.write_text("{")
    page = write_report(tmp_path / "run").read_text(encoding="utf-8")
    assert "This run does not verify." in page
    assert '<section id="quotas"' not in page
    (tmp_path / "run" / "SHA256SUMS.tsv").unlink()
    assert "This run is unfinished." in write_report(tmp_path / "run").read_text(encoding="utf-8")


def test_a_run_without_scores_has_its_quotas_and_no_measurements(tmp_path: Path) -> None:
    make_run(tmp_path, {"a": 20, "b": 30}, "policy: equal", budget=10, per_source=2)
    fields = ["calibration=none", "policy=equal"]
    from calibudget.pipeline.run import run

    run(load_recipe(tmp_path / "recipe.yaml", fields), tmp_path / "plain")
    page = Page.read(write_report(tmp_path / "plain"))
    assert page.column("quota-table", "quota") == {"a": "5", "b": "5"}
    assert "calibration-table" not in page.tables
    assert "factor-table" not in page.tables


def test_a_thousand_sources_stay_below_two_megabytes(large_page: Path) -> None:
    page = Page.read(large_page)
    assert len(page.column("quota-table", "quota")) == len(page.column("calibration-table", "records")) == 1000
    assert large_page.stat().st_size < 2_000_000
    assert "calibudget explain RUN_DIR SOURCE" in page.text
