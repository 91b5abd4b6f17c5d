"""The Dockerfile builds, and its image allocates as a user who isn't root, where a builder and the base image are."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_the_image_allocates_as_a_user_who_isnt_root(tmp_path: Path) -> None:
    builder = shutil.which("buildah")
    if builder is None:
        pytest.skip("no buildah on this machine: apt-get install buildah")
    for base in sorted(set(re.findall(r"^FROM (\S+)", (ROOT / "Dockerfile").read_text(), re.M))):
        if run(builder, "pull", "--policy", "missing", f"docker.io/library/{base}").returncode:
            pytest.skip(f"the base image {base} is neither here nor to be had")
    source = tmp_path / "source"
    run("git", "clone", "--quiet", "--no-hardlinks", ROOT, source).check_returncode()
    image = "localhost/calibudget-of-a-test"
    built = run(builder, "build", "--isolation", "chroot", "--layers=false", "--tag", image, source)
    assert built.returncode == 0, built.stderr[-2000:]
    container = run(builder, "from", image).stdout.strip()
    try:
        asked = "allocate --sizes left=5 right=9 --budget 6 --policy equal --json".split()
        found = run(builder, "run", "--isolation", "chroot", container, "--", "calibudget", *asked)
        assert found.returncode == 0, found.stderr
        assert re.findall(r'"quota":(\d+)', found.stdout) == ["3", "3"]
        user = run(
            builder, "run", "--isolation", "chroot", container, "--", "python", "-c", "import os; print(os.getuid())"
        )
        assert int(user.stdout) > 0
    finally:
        run(builder, "rm", container)
        run(builder, "rmi", image)
