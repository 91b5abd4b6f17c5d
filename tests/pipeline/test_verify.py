"""Verification: a whole run holds, and every change of it is named by file and field."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibudget.errors import ArtefactError
from calibudget.pipeline.run import run
from calibudget.pipeline.run_directory import recipe_of_run
from calibudget.pipeline.select import select
from calibudget.pipeline.verify import verify
from calibudget.recipe.load import load_recipe
from calibudget.store.canonical import canonical_json
from calibudget.store.train_set import read_train
from tests.pipeline.conftest import forge, rewrite_sums


@pytest.fixture
def run_dir(tmp_path: Path, finished: Path) -> Any:
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    return tmp_path / "run"


def found(directory: Any, **options: Any) -> Any:
    return {(one.file, one.field) for one in verify(directory, **options).differences}


def edit(directory: Any, name: Any, *path: Any, to: Any) -> None:
    """Set one field of a JSON artefact, leaving everything else as it is."""
    value = json.loads((directory / name).read_bytes())
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = to(inner[path[-1]]) if callable(to) else to
    (directory / name).write_bytes(canonical_json(value))


def edit_rows(directory: Path, change: Any) -> None:
    path = directory / "train.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows = [row | {"original": json.loads(row["original"])} for row in rows]
    change(rows)
    rows = [row | {"original": json.dumps(row["original"])} for row in rows]
    path.write_text("".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows))


def edit_table(path: Any, change: Any) -> None:
    table = pq.read_table(path)
    rows = table.to_pylist()
    change(rows)
    pq.write_table(pa.Table.from_pylist(rows, table.schema), path)


def test_a_run_holds_with_and_without_its_data(run_dir: Path, tmp_path: Path) -> None:
    alone = verify(run_dir)
    assert alone.differences == ()
    assert len(alone.checked) == 10
    again = verify(run_dir, data_dir=tmp_path / "data")
    assert again.differences == ()
    assert again.checked[:10] == alone.checked
    assert alone.to_json()["ok"] is True


@pytest.mark.parametrize(
    "options",
    [
        {"duplicates": "keep", "order": "source", "form": "parquet"},
        {"more": "exponents: {need: 0.7, availability: 1.3, reliability: 2}\ncaps: {piqa: 9}\n"},
        pytest.param({"policy": "weights", "more": "weights: {boolq: 1.5, piqa: 0}\n"}, marks=pytest.mark.slow),
    ],
)
def test_runs_of_every_kind_hold(tmp_path: Path, make_recipe: Any, options: Any) -> None:
    run(load_recipe(make_recipe(**options)), tmp_path / "run")
    assert verify(tmp_path / "run", data_dir=tmp_path / "data").differences == ()


def test_forged_tokens_are_found(tmp_path: Path, make_recipe: Any) -> None:
    run(load_recipe(make_recipe(), ["budget={tokens: 200}"]), tmp_path / "whole")
    assert found(tmp_path / "whole") == set()
    for name, path, to in [
        ("selection.json", ("tokens",), 1),
        ("selection.json", ("sources", "boolq", "tokens"), 9),
        ("allocation.json", ("unit",), "examples"),
        ("manifest.json", ("sources", "boolq", "tokens", "too_long"), 1),
        ("manifest.json", ("sources", "boolq", "tokens"), None),
        ("manifest.json", ("token_counter", "max_length"), 9),
    ]:
        directory = shutil.copytree(tmp_path / "whole", tmp_path / "forged")
        edit(directory, name, *path, to=to)
        forge(directory)
        assert (name, dotted(path)) in found(directory)
        shutil.rmtree(directory)
    edit_table(tmp_path / "whole" / "splits.parquet", lambda rows: rows[-1].update(prompt_tokens=1))
    forge(tmp_path / "whole")
    assert ("allocation.json", "sources.piqa.pool_size") in found(tmp_path / "whole")
    fields = found(tmp_path / "whole", data_dir=tmp_path / "data")
    assert any(name == "splits.parquet" and field.startswith("source piqa: tokens") for name, field in fields)


def test_a_run_without_calibration_holds(tmp_path: Path, make_recipe: Any) -> None:
    path = make_recipe(policy="equal")
    path.write_text(path.read_text().replace("calibration: {per_source: 5, resamples: 4}", "calibration: none"))
    run(load_recipe(path), tmp_path / "run")
    verification = verify(tmp_path / "run")
    assert verification.differences == ()
    assert not any("statistics:" in check for check in verification.checked)


def test_a_selection_under_a_given_allocation_holds_and_its_forgeries_dont(
    tmp_path: Path, finished: Path, make_recipe: Any
) -> None:
    recipe = load_recipe(make_recipe())
    given = tmp_path / "given.json"
    shutil.copy(finished / "run" / "allocation.json", given)
    select(recipe, given, tmp_path / "run")
    verification = verify(tmp_path / "run", data_dir=tmp_path / "data")
    assert verification.differences == ()
    assert any(check.startswith("allocation: given") for check in verification.checked)
    edit(tmp_path / "run", "allocation.json", "sources", "boolq", "quota", to=lambda quota: quota - 1)
    forge(tmp_path / "run")
    assert ("allocation.json", "") in found(tmp_path / "run")


def test_a_directory_that_isnt_there_is_an_error_and_an_empty_one_lacks_everything(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="no such run directory"):
        verify(tmp_path / "gone")
    assert found(tmp_path) == {("SHA256SUMS.tsv", ""), ("manifest.json", ""), ("recipe.resolved.yaml", "")}


@pytest.mark.parametrize("name", ["SHA256SUMS.tsv", "manifest.json", "recipe.resolved.yaml", "splits.parquet"])
def test_a_damaged_cut_or_missing_file_is_reported_by_its_name(run_dir: Path, tmp_path: Path, name: Any) -> None:
    path = run_dir / name
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :])
    files = {file for file, _ in found(run_dir)}
    assert name in files or (name == "SHA256SUMS.tsv" and files)
    path.write_bytes(data[: len(data) // 2])
    if name != "SHA256SUMS.tsv":
        rewrite_sums(run_dir)
    assert name in {file for file, _ in found(run_dir)}
    path.unlink()
    assert (name, "") in found(run_dir)
    os.mkfifo(path)  # which is not waited for
    told = [one for one in verify(run_dir, data_dir=tmp_path / "data").differences if one.file == name]
    assert any("no regular file" in one.found for one in told)


FORGED_FIELDS = [
    ("statistics.json", ("sources", "boolq", "mean_error"), lambda x: x * (1 + 2**-50)),
    ("statistics.json", ("sources", "piqa", "pool_size"), lambda x: x + 1),
    ("allocation.json", ("sources", "boolq", "quota"), lambda x: x + 1),
    ("allocation.json", ("sources", "boolq", "utility"), lambda x: x * (1 + 2**-50)),
    ("allocation.json", ("sources", "piqa", "interval", 0), 0),
    ("allocation.json", ("statistics_sha256",), "0" * 64),
    ("allocation.json", ("quotas_sha256",), "0" * 64),
    ("manifest.json", ("allocation", "quotas_sha256"), "0" * 64),
    ("selection.json", ("selected_sha256",), "0" * 64),
    ("hygiene.json", ("sources", "boolq", "duplicates"), lambda x: x + 1),
    ("hygiene.json", ("rules", "contamination", "action"), "drop"),
    ("manifest.json", ("sources", "boolq", "read"), lambda x: x + 1),
    ("manifest.json", ("companion", "record_ids_sha256"), "0" * 64),
    ("manifest.json", ("seeds", "split"), 43),
    ("manifest.json", ("recipe", "sources", "piqa", "path"), ["other.jsonl"]),
    ("manifest.json", ("parser",), "0"),
    ("manifest.json", ("sources", "boolq", "filtered"), 1),
    ("manifest.json", ("companion", "read"), 10),
    ("manifest.json", ("companion", "skipped"), 1),
    ("manifest.json", ("companion", "filtered"), 1),
]


def dotted(path: Any) -> Any:
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)[1:]


@pytest.mark.parametrize(("name", "path", "to"), FORGED_FIELDS)
def test_a_forged_field_is_found_by_what_it_should_follow_from(run_dir: Path, name: Any, path: Any, to: Any) -> None:
    edit(run_dir, name, *path, to=to)
    forge(run_dir)
    differences = found(run_dir)
    place = dotted(path)
    fields = [field for file, field in differences if file == name and field]
    assert any(place.startswith(field) or field.startswith(place) for field in fields), differences


@pytest.mark.parametrize("name", ["statistics.json", "allocation.json", "selection.json"])
def test_a_forgery_of_one_artefact_is_blamed_on_it_alone(run_dir: Path, name: str) -> None:
    field = {"statistics.json": "mean_nll", "allocation.json": "share", "selection.json": "quota"}[name]
    edit(run_dir, name, "sources", "boolq", field, to=3)
    forge(run_dir)
    assert {file for file, _ in found(run_dir)} == {name}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda rows: rows.pop(3), "rows"),
        (lambda rows: rows.reverse(), "order of rows"),
        (lambda rows: rows[0].update(completion="the correct answer is maybe"), "row 1: completion"),
        (lambda rows: rows[0]["original"].update(instruction="another"), "row 1: record_id"),
        (lambda rows: rows[0]["original"].update(output="neither label"), "row 1: original"),
        (lambda rows: rows[0].update(source="nowhere"), "row 1: source"),
        (lambda rows: rows[0].update(messages=[]), ""),
        (lambda rows: rows[0].pop("source"), ""),
    ],
)
def test_a_forged_train_set_is_found(run_dir: Path, change: Any, field: str) -> None:
    edit_rows(run_dir, change)
    forge(run_dir)
    assert any(file == "train.jsonl" and field in place for file, place in found(run_dir))


def test_forged_scores_are_found_by_the_statistics_and_the_manifest(run_dir: Path) -> None:
    def better(rows: Any) -> None:
        rows[0].update(nll=rows[0]["nll"] / 2, error=rows[0]["error"] - rows[0]["nll"] / 2)

    edit_table(run_dir / "scores.parquet", better)
    forge(run_dir)
    fields = found(run_dir)
    assert ("statistics.json", "sources.boolq.mean_error") in fields
    assert ("manifest.json", "sources.boolq.scores_sha256") in fields


def test_a_scored_record_that_doesnt_calibrate_is_found(run_dir: Path) -> None:
    edit_table(run_dir / "scores.parquet", lambda rows: rows[0].update(record_id="0" * 64))
    forge(run_dir)
    files = [one for one in verify(run_dir).differences if one.file == "scores.parquet"]
    assert {one.found for one in files} == {"1 of them missing", "1 other"}


def test_a_candidate_that_should_have_calibrated_is_found(run_dir: Path) -> None:
    def drop_first(rows: Any) -> None:
        rows.pop(next(i for i, row in enumerate(rows) if row["role"] == "calibration"))
        # Its place is taken by nobody, so another record of the pool has to calibrate.

    path = run_dir / "splits.parquet"
    edit_table(path, drop_first)
    forge(run_dir)
    assert ("splits.parquet", "source boolq: calibration records") in found(run_dir)


def test_another_recipe_doesnt_fit_the_run(run_dir: Path) -> None:
    path = run_dir / "recipe.resolved.yaml"
    path.write_text(path.read_text().replace("budget: 24", "budget: 25").replace("split_seed: 42", "split_seed: 1"))
    forge(run_dir)
    fields = found(run_dir)
    assert {("splits.parquet", "split_seed"), ("manifest.json", "recipe.budget")} <= fields
    assert ("allocation.json", "budget") in fields


def test_an_extra_file_a_link_and_a_manifest_that_climbs_out_are_found(run_dir: Path, tmp_path: Path) -> None:
    (run_dir / "extra").write_bytes(b"")
    assert ("extra", "") in found(run_dir)
    (run_dir / "extra").unlink()
    shutil.move(run_dir / "selection.json", tmp_path / "selection.json")
    (run_dir / "selection.json").symlink_to(tmp_path / "selection.json")
    assert ("selection.json", "") in found(run_dir)
    edit(run_dir, "manifest.json", "artefacts", to=lambda found: {**found, "../recipe.yaml": found["train.jsonl"]})
    climbing = [one for one in verify(run_dir).differences if one.file == "../recipe.yaml"]
    assert "must not climb" in climbing[0].found


def test_changed_data_is_found_when_it_is_at_hand(run_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "data" / "boolq.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[1:], '{"instruction": "new?", "output": "the correct answer is true"}\n']))
    assert found(run_dir) == set()
    fields = found(run_dir, data_dir=tmp_path / "data")
    assert ("manifest.json", "sources.boolq.files[0].sha256") in fields
    assert any(file == "splits.parquet" and "boolq" in field for file, field in fields)


def test_a_forged_original_is_found_when_the_data_is_at_hand(run_dir: Path, tmp_path: Path) -> None:
    edit_rows(run_dir, lambda rows: rows[0]["original"]["meta"].update(f=-1))
    forge(run_dir)
    assert found(run_dir) == set()
    assert found(run_dir, data_dir=tmp_path / "data") == {("train.jsonl", "row 1: original.meta.f")}


def test_a_broken_recipe_and_data_that_is_gone_are_differences(run_dir: Path, tmp_path: Path) -> None:
    assert ("recipe.resolved.yaml", "") in found(run_dir, data_dir=tmp_path / "nowhere")
    (run_dir / "recipe.resolved.yaml").write_bytes(b"a: &x [*x]\n\xff")
    assert ("recipe.resolved.yaml", "") in found(run_dir)


def test_many_differences_of_one_file_are_counted_not_listed(run_dir: Path) -> None:
    edit(run_dir, "statistics.json", "sources", "boolq", to=lambda row: dict.fromkeys(row, 3) | {"slope": None})
    edit(run_dir, "statistics.json", "sources", "boolq", "bootstrap_means", to=[3, 3, 3, 3])
    edit(run_dir, "statistics.json", "sources", "boolq", "error_rate", to=1)
    edit(run_dir, "statistics.json", "sources", "piqa", "bootstrap_means", to=[3, 3, 3, 3])
    differences = [one for one in verify(run_dir).differences if one.file == "statistics.json"]
    assert len(differences) <= 13
    assert differences[-1].found.endswith("more")


def test_kept_copies_of_a_companion_set_are_counted_again_with_the_data_only(run_dir: Path, tmp_path: Path) -> None:
    edit(run_dir, "manifest.json", "companion", "duplicates", to=2)
    forge(run_dir)
    assert found(run_dir) == set()
    assert ("manifest.json", "companion.duplicates") in found(run_dir, data_dir=tmp_path / "data")


def test_a_fifo_in_a_data_set_and_one_in_place_of_the_recipe_are_refused(tmp_path: Path) -> None:
    (tmp_path / "train.dataset").mkdir()
    os.mkfifo(tmp_path / "train.dataset" / "data-00000-of-00001.arrow")
    with pytest.raises(ArtefactError, match="no regular file"):
        list(read_train(tmp_path / "train.dataset"))
    os.mkfifo(tmp_path / "recipe.resolved.yaml")
    with pytest.raises(ArtefactError, match=r"recipe\.resolved\.yaml: is no regular file"):
        recipe_of_run(tmp_path)
