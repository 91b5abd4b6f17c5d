"""Lines and keys that are made in blocks are those made one at a time."""

from __future__ import annotations

import hashlib
import io
import json
import unicodedata
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibudget.errors import DataError, InputError
from calibudget.keys import canonical_pairs, digest_keys, order_keys
from calibudget.sources import json_files, media_marks
from calibudget.sources.file_formats import flat
from calibudget.sources.identity_index import Tally, column, name_rows
from calibudget.sources.inputs import inputs_of
from calibudget.sources.row_records import RecordMaker
from calibudget.sources.spec import SourceSpec
from calibudget.store.canonical import strict_json

PIECES = st.sampled_from([b"", b"\n", b"\r", b"a", b"bcd", b" ", b"\xff", b"x" * 9, b"\r\n"])


@given(data=st.lists(PIECES, max_size=30).map(b"".join), block=st.integers(1, 12), longest=st.integers(1, 12))
def test_lines_are_those_of_the_whole_file(data: bytes, block: int, longest: int) -> None:
    expected, at = [], 0
    for line in data.split(b"\n"):
        expected.append((at, line))
        at += len(line) + 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_files, "_BLOCK", block)
        patch.setattr(json_files, "_ROWS", 2)
        whole = dict(pair for part in json_files._lines(io.BytesIO(data), longest) for pair in zip(*part, strict=True))
    found = {at: line.removesuffix(b"\n") for at, line in whole.items()}
    assert b"".join(whole.values()) == data or any(len(line) > longest for _, line in expected)
    for at, line in expected:
        if len(line) > longest:
            assert len(found[at]) > longest
            assert line.startswith(found[at])
        elif line:
            assert found[at] == line
    assert all(at in dict(expected) for at, line in found.items() if line)


@given(
    names=st.lists(st.binary(max_size=5), max_size=9),
    seed=st.integers(0, 2**53 - 1),
    label=st.text('ab"\\é', max_size=5),
)
def test_keys_of_many_digests_are_those_of_each(names: list[bytes], seed: int, label: str) -> None:
    digests = [hashlib.sha256(name).digest() for name in names]
    one = order_keys("selection", seed, label)
    assert digest_keys("selection", seed, label)(b"".join(digests)) == b"".join(one(own.hex()) for own in digests)


@given(st.lists(st.tuples(*[st.sampled_from(['a"],[', '"],["', "],[", '"', "\\", "", "b"]) | st.text('"],[\\a')] * 2)))
def test_pairs_written_together_are_those_written_apart(pairs: list[tuple[str, str]]) -> None:
    """Texts that hold what parts pairs, whole or in parts, among them."""
    expected = [json.dumps(pair, separators=(",", ":")).encode() for pair in pairs]
    assert canonical_pairs(*zip(*pairs, strict=True)) == expected if pairs else canonical_pairs([], []) == []


#: Texts that the normal form, the canonical form, the parser or the look for media must not get wrong.
ODD = st.sampled_from(
    ["a", "B", " ", "  ", "\t", "\n", "\x1c", "\x7f", "\x85", "\u00a0", "\u2028", '"', "\\", ":", '":', " :", ".",
     "e\u0301", "\u00c9", "\u00df", "\u1e9e", "\u0130", "\ufb01", "\u0345", "\u1100\u1161", "\U0001f600",
     "["]
)  # fmt: skip
WORDS = st.lists(ODD, max_size=4).map("".join).map("a{}b".format)
TEXTS = st.lists(st.sampled_from(["", " ", "\0", "<image>"]) | WORDS, max_size=2).map("".join)
FEW = st.sampled_from(["q", "r", "s", "a  b", "a\tb", "\u00c9  b", "<image>"])
META = st.sampled_from([1, 2**64, 1.5, 1e19, True, None, "x", [1], {"a": 1}])


