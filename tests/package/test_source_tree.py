"""The package run from its source tree alone, as from a checkout that nobody installed."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

import pytest

import calibudget
from tools.golden_runs import write_inputs


@pytest.mark.slow
def test_a_source_tree_that_was_never_installed_runs_and_says_what_it_is(tmp_path: Path) -> None:
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    for folder in [one for one in map(Path, sys.path) if any(one.glob("*.dist-info"))]:
        for path in folder.iterdir():
            if "calibudget" not in path.name and path.suffix != ".pth" and not (libraries / path.name).exists():
                (libraries / path.name).symlink_to(path)
    source = Path(calibudget.__file__).parents[1]
    env = {"PYTHONPATH": f"{source}:{libraries}", "HOME": str(tmp_path), "PATH": ""}
    with chdir(tmp_path):
        write_inputs()

    def said(*argv: str) -> str:
        command = [sys.executable, "-S", "-m", "calibudget", *argv]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert said("--version") == "source tree\n"
    said("run", "recipe.yaml", "--output-dir", "out")
    assert json.loads((tmp_path / "out/manifest.json").read_bytes())["versions"]["calibudget"] == "source tree"
