"""What a check found is kept by content: found again only where nothing that it follows from is another."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from calibudget.errors import DataError
from calibudget.records import Record, SourceFile
from calibudget.sources import cache_files
from calibudget.sources.hygiene.checks import Matches, Texts, kept_findings
from calibudget.sources.spec import SourceSpec
from calibudget.sources.whole_source import open_source

FOUND = {
    "evaluation a": Matches(digests=frozenset(hashlib.sha256(bytes([n])).digest() for n in range(40)), others=7),
    "evaluation b": Matches(digests=frozenset([bytes(32)]), others=1),
}
CHECK = ["contamination", 13]


@pytest.fixture(autouse=True)
def every_set_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """No set is too small to be kept."""
    monkeypatch.setattr(cache_files, "SMALL", 0)


def unread() -> Iterable[Record]:
    raise AssertionError("texts are the check's to read")


def texts(name: str, **fields: object) -> Texts:
    file = SourceFile(name=f"{name}.jsonl", bytes=2**19, sha256=hashlib.sha256(name.encode()).hexdigest())
    return Texts(records=unread, spec=SourceSpec(label=name, path=file.name, **fields), files=(file,))  # type: ignore[arg-type]


SETS = {"source": texts("source"), "evaluation a": texts("a"), "evaluation b": texts("b")}


class Look:
    """A check that finds the same each time, and counts how often it is made."""

    def __init__(self, found: Mapping[str, Matches] | None = None) -> None:
        self.times = 0
        self._found = FOUND if found is None else found

    def __call__(self) -> Mapping[str, Matches]:
        self.times += 1
        return self._found


@pytest.mark.parametrize("found", [FOUND, {}], ids=["something", "nothing"])
def test_what_was_found_is_found_again_without_a_look(tmp_path: Path, found: Mapping[str, Matches]) -> None:
    look = Look(found)
    for _ in range(3):
        assert kept_findings(tmp_path / "cache", CHECK, SETS, look) == found
    assert look.times == 1
    assert [file.suffix for file in (tmp_path / "cache").iterdir()] == [".findings"]


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "another's", "a pipe", "a folder"])
def test_a_damaged_file_is_noticed_and_made_again(
    tmp_path: Path, damaged: Callable[[bytes, str, bytes], bytes], damage: str
) -> None:
    kept_findings(tmp_path, CHECK, SETS, Look())
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    kept_findings(tmp_path, ["contamination", 5], SETS, Look({}))
    (other,) = set(tmp_path.iterdir()) - {file}
    for _ in range(64 if damage in ("flipped", "cut") else 1):
        data = damaged(whole, damage, other.read_bytes())
        file.unlink()
        if damage == "a pipe":
            os.mkfifo(file)
        elif damage == "a folder":
            file.mkdir()
        else:
            file.write_bytes(data)
        look = Look()
        assert kept_findings(tmp_path, CHECK, SETS, look) == FOUND
        assert look.times == 1
        assert damage == "a folder" or file.read_bytes() == whole  # a folder can't be replaced, and does no harm


@pytest.mark.parametrize(
    "forged",
    [
        b"no JSON",
        b"[]",
        {"schema": "calibudget.findings/2"},
        {"name": "x.findings"},
        {"found": {"evaluation a": {"digests": ["00"], "others": 1}}},
        {"found": {"evaluation a": {"digests": [], "others": 1}}},
        {"found": {"evaluation a": {"digests": ["00" * 32], "others": 0}}},
        {"found": {"evaluation a": {"digests": ["00" * 32], "others": "1"}}},
    ],
    ids=str,
)
def test_a_forged_file_whose_digest_is_right_is_made_again(tmp_path: Path, forged: bytes | dict[str, object]) -> None:
    kept_findings(tmp_path, CHECK, SETS, Look())
    (file,) = tmp_path.iterdir()
    told = json.loads(file.read_bytes()[:-32])
    body = forged if isinstance(forged, bytes) else json.dumps(told | forged).encode()
    file.write_bytes(body + hashlib.sha256(body).digest())
    look = Look()
    assert kept_findings(tmp_path, CHECK, SETS, look) == FOUND
    assert look.times == 1


def changed(name: str, **fields: object) -> Mapping[str, Texts]:
    """The sets, of which one has another file."""
    (file,) = SETS[name].files
    return {**SETS, name: replace(SETS[name], files=(replace(file, **fields),))}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("check", "sets"),
    [
        (["contamination", 8], SETS),
        (["near_duplicates", 13], SETS),
        (CHECK, changed("source", sha256="0" * 64)),
        (CHECK, changed("evaluation b", sha256="0" * 64)),
        (CHECK, {**SETS, "evaluation c": texts("c")}),
        (CHECK, {"source": SETS["source"], "evaluation x": SETS["evaluation a"], "evaluation b": SETS["evaluation b"]}),
        (CHECK, {**SETS, "source": texts("source", columns={"prompt": "q"})}),
        (CHECK, {**SETS, "source": texts("source", where={"x": 1})}),
        (CHECK, {**SETS, "evaluation a": texts("a", preset="piqa")}),
    ],
    ids=["ngram", "check", "source", "exam", "one more exam", "an exam's name", "columns", "where", "preset"],
)
def test_whatever_it_follows_from_counts(
    tmp_path: Path, check: list[object], sets: Mapping[str, Texts], monkeypatch: pytest.MonkeyPatch
) -> None:
    look = Look()
    kept_findings(tmp_path, CHECK, SETS, look)
    kept_findings(tmp_path, check, sets, look)
    assert look.times == 2
    monkeypatch.setattr(cache_files, "_made_by", lambda: ["another comparison"])
    kept_findings(tmp_path, check, sets, look)
    assert look.times == 3


def test_neither_a_label_nor_a_place_nor_what_becomes_of_duplicates_counts(tmp_path: Path) -> None:
    look = Look()
    kept_findings(tmp_path, CHECK, SETS, look)
    spec = SourceSpec(label="renamed", path="elsewhere/*.jsonl", duplicates="keep")
    kept_findings(tmp_path, CHECK, {**SETS, "source": replace(SETS["source"], spec=spec)}, look)
    assert look.times == 1


def test_texts_that_change_after_the_pass_are_refused_and_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"p{n}", "completion": "c"}) + "\n" for n in range(3)))
    source = open_source(SourceSpec(label="s", path=path.name), tmp_path, selection_seed=1)
    assert len([*source.again()]) == 3
    status = path.stat()
    path.write_text(path.read_text().replace("p1", "q1"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    def look() -> Mapping[str, Matches]:
        digests: Iterator[bytes] = (record.completion.encode() for record in source.again())
        return {"evaluation a": Matches(digests=frozenset(digests), others=1)}

    with pytest.raises(DataError, match=r"source 's': rows\.jsonl: changed while it was read; run again"):
        kept_findings(tmp_path / "cache", CHECK, {**SETS, "source": Texts.of(source)}, look)
    assert not (tmp_path / "cache").exists()
