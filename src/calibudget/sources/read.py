"""Reading one source: rows to records, duplicates resolved, everything left out counted (docs/formats.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from calibudget.errors import ArtefactError, DataError
from calibudget.records import Message, Record
from calibudget.sources.duplicates import resolve_duplicates
from calibudget.sources.files import DataFile, find_files, wanted_values
from calibudget.sources.formats import Example, detect_format, read_example
from calibudget.sources.hub import RowDigest, hub_name, hub_rows
from calibudget.sources.identity import checked_text, identify, own_id
from calibudget.sources.rows import Row, place, read_rows
from calibudget.sources.spec import SourceSpec
from calibudget.store import SourceFile, file_digest
from calibudget.tasks import AnswerSpec, gold_answer, preset
from calibudget.wording import counted

#: How many of the skipped rows are kept as messages.
_EXAMPLES: Final = 5
#: From a row's place in a file to words.
_Place = Callable[[int], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRead:
    """One source as read, before it is split.

    Attributes:
        label: the source's label.
        answer: how its answers are parsed and compared.
        records: the records that stay, in the order of files and rows.
        copies: under `keep`, the bare id of every renamed record ("id#2" to "id"); else empty.
        files: every file read, bound by its bytes; for a hub data set its name and the digest of its rows.
        read: rows found.
        filtered: rows that the `where` filter left out.
        skipped: rows that `on_error: skip` left out.
        skipped_examples: why, for the first few of them.
        duplicates: records removed because an equal one stays (or renamed, under `keep`).
    """

    label: str
    answer: AnswerSpec
    records: tuple[Record, ...]
    copies: Mapping[str, str]
    files: tuple[SourceFile, ...]
    read: int
    filtered: int
    skipped: int
    skipped_examples: tuple[str, ...]
    duplicates: int


@dataclass(slots=True, kw_only=True)
class _Reading:
    """The counts and results of a source while it is read."""

    spec: SourceSpec
    records: list[Record] = field(default_factory=list)
    places: list[tuple[_Place, int]] = field(default_factory=list)
    read: int = 0
    filtered: int = 0
    skipped: int = 0
    examples: list[str] = field(default_factory=list)

    def take(self, rows: Iterable[Row], place: _Place) -> None:
        """Turn the rows of one file into records."""
        to_record = record_maker(self.spec)
        for at, fields in rows:
            self.read += 1
            try:
                if isinstance(fields, DataError):
                    raise fields
                record = to_record(fields)
            except DataError as error:
                self._skip(f"{place(at)}: {error}" if self._tells() else "", error)
                continue
            if record is None:
                self.filtered += 1
            else:
                self.records.append(record)
                self.places.append((place, at))

    def place(self, index: int) -> str:
        """Where a record was read."""
        place, at = self.places[index]
        return place(at)

    def _tells(self) -> bool:
        return self.spec.on_error == "refuse" or len(self.examples) < _EXAMPLES

    def _skip(self, message: str, error: DataError) -> None:
        if self.spec.on_error == "refuse":
            raise DataError(f"source {self.spec.label!r}: {message}") from error
        self.skipped += 1
        self.examples.extend([message] if message else [])


def read_source(spec: SourceSpec, data_dir: Path) -> SourceRead:
    """Read a source whole.

    Args:
        spec: what the recipe says of it.
        data_dir: the directory below which relative paths lie.

    Raises:
        DataError: a file is missing, torn or of an unknown kind; a row can't be used and isn't to be skipped (its
            file and line are named); ids clash; or no record is left.
    """
    reading = _Reading(spec=spec)
    files: list[SourceFile] = []
    if spec.hub is not None:
        digest, name = RowDigest(), hub_name(spec)
        reading.take(digest.of(hub_rows(spec)), lambda at: f"{name}, row {at}")
        files.append(digest.file(name))
    for file in find_files(spec, data_dir) if spec.paths else ():
        reading.take(read_rows(file.path, file.name, spec.limits), partial(place, file.path, file.name))
        files.append(_bound(file))
    if not reading.records:
        raise DataError(
            f"source {spec.label!r}: no records in {spec.hub or ', '.join(spec.paths)}"
            f" ({counted(reading.read, 'row')} read, {reading.filtered} filtered out, {reading.skipped} skipped)"
        )
    resolved = resolve_duplicates(reading.records, reading.place, policy=spec.duplicates)
    return SourceRead(
        label=spec.label,
        answer=spec.answers,
        records=resolved.records,
        copies=resolved.copies,
        files=tuple(files),
        read=reading.read,
        filtered=reading.filtered,
        skipped=reading.skipped,
        skipped_examples=tuple(reading.examples),
        duplicates=resolved.duplicates,
    )


def _bound(file: DataFile) -> SourceFile:
    try:
        digest = file_digest(file.path.resolve())
        status = file.path.stat()
    except (ArtefactError, OSError) as error:
        raise DataError(f"{file.name}: can't be read again: {error}") from error
    if (status.st_size, status.st_mtime_ns) != file.version:
        raise DataError(f"{file.name}: changed while it was read; run again when it is complete")
    return SourceFile(name=file.name, bytes=digest.bytes, sha256=digest.sha256)


def record_maker(spec: SourceSpec) -> Callable[[Mapping[str, object]], Record | None]:
    """A function from a row's original fields to its record, None where the recipe's filter leaves it out.

    What it makes depends on nothing but the row, so a record can be made again from the `original` that a train
    set keeps. The function raises DataError for a row that can't be used.
    """
    to_example = _example_maker(spec)
    wanted = {name: wanted_values(spec.where, name) for name in spec.where}
    answers = spec.answers

    def to_record(fields: Mapping[str, object]) -> Record | None:
        view = _mapped(fields, spec.columns)
        for name, values in wanted.items():
            if name not in view:
                raise DataError(f"the filter field {name!r} is missing")
            if str(view[name]) not in values:
                return None
        example, answer = to_example(view)
        if answer is None and answers.kind != "none":
            answer = gold_answer(answers, view, example.completion)
        own = view.get(spec.id_field) if spec.id_field is not None else None
        identity = identify(example.prompt, example.completion)
        return Record(
            source=spec.label,
            record_id=identity.record_id if spec.id_field is None else own_id(own),
            prompt_hash=identity.prompt_hash,
            prompt=example.prompt,
            completion=example.completion,
            answer=answer,
            original=fields,
        )

    return to_record


def _example_maker(spec: SourceSpec) -> Callable[[Mapping[str, object]], tuple[Example, str | None]]:
    """A function from a row's mapped fields to its example, with the gold answer where a preset gives it."""
    if spec.preset is not None:
        render = preset(spec.preset)

        def from_preset(fields: Mapping[str, object]) -> tuple[Example, str | None]:
            rendered = render(fields)
            prompt = Message(role="user", content=checked_text(rendered.instruction, "the instruction"))
            completion = checked_text(rendered.response, "the response")
            answer = rendered.answer if spec.answers == render.answer else None
            return Example(prompt=(prompt,), completion=completion), answer

        return from_preset

    def from_format(fields: Mapping[str, object]) -> tuple[Example, str | None]:
        return read_example(fields, spec.format or detect_format(fields)), None

    return from_format


def _mapped(fields: Mapping[str, object], columns: Mapping[str, str]) -> Mapping[str, object]:
    """The row with the recipe's columns under our names; the row itself where it maps none."""
    if not columns:
        return fields
    view = dict(fields)
    for ours, theirs in columns.items():
        if theirs not in fields:
            raise DataError(f"the column {theirs!r} (for {ours!r}) is missing; the record has {', '.join(fields)}")
        view[ours] = fields[theirs]
    return view
