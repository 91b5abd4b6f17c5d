"""`calibudget init`: a first recipe for the data files found in a folder, from what their rows hold."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count, islice
from pathlib import Path
from typing import Final, NamedTuple

from calibudget.errors import DataError, InputError
from calibudget.messages import counted, printable
from calibudget.sources.field_meanings import reason_of
from calibudget.sources.file_formats import SUFFIXES, read_rows
from calibudget.sources.row_records import RecordMaker
from calibudget.sources.spec import SourceSpec
from calibudget.store.files import is_dangling
from calibudget.tasks.presets import PRESETS

#: Rows of a file that are looked at, so that most files are seen whole.
_ROWS: Final = 100_000
_PER_SOURCE: Final = 1000
_CALIBRATION: Final = 100
#: A file of which more than this part of the rows looked at can't be used is left out.
_UNUSABLE: Final = 0.1
#: A source has this many different records at least.
_FEWEST: Final = 3
#: How many reasons why rows can't be used are told, the most frequent ones.
_REASONS: Final = 20
#: Fields whose options a plain prompt would lack, so that its question couldn't be answered.
_OPTIONS: Final = ("choices", "options", "endings")
#: Fields that hold the turns of a conversation.
_TURNS: Final = ("messages", "conversations", "conversation")
_SPLIT_WORDS: Final = r"(?:train(?:ing)?|test|valid(?:ation)?|val|dev|eval)"
_HELD_OUT: Final = re.compile(r"(?:^|[._-])(?:test|valid(?:ation)?|val|dev|eval)(?:[._-]|$)", re.IGNORECASE)
_ENDING: Final = re.compile(r"(?:\.(?:jsonl?|ndjson|csv|tsv|parquet|arrow|gz|zst))+$", re.IGNORECASE)
#: Of the schema that editors check a recipe by.
SCHEMA_SUFFIX: Final = ".schema.json"
_SAVED: Final = frozenset({"state.json", "dataset_info.json", "dataset_dict.json"})
_OTHER_ANSWERS: Final = "or {kind: choice, labels: [...]}, number, math, exact, regex"
#: Labels that no source may bear.
_RESERVED: Final = frozenset({"companion", "default"})
_SKIPPING: Final = ", on_error: skip"
#: A line of the recipe and the comment behind it.
_Line = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Draft:
    """A file as a recipe's line would name it.

    `how` holds the fields of its line beside the path, `prompts` the prompt hashes of its rows looked at, by record id;
    `unusable` counts rows by what is wrong with them, and `reason` says why the file must be left out, if it must.
    """

    label: str
    path: Path
    how: str = ""
    prompts: Mapping[str, str] = field(default_factory=dict)
    usable: int = 0
    unusable: Mapping[str, int] = field(default_factory=dict)
    reason: str = ""
    is_chat: bool = False

    def line(self, indent: int) -> _Line:
        """Its line, commented out where it must be left out."""
        named = f"{_quoted(self.label)}: {{path: {_quoted(self.path.as_posix())}{self.how}}}"
        if self.reason:
            return f"{' ' * indent}# {named}", f"left out: {self.reason}"
        hints = [_OTHER_ANSWERS] if "answer: none" in self.how else []
        if self.unusable:
            count = sum(self.unusable.values())
            hints.append(f"skips {counted(count, 'row')} of {count + self.usable:,} looked at ({_told(self.unusable)})")
        return f"{' ' * indent}{named}", "; ".join(hints)


class DraftRecipe(NamedTuple):
    """A recipe's text, and how many files it leaves out, each with the reason."""

    text: str
    left_out: int


def draft_recipe(data_dir: str | Path, *, written_to: Path | None = None) -> DraftRecipe:
    """A commented recipe with one source for each training file below a folder whose rows can be read.

    A preset is named where the rows can be rendered by it (of long files, the first ones); what can't be used stands as
    a comment, with the reason.

    Args:
        data_dir: the folder to look through; held-out files (test, dev, ...) become evaluation sets where their name
            is a source's and they don't hold that of any source whole, and are comments elsewhere.
        written_to: where the recipe will lie, so that `data_dir` can be written relative to it.

    Raises:
        InputError: the folder is missing, or holds no data file that can be trained on; the first reason is named.
    """
    folder = Path(data_dir)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    files = list(_data_files(folder))
    training = [path for path in files if not _HELD_OUT.search(path.name)]
    if not training:
        held_out = f" but {len(files)} held-out ones" if files else ""
        raise InputError(f"{folder}: no data files{held_out}; looked for {', '.join(SUFFIXES)}")
    drafts = [_enough(_draft(label, folder, path)) for label, path in sorted(_labelled(folder, training))]
    sources = [draft for draft in drafts if not draft.reason]
    if not sources:
        raise InputError(f"{folder}: no file can be trained on as it stands; {drafts[0].path}: {drafts[0].reason}")
    sets = list(_evaluation_sets(folder, [path for path in files if path not in training], sources))
    where = os.path.relpath(folder, written_to.parent) if written_to and not folder.is_absolute() else str(folder)
    header = _header(sources, sets, folder=folder, name=str(written_to or "recipe.yaml"), data_dir=Path(where))
    lines = [*header, ("sources:", ""), *_aligned([draft.line(2) for draft in drafts])]
    if sets:
        is_named = any(not one.reason for one in sets)
        opening: list[_Line] = [("hygiene:", ""), ("  evaluation:", "records with a prompt of these leave the sources")]
        lines += opening if is_named else [("# Held-out files, none of which goes with a source above:", "")]
        lines += _aligned([one.line(4 if is_named else 0) for one in sets])
    # a folder's or file's name stays within its comment
    text = "".join(f"{text}  # {printable(told)}\n" if told else f"{text.rstrip()}\n" for text, told in lines)
    return DraftRecipe(text, sum(bool(one.reason) for one in (*drafts, *sets)))


