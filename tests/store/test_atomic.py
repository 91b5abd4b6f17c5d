from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import ArtefactError
from calibudget.store import files
from calibudget.store.files import atomic_file, clean_stale, write_atomic


def names(directory: Path) -> Any:
    return sorted(path.name for path in directory.iterdir())


def test_the_usual_permissions_apply(tmp_path: Path) -> None:
    write_atomic(tmp_path / "ours", b"")
    (tmp_path / "theirs").write_bytes(b"")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "theirs").stat().st_mode


def test_an_error_in_the_block_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    write_atomic(tmp_path / "a", b"old")

    def interrupted() -> None:
        with atomic_file(tmp_path / "a") as handle:
            handle.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert (tmp_path / "a").read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


def test_a_link_is_replaced_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").write_bytes(b"mine")
    (tmp_path / "a").symlink_to(tmp_path / "outside")
    write_atomic(tmp_path / "a", b"new")
    assert (tmp_path / "outside").read_bytes() == b"mine"
    assert not (tmp_path / "a").is_symlink()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_full_disk_at_the_flush_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: Any
) -> None:
    write_atomic(tmp_path / "a", b"old")

    def full(descriptor: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(files.os, "fsync", full)  # type: ignore[attr-defined]
    with pytest.raises(ArtefactError, match=r"can't be written: .*nothing was changed"):
        write_atomic(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("target", ["missing/a", "taken"])
def test_a_place_that_takes_no_file_is_an_artefact_error(tmp_path: Path, target: str) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(ArtefactError, match="can't be written"):
        write_atomic(tmp_path / target, b"x")
    assert names(tmp_path) == ["taken"]


def test_stale_files_go_and_others_stay(tmp_path: Path) -> None:
    for name in (".calibudget-0123456789abcdef.tmp", ".calibudget.lock", "a.tmp", "b"):
        (tmp_path / name).write_bytes(b"")
    assert clean_stale(tmp_path) == [".calibudget-0123456789abcdef.tmp"]
    assert names(tmp_path) == [".calibudget.lock", "a.tmp", "b"]
