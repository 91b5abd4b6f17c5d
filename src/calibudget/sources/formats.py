"""How a row's fields become an example: the formats that people have, seen from the fields or named.

`Record.original` always holds the row itself, before columns are mapped; in rows of Parquet and Arrow what JSON
doesn't have takes the form in which docs/formats.md writes it. The formats and their fields:

- `alpaca`: instruction (or prompt, question), input (joined by a line feed when not empty), output (or response,
  completion, answer), and a system message if a field `system` holds one;
- `prompt-completion`: prompt (or instruction, question) and completion (or response, output, answer), either
  texts or lists of turns;
- `messages`: a list of turns with role and content (OpenAI), the last one by the assistant;
- `sharegpt`: `conversations`, a list of turns with from and value, the last one by the model, and a system
  message if a field `system` holds one.

The last turn is what training teaches; every turn before it is prompt. Turns may call tools and answer for them, as
chat templates know them: `tool_calls` of an assistant, then turns of the role `tool`; `tools` of the row describes
what may be called. Both are lists, or the JSON text of one, and kept as they stand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from calibudget.errors import DataError, InputError
from calibudget.records import Message
from calibudget.sources.identity import PROMPT_ALIASES, RESPONSE_ALIASES, checked_text, field_text, pair
from calibudget.sources.spec import Format
from calibudget.store import strict_json

Fields = Mapping[str, object]

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


#: Field names of the format `prompt-completion`, its own first.
_PROMPTS: Final = ("prompt", "instruction", "question")
_COMPLETIONS: Final = ("completion", "response", "output", "answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """What the model is given and taught: texts as they stand, ends stripped."""

    prompt: tuple[Message, ...]
    completion: str
    tools: tuple[Mapping[str, object], ...] = ()


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
    raise DataError(f"{seen} ({', '.join(fields)}); name format, preset or columns in the recipe")


def read_example(fields: Fields, format: Format) -> Example:  # noqa: A002 - the recipe's word
    """The example that a row holds under a format.

    Raises:
        DataError: a field is missing, empty or of the wrong type, a role is unknown, a turn holds images or sounds, or
            the conversation doesn't end with a response in words after a user's turn.
    """
    return _READERS[format](fields)


def read_pair(fields: Fields, format: Format) -> tuple[str, str] | None:  # noqa: A002 - the recipe's word
    """Prompt and response of a row that holds one exchange without a system message; None for anything else.

    Raises:
        DataError: as `read_example`.
    """
    if fields.get("system") is not None:
        return None
    if format == "alpaca":
        return pair(fields)
    if format == "prompt-completion" and not isinstance(fields.get("prompt"), list):
        return _texts(fields)
    return None


def _texts(fields: Fields) -> tuple[str, str]:
    return field_text(fields, _PROMPTS, "prompt"), field_text(fields, _COMPLETIONS, "response")


def _read_alpaca(fields: Fields) -> Example:
    instruction, response = pair(fields)
    return Example(prompt=(*_system(fields), Message(role="user", content=instruction)), completion=response)


def _read_prompt_completion(fields: Fields) -> Example:
    prompt, completion = fields.get("prompt"), fields.get("completion")
    if isinstance(prompt, list) and isinstance(completion, list):
        return _conversation([*prompt, *completion], "prompt and completion", fields)
    instruction, response = _texts(fields)
    return Example(prompt=(*_system(fields), Message(role="user", content=instruction)), completion=response)


def _read_messages(fields: Fields) -> Example:
    return _conversation(fields.get("messages"), "messages", fields)


def _read_sharegpt(fields: Fields) -> Example:
    example = _conversation(fields.get("conversations"), "conversations", fields)
    return replace(example, prompt=(*_system(fields), *example.prompt))


_READERS: Final[Mapping[Format, Callable[[Fields], Example]]] = {
    "alpaca": _read_alpaca,
    "prompt-completion": _read_prompt_completion,
    "messages": _read_messages,
    "sharegpt": _read_sharegpt,
}


def _system(fields: Fields) -> tuple[Message, ...]:
    text = fields.get("system")
    if text is None or (isinstance(text, str) and not text.strip()):
        return ()
    return (Message(role="system", content=checked_text(text, "the field 'system'")),)


def _conversation(turns: object, field: str, row: Fields) -> Example:
    if not isinstance(turns, list) or not turns:
        raise DataError(f"the field {field!r} must hold a nonempty list of turns")
    messages = [message for number, turn in enumerate(turns, start=1) if (message := _turn(turn, f"turn {number}"))]
    if not messages or messages[-1].role != "assistant":
        raise DataError(f"the last turn of {field!r} must be the assistant's: it is what training teaches")
    if not any(message.role == "user" for message in messages[:-1]):
        raise DataError(f"no user turn comes before the last response of {field!r}")
    if messages[-1].more:
        raise DataError(
            f"the last turn of {field!r} calls tools; what training teaches must be words, so end before it"
        )
    return Example(
        prompt=tuple(messages[:-1]),
        completion=messages[-1].content,
        tools=tuple(_objects(row.get("tools"), "the field 'tools'")),
    )


def _objects(given: object, what: str) -> list[Mapping[str, object]]:
    """A list of objects, which columnar files hold as its JSON text; null and blank are none."""
    if isinstance(given, str):
        try:
            given = strict_json(given.encode("utf-8")) if given.strip() else None
        except (InputError, UnicodeEncodeError) as error:
            raise DataError(f"{what} holds text that is no JSON: {error}") from error
    given = [] if given is None else given
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise DataError(f"{what} must hold a list of objects, or its JSON text")
    return given


def _turn(turn: object, place: str) -> Message | None:
    """One turn as a message; None for a system turn without text, which says nothing."""
    if not isinstance(turn, Mapping):
        raise DataError(f"{place} must be an object with role and content, not {type(turn).__name__}")
    named = turn.get("role", turn.get("from"))
    role = _ROLES.get(named.lower()) if isinstance(named, str) else None
    if role is None:
        raise DataError(f"{place} has the role {named!r}; known are {', '.join(_ROLES)}")
    if turn.get("function_call"):
        raise DataError(f"{place} holds a function_call; write it as tool_calls")
    more = _tool_use(turn, role, place)
    content = _content(turn.get("content", turn.get("value")), place)
    is_blank = content is None or (isinstance(content, str) and not content.strip())
    if role == "system" and isinstance(content, str) and is_blank:
        return None
    text = "" if is_blank and "tool_calls" in more else checked_text(content, place)
    return Message(role=role, content=text, more=more)


def _tool_use(turn: Mapping[str, object], role: str, place: str) -> dict[str, object]:
    """What a turn says of tools, as it stands."""
    calls = _objects(turn.get("tool_calls"), f"{place}: tool_calls")
    if calls and role != "assistant":
        raise DataError(f"{place} calls tools, which only the assistant can")
    if role != "tool":
        return {"tool_calls": calls} if calls else {}
    named = {name: turn[name] for name in ("tool_call_id", "name") if turn.get(name) is not None}
    for name, value in named.items():
        checked_text(value, f"{place}: {name}")
    return named


def _content(content: object, place: str) -> object:
    """The content of a turn, a list of text parts joined by line feeds."""
    if not isinstance(content, list):
        return content
    texts = []
    for part in content:
        if not isinstance(part, Mapping) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
            raise DataError(f"{place} holds {kind!r}; only text can be trained on")
        texts.append(part["text"])
    return "\n".join(texts)
