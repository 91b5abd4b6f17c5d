"""The Dockerfile builds and runs as a user without rights, where a builder is at hand."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TAG = "calibudget-test"


@pytest.fixture
def builder() -> str:
    """A program that builds images and whose daemon, if it has one, answers."""
    for name in ("docker", "podman"):
        path = shutil.which(name)
        if path is not None and subprocess.run([path, "info"], capture_output=True, timeout=60).returncode == 0:
            return path
    pytest.skip("neither docker nor podman can build here")


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_the_image_allocates_as_a_user_without_rights(builder: str) -> None:
    subprocess.run([builder, "build", "--tag", TAG, ROOT], check=True, capture_output=True)

    def inside(*words: str) -> str:
        return subprocess.run([builder, "run", "--rm", *words], check=True, capture_output=True, text=True).stdout

    asked = ("allocate", "--sizes", "a=30", "b=5", "--budget", "10", "--policy", "equal", "--json")
    rows = json.loads(inside(TAG, *asked))["sources"]
    assert {label: row["quota"] for label, row in rows.items()} == {"a": 5, "b": 5}
    assert inside("--entrypoint", "id", TAG, "-u").strip() != "0"
