"""How a row's fields become an example: the formats that people have, seen from the fields or named.

`Record.original` always holds the row itself, before columns are mapped; in rows of Parquet and Arrow what JSON
doesn't have takes the form in which docs/formats.md writes it. What each field means stands in
`calibudget.sources.fields`; the formats are:

- `alpaca`: instruction (or prompt, question) and output (or response, completion, answer);
- `prompt-completion`: prompt (or instruction, question) and completion (or response, output, answer), either
  texts or lists of turns;
- `messages`: a list of turns with role and content (OpenAI), the last one by the assistant;
- `sharegpt`: `conversations`, a list of turns with from and value, the last one by the model.

In the first two, `input` and `context` are joined to the prompt by line feeds where they hold text, and `history` holds
the exchanges before it. A system message may stand in a field `system` (or system_prompt, system_message).

The last turn is what training teaches; every turn before it is prompt. Turns may call tools and answer for them, as
chat templates know them: `tool_calls` of an assistant, then turns of the role `tool`; `tools` of the row describes
what may be called. Both are lists, or the JSON text of one, and kept as they stand.

From a row's fields to its record, or only to what names it: both depend on nothing but the row and the recipe.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from calibudget.errors import DataError
from calibudget.records import Message, Record
from calibudget.sources.fields import (
    MEANINGS,
    PROMPT_ALIASES,
    RESPONSE_ALIASES,
    SYSTEM,
    TURNS,
    aliases,
    check_row,
    check_text,
    checked,
    is_blank,
    names_read,
)
from calibudget.sources.filters import Wanted
from calibudget.sources.identity import checked_text, digests, own_id, pair
from calibudget.sources.spec import Format, SourceSpec
from calibudget.sources.turns import from_text, objects, read_turns
from calibudget.tasks import gold_answer, preset

Fields = Mapping[str, object]
#: Meanings of fields with which a row isn't a plain exchange of two texts.
_MORE: Final = ("system", "history", "tools")


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """What the model is given and taught: texts as they stand, ends stripped.

    Attributes:
        prompt: the turns before the response.
        completion: the response; empty only where prompts suffice.
        tools: what may be called.
        unused: fields of turns that weren't read.
    """

    prompt: tuple[Message, ...]
    completion: str
    tools: tuple[Mapping[str, object], ...] = ()
    unused: frozenset[str] = frozenset()


def detect_format(fields: Fields) -> Format:
    """The format that a row's field names show.

    Raises:
        DataError: none, or more than one; the way out is named.
    """
    found: list[Format] = []
    if "messages" in fields:
        found.append("messages")
    if "conversations" in fields:
        found.append("sharegpt")
    has_prompt = any(name in fields for name in PROMPT_ALIASES)
    has_response = any(name in fields for name in RESPONSE_ALIASES)
    if (has_prompt and has_response) or ((has_prompt or has_response) and not found):  # half a pair: its reader says so
        found.append("alpaca" if "instruction" in fields else "prompt-completion")
    if len(found) == 1:
        return found[0]
    seen = f"the fields show {' and '.join(found)}" if found else "the fields show no known format"
    wrapped = next((name for name, value in fields.items() if _are_rows(value)), None)
    way = "name format, preset or columns in the recipe" + (f", or `rows: {wrapped}`" if wrapped else "")
    raise DataError(f"{seen} ({', '.join(fields)}); {way}")


def read_example(
    fields: Fields,
    format: Format,  # noqa: A002 - the recipe's word
    *,
    ignored: Collection[str] = (),
    prompts_suffice: bool = False,
) -> Example:
    """The example that a row holds under a format.

    Args:
        fields: its fields.
        format: how they hold it.
        ignored: fields that the recipe passes over on purpose, of turns too.
        prompts_suffice: whether a row may lack its response.

    Raises:
        DataError: a field is missing, empty or of the wrong type, a role is unknown, a turn holds images or sounds, or
            the conversation doesn't end with a response in words after a user's turn.
    """
    prompt, completion = fields.get("prompt"), fields.get("completion")
    if format in TURNS:
        field = TURNS[format]
        return _conversation(fields.get(field), field, fields, ignored, prompts_suffice)
    if isinstance(prompt, list) and (isinstance(completion, list) or (completion is None and prompts_suffice)):
        check_row(fields, [name for name in fields if MEANINGS.get(name) in ("joined", "history")])
        both = [*prompt, *(completion or ())]
        return _conversation(both, "prompt and completion", fields, ignored, prompts_suffice)
    return _exchange(fields, format, ignored, prompts_suffice)


def is_pair(format: Format, names: Collection[str]) -> bool:  # noqa: A002 - the recipe's word
    """Whether a row's field names show one exchange and nothing more, so that `read_pair` may read it."""
    return format not in TURNS and not any(MEANINGS.get(name) in _MORE for name in names)


