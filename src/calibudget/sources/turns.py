"""Conversations: a list of turns, as people write them down, to messages."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from calibudget.errors import DataError, InputError
from calibudget.records import Message
from calibudget.sources.field_meanings import (
    LEAVE_OUT,
    TEACHING,
    check_teaching,
    check_turn_field,
    is_blank,
    meaning,
    passed_over,
)
from calibudget.sources.identity import checked_text
from calibudget.sources.media_marks import refuse_media_marks
from calibudget.store.canonical import strict_json

_ROLES: Final = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "model": "assistant",
    "bot": "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
}
_TEXTS: Final = ("content", "value")
_NAMED: Final = ("role", "from")
#: Fields of every turn that are read, or whose meaning is looked at.
_READ: Final = frozenset({*_TEXTS, *_NAMED, "tool_calls", "function_call"})
_LOOKED_AT: Final = ("media", "reasoning", "functions", "tools")


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """Turns as messages.

    Attributes:
        messages: one a turn; a system turn without text, which says nothing, has none.
        unused: fields of turns that aren't read.
    """

    messages: tuple[Message, ...]
    unused: frozenset[str]


def read_turns(value: object, field: str, ignored: Collection[str] = ()) -> Conversation:
    """The turns of a field: a list of objects, the JSON text of one, or an object of lists as columnar files hold it.

    Raises:
        DataError: that isn't what it holds, a role is unknown, or a turn holds something that isn't read.
    """
    turns = _listed(value, field)
    messages: list[Message] = []
    unused: set[str] = set()
    for number, turn in enumerate(turns, start=1):
        place = f"{field}, turn {number}"
        if not isinstance(turn, Mapping):
            raise DataError(f"{place} must be an object with role and content, not {type(turn).__name__}")
        said = {name: one for name, one in turn.items() if one is not None and not passed_over(name, ignored)}
        unused |= _not_read(turn, said, field, ignored)
        for name, one in said.items():
            check_turn_field(name, one, place)
            if number == len(turns) and meaning(name) in TEACHING and not is_blank(one):
                check_teaching(said, name, f"{place}, the last: {name!r}")
        message = _message(said, place, ignored)
        if message is not None:
            messages.append(message)
    return Conversation(messages=tuple(messages), unused=frozenset(unused))


def from_text(value: object, what: str) -> object:
    """A value that may be held as its JSON text, which is all that CSV and some columnar files have.

    Raises:
        DataError: the text is no JSON; `what` names it.
    """
    if not isinstance(value, str) or not value.strip():
        return value
    try:
        return strict_json(value.encode("utf-8"))
    except (InputError, UnicodeEncodeError) as error:
        raise DataError(f"{what} holds text that is no JSON: {error}") from error


def _listed(value: object, field: str) -> list[object]:
    value = from_text(value, f"the field {field!r}")
    if isinstance(value, Mapping) and value and all(isinstance(column, list) for column in value.values()):
        if len({len(column) for column in value.values()}) > 1:
            raise DataError(f"the field {field!r} holds lists of different lengths")
        value = [dict(zip(value, turn, strict=True)) for turn in zip(*value.values(), strict=True)]
    if not isinstance(value, list) or not value:
        raise DataError(f"the field {field!r} must hold a nonempty list of turns, or its JSON text")
    return value


def _not_read(turn: Mapping[str, object], said: Mapping[str, object], field: str, ignored: Collection[str]) -> set[str]:
    """The fields of a turn that are neither read nor looked at, under the name of the field that holds the turns."""
    of_teaching = [name for name in said if meaning(name) in TEACHING[:2]]
    switches = [name for name, one in said.items() if isinstance(one, bool) and name not in of_teaching]
    names = [*switches, *(name for name in said if meaning(name) not in _LOOKED_AT and name not in of_teaching)]
    seconds = {two for one, two in (_TEXTS, _NAMED) if one in said}
    reads_tools = _ROLES.get(str(said.get("role", said.get("from"))).lower()) == "tool"
    read = (_READ - seconds) | ({"tool_call_id", "name"} if reads_tools else set())
    unused = {name for name in names if name not in read} | {name for name in turn if passed_over(name, ignored)}
    content = next((said[name] for name in _TEXTS if name in said), None)
    for part in content if isinstance(content, list) else ():
        if isinstance(part, Mapping):
            unused |= {
                f"content[].{name}" for name, one in part.items() if name not in ("type", "text") and one is not None
            }
    return {f"{field}[].{name}" for name in unused}


def _message(turn: Mapping[str, object], place: str, ignored: Collection[str]) -> Message | None:
    """One turn as a message; None for a system turn without text, which says nothing."""
    named = turn.get("role", turn.get("from"))
    role = _ROLES.get(named.lower()) if isinstance(named, str) else None
    if role is None:
        raise DataError(f"{place} has the role {named!r}; known are {', '.join(_ROLES)}")
    if turn.get("function_call"):
        raise DataError(f"{place} holds a function_call; write it as tool_calls")
    more = _tool_use(turn, role, place)
    content = _content(turn.get("content", turn.get("value")), place, ignored)
    is_empty = content is None or (isinstance(content, str) and not content.strip())
    if role == "system" and isinstance(content, str) and is_empty:
        return None
    text = "" if is_empty and "tool_calls" in more else checked_text(content, place)
    refuse_media_marks(text, place, ignored)
    return Message(role=role, content=text, more=more)


def _tool_use(turn: Mapping[str, object], role: str, place: str) -> dict[str, object]:
    """What a turn says of tools, as it stands."""
    calls = objects(turn.get("tool_calls"), f"{place}: tool_calls")
    if calls and role != "assistant":
        raise DataError(f"{place} calls tools, which only the assistant can")
    if role != "tool":
        return {"tool_calls": calls} if calls else {}
    named = {name: turn[name] for name in ("tool_call_id", "name") if turn.get(name) is not None}
    for name, value in named.items():
        checked_text(value, f"{place}: {name}")
    return named


def objects(given: object, what: str) -> list[Mapping[str, object]]:
    """A list of objects, which columnar files hold as its JSON text; null and blank are none.

    Raises:
        DataError: it is something else; `what` names it.
    """
    given = from_text(given, what)
    given = [] if given is None or given == "" or (isinstance(given, str) and given.isspace()) else given
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise DataError(f"{what} must hold a list of objects, or its JSON text")
    return given


def _content(content: object, place: str, ignored: Collection[str]) -> object:
    """The content of a turn, a list of text parts joined by line feeds."""
    if not isinstance(content, list):
        return content
    texts = []
    for part in content:
        if not isinstance(part, Mapping) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            kind = part.get("type", ", ".join(part)) if isinstance(part, Mapping) else type(part).__name__
            raise DataError(f"{place} holds {kind!r}; only text can be trained on; {LEAVE_OUT}")
        for name, one in part.items():
            if name not in ("type", "text") and not passed_over(name, ignored):
                check_turn_field(name, one, place)
        texts.append(part["text"])
    return "\n".join(texts)
