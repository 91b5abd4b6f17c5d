"""What a run hands over: every format and layout, from every form of record, verified and read back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import DataError
from calibudget.pipeline.run import run
from calibudget.pipeline.verify import verify
from calibudget.recipe.load import load_recipe
from calibudget.sources.spec import SourceSpec
from calibudget.sources.whole_source import read_source
from calibudget.store.checksums import extend_sums
from calibudget.store.train_set import read_train, train_files, write_train

RECIPE = """
engine: fake
template: {template}
budget: 40
floor: 10
error: nll
calibration: {{per_source: 5, resamples: 4}}
sources:
  plain: {{path: plain.jsonl}}
  talks: {{path: talks.jsonl, on_error: skip}}
output: {{format: {format}, layout: {layout}}}
"""
CALL = {"id": "x", "type": "function", "function": {"name": "add", "arguments": '{"b": 2,  "a": 1}'}}
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"b": None, "a": [1.5]}}}]


def talk(number: Any) -> Any:
    turns = [{"role": "user", "content": f"what is {number} + 2?"}]
    if number % 3 == 0:
        turns.insert(0, {"role": "system", "content": "Be brief."})
    if number % 3 == 1:
        turns += [{"role": "assistant", "content": "Which base?"}, {"role": "user", "content": "Ten."}]
    if number % 5 == 0:
        turns += [
            {"role": "assistant", "content": None, "tool_calls": [CALL]},  # type: ignore[dict-item]
            {"role": "tool", "content": str(number + 2), "tool_call_id": "x"},
        ]
    turns.append({"role": "assistant", "content": f"It is {number + 2}."})
    return {
        "messages": turns,
        "tools": TOOLS if number % 5 == 0 else None,
        "extra": None if number < 9 else {"n": number},
    }


@pytest.fixture
def recipe(tmp_path: Path) -> Any:
    """Writes a recipe of plain records and conversations, one of which has an image."""

    def write(*, template: str = "chat", form: str = "jsonl", layout: str = "turns", talks: bool = True) -> Any:
        rows = (
            [talk(number) for number in range(40)]
            if talks
            else [{"prompt": f"q {n}", "completion": "a"} for n in range(40)]
        )
        if talks:
            rows[7]["messages"][0]["content"] = [{"type": "image_url", "image_url": {"url": "file.png"}}]  # type: ignore[index]
        plain = [{"prompt": f"question {number}?", "completion": f"answer {number}"} for number in range(30)]
        for name, some in (("plain", plain), ("talks", rows)):
            (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some))
        path = tmp_path / "recipe.yaml"
        path.write_text(RECIPE.format(template=template, format=form, layout=layout))
        return load_recipe(path)

    return write


def train_rows(found: Any) -> Any:
    return list(read_train(found.train_file))


@pytest.mark.parametrize(("form", "layout"), [("jsonl", "turns"), ("parquet", "messages"), ("dataset", "turns")])
def test_conversations_come_out_in_every_format_and_layout_and_verify(
    tmp_path: Path, recipe: Any, form: Any, layout: Any
) -> None:
    found = run(recipe(form=form, layout=layout), tmp_path / "run")
    assert found.train_file == tmp_path / "run" / f"train.{form}"
    assert verify(tmp_path / "run", data_dir=tmp_path).differences == ()
    rows = train_rows(found)
    assert len(rows) == 40
    assert sum("tools" in row for row in rows) > 1
    for row in rows:
        turns = row["prompt"] + row["completion"] if layout == "turns" else row["messages"]
        given = row["original"].get("messages") or [
            {"role": "user", "content": row["original"]["prompt"]},
            {"role": "assistant", "content": row["original"]["completion"]},
        ]
        assert turns == [{**turn, "content": turn["content"] or ""} for turn in given]
        assert row.get("tools") == row["original"].get("tools")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert set(train_files(f"train.{form}")) <= set(manifest["artefacts"])
    assert manifest["recipe"]["output"]["layout"] == layout
    field = "messages[-1]" if layout == "messages" else "completion"
    assert manifest["train_set"] == {"layout": layout, "taught": field, "end": None}
    assert manifest["sources"]["talks"]["skipped"] == 1


def test_rows_are_rendered_by_default_and_verify(tmp_path: Path, recipe: Any) -> None:
    given = recipe(template="alpaca", layout="rendered", talks=False)
    found = run(given, tmp_path / "run")
    rows = train_rows(found)
    assert all(row["prompt"].startswith("Below is") and row["prompt"].endswith("### Response:\n") for row in rows)
    assert found.train_set == {"layout": "rendered", "taught": "completion", "end": None}
    rows[3]["prompt"] = rows[3]["prompt"].replace("### Response:", "### Answer:")
    write_train(found.train_file, rows, layout="rendered")
    extend_sums(tmp_path / "run", ["train.jsonl"])
    assert any("row 4: prompt" in str(one) for one in verify(tmp_path / "run").differences)


def test_a_chat_template_without_a_model_keeps_turns(recipe: Any) -> None:
    given = recipe()
    fields = given.model_dump(exclude={"output"})
    assert type(given).model_validate(fields | {"output": {}}).output.layout == "turns"
    with pytest.raises(ValueError, match=r"rendered.* needs the `model`"):
        recipe(layout="rendered")


def test_a_record_that_the_layout_cant_hold_is_refused_at_its_line_or_skipped(tmp_path: Path, recipe: Any) -> None:
    recipe(layout="completion")
    with pytest.raises(DataError, match=r"source 'talks': talks\.jsonl:1: has several turns or tools, and `output"):
        run(load_recipe(tmp_path / "recipe.yaml", ["sources.talks.on_error=refuse"]), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    found = run(load_recipe(tmp_path / "recipe.yaml", ["budget=30"]), tmp_path / "run")
    plain = [n for n in range(40) if n != 7 and n % 3 == 2 and n % 5]
    assert sum(row["source"] == "talks" for row in train_rows(found)) <= len(plain) - 5
    assert any(note.startswith(f"talks: {40 - len(plain)} rows skipped") for note in found.notes)


@pytest.mark.parametrize("form", ["jsonl", "dataset"])
def test_a_train_set_of_another_layout_or_without_its_tools_is_found(tmp_path: Path, recipe: Any, form: str) -> None:
    found = run(recipe(form=form, layout="turns"), tmp_path / "run")
    rows = train_rows(found)
    as_messages = [
        {
            **{k: v for k, v in row.items() if k not in ("prompt", "completion")},
            "messages": row["prompt"] + row["completion"],
        }
        for row in rows
    ]
    write_train(found.train_file, as_messages, layout="messages", tools=True)
    extend_sums(tmp_path / "run", train_files(found.train_file.name))
    told = [str(one) for one in verify(tmp_path / "run").differences]
    assert any(f'train.{form}: layout: expected "turns", found "messages"' in one for one in told)
    write_train(
        found.train_file, [{k: v for k, v in row.items() if k != "tools"} for row in rows], layout="turns", tools=True
    )
    extend_sums(tmp_path / "run", train_files(found.train_file.name))
    told = [str(one) for one in verify(tmp_path / "run").differences]
    assert any(": tools: expected [" in one and one.endswith("found null") for one in told)


@pytest.mark.parametrize(("form", "layout"), [("jsonl", "messages"), ("parquet", "turns"), ("dataset", "messages")])
def test_a_train_set_is_a_source_of_the_records_that_it_holds(
    tmp_path: Path, recipe: Any, form: str, layout: str
) -> None:
    found = run(recipe(form=form, layout=layout), tmp_path / "run")
    read = read_source(SourceSpec(label="again", path=str(found.train_file)), tmp_path)
    ids = [row["record_id"] for row in train_rows(found)]
    assert {record.record_id for record in read.records} == set(ids)
    assert len(read.records) == 40
    if form == "dataset":
        datasets = pytest.importorskip("datasets")
        assert datasets.load_from_disk(str(found.train_file))["record_id"][:] == ids