def _header(
    sources: Sequence[_Draft], sets: Sequence[_Draft], *, folder: Path, name: str, data_dir: Path
) -> list[_Line]:
    barred = frozenset[str]().union(*(one.prompts.values() for one in sets if not one.reason))
    left = [sum(prompt not in barred for prompt in draft.prompts.values()) for draft in sources]
    # half of what the rows looked at leave beside the calibration, so that there is something to choose
    shares = [max(1, min(_PER_SOURCE, max(rows - _CALIBRATION, rows // 2) // 2)) for rows in left]
    calibration = max(2, min(_CALIBRATION, *(rows - rows // 2 for rows in left)))
    smallest = sources[left.index(min(left))].label
    has_unchecked = any("answer: none" in draft.how for draft in sources)
    lines: list[_Line] = [
        ("model: embedded", "SmolLM2-135M, for a try; else a hub id, a directory with safetensors, or a .gguf file"),
        ("template: chat", "the tokenizer's own, since the sources hold conversations; or alpaca")
        if all(draft.is_chat for draft in sources)
        else ("template: alpaca", "or chat: the tokenizer's own chat template"),
        (f"budget: {sum(shares)}", "examples to select, exactly"),
        (f"floor: {min(100, max(1, min(shares) // 2))}", "every source gets this much"),
        ("policy: calibudget", "`calibudget allocate STATISTICS --compare` shows the others"),
        ("seed: 42", ""),
        (
            f"calibration: {{per_source: {calibration}, resamples: 200}}",
            "" if calibration == _CALIBRATION else f"half of the smallest source, {smallest}; the paper's are 100",
        ),
        *([("error: nll", "a source here has no checkable answer; else `nll+wrong`, the paper's")] * has_unchecked),
        (f"data_dir: {_quoted(data_dir.as_posix())}", ""),
    ]
    title = printable(f"# A recipe for the data in {folder}. Look it over, then: calibudget run {name}")
    return [(title, ""), *_aligned(lines)]


def _data_files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        is_data = path.name.lower().endswith(SUFFIXES) and path.name not in _SAVED
        is_data = is_data and not path.name.endswith(SCHEMA_SUFFIX)
        is_hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if is_data and not is_hidden and (path.is_file() or is_dangling(path)):
            yield path


def _draft(label: str, folder: Path, path: Path) -> _Draft:
    """How a file can be read: by the preset of its name, by one of its fields, or as its format shows."""
    below = path.relative_to(folder)
    try:
        if is_dangling(path):
            raise DataError("it is a link to nothing")
        first = next((fields for _, fields in read_rows(path, below.as_posix())), DataError("it has no rows"))
        if isinstance(first, DataError):
            raise first
        lost = next((name for name in _OPTIONS if isinstance(first.get(name), list | dict)), None)
        ways = [*_presets(label, first), *([None] if lost is None else [])]
        reason = f"no preset reads the fields {', '.join(first)}, and a plain prompt would lack {lost!r}"
        for way in ways:
            found = _tried(label, path, below, way)
            if not found.reason:
                return found
            reason = reason if lost else found.reason
    except (DataError, OSError) as error:
        reason = str(error)
    return _Draft(label, below, reason=_short(reason))


def _presets(label: str, fields: Mapping[str, object]) -> list[str]:
    """Presets to try: those that the name begins with, then those that three or more of the fields tell apart."""
    name = label.casefold().replace("-", "_")
    named = [one for one in PRESETS if name.startswith(one)]
    shown = [
        one.name
        for one in PRESETS.values()
        if any(len(names) > 2 and all(fields.get(field) is not None for field in names) for names in one.originals)
    ]
    return list(dict.fromkeys([*named, *shown]))


def _tried(label: str, path: Path, below: Path, preset: str | None) -> _Draft:
    """A file's rows read by a preset, or without one and with no answer to check."""
    make = RecordMaker(SourceSpec(label=label, path=below.as_posix(), preset=preset))
    prompts: dict[str, str] = {}
    usable, refused, talks = 0, Counter[str](), False
    for _, fields in islice(read_rows(path, below.as_posix()), _ROWS):
        try:
            if isinstance(fields, DataError):
                raise fields
            record = make(fields)
            talks |= any(fields.get(name) for name in _TURNS)
        except DataError as error:
            refused[_short(reason_of(error))] += 1
        else:
            usable += 1
            if record is not None:
                prompts[record.record_id] = record.prompt_hash
    how = f", preset: {preset}" if preset else ", answer: none"
    total, reason = refused.total() + usable, ""
    if refused.total() > _UNUSABLE * total:
        reason = _told(refused)
        if usable:
            reason = f"{refused.total():,} of {counted(total, 'row')} looked at can't be used ({reason})"
    return _Draft(
        label,
        below,
        how=how + (_SKIPPING if refused else ""),
        is_chat=talks,
        prompts=prompts,
        usable=usable,
        unusable=refused,
        reason=reason,
    )


def _enough(draft: _Draft) -> _Draft:
    """A source's file, left out where it holds too few records to calibrate by and to draw from."""
    if draft.reason or len(draft.prompts) >= _FEWEST:
        return draft
    held = counted(len(draft.prompts), "different record")
    return replace(draft, reason=f"it holds {held}; a source needs {_FEWEST}, two to calibrate and one to draw")


def _evaluation_sets(folder: Path, held_out: Iterable[Path], sources: Sequence[_Draft]) -> Iterator[_Draft]:
    """The held-out files, left out where they belong to no source, can't be read, or hold a source whole."""
    labels = {draft.label for draft in sources}
    taken: set[str] = set()
    for path in sorted(held_out, key=lambda path: path.name):
        name, label = _free(re.sub(r"\W+", "_", _ENDING.sub("", path.name)), taken), _label(path.name)
        if label not in labels:
            reason = f"no source above is named {label}"
            yield _Draft(name, path.relative_to(folder), reason=reason)
            continue
        found = replace(_draft(label, folder, path), label=name)
        held = frozenset(found.prompts.values())
        whole = next((one.label for one in sources if held >= set(one.prompts.values())), None)
        if whole is None:
            yield found
        else:
            reason = f"it holds all prompts of the source {whole} that were looked at, so nothing would be left of it"
            yield replace(found, reason=reason)


def _labelled(folder: Path, files: Iterable[Path]) -> Iterable[tuple[str, Path]]:
    """Labels from file names without their endings, with the folder in front where two would be equal."""
    stems = {path: _label(path.name) for path in files}
    bearers = Counter(stem.casefold() for stem in stems.values())
    taken = set(_RESERVED)
    for path, stem in stems.items():
        is_shared = bearers[stem.casefold()] > 1
        yield _free(_label("_".join(path.relative_to(folder).parts)) if is_shared else stem, taken), path


def _free(name: str, taken: set[str]) -> str:
    """The name, numbered if something else bears it; it is taken then."""
    numbered = (f"{name}_{number}" for number in count(2))
    free = next(one for one in chain([name], numbered) if one.casefold() not in taken)
    taken.add(free.casefold())
    return free


def _label(name: str) -> str:
    stem = _ENDING.sub("", name)
    stem = re.sub(rf"[._-]{_SPLIT_WORDS}(?:[._-]\d+.*)?$", "", stem, flags=re.IGNORECASE)
    return re.sub(r"[^\w-]+", "_", stem).strip("_") or "source"


def _aligned(lines: Sequence[_Line]) -> list[_Line]:
    """Lines padded so that the comments behind them stand in one column."""
    width = max((len(text) for text, comment in lines if comment), default=0)
    return [(text.ljust(width) if comment else text, comment) for text, comment in lines]


def _told(refused: Mapping[str, int]) -> str:
    """Why rows can't be used, the most frequent reason first, with how many where there are several."""
    reasons = Counter(refused).most_common(_REASONS)
    told = [f"{count:,}: {reason}" for reason, count in reasons]
    others = sum(refused.values()) - sum(count for _, count in reasons)
    return reasons[0][0] if len(refused) == 1 else "; ".join([*told, *([f"{others:,}: other reasons"] * (others > 0))])


def _short(reason: object) -> str:
    """A reason as one line of a comment."""
    text = " ".join(str(reason).split())
    return text if len(text) <= 160 else f"{text[:157]}..."


def _quoted(text: str) -> str:
    is_plain = re.fullmatch(r"[A-Za-z_./][\w./-]*", text) and text.lower() not in {"null", "true", "false"}
    return text if is_plain else json.dumps(text, ensure_ascii=False)
