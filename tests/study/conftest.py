"""A small study on generated sources: its files, and a runner that makes up cells from their names."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from calibudget.pipeline.progress import Progress
from calibudget.study.cell_records import ITEMS_NAME, Cell, CellOutcome, ItemScore, TaskMetrics, write_items

RECIPE = """\
model: {model}
engine: {engine}
budget: 1
data_dir: data
calibration: {{per_source: 6, resamples: 8}}
sources:
  boolq: {{path: boolq.train.jsonl, preset: boolq}}
  piqa: {{path: piqa.train.jsonl, answer: {{kind: choice, labels: [solution1, solution2]}}}}
  openbookqa: {{path: openbookqa.train.jsonl, preset: openbookqa}}
companion: {{path: companion.jsonl, answer: none}}
"""

PROTOCOL = """\
name: small
recipe: recipe.yaml
backbones:
  tiny: {{model: {model}}}
policies:
  equal: {{}}
  val-error-floor: {{}}
  val-error-floor-z: {{recipe: {{policy: val-error-floor, signal: z}}}}
  calibudget: {{}}
focus: calibudget
comparator: val-error-floor
panels: {{Both: [boolq, openbookqa]}}
endpoints:
  Both: {{panel: Both}}
  BothNLL: {{panel: Both, measure: nll}}
  BoolQ: {{panel: boolq}}
primary: [Both, BothNLL]
retention: {{endpoint: BoolQ, may_fall: 0.05}}
training: {{rank: 2, scaling: 4, batch_size: 8, epochs: 1, max_length: 384, device: cpu, learning_rate: 0.001}}
evaluation:
  - {{tasks: [boolq=boolq.test.jsonl, openbookqa=openbookqa.test.jsonl], data_dir: data, limit: 6}}
analysis: {{resamples: 200}}
points:
  main: {{status: confirmatory, budget: 24, floor: 4, seeds: [42, 43]}}
  low-floor:
    budget: 24
    floor: 1
    seeds: [42, 43, 44]
    policies: [calibudget, val-error-floor]
    continue_if: {{policy: calibudget, endpoint: Both, of_point: main, margin: 0.5}}
  transferred:
    budget: 24
    floor: 4
    seeds: [42, 43]
    policies: [calibudget, val-error-floor]
    transfer: {{seed: 42, picks: fixed}}
  splits: {{budget: 24, floor: 4, seeds: [42, 43, 44], train: false}}
"""

LABELS = {"boolq": ("true", "false"), "piqa": ("solution1", "solution2"), "openbookqa": ("answer1", "answer2")}


def _rows(source: str, start: int, count: int) -> list[dict[str, str]]:
    labels = LABELS.get(source, ("one", "two"))
    return [
        {
            "instruction": f"Is {source} {number} so? Answer format: {'/'.join(labels)}",
            "input": "",
            "output": f"the correct answer is {labels[number * number % 7 < 3]}",
            "answer": labels[number * number % 7 < 3],
        }
        for number in range(start, start + count)
    ]


def write_study(root: Path, model: str = "none", engine: str = "fake") -> Path:
    """Write data, recipe and protocol below `root`; the protocol's path."""
    (root / "data").mkdir(parents=True)
    for name, start, count in (
        ("boolq.train", 0, 40),
        ("piqa.train", 0, 30),
        ("openbookqa.train", 0, 25),
        ("companion", 0, 4),
        ("boolq.test", 500, 10),
        ("openbookqa.test", 500, 10),
    ):
        rows = _rows(name.partition(".")[0], start, count)
        (root / "data" / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (root / "recipe.yaml").write_text(RECIPE.format(model=model, engine=engine))
    (root / "protocol.yaml").write_text(PROTOCOL.format(model=model))
    return root / "protocol.yaml"


def with_points(protocol: Path, points: str) -> Path:
    """Put other points into a protocol; its path."""
    text = protocol.read_text()
    protocol.write_text(text[: text.index("\npoints:") + 1] + points)
    return protocol


class MadeUpRunner:
    """Outcomes drawn from a cell's name; `broken` cells raise what they are given, `asked` lists all that it made."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.broken: dict[str, BaseException] = {}

    def run(self, cell: Cell, directory: Path, progress: Progress) -> CellOutcome:
        progress("making up", 0, 1)
        self.asked.append(cell.name)
        if cell.name in self.broken:
            raise self.broken[cell.name]
        draws = hashlib.sha256(cell.name.encode()).digest()
        moved = draws[0] % 4
        quotas = {"boolq": 8 + moved, "openbookqa": 8, "piqa": 8 - moved}
        if cell.point == "splits":
            return CellOutcome(quotas=quotas, tasks={}, seconds={"select": 0.5})
        scores = {
            task: [float(draws[8 * place + i] % 2) for i in range(6)]
            for place, task in enumerate(("boolq", "openbookqa"), 1)
        }
        nlls = {task: 1 + draws[30 + len(task) % 2] / 256 for task in scores}
        items = [
            ItemScore(task=task, item=str(i), metric=metric, value=value)
            for task, own in scores.items()
            for i, right in enumerate(own)
            for metric, value in (("accuracy", right), ("nll", nlls[task]))
        ]
        write_items(directory / ITEMS_NAME, items)
        tasks = {
            task: TaskMetrics(items=6, metrics={"accuracy": sum(own) / 6, "nll": nlls[task]})
            for task, own in scores.items()
        }
        return CellOutcome(
            quotas=quotas, tasks=tasks, seconds={"select": 0.5, "train": 2.0}, counts={"train_tokens": 100}
        )


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """The protocol of a small study."""
    return write_study(tmp_path / "small")


@pytest.fixture
def study_writer() -> Any:
    return write_study


@pytest.fixture
def runner() -> MadeUpRunner:
    return MadeUpRunner()
