"""The Dockerfile builds and runs as a user without rights, where a builder is at hand."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BASE = "docker.io/library/python:3.12-slim"
TAG = "calibudget-test"


def output(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


@pytest.fixture
def inside() -> Iterator[Callable[..., str]]:
    """Runs a command in the image, by a builder whose daemon answers or that needs none, and gives what it printed."""
    for name in ("docker", "podman"):
        path = shutil.which(name)
        if path is not None and subprocess.run([path, "info"], capture_output=True, timeout=60).returncode == 0:
            output(path, "build", "--tag", TAG, ROOT)
            yield partial(output, path, "run", "--rm", "--entrypoint=", TAG)
            return
    path = shutil.which("buildah")
    if path is None or subprocess.run([path, "pull", "--policy", "missing", BASE], capture_output=True).returncode:
        pytest.skip("neither docker nor podman nor buildah with the base image can build here")
    output(path, "build", "--isolation", "chroot", "--tag", TAG, ROOT)
    container = output(path, "from", TAG)
    yield partial(output, path, "run", "--isolation", "chroot", container, "--")
    output(path, "rm", container)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_the_image_allocates_as_a_user_without_rights(inside: Callable[..., str]) -> None:
    asked = ("allocate", "--sizes", "a=30", "b=5", "--budget", "10", "--policy", "equal", "--json")
    rows = json.loads(inside("calibudget", *asked))["sources"]
    assert {label: row["quota"] for label, row in rows.items()} == {"a": 5, "b": 5}
    assert inside("id", "-u") != "0"
