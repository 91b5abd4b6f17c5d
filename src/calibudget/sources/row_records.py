"""From a row's fields to its record, or only to what names it: both depend on nothing but the row and the recipe."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext, suppress
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from calibudget.errors import DataError
from calibudget.records import Message, Record
from calibudget.sources.example_formats import (
    Fields,
    detect_format,
    read_columns,
    read_example,
    read_texts,
    text_fields,
)
from calibudget.sources.field_meanings import (
    OF_THE_RESPONSE,
    SPLIT,
    Format,
    check_row,
    check_spelt_once,
    fields_to_check,
    is_blank,
    known,
    meaning,
    names_read,
    passed_over,
    spellings,
)
from calibudget.sources.identity import checked_text, digests, many_text_digests, own_id, text_digests
from calibudget.sources.json_files import Block
from calibudget.sources.media_marks import refuse_media_marks
from calibudget.sources.spec import SourceSpec, Wanted, filled, template_columns
from calibudget.tasks.answers import gold_answer
from calibudget.tasks.presets import Preset, preset

#: Sets of field names whose shape is remembered.
_REMEMBERED: Final = 1000
#: What names a row: SHA-256 of the normal form; the prompt hash; the record's own id, None where the recipe takes none;
#: the number of its label among the recipe's, -1 where answers are no labels.
Named = tuple[bytes, bytes, str | None, int]


class _Shape(NamedTuple):
    """What a row's field names say.

    Attributes:
        format: how they hold an example, None under a preset.
        texts: fields of the prompt and of the response where it is one exchange in texts.
        checked: which fields must be looked at in every row.
        respelt: fields that are read under our name for them: ours to theirs.
        is_bare: whether it is one exchange in texts, and nothing else of it needs a look.
    """

    format: Format | None
    texts: tuple[str, ...]
    checked: tuple[str, ...]
    respelt: Mapping[str, str]
    is_bare: bool


_Tools = tuple[Mapping[str, object], ...]
_Key = tuple[tuple[str, ...], tuple[type, ...]]
#: Prompt (a single user turn as its text), completion, tools, gold answer, and the fields under our names and theirs.
_Parsed = tuple[str | tuple[Message, ...], str, _Tools, str | None, Fields]


class RecordMaker:
    """Makes the records of one source.

    Its methods raise DataError for a row that can't be used, and give None for one that the recipe's filter leaves
    out; so a record can be made again from the `original` that a train set keeps.

    Attributes:
        unused: fields of the rows so far that hold something and that nothing used.
        seen: fields of the rows so far, and those of turns that were passed over, where the recipe leaves some out.
    """

    def __init__(self, spec: SourceSpec) -> None:
        self.unused: set[str] = set()
        self.seen: set[str] = set()
        self._spec = spec
        self._wanted = {name: Wanted(values) for name, values in spec.where.items()}
        self._answers = spec.answers
        self._labels = {label: number for number, label in enumerate(answer_labels(spec))}
        self._columns = {
            ours: (theirs,) if isinstance(theirs, str) else theirs or () for ours, theirs in spec.columns.items()
        }
        if spec.prompt is not None:
            self._columns["prompt"] = template_columns(spec.prompt)
        self._is_plain = not (spec.where or self._columns or spec.preset or spec.id_field or self._labels)
        self._is_plain &= self._answers.kind == "none"
        self._ignored = spec.ignored | (OF_THE_RESPONSE if spec.prompts_suffice else frozenset())
        self._ignored |= SPLIT if spec.only_split else frozenset()
        self._shapes: dict[_Key, _Shape] = {}
        named = (*spec.where, *spec.also_used, spec.id_field, self._answers.field)
        self._named = {name for name in named if name is not None}

    def name(self, fields: Fields) -> Named | None:
        """What names a row, at a fraction of the cost of its record."""
        if self._is_plain:
            shape = self._shapes.get((tuple(fields), tuple(map(type, fields.values()))))
            if shape is not None and shape.is_bare:
                texts = read_texts(fields, shape.texts, self._ignored)
                if texts is not None:
                    return *text_digests(*texts), None, -1
            present = _present(fields)
            return *digests(*self._read(present, present)), None, -1
        parsed = self._parse(fields)
        if parsed is None:
            return None
        prompt, completion, tools, answer, named = parsed
        text, prompt_hash = digests(prompt, completion, tools)
        field = self._spec.id_field
        own = None if field is None else own_id(named.get(field), field)
        return text, prompt_hash, own, -1 if answer is None else self._labels.get(answer, -1)

    def name_block(self, block: Block) -> tuple[bytes, bytes] | None:
        """The digests of a block's texts, and of its prompts, end to end; None where a row needs a look by itself."""
        if not self._is_plain or any(len(kind) > 1 for kind in block.kinds):
            return None
        key = tuple(block.columns), tuple(kind for (kind,) in block.kinds)
        if key not in self._shapes:
            with suppress(DataError):
                self.name(block.rows[0])
        shape = self._shapes.get(key)
        if shape is None or not shape.is_bare:
            return None
        columns: Any = [block.columns[name] for name in shape.texts]  # texts, as the shape's types say
        texts = read_columns(columns, self._ignored)
        return None if texts is None else many_text_digests(*texts)

    def __call__(self, fields: Fields) -> Record | None:
        """The record of a row."""
        parsed = self._parse(fields)
        if parsed is None:
            return None
        prompt, completion, tools, answer, named = parsed
        text, prompt_hash = digests(prompt, completion, tools)
        field = self._spec.id_field
        return Record(
            source=self._spec.label,
            record_id=text.hex() if field is None else own_id(named.get(field), field),
            prompt_hash=prompt_hash.hex(),
            prompt=(Message(role="user", content=prompt),) if isinstance(prompt, str) else prompt,
            completion=completion,
            answer=answer,
            original=fields,
            tools=tools,
        )

    def _parse(self, fields: Fields) -> _Parsed | None:
        if self._spec.ignored:
            self.seen.update(fields)
        mapped = self._mapped(fields)
        named = {**fields, **mapped} if mapped else fields
        for name, wanted in self._wanted.items():
            if name not in named:
                raise DataError(f"the filter field {name!r} is missing")
            if named[name] not in wanted:
                return None
        view, named = _present(self._view(fields, mapped)), _present(named)
        prompt: str | tuple[Message, ...]
        tools: _Tools = ()
        answer = None
        if self._spec.preset is not None:
            prompt, completion, answer = self._rendered(view, fields)
        else:
            prompt, completion, tools = self._read(view, fields)
        if answer is None and self._answers.kind != "none":
            with suppress(DataError) if self._spec.prompts_suffice else nullcontext():
                answer = gold_answer(self._answers, named, completion)
        return prompt, completion, tools, answer, named

    def _rendered(self, view: Fields, fields: Fields) -> tuple[str, str, str | None]:
        render = preset(self._spec.preset or "")
        key = self._key(view, fields)
        shape = self._shapes.get(key)
        try:
            if shape is None:
                watched = _Watched(view)
                render(watched)
                shape = self._remember_shape(key, view, None, watched.asked)
            self.unused.update(check_row(view, shape.checked, self._spec.split))
            rendered = render(view)
        except DataError:
            if not self._spec.prompts_suffice:
                raise
            return _prompt_alone(render, view), "", None
        prompt = checked_text(rendered.instruction, "the instruction")
        completion = checked_text(rendered.response, "the response")
        refuse_media_marks(prompt, "the prompt", self._ignored)
        refuse_media_marks(completion, "the response", self._ignored)
        return prompt, completion, rendered.answer if self._answers == render.answer else None

    def _read(self, view: Fields, fields: Fields) -> tuple[str | tuple[Message, ...], str, _Tools]:
        key = self._key(view, fields)
        shape = self._shapes.get(key)
        if shape is None:
            respelt = spellings(view)
            row = _respelt(view, respelt)
            found = self._spec.format or detect_format(row)
            read = {respelt.get(name, name) for name in names_read(found, row)}
            check_spelt_once(view, read)
            shape = self._remember_shape(key, view, found, read, respelt)
        if shape.checked:
            self.unused.update(check_row(view, shape.checked, self._spec.split))
        if not shape.respelt:
            return self._as_read(view, shape)
        try:
            return self._as_read(_respelt(view, shape.respelt), shape)
        except DataError as error:  # which names the field as we spell it
            told = [
                f"{name!r} is {theirs!r} in the row" for name, theirs in shape.respelt.items() if name in str(error)
            ]
            raise DataError("; ".join([str(error), *told])) from error

    def _as_read(self, view: Fields, shape: _Shape) -> tuple[str | tuple[Message, ...], str, _Tools]:
        if shape.format is None:
            raise RuntimeError("a row without a preset has a format")
        ignored, prompts_suffice = self._ignored, self._spec.prompts_suffice
        if shape.texts:
            texts = read_texts(view, shape.texts, ignored)
            if texts is not None:
                return *texts, ()
        example = read_example(view, shape.format, ignored=ignored, prompts_suffice=prompts_suffice)
        roles = [turn.role for turn in example.prompt]
        if self._spec.one_exchange and (example.tools or roles != ["user"]):
            raise DataError(
                "has several turns or tools, and `output.layout: completion` holds one prompt and its response; say "
                "rendered, turns or messages"
            )
        self.unused.update(example.unused)
        if self._spec.ignored:
            self.seen.update(name.rpartition("[].")[2] for name in example.unused)
        return example.prompt, example.completion, example.tools

    def _key(self, view: Fields, fields: Fields) -> _Key:
        """The names of the fields that hold something, as the data has them; and the types of what they hold."""
        return tuple(_present(fields) if self._columns else view), tuple(map(type, view.values()))

    def _remember_shape(
        self,
        key: _Key,
        view: Fields,
        format: Format | None,  # noqa: A002 - the recipe's word
        read: set[str],
        respelt: Mapping[str, str] = MappingProxyType({}),
    ) -> _Shape:
        """The shape of a row that is the first of its kind; its columns that aren't used are noted."""
        read = read | self._named
        left = {name for name in view if passed_over(name, self._ignored)}
        left |= {name for name in view if format is None and known(name) == "label"}  # a known data set's own
        texts = () if format is None else text_fields(format, _respelt(view, respelt))
        looked_at = fields_to_check(view, read | left)
        is_bare = bool(texts) and not looked_at and not respelt
        found = _Shape(format=format, texts=texts, checked=looked_at, respelt=respelt, is_bare=is_bare)
        used = {name for ours in read & set(self._columns) for name in self._columns[ours]} | self._named
        used |= {name for name in (*read, *found.checked) if name not in self._columns}
        self.unused.update(name for name in key[0] if name not in used)
        if len(self._shapes) < _REMEMBERED:
            self._shapes[key] = found
        return found

    def _mapped(self, fields: Fields) -> dict[str, object]:
        """What the recipe's columns put under our names."""
        mapped: dict[str, object] = {}
        for ours, names in self._columns.items():
            if not names:
                continue
            missing = next((name for name in names if name not in fields), None)
            if missing is not None:
                raise DataError(f"the column {missing!r} (for {ours!r}) is missing; the record has {', '.join(fields)}")
            if ours == "prompt" and self._spec.prompt is not None:
                texts = {name: checked_text(fields[name], f"the column {name!r} (for `prompt`)") for name in names}
                mapped[ours] = filled(self._spec.prompt, texts)
            else:
                mapped[ours] = fields[names[0]] if len(names) == 1 else _joined(fields, names)
        return mapped

    def _view(self, fields: Fields, mapped: Fields) -> Fields:
        """The row as its format reads it: a column that is mapped or left out stands under its own name no more."""
        if not self._columns:
            return fields
        gone = {name for theirs in self._columns.values() for name in theirs}
        gone |= {name for name in fields if passed_over(name, self._spec.ignored)}
        if self._spec.prompt is not None:  # a row's own prompt isn't read beside the one that is put together
            gone |= {name for name in fields if meaning(name) == "prompt"}
        return {**{name: value for name, value in fields.items() if name not in gone}, **mapped}


