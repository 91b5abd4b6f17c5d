from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import ArtefactError, InputError
from calibudget.store import journal as journal_module
from calibudget.store.journal import Journal, _line

HEADER = {"recipe": "r", "model": {"sha256": "m"}}


@pytest.fixture
def path(tmp_path: Path) -> Any:
    return tmp_path / "scores.journal"


def entries(path: Any) -> Any:
    with Journal.open(path, HEADER) as journal:
        return journal.entries


def write(path: Any, *items: Any) -> None:
    with Journal.open(path, HEADER) as journal:
        for item in items:
            journal.append(item)


def test_entries_come_back_in_order(path: Any) -> None:
    write(path, {"batch": 0, "nll": [0.1, 1e-7]}, {"batch": 1, "text": "é\n"})
    write(path, {"batch": 2})
    assert entries(path) == ({"batch": 0, "nll": [0.1, 1e-7]}, {"batch": 1, "text": "é\n"}, {"batch": 2})


def test_another_header_is_refused_and_nothing_is_changed(path: Path) -> None:
    write(path, {"a": 1})
    before = path.read_bytes()
    other = {"recipe": "other", "model": {"sha256": "n"}, "more": 1}
    with pytest.raises(
        ArtefactError, match=r"belongs to another run \(its header differs in model\.sha256, more, recipe\); choose an"
    ):
        Journal.open(path, other)
    with pytest.raises(ArtefactError, match=r"differs in recipe\)"):
        Journal.open(path, HEADER | {"recipe": "other"})
    assert path.read_bytes() == before


def test_a_closed_journal_takes_nothing_and_may_be_closed_again(path: Path) -> None:
    journal = Journal.open(path, HEADER)
    journal.close()
    journal.close()
    with pytest.raises(ArtefactError, match=r"scores\.journal: the journal is closed$"):
        journal.append({"a": 1})


def test_every_torn_tail_is_cut_and_writing_goes_on(path: Path) -> None:
    write(path, {"a": 1}, {"b": 2})
    whole = path.read_bytes()
    first = whole.index(b"\n", whole.index(b"\n") + 1) + 1
    for end in range(first, len(whole)):
        path.write_bytes(whole[:end])
        with Journal.open(path, HEADER) as journal:
            assert journal.entries == ({"a": 1},)
            journal.append({"b": 2})
        assert path.read_bytes() == whole


def test_any_flipped_byte_cuts_the_journal_there_or_refuses_its_header(path: Path) -> None:
    items = ({"a": 1}, {"b": 2}, {"c": 3})
    write(path, *items)
    whole = path.read_bytes()
    starts = [0, *(i + 1 for i, byte in enumerate(whole) if byte == ord("\n"))]
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 0x01
        path.write_bytes(bytes(damaged))
        if position < starts[1]:
            with pytest.raises(ArtefactError, match=r"header is damaged|another run"):
                Journal.open(path, HEADER)
        else:
            kept = sum(position >= start for start in starts[2:])
            assert entries(path) == items[:kept]


def test_lines_that_were_reordered_or_dropped_are_not_trusted(path: Path) -> None:
    write(path, {"a": 1}, {"b": 2}, {"c": 3})
    header, a, b, c = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(header + b + a + c)
    assert entries(path) == ()
    path.write_bytes(header + a + c)
    assert entries(path) == ({"a": 1},)


def test_an_empty_file_is_refused_with_the_way_out(path: Path) -> None:
    path.write_bytes(b"")
    with pytest.raises(ArtefactError, match="delete the file"):
        Journal.open(path, HEADER)


def test_a_full_disk_leaves_the_journal_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, {"a": 1})
    before = path.read_bytes()
    with Journal.open(path, HEADER) as journal:
        real = os.write

        def full(descriptor: Any, data: Any) -> None:
            real(descriptor, bytes(data)[:7])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(journal_module.os, "write", full)  # type: ignore[attr-defined]
        with pytest.raises(ArtefactError, match="No space left"):
            journal.append({"b": 2})
        monkeypatch.undo()
        assert path.read_bytes() == before
        journal.append({"b": 2})
    assert entries(path) == ({"a": 1}, {"b": 2})


def test_an_entry_without_a_canonical_form_is_refused_and_nothing_is_written(path: Path) -> None:
    with Journal.open(path, HEADER) as journal:
        before = path.read_bytes()
        with pytest.raises(InputError):
            journal.append({"nll": float("nan")})
        assert path.read_bytes() == before


def test_a_line_that_is_no_object_and_a_place_that_takes_no_journal_are_named(path: Path) -> None:
    write(path, {"a": 1})
    whole = path.read_bytes()
    last = whole.splitlines()[-1].split(b" ")[0].decode()
    path.write_bytes(whole + _line(last, b"[1]")[0])
    with pytest.raises(ArtefactError, match=rf"^{path.name}: entry 2: the root must be an object"):
        entries(path)
    path.unlink()
    path.symlink_to("elsewhere")
    with pytest.raises(ArtefactError, match="no regular file, so no journal"):
        entries(path)


def test_a_header_that_is_no_object_and_a_file_that_cannot_be_written_are_named(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_bytes(_line("", b"[1]")[0])
    with pytest.raises(ArtefactError, match=r"^the journal's header: the root must be an object"):
        Journal.open(path, HEADER)
    path.unlink()
    write(path)

    def refused(*_arguments: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(journal_module.os, "ftruncate", refused)  # type: ignore[attr-defined]
    with pytest.raises(ArtefactError, match=rf"{path.name}: can't be opened for writing: Read-only file system$"):
        Journal.open(path, HEADER)
