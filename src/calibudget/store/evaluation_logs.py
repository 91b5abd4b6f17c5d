"""What scorers made elsewhere say of single records, lm-eval and Inspect among them, as rows of a scores file.

A row of a log holds `source`, `record_id` and what the log knows: `logprob` and `response_tokens` of the response,
`correct`, and `text`, what the model wrote.
"""

from __future__ import annotations

import math
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from calibudget.errors import ArtefactError
from calibudget.store.canonical import loads_object, open_regular, read_bytes
from calibudget.store.parquet import load_table

Row = tuple[str, dict[str, object]]
#: Says whether the text that a model wrote for a record, named by source and id, is right, and what was read in it.
Judge = Callable[[str, str, str], tuple[bool | None, str | None]]
#: What names a record and may stand in several files, and what of an exported record a scorer may hand back with it.
_KEYS: Final = frozenset({"source", "record_id", "response_tokens"})
_EXPORTED: Final = frozenset({"prompt", "completion", "answer"})
#: samples_<task>_<time>.jsonl, as lm-eval names its files.
_SAMPLES: Final = re.compile(r"samples_(?P<task>.+?)(?:_\d{4}-\d\d-\d\dT[\d.\-]+)?\.jsonl")
#: A zip member's way of compression.
_ZSTANDARD: Final = 93
#: Inspect's letters for an answer that is right and one that isn't.
_LETTERS: Final = {"C": True, "I": False}


def rows_elsewhere(paths: Sequence[Path], *, verdict: str | None, judge: Judge | None) -> list[Row]:
    """Place and fields of each row of one file, or of several that are joined by source and record id.

    `judge` judges the texts in rows, whose own verdicts go without it. What `verdict` is, `lm_eval_rows` and
    `inspect_rows` say.

    Raises:
        ArtefactError: a file can't be read, or two say the same of one record.
    """
    if len(paths) == 1:
        return [_whole(row, judge) for row in _rows_of(paths[0], verdict)]
    whole: dict[tuple[object, object], Row] = {}
    for path in paths:
        seen = set()
        for place, row in _rows_of(path, verdict):
            key = (row.get("source"), row.get("record_id"))
            before, known = whole.get(key, ("", {}))
            given = {name for name in known.keys() & row.keys() if row[name] is not None}
            twice = sorted(name for name in given if name not in _KEYS or row[name] != known[name])
            if key in seen or twice:
                told = "stands there twice" if key in seen else f"its {twice[0]} stands in {before} already"
                raise ArtefactError(f"{place}: record_id: {key[1]!r} of {key[0]!r}: {told}")
            seen.add(key)
            whole[key] = (place, known | {name: one for name, one in row.items() if one is not None})
    return [_whole(row, judge) for row in whole.values()]


def table_rows(table: pa.Table, name: str) -> Iterator[Row]:
    """Place and fields of each row of a table."""
    yield from ((f"{name}, row {number}", row) for number, row in enumerate(table.to_pylist(), start=1))


def _rows_of(path: Path, verdict: str | None) -> list[Row]:
    if path.suffix == ".parquet":
        return list(table_rows(load_table(path), path.name))
    if path.suffix in (".eval", ".json"):
        return list(inspect_rows(path, verdict))
    rows = list(json_lines(path))
    is_log = bool(rows) and {"doc_id", "doc", "resps"} <= rows[0][1].keys()
    return list(lm_eval_rows(rows, path.name, verdict)) if is_log else rows


def _whole(row: Row, judge: Judge | None) -> Row:
    """A row with the mean NLL of a summed log-probability, and its text judged; fields of an export are left out."""
    place, fields = row[0], {key: value for key, value in row[1].items() if key not in _EXPORTED}
    text, logprob = fields.pop("text", None), fields.pop("logprob", None)
    if logprob is not None:
        tokens = fields.get("response_tokens")
        if "nll" in fields or isinstance(logprob, bool) or not isinstance(logprob, int | float):
            raise ArtefactError(f"{place}: logprob: must be a number, and stand instead of `nll`")
        if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1:
            raise ArtefactError(
                f"{place}: response_tokens: is missing beside the summed `logprob`, whose mean is wanted; "
                "`calibudget score --export` writes it into each record"
            )
        with _read_as("a scorer", f"{place}: logprob"):
            fields["nll"] = -float(logprob) / tokens
    if judge is not None and isinstance(text, str) and fields.get("source") and fields.get("record_id"):
        fields["correct"], fields["prediction"] = judge(str(fields["source"]), str(fields["record_id"]), text)
    return place, fields


