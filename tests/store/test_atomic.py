from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import ArtefactError, InputError
from calibudget.store import files
from calibudget.store.files import (
    atomic_file,
    check_writable,
    clean_stale,
    expanded,
    flush,
    held_names,
    is_dangling,
    is_stale,
    move_into_place,
    refuse_links,
    remove_directory,
    stale_name,
    write_atomic,
)


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


@pytest.mark.parametrize(
    ("code", "way"),
    [(errno.ENOSPC, "make room or choose"), (errno.EDQUOT, "make room or choose"), (errno.EIO, "choose")],
)
def test_a_full_disk_at_the_flush_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: Any, way: str
) -> None:
    write_atomic(tmp_path / "a", b"old")

    def full(descriptor: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(files.os, "fsync", full)  # type: ignore[attr-defined]
    with pytest.raises(
        ArtefactError, match=rf"can't be written: {os.strerror(code)}; nothing was changed, {way} another"
    ):
        write_atomic(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("target", ["missing/a", "taken"])
def test_a_place_that_takes_no_file_is_an_artefact_error(tmp_path: Path, target: str) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(
        ArtefactError, match=rf"{target}: can't be written: (No such file|Is a) .*; nothing was changed"
    ):
        write_atomic(tmp_path / target, b"x")
    assert names(tmp_path) == ["taken"]


STALE = [f".calibudget-{digit * 16}.tmp" for digit in "012"]


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """A directory with files and what killed writers leave: a file, a folder, a link to a folder."""
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_bytes(b"")
    directory = tmp_path / "out"
    (directory / STALE[0] / "inner").mkdir(parents=True)
    (directory / STALE[2]).symlink_to(tmp_path / "kept")
    for name in (STALE[1], ".calibudget.lock", "a.tmp", "b"):
        (directory / name).write_bytes(b"")
    return directory


def test_stale_files_and_folders_go_and_others_stay(left: Path) -> None:
    assert held_names(left) == ["a.tmp", "b"]
    check_writable(left)  # leaves all as it is
    assert names(left) == [*STALE, ".calibudget.lock", "a.tmp", "b"]
    assert clean_stale(left) == STALE
    assert names(left) == [".calibudget.lock", "a.tmp", "b"]
    assert names(left.parent / "kept") == ["file"]
    assert all(is_stale(name) for name in (stale_name(), *STALE))


def test_a_directory_that_is_removed_is_gone_with_what_it_holds(left: Path) -> None:
    remove_directory(left)
    assert names(left.parent) == ["kept"]
    assert held_names(left) == []


def test_a_home_folder_is_written_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    paths = ["~/a", "a~", "./~/a", "~"]
    assert [expanded(path) for path in paths] == [str(tmp_path / "a"), "a~", "./~/a", str(tmp_path)]
    with pytest.raises(InputError, match=r"^'~nobody-has-this/a' begins with a home folder that isn't known"):
        expanded("~nobody-has-this/a")


def test_a_directorys_entries_are_flushed_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[Path] = []
    honest = os.fsync

    def noted(descriptor: int) -> None:
        flushed.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        honest(descriptor)

    monkeypatch.setattr(files.os, "fsync", noted)  # type: ignore[attr-defined]
    write_atomic(tmp_path / "a", b"x")
    assert flushed[1:] == [tmp_path]
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "whole").write_bytes(b"y")
    move_into_place(tmp_path / "work" / "whole", tmp_path / "a")
    assert flushed[2:] == [tmp_path]
    assert ((tmp_path / "a").read_bytes(), names(tmp_path / "work")) == (b"y", [])


def test_what_a_disk_will_not_give_up_stops_nobody(left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_arguments: Any, **_named: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "rmdir", refused)
    assert clean_stale(left) == STALE
    assert names(left) == [STALE[0], ".calibudget.lock", "a.tmp", "b"]
    remove_directory(left)
    assert not left.exists()
    assert [is_stale(name) for name in names(left.parent)] == [True, False]


def test_a_stale_file_that_another_removes_first_is_no_error(left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def meanwhile(name: str) -> bool:
        if is_stale(name) and not (left / name).is_dir():
            (left / name).unlink()
        return is_stale(name)

    monkeypatch.setattr(files, "is_stale", meanwhile)
    assert clean_stale(left) == STALE


def test_a_system_without_flushes_of_directories_is_not_asked_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(PermissionError):
        flush(tmp_path)
    with monkeypatch.context() as windows:
        windows.setattr(os, "name", "nt")
        flush(tmp_path)


def test_links_in_a_folder_of_ones_own_are_refused_by_name_and_links_to_nothing_are_known(left: Path) -> None:
    link, gone = left / STALE[2], left / "gone"
    refuse_links(left / STALE[0])
    refuse_links(gone)
    for folder in (left, link):
        with pytest.raises(ArtefactError, match=rf"^{link}: is a link"):
            refuse_links(folder)
    gone.symlink_to("nowhere")
    assert [is_dangling(path) for path in (gone, link, left, left / "absent")] == [True, False, False, False]
