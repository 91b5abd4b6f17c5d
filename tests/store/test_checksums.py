from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import ArtefactError, InputError, InputTypeError
from calibudget.store.checksums import SUMS_NAME, check_sums, extend_sums, file_digest, read_sums, write_sums
from calibudget.store.files import LOCK_NAME, directory_lock


@pytest.fixture
def directory(tmp_path: Path) -> Any:
    (tmp_path / "adapter").mkdir()
    (tmp_path / "b.json").write_bytes(b"{}")
    (tmp_path / "adapter" / "weights").write_bytes(b"\0" * 100)
    (tmp_path / "Z").write_bytes(b"")
    write_sums(tmp_path, ["b.json", "adapter/weights", "Z"])
    return tmp_path


def said(directory: Any) -> Any:
    return [str(difference) for difference in check_sums(directory)]


def test_the_file_is_path_bytes_digest_sorted_by_path(directory: Any) -> None:
    expected = [("Z", b""), ("adapter/weights", b"\0" * 100), ("b.json", b"{}")]
    assert (directory / SUMS_NAME).read_text() == "".join(
        f"{name}\t{len(data)}\t{hashlib.sha256(data).hexdigest()}\n" for name, data in expected
    )


def test_changes_are_named(directory: Path) -> None:
    (directory / "b.json").write_bytes(b"[]")
    (directory / "Z").unlink()
    (directory / "adapter" / "weights").write_bytes(b"\0" * 99)
    (directory / "adapter" / "new").write_bytes(b"")
    found = check_sums(directory)
    assert [(difference.file, difference.field) for difference in found] == [
        ("Z", ""),
        ("adapter/weights", "bytes"),
        ("b.json", "sha256"),
        ("adapter/new", ""),
    ]
    digests = [hashlib.sha256(data).hexdigest() for data in (b"{}", b"[]")]
    assert said(directory) == [
        f"Z: expected the file that was bound, found {directory / 'Z'}: can't be read: No such file or directory",
        "adapter/weights: bytes: expected 100, found 99",
        f"b.json: sha256: expected {digests[0]}, found {digests[1]}",
        "adapter/new: expected no file outside SHA256SUMS.tsv, found one",
    ]


def test_what_killed_writers_left_and_work_that_is_begun_are_no_differences(directory: Path) -> None:
    for name in (".calibudget-0123456789abcdef.tmp/inner/file", "work/part", "made-1", "adapter/.tmp", "worked"):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(b"")
    found = check_sums(directory, {"work": ["made-"]})
    assert [difference.file for difference in found] == ["adapter/.tmp", "worked"]


def test_links_are_differences_wherever_they_lead(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "b.json").write_bytes(b"{}")
    (directory / "b.json").unlink()
    (directory / "b.json").symlink_to(directory / "copy.json")
    (directory / "copy.json").write_bytes(b"{}")
    (directory / "tree").symlink_to(outside)
    assert [difference.file for difference in check_sums(directory)] == ["b.json", "copy.json", "tree"]
    assert "is a symbolic link; evidence binds regular files only" in said(directory)[0]
    (directory / "b.json").unlink()
    (directory / "b.json").symlink_to(outside / "b.json")
    assert "leads out" in said(directory)[0]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("b.json\t2\tABC\n", ":1: isn't path, bytes and SHA-256 parted by tabs: 'b.json\\t2\\tABC'"),
        ("b.json\t02\t" + "0" * 64 + "\n", ":1: isn't path"),
        ("b.json 2 " + "0" * 64 + "\n", ":1: isn't path"),
        ("b.json\t2\t" + "0" * 64, ": the last line is cut short"),
        ("b\t2\t" + "0" * 64 + "\na\t2\t" + "0" * 64 + "\n", ": paths must be sorted and unique"),
        ("a\t2\t" + "0" * 64 + "\na\t2\t" + "0" * 64 + "\n", ": paths must be sorted and unique"),
        ("b.json\t2\t" + "0" * 64 + "\n\n", ":2: isn't path"),
        ("b.json\t2\t" + "0" * 64 + "\r\n", ":1: isn't path"),
    ],
)
def test_a_sums_file_that_isnt_ours_is_one_difference(directory: Any, text: Any, found: str) -> None:
    (directory / SUMS_NAME).write_text(text, newline="")
    (difference,) = said(directory)
    assert difference.startswith(f"{SUMS_NAME}: expected a readable list of sums, found {SUMS_NAME}{found}")


def test_a_sums_file_that_is_missing_or_no_text_is_one_difference(directory: Any) -> None:
    (directory / SUMS_NAME).write_bytes(b"\xff\n")
    assert "UTF-8" in said(directory)[0]
    (directory / SUMS_NAME).unlink()
    assert check_sums(directory)[0].file == SUMS_NAME


def test_a_path_that_climbs_out_is_a_difference_not_a_read(directory: Any) -> None:
    (directory / SUMS_NAME).write_text(f"../secret\t2\t{'0' * 64}\n")
    assert "must not climb" in said(directory)[0]


def test_every_flipped_byte_of_the_sums_is_noticed(directory: Any) -> None:
    path = directory / SUMS_NAME
    data = path.read_bytes()
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x01
        path.write_bytes(bytes(damaged))
        assert check_sums(directory), position
    path.write_bytes(data)
    assert check_sums(directory) == []


def test_what_cant_be_bound_is_refused(directory: Path) -> None:
    (directory / "link").symlink_to(directory / "b.json")
    (directory / "a\tb").write_bytes(b"")
    with pytest.raises(ArtefactError, match="symbolic link"):
        write_sums(directory, ["link"])
    with pytest.raises(ArtefactError, match="adapter: is no regular file; evidence binds"):
        write_sums(directory, ["adapter"])
    with pytest.raises(ArtefactError, match=r"^'a\\x00b': can't be the path of a file: "):
        file_digest(Path("a\0b"))
    with pytest.raises(InputTypeError, match=r"^a file is named by a Path, not str: 'b.json'"):
        file_digest("b.json")  # type: ignore[arg-type]
    with pytest.raises(ArtefactError, match="tab"):
        write_sums(directory, ["a\tb"])
    with pytest.raises(ArtefactError, match="twice"):
        write_sums(directory, ["Z", "Z"])
    with pytest.raises(InputError, match="climb"):
        write_sums(directory, ["../x"])


def test_further_files_are_bound_and_others_stay_as_they_were_bound(directory: Path) -> None:
    (directory / "b.json").write_bytes(b"[]")
    (directory / "new.json").write_bytes(b"1")
    extend_sums(directory, ["new.json"])
    assert said(directory) == [one for one in said(directory) if one.startswith("b.json")]
    extend_sums(directory, ["b.json"])
    assert check_sums(directory) == []
    assert list(read_sums(directory)) == ["Z", "adapter/weights", "b.json", "new.json"]


@pytest.mark.parametrize("name", [SUMS_NAME, LOCK_NAME])
@pytest.mark.parametrize("kind", ["link", "folder", "fifo"])
def test_sums_and_lock_that_are_no_regular_files_are_differences(
    directory: Any, tmp_path_factory: pytest.TempPathFactory, name: Any, kind: str
) -> None:
    path = directory / name
    outside = tmp_path_factory.mktemp("outside") / "file"
    outside.write_bytes(path.read_bytes() if path.exists() else b"")
    path.unlink(missing_ok=True)
    if kind == "link":
        path.symlink_to(outside)
    elif kind == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    (difference,) = said(directory)
    if name == LOCK_NAME:
        assert difference == f"{name}: expected a regular file, found none"
        with pytest.raises(ArtefactError, match="no regular file"), directory_lock(directory):
            pass