def json_lines(path: Path) -> Iterator[Row]:
    """Place and fields of each line that isn't blank."""
    for number, line in enumerate(read_bytes(path).split(b"\n"), start=1):
        if line.strip():
            yield f"{path.name}:{number}", loads_object(line, f"{path.name}:{number}")


def lm_eval_rows(rows: Iterable[Row], name: str, verdict: str | None) -> Iterator[Row]:
    """The rows of lm-eval's `samples_*.jsonl`, from place and fields of each line.

    The file's name tells the task: the source of rows whose document names none. `verdict` is the metric that says
    whether an answer is right, `metric` or `metric,filter`; None takes the only one that is 0 or 1, of tasks that
    choose or generate.

    Raises:
        ArtefactError: lines of several filters or metrics where none is named, or one that isn't there.
    """
    task = _SAMPLES.fullmatch(name)
    metric, _, wanted = (verdict or "").partition(",")
    rows = list(rows)
    filters = sorted({str(row.get("filter")) for _, row in rows})
    if len(filters) > 1:
        if wanted not in filters:
            raise ArtefactError(
                f"{name}: holds the answers of the filters {', '.join(filters)}; say which with --verdict METRIC,FILTER"
            )
        rows = [(place, row) for place, row in rows if row.get("filter") == wanted]
    for place, row in rows:
        doc: Any = row["doc"] if isinstance(row["doc"], Mapping) else {}
        found: dict[str, object] = {
            "source": doc.get("source") or (task["task"] if task else Path(name).stem),
            "record_id": doc.get("record_id") or str(row["doc_id"]),
        }
        if "response_tokens" in doc:
            found["response_tokens"] = doc["response_tokens"]
        with _read_as("lm-eval", place):
            found |= _lm_eval_facts(row, place, metric)
        yield place, found


def _lm_eval_facts(row: Mapping[str, Any], place: str, metric: str) -> dict[str, object]:
    found: dict[str, object] = {}
    answers = row.get("filtered_resps") or row["resps"]
    pairs = [pair for pair in answers if isinstance(pair, list) and len(pair) == 2]
    if len(pairs) == len(answers) == 1:
        found["logprob"] = _number(pairs[0][0], place)
    elif len(pairs) == len(answers):
        choice = str(row.get("target"))
        if not choice.isdigit() or int(choice) >= len(pairs):
            raise ArtefactError(f"{place}: target: must be the number of a choice, not {choice!r:.60}")
        found["logprob"] = _number(pairs[int(choice)][0], place)
    else:
        found["text"] = row["resps"][0][0] if isinstance(row["resps"][0], list) else row["resps"][0]
    names = [str(one) for one in row.get("metrics", ())]
    if len(answers) == 1 and "text" not in found and metric not in names:
        return found  # `acc` says there whether greedy decoding gives the response to the letter, which is no verdict
    usable = names if metric else [one for one in names if row.get(one) in (0, 1)]
    verdict = _one_of({one: row.get(one) for one in usable}, metric, place)
    return found if verdict is None else found | {"correct": verdict}


def inspect_rows(path: Path, verdict: str | None) -> Iterator[Row]:
    """The rows of an Inspect log, a `.eval` or a `.json`.

    A sample's source stands in its metadata, else it is the task's name. `verdict` names the scorer that says what is
    right; None takes the only one.

    Raises:
        ArtefactError: no finished log, a sample that failed or was taken more than once, or no such scorer.
    """
    header, samples = _inspect_zip(path) if path.suffix == ".eval" else _inspect_json(path)
    if header.get("status") != "success":
        raise ArtefactError(f"{path.name}: status: the evaluation must have ended well, not {header.get('status')!r}")
    for place, sample in samples:
        with _read_as("Inspect", place):
            found = _inspect_facts(header, sample, place, verdict)
        yield place, found


