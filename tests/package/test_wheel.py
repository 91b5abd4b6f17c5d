"""The wheel installs alone, on every Python that is at hand, and does the part of the job that needs no model."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import ArtefactError
from calibudget.pipeline.verify import check_distribution

ROOT = Path(__file__).parents[2]
VERSIONS = ("3.11", "3.12", "3.13")
RECIPE = """\
budget: 12
floor: 2
policy: floor-sqrt
calibration: none
sources:
  left: {path: left.jsonl, answer: none}
  right: {path: right.jsonl, answer: none}
"""


def interpreter(version: Any) -> Any:
    """An interpreter of that version that really starts: a version manager's shim may only say that it has none."""
    for name in (f"python{version}", sys.executable):
        path = shutil.which(name)
        if path is None:
            continue
        answer = subprocess.run(
            [path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True
        )
        if answer.returncode == 0 and answer.stdout.strip() == version:
            return path
    pytest.skip(f"no Python {version} on this machine")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Any:
    out = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT],
        check=True,
        capture_output=True,
    )
    return next(out.glob("*.whl"))


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", VERSIONS)
def test_wheel_runs_alone(version: Any, wheel: Any, tmp_path: Path) -> None:
    subprocess.run([interpreter(version), "-m", "venv", tmp_path / "venv"], check=True)
    bin_dir = tmp_path / "venv/bin"
    subprocess.run([bin_dir / "python", "-m", "pip", "install", "-q", wheel], check=True, capture_output=True)
    installed = subprocess.run([bin_dir / "python", "-m", "pip", "list"], check=True, capture_output=True, text=True)
    assert "torch" not in installed.stdout
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}

    def calibudget(*arguments: Any) -> Any:
        return subprocess.run(
            [bin_dir / "calibudget", *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True
        )

    assert calibudget("--help").returncode == 0
    quotas = calibudget(
        "allocate", "--sizes", "a=30", "--sizes", "b=5", "--budget", "10", "--policy", "equal", "--json"
    )
    assert {label: row["quota"] for label, row in json.loads(quotas.stdout)["sources"].items()} == {"a": 5, "b": 5}

    for label, count in (("left", 9), ("right", 16)):
        rows = [{"prompt": f"{label} question {i}", "completion": f"answer {i}"} for i in range(count)]
        (tmp_path / f"{label}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    run = calibudget("run", "recipe.yaml", "--output-dir", "out")
    assert run.returncode == 0, run.stderr
    assert len((tmp_path / "out/train.jsonl").read_text().splitlines()) == 12
    assert calibudget("verify", "out").returncode == 0
    demo = calibudget("demo")
    assert demo.returncode == 2
    assert "pip install" in demo.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_distribution_binds_its_own_files(wheel: Any, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)  # noqa: S202 - built here
    package = tmp_path / "calibudget"

    def check(*directory: Any) -> Any:
        command = [sys.executable, "-m", "calibudget", "verify", *directory, "--distribution", "--json"]
        done = subprocess.run(
            command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path)}, capture_output=True
        )
        return done.returncode, [one["file"] for one in json.loads(done.stdout)["differences"]]

    lines = (package / "SHA256SUMS.tsv").read_text().splitlines()
    assert len(lines) == sum(path.is_file() for path in package.rglob("*")) - 1
    assert check() == (0, [])
    (package / "keys.py").write_text((package / "keys.py").read_text() + "# changed\n")
    (package / "py.typed").unlink()
    (package / "added.py").write_text("")
    assert check() == (1, ["keys.py", "py.typed", "added.py"])

    subprocess.run(
        [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", tmp_path / "sdist", ROOT],
        check=True,
        capture_output=True,
    )
    with tarfile.open(next((tmp_path / "sdist").glob("*.tar.gz"))) as archive:  # type: ignore[assignment]
        archive.extractall(tmp_path / "sdist", filter="data")  # type: ignore[call-arg]
    unpacked = next(path for path in (tmp_path / "sdist").iterdir() if path.is_dir())
    assert check(unpacked) == (0, [])
    (unpacked / "README.md").write_text("")
    assert check(unpacked) == (1, ["README.md"])


def test_a_checkout_has_no_sums(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match=r"holds no SHA256SUMS\.tsv"):
        check_distribution(tmp_path)
