"""From a row's fields to its record, or only to what names it: both depend on nothing but the row and the recipe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from calibudget.errors import DataError
from calibudget.records import Message, Record
from calibudget.sources.files import wanted_values
from calibudget.sources.formats import Fields, detect_format, read_example, read_pair
from calibudget.sources.identity import checked_text, digests, own_id
from calibudget.sources.spec import Format, SourceSpec
from calibudget.tasks import gold_answer, preset

#: Sets of field names whose shape is remembered.
_REMEMBERED = 1000
_IMAGES = ("images", "image")


#: What names a row: SHA-256 of the normal form; the prompt hash; the record's own id, None where the recipe takes none;
#: the number of its label among the recipe's, -1 where answers are no labels.
Named = tuple[bytes, bytes, str | None, int]


class _Shape(NamedTuple):
    """What a row's field names say: its format, and which of them may hold images."""

    format: Format
    images: tuple[str, ...]


_Tools = tuple[Mapping[str, object], ...]
#: Prompt (a single user turn as its text), completion, tools, gold answer, and the fields under our names.
_Parsed = tuple[str | tuple[Message, ...], str, _Tools, str | None, Fields]


class RecordMaker:
    """Makes the records of one source.

    Its methods raise DataError for a row that can't be used, and give None for one that the recipe's filter leaves
    out; so a record can be made again from the `original` that a train set keeps.
    """

    def __init__(self, spec: SourceSpec) -> None:
        self._spec = spec
        self._wanted = {name: wanted_values(spec.where, name) for name in spec.where}
        self._answers = spec.answers
        self._labels = {label: number for number, label in enumerate(answer_labels(spec))}
        self._is_plain = not (spec.where or spec.columns or spec.preset or spec.id_field or self._labels)
        self._is_plain &= self._answers.kind == "none"
        self._shapes: dict[tuple[str, ...], _Shape] = {}

    def name(self, fields: Fields) -> Named | None:
        """What names a row, at a fraction of the cost of its record."""
        if self._is_plain:
            return *digests(*self._read(fields)), None, -1
        parsed = self._parse(fields)
        if parsed is None:
            return None
        prompt, completion, tools, answer, view = parsed
        text, prompt_hash = digests(prompt, completion, tools)
        field = self._spec.id_field
        own = None if field is None else own_id(view.get(field), field)
        return text, prompt_hash, own, -1 if answer is None else self._labels.get(answer, -1)

    def __call__(self, fields: Fields) -> Record | None:
        """The record of a row."""
        parsed = self._parse(fields)
        if parsed is None:
            return None
        prompt, completion, tools, answer, view = parsed
        text, prompt_hash = digests(prompt, completion, tools)
        field = self._spec.id_field
        return Record(
            source=self._spec.label,
            record_id=text.hex() if field is None else own_id(view.get(field), field),
            prompt_hash=prompt_hash.hex(),
            prompt=(Message(role="user", content=prompt),) if isinstance(prompt, str) else prompt,
            completion=completion,
            answer=answer,
            original=fields,
            tools=tools,
        )

    def _parse(self, fields: Fields) -> _Parsed | None:
        view = self._mapped(fields) if self._spec.columns else fields
        for name, values in self._wanted.items():
            if name not in view:
                raise DataError(f"the filter field {name!r} is missing")
            if str(view[name]) not in values:
                return None
        prompt: str | tuple[Message, ...]
        tools: tuple[Mapping[str, object], ...] = ()
        answer = None
        if self._spec.preset is not None:
            prompt, completion, answer = self._rendered(view)
        else:
            prompt, completion, tools = self._read(view)
        if answer is None and self._answers.kind != "none":
            answer = gold_answer(self._answers, view, completion)
        return prompt, completion, tools, answer, view

    def _rendered(self, view: Fields) -> tuple[str, str, str | None]:
        render = preset(self._spec.preset or "")
        rendered = render(view)
        prompt = checked_text(rendered.instruction, "the instruction")
        completion = checked_text(rendered.response, "the response")
        return prompt, completion, rendered.answer if self._answers == render.answer else None

    def _read(self, view: Fields) -> tuple[str | tuple[Message, ...], str, _Tools]:
        names = tuple(view)
        shape = self._shapes.get(names) or self._seen(names, view)
        for name in shape.images:
            if isinstance(view[name], dict | list) and view[name]:
                raise DataError(f"the field {name!r} holds images; only text can be trained on")
        pair = read_pair(view, shape.format)
        if pair is not None:
            return *pair, ()
        example = read_example(view, shape.format)
        return example.prompt, example.completion, example.tools

    def _seen(self, names: tuple[str, ...], view: Fields) -> _Shape:
        found = _Shape(self._spec.format or detect_format(view), tuple(name for name in _IMAGES if name in view))
        if len(self._shapes) < _REMEMBERED:
            self._shapes[names] = found
        return found

    def _mapped(self, fields: Fields) -> Mapping[str, object]:
        """The row with the recipe's columns under our names."""
        view = dict(fields)
        for ours, theirs in self._spec.columns.items():
            if theirs not in fields:
                raise DataError(f"the column {theirs!r} (for {ours!r}) is missing; the record has {', '.join(fields)}")
            view[ours] = fields[theirs]
        return view


def answer_labels(spec: SourceSpec) -> tuple[str, ...]:
    """The labels that a source's gold answers can be; none where answers are free or not checked."""
    match spec.answers.kind:
        case "choice":
            return spec.answers.labels
        case "true_false":
            return ("true", "false")
        case _:
            return ()
