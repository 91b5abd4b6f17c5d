"""Hash seeds, workers, locales, time zones and threads change no byte."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import calibudget
from tests.attacks.conftest import Zygote, chance_of, contents

pytestmark = pytest.mark.slow


@pytest.mark.cases(0, 20, 1)
def test_the_machine_around_a_run_changes_no_byte(zygote: Zygote, whole: Any, tmp_path: Path, part: Any) -> None:
    """Each case is a process of its own hash seed, locale and encoding, and ten runs in it."""
    chance = chance_of(part)
    for case in range(part[1]):
        env = {
            "PYTHONHASHSEED": str(chance.randrange(1 << 32)),
            "LC_ALL": chance.choice(["C", "C.UTF-8", "POSIX", "tr_TR.UTF-8", "de_DE.UTF-8"]),
            "PYTHONUTF8": chance.choice("01"),
        }
        other = Zygote(zygote.folder, env)
        try:
            for number in range(10):
                zone = chance.choice(["UTC", "Asia/Kathmandu", "Pacific/Apia", "America/St_Johns"])
                name = chance.choice(["run", "run-model"])
                recipe = ["recipe.yaml"] if name == "run" else ["model.yaml", "output.format=parquet"]
                directory = tmp_path / f"{case}-{number}"
                workers = ["--workers", str(chance.choice([1, 2, 3]))] if name == "run" else []
                threads = {"OMP_NUM_THREADS": chance.choice("123"), "TZ": zone}
                done = other.give(["run", *recipe, "--output-dir", directory, *workers], env=threads)
                assert done["code"] == 0, (env, threads, workers, done["text"])
                assert contents(directory) == whole(name)[0], (env, threads, workers)
        finally:
            other.close()


@pytest.mark.skipif("CALIBUDGET_PYTHONS" not in os.environ, reason="names no other interpreters, as paths with ':'")
@pytest.mark.cases(2, 20, 5)
def test_other_versions_of_python_give_the_same_bytes(zygote: Zygote, tmp_path: Path, part: Any) -> None:
    """Each with the package's own dependencies installed."""
    chance = chance_of(part)
    source = str(Path(calibudget.__file__).parents[1])
    for number in range(part[1]):
        changes = [f"seed={chance.randrange(1 << 30)}", f"policy={chance.choice(['calibudget', 'need', 'pooled'])}"]
        made: dict[str, Any] = {}
        for python in [sys.executable, *os.environ["CALIBUDGET_PYTHONS"].split(":")]:
            directory = tmp_path / f"{number}-{len(made)}"
            command = [python, "-m", "calibudget", "run", "recipe.yaml", *changes, "--output-dir", str(directory)]
            done = subprocess.run(
                command,
                cwd=zygote.folder,
                env=os.environ | {"PYTHONPATH": source, "PYTHONHASHSEED": str(chance.randrange(1 << 32))},
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, (python, done.stderr)
            made[python] = contents(directory)
            del made[python]["SHA256SUMS.tsv"]  # has the digest of the manifest, which names the versions
        assert len({str(sorted(one.items())) for one in made.values()}) == 1, changes
