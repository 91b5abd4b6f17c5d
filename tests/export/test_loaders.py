"""What trainers' own loaders and other readers make of 200 records of four kinds: what the run measured.

`tools/trainer_environments.sh FOLDER` makes the environments and CALIBUDGET_TRAINERS names the folder.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from calibudget.export.check import check
from calibudget.export.handover import export
from calibudget.export.trainers import TRAINERS
from calibudget.lm.loading import outline_model
from calibudget.pipeline.run import run
from calibudget.pipeline.train import train
from calibudget.recipe.load import load_recipe

pytestmark = [pytest.mark.slow, pytest.mark.model, pytest.mark.data, pytest.mark.timeout(1200)]
#: ChatML with tools, as Qwen's and Hermes' templates have them.
TEMPLATE = """\
{%- if tools %}<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content + '\n\n' }}{% endif %}# Tools
{% for tool in tools %}{{ '\n' + (tool | tojson) }}{% endfor %}<|im_end|>
{% elif messages[0].role == 'system' %}{{ '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}{% endif %}
{%- for message in messages %}
{%- if message.role == 'tool' %}{{ '<|im_start|>user\n<tool_response>' + message.content + '<|im_end|>\n' }}
{%- elif message.role != 'system' %}{{ '<|im_start|>' + message.role + '\n' + message.content }}
{%- for call in message.tool_calls or [] %}{{ '<tool_call>' + (call.function | tojson) }}{% endfor %}
{{- '<|im_end|>\n' }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
CALCULATOR = {
    "name": "calculate",
    "description": "Work out an arithmetic expression.",
    "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]},
}
#: Which field of GSM8K each turn holds.
ROLES = {"user": "question", "assistant": "answer"}
RECIPE = """
model: {model}
template: chat
calibration: none
policy: equal
budget: 200
evaluation: none
sources:
  choice: {{path: choice.jsonl, answer: none}}
  math: {{path: math.jsonl, preset: gsm8k, answer: none}}
  turns: {{path: turns.jsonl, format: messages, answer: none}}
  tools: {{path: tools.jsonl, format: messages, answer: none}}
"""


#: Prints the rows that a reader finds in a train set, a JSON line each.
READERS = {
    "datasets": "import datasets; rows = datasets.load_dataset('json', data_files=file, split='train', cache_dir='c')",
    "polars": "import polars; rows = polars.read_ndjson(file).to_dicts()",
    "pandas": "import pandas; rows = pandas.read_json(file, lines=True, dtype=False).to_dict('records')",
    "duckdb": "import duckdb; t = duckdb.sql(f'from read_ndjson({file!r})')\n"
    "rows = [dict(zip(t.columns, row)) for row in t.fetchall()]",
    "mlcroissant": "import mlcroissant\nrows = mlcroissant.Dataset(jsonld='croissant.json').records('train')\n"
    "rows = ({k.removeprefix('train/'): v.decode() for k, v in row.items()} for row in rows)",
}
#: Megatron's own reading of the ids of each source and of the blend, and how many samples it then takes from each.
BLEND = """
import json, sys
import numpy as np
from megatron.core.datasets import helpers
from megatron.core.datasets.indexed_dataset import IndexedDataset
from megatron.core.datasets.utils import get_blend_from_list
names, weights = get_blend_from_list(open("blend.txt").read().split())
size = int(sys.argv[1])
index, sample = np.zeros(size, np.int16), np.zeros(size, np.int64)
helpers.build_blending_indices(index, sample, np.array(weights), len(weights), size, False)
counts = np.bincount(index, minlength=len(names)).tolist()
for name, count in zip(names, counts):
    rows = IndexedDataset(name)
    print(json.dumps({"name": name, "count": count, "rows": [rows[i].tolist() for i in range(len(rows))]}))
"""


def environment(name: str) -> str:
    """The interpreter that has a trainer, or others' readers."""
    folder = os.environ.get("CALIBUDGET_TRAINERS")
    if folder is None:
        pytest.skip("CALIBUDGET_TRAINERS names no folder that tools/trainer_environments.sh made")
    python = Path(folder).absolute() / name / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{name} isn't installed: {python} isn't there")
    return str(python)


def real_rows(name: str, count: int) -> list[dict[str, Any]]:
    folder = os.environ.get("CALIBUDGET_DATA")
    if folder is None:
        pytest.skip("CALIBUDGET_DATA names no folder with the real data sets")
    with gzip.open(Path(folder) / name, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in islice(lines, count)]


def said(role: str, content: str, **more: object) -> dict[str, object]:
    return {"role": role, "content": content, **more}


def with_calculator(row: dict[str, Any]) -> Iterator[dict[str, object]]:
    """GSM8K's own notes of its arithmetic, as calls of a tool and its answers."""
    yield said("user", row["question"])
    for expression, value in re.findall(r"<<([^=<>]+)=([^<>]+)>>", row["answer"])[:2]:
        call = {"type": "function", "function": {"name": "calculate", "arguments": {"expression": expression}}}
        yield said("assistant", "", tool_calls=[call])
        yield said("tool", value, name="calculate")
    yield said("assistant", re.sub(r"<<[^>]*>>", "", row["answer"]))


@pytest.fixture(scope="module")
def four_kinds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 50 examples each of choice, mathematics, several turns and tools, under SmolLM2's own tokenizer."""
    root = tmp_path_factory.mktemp("four")
    problems = real_rows("math/gsm8k.train.jsonl.gz", 240)
    pairs = zip(problems[60:180:2], problems[61:180:2], strict=True)
    rows: dict[str, list[dict[str, Any]]] = {
        "choice": real_rows("commonsense/boolq.train.jsonl.gz", 60),
        "math": problems[:60],
        "turns": [
            {
                "messages": [
                    said("system", "You are a careful mathematician."),
                    *(said(role, row[field]) for row in pair for role, field in ROLES.items()),
                ]
            }
            for pair in pairs
        ],
        "tools": [
            {"messages": list(with_calculator(row)), "tools": [{"type": "function", "function": CALCULATOR}]}
            for row in problems[180:]
        ],
    }
    for name, lines in rows.items():
        (root / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    model = root / "model"
    model.mkdir()
    for path in outline_model("embedded").directory.iterdir():
        (model / path.name).symlink_to(path)
    (model / "chat_template.jinja").unlink(missing_ok=True)
    (model / "chat_template.jinja").write_text(TEMPLATE)
    (root / "recipe.yaml").write_text(RECIPE.format(model=model))
    run(load_recipe(root / "recipe.yaml"), root / "run")
    return root / "run"


@pytest.mark.parametrize("name", [name for name, trainer in TRAINERS.items() if trainer.loader])
def test_the_trainers_own_loader_teaches_what_was_measured(name: str, tmp_path: Path, request: Any) -> None:
    python = environment(name)
    exported = export(request.getfixturevalue("four_kinds"), name, tmp_path / "out")
    assert {example.source for example in exported.examples} == {"choice", "math", "turns", "tools"}
    found = check(exported, python=os.path.relpath(python))
    assert found.differences == ()
    assert (found.rows, found.loaded, found.equal) == (200, 200, 200)


def told(python: str, script: str, folder: Path, *arguments: str) -> list[Any]:
    """The JSON lines that a script prints last, run in a folder."""
    done = subprocess.run([python, "-c", script, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.mark.parametrize(
    ("name", "reader"),
    [
        *((name, "datasets") for name in ("llamafactory", "readers", "axolotl", "trl")),
        *(("readers", reader) for reader in ("polars", "pandas", "duckdb", "mlcroissant")),
    ],
)
def test_every_reader_finds_the_rows_of_the_train_set(name: str, reader: str, tmp_path: Path, request: Any) -> None:
    """datasets 4.0 (with LLaMA-Factory), 4.6, 4.8 and 5.2, and others."""
    python = environment(name)
    run_dir = request.getfixturevalue("four_kinds")
    export(run_dir, "croissant", tmp_path / "out")
    script = f"import json; file = 'train.jsonl'; {READERS[reader]}\nfor row in rows: print(json.dumps(dict(row)))"
    rows = [json.loads(line) for line in (run_dir / "train.jsonl").read_text().splitlines()]
    assert len(rows) == 200
    assert told(python, script, tmp_path / "out") == rows


def test_megatron_reads_the_ids_that_were_measured_and_takes_each_as_often(tmp_path: Path, request: Any) -> None:
    python = environment("megatron")
    exported = export(request.getfixturevalue("four_kinds"), "megatron", tmp_path / "out", ["epochs=2"])
    blend = json.loads((tmp_path / "out" / "blend.json").read_bytes())
    sources = {Path(one["file"]).stem: (label, one["tokens"]) for label, one in blend["sources"].items()}
    found = told(python, BLEND, tmp_path / "out", str(2 * exported.fields["tokens"]))  # type: ignore[operator]
    assert {one["name"]: one["count"] for one in found} == {name: 2 * tokens for name, (_, tokens) in sources.items()}
    for one in found:
        label = sources[one["name"]][0]
        assert one["rows"] == [row.ids.tolist() for row in exported.examples if row.source == label]


def test_the_first_loss_of_trl_is_ours(tmp_path: Path) -> None:
    """On the exported folder as on the bare `train.jsonl`; later losses depend on each trainer's own random factors."""
    python = environment("trl")
    rows = real_rows("commonsense/boolq.train.jsonl.gz", 40)
    (tmp_path / "boolq.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe = "model: embedded\npolicy: equal\nbudget: 8\ncalibration: none\n"
    (tmp_path / "recipe.yaml").write_text(recipe + "sources: {boolq: {path: boolq.jsonl, answer: none}}\n")
    run(load_recipe(tmp_path / "recipe.yaml"), tmp_path / "run")
    options = ["rank=8", "batch_size=8", "epochs=2"]
    train(tmp_path / "run", [*options, "device=cpu", "dtype=float32"], output_dir=tmp_path / "ours")
    export(tmp_path / "run", "trl", tmp_path / "trl", options)
    script = Path(__file__).parents[2] / "benchmarks" / "first_loss.py"
    folders = [str(tmp_path / name) for name in ("run", "ours", "trl", "result.json")]
    done = subprocess.run([python, str(script), *folders], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ours, *theirs = json.loads((tmp_path / "result.json").read_bytes())["losses"].values()
    assert [losses[0] for losses in theirs] == pytest.approx([ours[0]] * 2, abs=1e-4)
