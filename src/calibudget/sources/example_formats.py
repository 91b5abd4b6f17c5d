"""How a row's fields become an example: the formats that people have, seen from the fields or named.

`Record.original` always holds the row itself, before columns are mapped; in rows of Parquet and Arrow what JSON
doesn't have takes the form in which docs/formats.md writes it. What each field means stands in
`calibudget.sources.field_meanings`; the formats are:

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
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from calibudget.errors import DataError
from calibudget.records import Message
from calibudget.sources.field_meanings import (
    HISTORY,
    JOINED,
    LEAVE_OUT,
    OF_TEACHING,
    ORDERS,
    PREFERRED,
    PROMPT_ALIASES,
    RESPONSE_ALIASES,
    SYSTEM,
    TURNS,
    Format,
    check_row,
    is_blank,
    meaning,
)
from calibudget.sources.identity import checked_text, pair
from calibudget.sources.media_marks import may_hold_media, refuse_media_marks
from calibudget.sources.turns import Conversation, from_text, objects, read_turns

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
    preferred = next((name for name in PREFERRED if name in fields), None)
    lists = [
        name
        for name, value in fields.items()
        if isinstance(value, list) and value and all(isinstance(one, dict) for one in value)
    ]
    wrapped = ["train"] if "train" in lists else [name for name in lists if meaning(name) is None]
    way = "name format, preset, columns or prompt in the recipe"
    if preferred:
        way += f", as in `columns: {{messages: {preferred}}}`"
    elif wrapped:
        way += f", or `rows: {wrapped[0]}`"
    elif len(texts := [name for name, value in fields.items() if isinstance(value, str)]) > 1 and not found:
        way += f", as in `columns: {{prompt: {texts[0]}, completion: {texts[1]}}}`"
    raise DataError(f"{seen} ({', '.join(fields)}); {way}")


def read_example(
    fields: Fields,
    format: Format,  # noqa: A002 - the recipe's word
    *,
    ignored: Collection[str] = (),
    prompts_suffice: bool = False,
) -> Example:
    """The example that a row holds under a format.

    Fields that are `ignored`, of turns too, are passed over on purpose; where prompts suffice it may lack its response.

    Raises:
        DataError: a field is missing, empty or of the wrong type, a role is unknown, a turn holds images or sounds, or
            the conversation doesn't end with a response in words after a user's turn.
    """
    prompt, completion = fields.get("prompt"), fields.get("completion")
    if format in TURNS:
        field = TURNS[format]
        return _conversation(fields.get(field), field, fields, ignored, prompts_suffice)
    if isinstance(prompt, list) and (isinstance(completion, list) or (completion is None and prompts_suffice)):
        check_row(fields, [name for name in fields if meaning(name) in ("joined", "history")])
        both = [*prompt, *(completion or ())]
        return _conversation(both, "prompt and completion", fields, ignored, prompts_suffice)
    if isinstance(prompt, list):
        preferred = next((name for name in PREFERRED if name in fields), "FIELD")
        raise DataError(
            f"the field 'prompt' holds turns, so the field 'completion' must hold turns too; say which holds them "
            f"(`columns: {{completion: {preferred}}}`), or {LEAVE_OUT}"
        )
    instruction, response = _texts(fields, format, ignored, prompts_suffice)
    history = _history(fields, ignored)
    turns = (*_system(fields, ignored), *history.messages, Message(role="user", content=instruction))
    return Example(prompt=turns, completion=response, tools=_tools(fields), unused=history.unused)


def text_fields(format: Format, row: Fields) -> tuple[str, ...]:  # noqa: A002 - the recipe's word
    """The fields of one exchange in texts: the prompt's, those joined to it, the response's; none of another row."""
    if format in TURNS or any(meaning(name) in _MORE for name in row):
        return ()
    prompt, response = (next((name for name in names if name in row), "") for names in ORDERS[format])
    found = (prompt, *(name for name in JOINED if name in row), response)
    return found if all(type(row.get(name)) is str for name in found) else ()


def read_texts(fields: Mapping[str, Any], names: tuple[str, ...], ignored: Collection[str]) -> tuple[str, str] | None:
    """What `read_example` finds in the fields that `text_fields` names; None where it has something to refuse."""
    prompt, response = fields[names[0]].strip(), fields[names[-1]].strip()
    if not prompt or not response or "\0" in prompt or "\0" in response:
        return None
    for name in names[1:-1]:
        if fields[name].strip():
            prompt = f"{prompt}\n{fields[name]}".strip()
    refuse_media_marks(prompt, "the prompt", ignored)
    refuse_media_marks(response, "the response", ignored)
    return prompt, response


def read_columns(columns: Sequence[Sequence[str]], ignored: Collection[str]) -> tuple[list[str], list[str]] | None:
    """What `read_texts` finds in many rows, whose fields are given one by one; None where one holds what it refuses."""
    prompts, responses = list(map(str.strip, columns[0])), list(map(str.strip, columns[-1]))
    if not all(prompts) or not all(responses) or any("\0" in "\n".join(texts) for texts in (prompts, responses)):
        return None
    for column in columns[1:-1]:
        if any(column):
            pairs = zip(prompts, column, strict=True)
            prompts = [f"{prompt}\n{text}".strip() if text.strip() else prompt for prompt, text in pairs]
    try:
        for texts in (prompts, responses):
            for text in texts if may_hold_media("\n".join(texts)) else ():
                refuse_media_marks(text, "a text", ignored)
    except DataError:
        return None
    return prompts, responses


def _texts(fields: Fields, format: Format, ignored: Collection[str], prompts_suffice: bool) -> tuple[str, str]:  # noqa: A002
    prompts, responses = ORDERS[format]
    if prompts_suffice:  # a benchmark's list of choices is shown by its harness, in a form of the harness's own
        fields = {name: value for name, value in fields.items() if name != "choices" or isinstance(value, str)}
    if prompts_suffice and all(is_blank(fields.get(name)) for name in responses):
        instruction, response = pair({**fields, responses[0]: "-"}, prompts, responses)[0], ""
    else:
        instruction, response = pair(fields, prompts, responses)
    refuse_media_marks(instruction, "the prompt", ignored)
    refuse_media_marks(response, "the response", ignored)
    return instruction, response


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
    system = [one for one in _system(row, ignored) if one != messages[0]]
    if system and messages[0].role == "system":
        raise DataError(
            f"{field!r} begins with another system message than the row's own field of one; leave one out on purpose "
            "(`columns: {system: null}`), or such rows (`on_error: skip`)"
        )
    return Example(
        prompt=(*system, *messages),
        completion="" if last is None else last.content,
        tools=_tools(row),
        unused=read.unused,
    )


def _system(fields: Fields, ignored: Collection[str]) -> tuple[Message, ...]:
    """The system message of a row.

    Raises:
        DataError: it isn't text, or there are two that differ, or it holds a token of media.
    """
    said = {name: fields[name] for name in SYSTEM if not is_blank(fields.get(name))}
    texts = {name: checked_text(value, f"the field {name!r}") for name, value in said.items()}
    if len(set(texts.values())) > 1:
        raise DataError(f"the fields {' and '.join(map(repr, texts))} hold different system messages; map one away")
    for name, text in texts.items():
        refuse_media_marks(text, f"the field {name!r}", ignored)
    return tuple(Message(role="system", content=text) for text in list(texts.values())[:1])


def _history(fields: Fields, ignored: Collection[str]) -> Conversation:
    """The turns before a prompt: pairs of a question and its answer, or turns as conversations have them.

    They are context, so it says nothing of them that they aren't to be taught.

    Raises:
        DataError: the field holds something else, or there are two.
    """
    values = {name: from_text(fields.get(name), f"the field {name!r}") for name in HISTORY}
    said = {name: value for name, value in values.items() if not is_blank(value)}
    if len(said) > 1:
        raise DataError(f"the fields {' and '.join(map(repr, said))} both hold earlier turns; map one away")
    for name, value in said.items():
        pairs = value if isinstance(value, list) else []
        if pairs and all(isinstance(one, list) and len(one) == 2 and isinstance(one[0], str) for one in pairs):
            value = [
                {"role": role, "content": text}
                for one in pairs
                for role, text in zip(("user", "assistant"), one, strict=True)
            ]
        return read_turns(value, name, {*ignored, *OF_TEACHING})
    return Conversation(messages=(), unused=frozenset())


def _tools(fields: Fields) -> tuple[Mapping[str, object], ...]:
    return tuple(objects(fields.get("tools"), "the field 'tools'"))
