"""Every kind of run gives the bytes that it gave: see tools/golden_runs.py, which also says how to write them anew."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from calibudget.cli.schema import schemas

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """The folder with every kind of run, and what was said of them."""
    folder = tmp_path_factory.mktemp("golden")
    # another hash seed than that of the committed digests: no byte may follow the order of a set
    done = subprocess.run(
        [sys.executable, "tools/golden_runs.py", "--check", "tests/golden/runs.tsv", "--keep", str(folder)],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 2:
        pytest.skip(done.stderr)
    return folder, done


@pytest.mark.slow
def test_every_kind_of_run_gives_the_bytes_that_it_gave(made: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    done = made[1]
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.slow
def test_every_file_is_as_its_schema_says(made: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    checks = {name: Draft202012Validator(schema) for name, schema in schemas().items()}
    files = [(path.stem, path, json.loads(path.read_bytes())) for path in made[0].rglob("*.json")]
    files += [("recipe", path, yaml.safe_load(path.read_bytes())) for path in made[0].rglob("recipe.resolved.yaml")]
    files = [(name, path, value) for name, path, value in files if name in checks]
    faults = [f"{path}: {fault.json_path}" for name, path, value in files for fault in checks[name].iter_errors(value)]
    assert faults == []
    assert {name for name, _, _ in files} == checks.keys() - {"protocol", "proxy"}