def _inspect_facts(
    header: Mapping[str, Any], sample: Mapping[str, Any], place: str, verdict: str | None
) -> dict[str, object]:
    if sample.get("error"):
        raise ArtefactError(f"{place}: the sample failed; evaluate it again")
    if sample.get("epoch", 1) != 1:
        raise ArtefactError(f"{place}: epoch {sample['epoch']}; one answer a record is taken")
    metadata = sample.get("metadata") or {}
    found: dict[str, object] = {
        "source": metadata.get("source") or (header.get("eval") or {}).get("task"),
        "record_id": str(sample.get("id")),
        "text": (sample.get("output") or {}).get("completion"),
    }
    scores = {name: one.get("value") for name, one in (sample.get("scores") or {}).items()}
    for facts in [one for one in scores.values() if isinstance(one, Mapping)]:
        found |= {name: facts[name] for name in ("nll", "logprob", "response_tokens") if name in facts}
    plain = {name: value for name, value in scores.items() if not isinstance(value, Mapping)}
    right = _one_of(plain, verdict or "", place)
    return found if right is None else found | {"correct": right}


@contextmanager
def _read_as(who: str, place: str) -> Iterator[None]:
    """What isn't built as its writer builds it is refused with its place."""
    try:
        yield
    except ArtefactError:
        raise
    except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
        raise ArtefactError(f"{place}: can't be read as {who} writes it: {type(error).__name__}: {error}") from error


def _one_of(verdicts: Mapping[str, object], wanted: str, place: str) -> bool | None:
    """The verdict that is asked for, or the only one."""
    if wanted and wanted not in verdicts:
        raise ArtefactError(f"{place}: has no verdict {wanted!r}, which --verdict names; there are {sorted(verdicts)}")
    if not wanted and len(verdicts) > 1:
        raise ArtefactError(f"{place}: {', '.join(sorted(verdicts))} may say what is right; name one with --verdict")
    if not verdicts:
        return None
    name = wanted or next(iter(verdicts))
    value = verdicts[name]
    if isinstance(value, str) and value in _LETTERS:
        return _LETTERS[value]
    if value not in (0, 1):
        raise ArtefactError(f"{place}: {name}: must be right or wrong (1 or 0, C or I), not {value!r:.60}")
    return bool(value)


def _number(value: object, place: str) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ArtefactError(f"{place}: resps: must be a finite log-probability, not {value!r:.60}")
    return number


def _inspect_json(path: Path) -> tuple[dict[str, Any], Iterable[tuple[str, dict[str, Any]]]]:
    log: dict[str, Any] = loads_object(read_bytes(path), path.name)
    samples = log.get("samples")
    if not isinstance(samples, list) or "eval" not in log:
        raise ArtefactError(f"{path.name}: isn't a log of Inspect with samples")
    return log, [(f"{path.name}, sample {number}", sample) for number, sample in enumerate(samples, start=1)]


def _inspect_zip(path: Path) -> tuple[dict[str, Any], Iterable[tuple[str, dict[str, Any]]]]:
    try:
        with open_regular(path) as handle, zipfile.ZipFile(handle) as archive:
            header = loads_object(_member(archive, archive.getinfo("header.json")), f"{path.name}, header.json")
            members = [one for one in archive.infolist() if one.filename.startswith("samples/")]
            return header, [
                (f"{path.name}, {one.filename}", loads_object(_member(archive, one), f"{path.name}, {one.filename}"))
                for one in members
            ]
    except (OSError, KeyError, ValueError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        if isinstance(error, ArtefactError):
            raise
        raise ArtefactError(f"{path.name}: isn't a whole log of Inspect: {error}") from error


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """A member's bytes; Inspect compresses with Zstandard, which `zipfile` learnt in Python 3.14."""
    if member.compress_type != _ZSTANDARD:
        return archive.read(member)
    assert archive.fp is not None  # noqa: S101 - it is open
    archive.fp.seek(member.header_offset + 26)
    skipped = int.from_bytes(archive.fp.read(2), "little") + int.from_bytes(archive.fp.read(2), "little")
    archive.fp.seek(skipped, 1)
    packed = pa.py_buffer(archive.fp.read(member.compress_size))
    with pa.input_stream(packed, compression="zstd") as stream:
        data: bytes = stream.read(member.file_size)
    if zlib.crc32(data) != member.CRC:
        raise zipfile.BadZipFile(f"{member.filename} is damaged")
    return data