def rows_of(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Rows whose fields come in one order, as `fixed_dictionaries` doesn't give them."""
    return st.lists(st.tuples(*fields.values()).map(lambda values: dict(zip(fields, values, strict=True))), max_size=12)


@given(
    rows=rows_of(instruction=FEW, output=FEW)
    | rows_of(instruction=WORDS, input=st.just(""), output=WORDS)
    | rows_of(output=WORDS, question=WORDS, meta=META)
    | rows_of(instruction=TEXTS, input=TEXTS, output=WORDS)
    | st.lists(st.fixed_dictionaries({"question": TEXTS, "output": TEXTS}, optional={"meta": META})),
    separators=st.sampled_from([(",", ":"), (", ", " : ")]),
    ascii_only=st.booleans(),
    odd=st.sampled_from([b"", b"{%b", b'{"%b": "x", ']),
    at=st.none() | st.integers(0, 8),
)
def test_rows_are_named_in_blocks_as_by_themselves(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[dict[str, object]],
    separators: tuple[str, str],
    ascii_only: bool,
    odd: bytes,
    at: int | None,
) -> None:
    written = [json.dumps(row, separators=separators, ensure_ascii=ascii_only).encode() for row in rows]
    if at is not None and at < len(written):
        written[at] = odd % next(iter(rows[at])).encode() + written[at][1:] if odd else b""
    folder = tmp_path_factory.mktemp("rows")
    (folder / "r.jsonl").write_bytes(b"\n".join(written))
    spec = SourceSpec(label="s", path="r.jsonl", on_error="skip")
    (given,), _ = inputs_of(spec, folder)
    tally = Tally()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_files, "_ROWS", 4)
        batches = list(name_rows(spec, given, tally))
    found = [
        pair
        for batch in batches
        for pair in zip(
            column(batch, "at", "<i8").tolist(),
            column(batch, "text", "V32"),
            column(batch, "prompt", "V32"),
            strict=True,
        )
    ]
    assert [(at, text.tobytes(), prompt.tobytes()) for at, text, prompt in found] == expected(written, spec)
    parsed = {at: row for at, row in flat(given.blocks()) if isinstance(row, dict)}
    starts = accumulate((len(line) + 1 for line in written), initial=0)
    strictly = {at: strict(line) for at, line in zip(starts, written, strict=False)}
    assert repr(parsed) == repr({at: row for at, row in strictly.items() if row is not None})
    assert (tally.read, tally.read - tally.skipped) == (len([line for line in written if line]), len(found))


def expected(written: list[bytes], spec: SourceSpec) -> list[tuple[int, bytes, bytes]]:
    """What names the lines that a maker of records takes, by the formula of docs/formats.md."""
    maker, at, found = RecordMaker(spec), 0, []
    for line in written:
        row = strict(line)
        try:
            is_taken = row is not None and maker(row) is not None
        except DataError:
            is_taken = False
        if row is not None and is_taken:
            prompt, more, response = row.get("instruction", row.get("question")), row.get("input", ""), row["output"]
            prompt = " ".join(unicodedata.normalize("NFC", f"{prompt}\n{more}").split())
            pair = [prompt, unicodedata.normalize("NFC", response).strip()]
            name = json.dumps(pair, ensure_ascii=False, separators=(",", ":")).encode()
            found.append((at, hashlib.sha256(name).digest(), hashlib.sha256(prompt.casefold().encode()).digest()))
        at += len(line) + 1
    return found


def strict(line: bytes) -> dict[str, Any] | None:
    try:
        row = strict_json(line)
    except InputError:
        return None
    return row if isinstance(row, dict) else None


@given(
    mark=st.sampled_from([media_marks._TOKEN, media_marks._PAIR, media_marks._BRACKETED, media_marks._PICTURE]).flatmap(
        st.from_regex
    ),
    spelling=st.sampled_from([str, str.upper, str.title]),
    letters=st.sampled_from(["ss", "s\u017f", "i\u0131", "i\u0130", "S\u017f", "I\u0130"]),
)
def test_no_mark_of_media_is_without_its_piece(mark: str, spelling: Callable[[str], str], letters: str) -> None:
    """Letters that a pattern takes for others, case aside, among them."""
    assert media_marks.may_hold_media(mark)
    text = spelling(mark).replace(*letters)
    patterns = (media_marks._TOKEN, media_marks._PAIR, media_marks._BRACKETED, media_marks._PICTURE)
    assert media_marks.may_hold_media(text) or not any(pattern.search(text) for pattern in patterns)