def read_pair(
    fields: Fields,
    format: Format,  # noqa: A002 - the recipe's word
    *,
    ignored: Collection[str] = (),
    prompts_suffice: bool = False,
) -> tuple[str, str] | None:
    """Prompt and response of a row that holds one exchange (see `is_pair`); None where they are lists of turns.

    Raises:
        DataError: as `read_example`.
    """
    if isinstance(fields.get("prompt"), list):
        return None
    return _texts(fields, format, ignored, prompts_suffice)


def _texts(fields: Fields, format: Format, ignored: Collection[str], prompts_suffice: bool) -> tuple[str, str]:  # noqa: A002
    prompts, responses = aliases(format)
    if prompts_suffice and all(is_blank(fields.get(name)) for name in responses):
        instruction, response = pair({**fields, responses[0]: "-"}, prompts, responses)[0], ""
    else:
        instruction, response = pair(fields, prompts, responses)
    check_text(instruction, "the prompt", ignored)
    check_text(response, "the response", ignored)
    return instruction, response


def _exchange(fields: Fields, format: Format, ignored: Collection[str], prompts_suffice: bool) -> Example:  # noqa: A002
    instruction, response = _texts(fields, format, ignored, prompts_suffice)
    prompt = (*_system(fields), *_history(fields, ignored), Message(role="user", content=instruction))
    return Example(prompt=prompt, completion=response, tools=_tools(fields))


def _conversation(turns: object, field: str, row: Fields, ignored: Collection[str], prompts_suffice: bool) -> Example:
    read = read_turns(turns, field, ignored)
    messages = list(read.messages)
    last = messages.pop() if messages and messages[-1].role == "assistant" else None
    if last is None and not prompts_suffice:
        raise DataError(f"the last turn of {field!r} must be the assistant's: it is what training teaches")
    if not any(message.role == "user" for message in messages):
        raise DataError(f"no user turn comes before the last response of {field!r}")
    if last is not None and last.more:
        raise DataError(
            f"the last turn of {field!r} calls tools; what training teaches must be words, so end before it"
        )
    system = [one for one in _system(row) if one != messages[0]]
    return Example(
        prompt=(*system, *messages),
        completion="" if last is None else last.content,
        tools=_tools(row),
        unused=read.unused,
    )


def _system(fields: Fields) -> tuple[Message, ...]:
    """The system message of a row.

    Raises:
        DataError: it isn't text, or there are two that differ.
    """
    said = {name: fields[name] for name in SYSTEM if not is_blank(fields.get(name))}
    texts = {name: checked_text(value, f"the field {name!r}") for name, value in said.items()}
    if len(set(texts.values())) > 1:
        raise DataError(f"the fields {' and '.join(map(repr, texts))} hold different system messages; map one away")
    return tuple(Message(role="system", content=text) for text in list(texts.values())[:1])


def _history(fields: Fields, ignored: Collection[str]) -> tuple[Message, ...]:
    """The turns before a prompt: pairs of a question and its answer, or turns as conversations have them.

    Raises:
        DataError: the field holds something else.
    """
    value = from_text(fields.get("history"), "the field 'history'")
    if is_blank(value):
        return ()
    pairs = value if isinstance(value, list) else []
    if pairs and all(isinstance(one, list) and len(one) == 2 and isinstance(one[0], str) for one in pairs):
        value = [
            {"role": role, "content": text}
            for one in pairs
            for role, text in zip(("user", "assistant"), one, strict=True)
        ]
    return read_turns(value, "history", ignored).messages


def _tools(fields: Fields) -> tuple[Mapping[str, object], ...]:
    return tuple(objects(fields.get("tools"), "the field 'tools'"))


def _are_rows(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, dict) for one in value)


#: Sets of field names whose shape is remembered.
_REMEMBERED = 1000
#: What names a row: SHA-256 of the normal form; the prompt hash; the record's own id, None where the recipe takes none;
#: the number of its label among the recipe's, -1 where answers are no labels.
Named = tuple[bytes, bytes, str | None, int]


class _Shape(NamedTuple):
    """What a row's field names say.

    Attributes:
        format: how they hold an example, None under a preset.
        is_pair: whether that is one exchange and nothing more.
        checked: which fields must be looked at in every row.
    """

    format: Format | None
    is_pair: bool
    checked: tuple[str, ...]


_Tools = tuple[Mapping[str, object], ...]
#: Prompt (a single user turn as its text), completion, tools, gold answer, and the fields under our names and theirs.
_Parsed = tuple[str | tuple[Message, ...], str, _Tools, str | None, Fields]