class _Watched(dict[str, object]):
    """A row that notes which of its fields are asked for."""

    def __init__(self, fields: Fields) -> None:
        super().__init__(fields)
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> object:
        self.asked.add(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self.asked.add(str(name))
        return super().__contains__(name)

    def get(self, name: str, default: object = None) -> object:
        """As of any mapping."""
        self.asked.add(name)
        return super().get(name, default)


def _prompt_alone(render: Preset, view: Fields) -> str:
    """The prompt of a row whose answer is missing or hidden: no preset puts the answer into it, so any will do.

    Raises:
        DataError: what the preset lacks isn't the answer alone.
    """
    word = render.answer.labels[0] if render.answer.labels else "\\boxed{1}"
    stand_in = {"label": "1", "answer": "1", "solution": word, "output": f"the correct answer is {word}"}
    if view.get("instruction") is not None:
        del stand_in["answer"]  # the response of a row that is in the instruction format states it
        view = {name: value for name, value in view.items() if name != "answer"}
    try:
        return checked_text(render({**view, **stand_in, "answerKey": "A"}).instruction, "the instruction")
    except DataError:
        return checked_text(render({**view, **stand_in, "answerKey": "1"}).instruction, "the instruction")


def _present(fields: Fields) -> Fields:
    """The fields that hold something: one that is null is as one that isn't there."""
    if None not in fields.values():
        return fields
    return {name: value for name, value in fields.items() if value is not None}


def _respelt(fields: Fields, ours: Mapping[str, str]) -> Fields:
    """The row with some fields under our names for them."""
    if not ours:
        return fields
    theirs = {name: our for our, name in ours.items()}
    return {theirs.get(name, name): value for name, value in fields.items()}


def _joined(fields: Fields, names: tuple[str, ...]) -> str:
    """The texts of several columns, those that hold any, joined by line feeds."""
    texts = [checked_text(fields[name], f"the column {name!r}") for name in names if not is_blank(fields[name])]
    return "\n".join(texts)


def answer_labels(spec: SourceSpec) -> tuple[str, ...]:
    """The labels that a source's gold answers can be; none where answers are free or not checked."""
    match spec.answers.kind:
        case "choice":
            return spec.answers.labels
        case "true_false":
            return ("true", "false")
        case _:
            return ()
