"""docs/contracts.md: its names exist, and its POSIX lines find every kind of difference."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from calibudget.store.checksums import write_sums

PAGE = (Path(__file__).parents[2] / "docs" / "contracts.md").read_text(encoding="utf-8")
CHECK, UNBOUND = re.findall(r"```sh\n(.*?)\n```", PAGE, flags=re.DOTALL)

needs_sha256sum = pytest.mark.skipif(
    shutil.which("sh") is None or shutil.which("sha256sum") is None, reason="needs a POSIX shell with sha256sum"
)


def shell(line: str, directory: Path) -> tuple[int, str]:
    done = subprocess.run(["sh", "-c", line], cwd=directory, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    run = tmp_path / "run"
    (run / "adapter").mkdir(parents=True)
    (run / "a b's.json").write_bytes(b"{}")
    (run / "adapter" / "weights").write_bytes(b"\0" * 1000)
    (run / "empty").write_bytes(b"")
    (run / ".calibudget.lock").write_bytes(b"")
    (run / "signature.dsse.json").write_bytes(b"{}")
    write_sums(run, ["a b's.json", "adapter/weights", "empty"])
    return run


@needs_sha256sum
def test_an_untouched_directory_passes_both_lines(directory: Any) -> None:
    assert shell(CHECK, directory) == (0, "")
    assert shell(UNBOUND, directory) == (0, "")


@needs_sha256sum
@pytest.mark.parametrize("fault", ["byte", "longer", "missing", "link", "folder"])
def test_a_changed_file_is_named_and_fails(directory: Path, fault: str) -> None:
    path = directory / "adapter" / "weights"
    data = path.read_bytes()
    path.unlink()
    if fault == "byte":
        path.write_bytes(data[:-1] + b"\1")
    if fault == "longer":
        path.write_bytes(data + b"\0")
    if fault == "link":
        (directory.parent / "elsewhere").write_bytes(data)
        path.symlink_to(directory.parent / "elsewhere")
    if fault == "folder":
        path.mkdir()
    assert shell(CHECK, directory) == (1, "differs: adapter/weights\n")


@needs_sha256sum
def test_the_last_entry_counts_without_its_line_feed(directory: Path) -> None:
    sums = directory / "SHA256SUMS.tsv"
    sums.write_bytes(sums.read_bytes().removesuffix(b"\n"))
    assert shell(CHECK, directory) == (0, "")
    (directory / "empty").write_bytes(b"not")
    assert shell(CHECK, directory) == (1, "differs: empty\n")


@needs_sha256sum
def test_a_file_that_nothing_binds_is_named_and_fails(directory: Path) -> None:
    (directory / "adapter" / "more").write_bytes(b"")
    (directory / "link").symlink_to("empty")
    code, output = shell(UNBOUND, directory)
    assert (code, sorted(output.split())) == (1, ["adapter/more", "link"])


def test_every_function_on_the_page_exists() -> None:
    names = re.findall(r"`(calibudget(?:\.\w+)+)`", PAGE)
    assert len(names) > 10
    for name in names:
        module, _, attribute = name.rpartition(".")
        assert hasattr(import_module(module), attribute), name


def test_every_page_and_test_that_is_named_exists() -> None:
    root = Path(__file__).parents[2]
    for name in re.findall(r"`((?:tests|decisions)/[\w/.-]+|[\w-]+\.md)`", PAGE):
        assert (root / name).exists() or (root / "docs" / name).exists(), name