class RecordMaker:
    """Makes the records of one source.

    Its methods raise DataError for a row that can't be used, and give None for one that the recipe's filter leaves
    out; so a record can be made again from the `original` that a train set keeps.

    Attributes:
        unused: fields of the rows so far that hold something and that nothing used.
    """

    def __init__(self, spec: SourceSpec) -> None:
        self.unused: set[str] = set()
        self._spec = spec
        self._wanted = {name: Wanted(values) for name, values in spec.where.items()}
        self._answers = spec.answers
        self._labels = {label: number for number, label in enumerate(answer_labels(spec))}
        self._is_plain = not (spec.where or spec.columns or spec.preset or spec.id_field or self._labels)
        self._is_plain &= self._answers.kind == "none"
        self._shapes: dict[tuple[str, ...], _Shape] = {}
        self._named = {*spec.where, *(name for name in (spec.id_field, self._answers.field) if name is not None)}

    def name(self, fields: Fields) -> Named | None:
        """What names a row, at a fraction of the cost of its record."""
        if self._is_plain:
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
        mapped = self._mapped(fields)
        named = {**fields, **mapped} if mapped else fields
        for name, wanted in self._wanted.items():
            if name not in named:
                raise DataError(f"the filter field {name!r} is missing")
            if named[name] not in wanted:
                return None
        view, named = _present(self._view(fields, mapped)), _present(named)
        prompt: str | tuple[Message, ...]
        tools: tuple[Mapping[str, object], ...] = ()
        answer = None
        if self._spec.preset is not None:
            prompt, completion, answer = self._rendered(view, fields)
        else:
            prompt, completion, tools = self._read(view, fields)
        if answer is None and self._answers.kind != "none" and not (self._spec.prompts_suffice and not completion):
            answer = gold_answer(self._answers, named, completion)
        return prompt, completion, tools, answer, named

    def _rendered(self, view: Fields, fields: Fields) -> tuple[str, str, str | None]:
        render = preset(self._spec.preset or "")
        key = self._key(view, fields)
        shape = self._shapes.get(key)
        if shape is None:
            watched = _Watched(view)
            render(watched)
            shape = self._seen(key, view, None, watched.asked)
        self.unused.update(check_row(view, shape.checked))
        rendered = render(view)
        prompt = checked_text(rendered.instruction, "the instruction")
        completion = checked_text(rendered.response, "the response")
        return prompt, completion, rendered.answer if self._answers == render.answer else None

    def _read(self, view: Fields, fields: Fields) -> tuple[str | tuple[Message, ...], str, _Tools]:
        key = self._key(view, fields)
        shape = self._shapes.get(key)
        if shape is None:
            found = self._spec.format or detect_format(view)
            shape = self._seen(key, view, found, names_read(found, view))
        if shape.format is None:
            raise RuntimeError("a row without a preset has a format")
        if shape.checked:
            self.unused.update(check_row(view, shape.checked))
        ignored, prompts_suffice = self._spec.ignored, self._spec.prompts_suffice
        if shape.is_pair:
            pair = read_pair(view, shape.format, ignored=ignored, prompts_suffice=prompts_suffice)
            if pair is not None:
                return *pair, ()
        example = read_example(view, shape.format, ignored=ignored, prompts_suffice=prompts_suffice)
        self.unused.update(example.unused)
        return example.prompt, example.completion, example.tools

    def _key(self, view: Fields, fields: Fields) -> tuple[str, ...]:
        """The names of the fields that hold something, as the data has them."""
        return tuple(_present(fields) if self._spec.columns else view)

    def _seen(self, key: tuple[str, ...], view: Fields, format: Format | None, read: set[str]) -> _Shape:  # noqa: A002
        """The shape of a row that is the first of its kind; its columns that aren't used are noted."""
        read = read | self._named
        found = _Shape(format, format is not None and is_pair(format, view), checked(view, read))
        columns = {ours: _names(theirs) for ours, theirs in self._spec.columns.items()}
        used = {name for ours in read & set(columns) for name in columns[ours]} | self._named
        used |= {name for name in (*read, *found.checked) if name not in columns}
        self.unused.update(name for name in key if name not in used)
        if len(self._shapes) < _REMEMBERED:
            self._shapes[key] = found
        return found

    def _mapped(self, fields: Fields) -> dict[str, object]:
        """What the recipe's columns put under our names."""
        mapped: dict[str, object] = {}
        for ours, theirs in self._spec.columns.items():
            names = _names(theirs)
            if not names:
                continue
            missing = next((name for name in names if name not in fields), None)
            if missing is not None:
                raise DataError(f"the column {missing!r} (for {ours!r}) is missing; the record has {', '.join(fields)}")
            mapped[ours] = fields[names[0]] if len(names) == 1 else _joined(fields, names)
        return mapped

    def _view(self, fields: Fields, mapped: Fields) -> Fields:
        """The row as its format reads it: a column that is mapped or left out stands under its own name no more."""
        columns = self._spec.columns
        if not columns:
            return fields
        gone = {name for theirs in columns.values() for name in _names(theirs)} | self._spec.ignored
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


def _names(theirs: str | tuple[str, ...] | None) -> tuple[str, ...]:
    """The columns that a recipe maps to one of our names; none where it leaves it out on purpose."""
    return (theirs,) if isinstance(theirs, str) else theirs or ()


def _present(fields: Fields) -> Fields:
    """The fields that hold something: one that is null is as one that isn't there."""
    if None not in fields.values():
        return fields
    return {name: value for name, value in fields.items() if value is not None}


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
