from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from calibudget.pipeline.run import run
from calibudget.recipe.load import load_recipe
from calibudget.store.canonical import canonical_json, sealed
from calibudget.store.checksums import file_digest, write_sums
from calibudget.store.train_set import read_train

RECIPE = """
engine: fake
budget: 24
floor: 4
data_dir: data
calibration: {{per_source: 5, resamples: 4}}
duplicates: {duplicates}
policy: {policy}
sources:
  boolq: {{path: boolq.jsonl, answer: {{kind: choice, labels: ["true", "false"]}}}}
  piqa: {{path: piqa.jsonl, answer: {{kind: choice, labels: ["true", "false"]}}}}
companion: {{path: math.jsonl, answer: none}}
output: {{format: {format}, order: {order}}}
"""


def _rows(name: Any, count: Any) -> Iterator[Any]:
    for number in range(count):
        response = f"the correct answer is {'true' if number * number % 7 < 3 else 'false'}"
        extra = {"input": None, "meta": {"n": 2**60 + number, "f": 0.1 * number}}
        yield {"instruction": f"{name} question {number}?", "output": response, **extra}


def make_sources(root: Path) -> None:
    (root / "data").mkdir(exist_ok=True)
    for name, count in (("boolq", 30), ("piqa", 40), ("math", 6)):
        rows = list(_rows(name, count))
        text = "".join(json.dumps(row) + "\n" for row in rows + rows[:3])
        (root / "data" / f"{name}.jsonl").write_text(text)


def write_recipe(
    root: Path,
    *,
    duplicates: str = "drop",
    policy: str = "calibudget",
    form: str = "jsonl",
    order: str = "shuffled",
    more: str = "",
) -> Any:
    path = root / "recipe.yaml"
    path.write_text(RECIPE.format(duplicates=duplicates, policy=policy, format=form, order=order) + more)
    return path


@pytest.fixture
def make_recipe(tmp_path: Path) -> Any:
    """Writes a recipe of two small sources and a companion set; returns its path."""
    make_sources(tmp_path)
    return partial(write_recipe, tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A folder with a finished run in `run` and its sources in `data`; to be copied, never changed."""
    root = tmp_path_factory.mktemp("finished")
    make_sources(root)
    run(load_recipe(write_recipe(root)), root / "run")
    return root


@pytest.fixture(scope="module")
def held_out_run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A folder like that of `finished`, whose run holds six records of each source out for evaluation."""
    root = tmp_path_factory.mktemp("held-out")
    make_sources(root)
    run(load_recipe(write_recipe(root), ["evaluation={per_source: 6}"]), root / "run")
    return root


@pytest.fixture(scope="module")
def exam_run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A finished run that dropped two prompts of an evaluation set; to be copied, never changed."""
    root = tmp_path_factory.mktemp("exam")
    make_sources(root)
    rows = [{"instruction": f"boolq question {number}?", "output": "true"} for number in (4, 9)]
    (root / "data" / "exam.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    exam = "hygiene.evaluation={exam: {path: exam.jsonl, answer: none}}"
    run(load_recipe(write_recipe(root), [exam]), root / "run")
    return root / "run"


def rows_of(directory: Path) -> list[dict[str, Any]]:
    """The rows of a run's train set."""
    return list(read_train(directory / "train.jsonl"))


def picks(directory: Path) -> set[tuple[str, str]]:
    """Source and id of each selected example of a run."""
    return {(row["source"], row["record_id"]) for row in rows_of(directory) if row["role"] == "source"}


def rewrite_sums(directory: Path) -> None:
    """Make the sums those of the files that are there."""
    write_sums(directory, sorted(one.name for one in directory.iterdir() if not one.name.startswith((".", "SHA"))))


def forge(directory: Path) -> None:
    """What a thorough forger does after an edit: bind the files anew, seal the manifest anew, rewrite the sums."""
    path = directory / "manifest.json"
    manifest = json.loads(path.read_bytes())
    for name in manifest["artefacts"]:
        digest = file_digest(directory / name)
        manifest["artefacts"][name] = {"bytes": digest.bytes, "sha256": digest.sha256}
    path.write_bytes(canonical_json(sealed(manifest, "manifest_sha256")))
    rewrite_sums(directory)
