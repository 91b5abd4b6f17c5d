"""What a record is, whatever file it lies in: the normal form, its ids and its prompt hash (docs/formats.md).

The normal form serves identity only; the model is given the text as it stands. An instruction's normal form is
NFC with white space collapsed to single spaces, a response's is NFC with its ends stripped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, NamedTuple

import numpy as np

from calibudget.errors import DataError, InputError, InputTypeError, refuse_as
from calibudget.keys import canonical_array, canonical_pair, canonical_pairs
from calibudget.records import Message
from calibudget.sources.field_meanings import (
    JOINED,
    LEAVE_OUT,
    PREFERRED,
    PROMPT_ALIASES,
    RESPONSE_ALIASES,
    way_out,
)
from calibudget.sources.file_formats import Written
from calibudget.store.canonical import canonical_json
from calibudget.values import nfc

_ID_FIELDS: Final = ("record_id", "id")


@dataclass(frozen=True, slots=True, kw_only=True)
class NormalisedRecord:
    """A record in normal form.

    Attributes:
        record_id: the record's own id, or the SHA-256 hex of its normal form.
        prompt_hash: SHA-256 hex of the instruction under full case folding.
        instruction: NFC, white space collapsed.
        response: NFC, ends stripped.
    """

    record_id: str
    prompt_hash: str
    instruction: str
    response: str


def normal_instruction(text: str) -> str:
    """Unicode NFC, every run of white space one space, none at the ends."""
    if text.isascii():
        if text.isprintable() and "  " not in text:  # its only white space is single spaces
            return text.strip()
        return " ".join(text.split())
    return " ".join(nfc(text).split())


def normal_instructions(texts: Sequence[str]) -> list[str]:
    """`normal_instruction` of many texts whose ends are stripped, looking only at those that it may change."""
    found = list(texts)
    plain = [text if text.isascii() else "\t" for text in texts]
    codes = np.frombuffer(".".join(plain).encode("ascii"), dtype=np.uint8)
    is_odd = codes < ord(" ")
    is_odd[1:] |= (codes[1:] == ord(" ")) & (codes[:-1] == ord(" "))
    odd = np.flatnonzero(is_odd)
    if len(odd):
        ends = np.cumsum(np.fromiter(map(len, plain), dtype=np.int64, count=len(plain)) + 1)
        for number in np.unique(np.searchsorted(ends, odd, side="right")).tolist():
            found[number] = normal_instruction(texts[number])
    return found


def normal_response(text: str) -> str:
    """Unicode NFC without white space at the ends."""
    return text.strip() if text.isascii() else nfc(text).strip()


class Identity(NamedTuple):
    """What names an example and what names its prompt, both SHA-256 hex."""

    record_id: str
    prompt_hash: str


def identify(prompt: Sequence[Message], completion: str, tools: Sequence[Mapping[str, object]] = ()) -> Identity:
    """The ids of an example by its text.

    `record_id` digests the canonical array [instruction, response] for a single user turn and its response, and
    ["messages", [[role, content], ...]] for anything more (a system message, several turns), where the turns of
    user and system are normalised like an instruction and those of the assistant like a response.

    `prompt_hash` digests the instruction under full case folding, in UTF-8, so that case and spacing don't part
    prompts; for anything more than a single user turn the canonical array ["messages", [[role, content], ...]] of
    the turns before the response, contents folded.

    A turn of tool use is [role, content, more] in both, and tools that the conversation may call are a third element
    of both arrays, as they stand.

    Raises:
        DataError: a text holds a lone surrogate, or a tool call has no canonical form.
    """
    text, folded = digests(prompt, completion, tools)
    return Identity(text.hex(), folded.hex())


def digests(
    prompt: str | Sequence[Message], completion: str, tools: Sequence[Mapping[str, object]] = ()
) -> tuple[bytes, bytes]:
    """What `identify` gives, as bytes; a single user turn may be given as its text."""
    if not isinstance(prompt, str) and len(prompt) == 1 and prompt[0].role == "user" and not tools:
        prompt = prompt[0].content
    if isinstance(prompt, str):
        return text_digests(prompt, completion)
    texts = [
        normal_response(turn.content) if turn.role == "assistant" else normal_instruction(turn.content)
        for turn in prompt
    ]
    turns = [_turn_array(turn, text) for turn, text in zip(prompt, texts, strict=True)]
    questions = [_turn_array(turn, text.casefold()) for turn, text in zip(prompt, texts, strict=True)]
    last = [list(tools)] if tools else []
    with refuse_as(DataError, "the record's text can't be identified", InputError):
        name = canonical_json(["messages", [*turns, ["assistant", normal_response(completion)]], *last])
        folded = canonical_json(["messages", questions, *last])
    return sha256(name).digest(), sha256(folded).digest()


def text_digests(prompt: str, completion: str) -> tuple[bytes, bytes]:
    """`digests` of a single user turn and its response."""
    instruction = normal_instruction(prompt)
    try:
        name = canonical_pair(instruction, normal_response(completion))
    except InputError as error:
        raise DataError(f"the record's text can't be identified: {error}") from error
    return sha256(name).digest(), sha256(instruction.casefold().encode("utf-8")).digest()


def many_text_digests(prompts: Sequence[str], responses: Sequence[str]) -> tuple[bytes, bytes]:
    """`text_digests` of many, one after the other; their ends are stripped, and none holds a lone surrogate."""
    instructions = normal_instructions(prompts)
    names = canonical_pairs(instructions, [one if one.isascii() else normal_response(one) for one in responses])
    folded = map(str.encode, map(str.casefold, instructions))
    return _sha256s(names), _sha256s(folded)


def _sha256s(many: Iterable[bytes]) -> bytes:
    return b"".join([sha256(one).digest() for one in many])


def normalise_record(fields: Mapping[str, object]) -> NormalisedRecord:
    """Normalise one record under the common field names, by itself (paper, appendix "Record and Role Integrity").

    The prompt is the first of instruction, prompt and question that is there, the response the first of response,
    output, completion and answer; nonempty `input` and `context` are joined to the instruction by line feeds. An
    explicit `record_id` or `id` is taken as it is.

    Raises:
        DataError: no prompt or no response, one that is empty or not text, an id that is neither text nor an
            integer, or a lone surrogate.
        InputTypeError: `fields` is no mapping.
    """
    if not isinstance(fields, Mapping):
        raise InputTypeError(f"a record is a mapping of field names to values, not {type(fields).__name__}")
    instruction, response = pair(fields)
    identity = identify((Message(role="user", content=instruction),), response)
    own = next((fields[name] for name in _ID_FIELDS if fields.get(name) is not None), None)
    return NormalisedRecord(
        record_id=identity.record_id if own is None else own_id(own),
        prompt_hash=identity.prompt_hash,
        instruction=normal_instruction(instruction),
        response=normal_response(response),
    )


def pair(
    fields: Mapping[str, object],
    prompts: Sequence[str] = PROMPT_ALIASES,
    responses: Sequence[str] = RESPONSE_ALIASES,
) -> tuple[str, str]:
    """Prompt and response of a row, as they stand with the ends stripped, `input` and `context` joined to the prompt.

    Raises:
        DataError: one of them is missing, empty or not text; the names that were looked for are listed.
    """
    instruction = field_text(fields, prompts, "prompt")
    for name in JOINED:
        extra = fields.get(name)
        if extra is not None and (not isinstance(extra, str) or isinstance(extra, Written)):
            raise DataError(f"the field {name!r} must hold text, not {_kind(extra)}; {way_out(name)}")
        if extra and extra.strip():
            instruction = f"{instruction}\n{extra}".strip()
    return instruction, field_text(fields, responses, "response")


def field_text(fields: Mapping[str, object], names: Sequence[str], what: str) -> str:
    """The text of the first named field that isn't null, ends stripped; a number counts as its text.

    Raises:
        DataError: none of the fields is there, or its value is empty or not text.
    """
    for name in names:
        if fields.get(name) is not None:
            return checked_text(fields[name], f"the {what} (field {name!r})")
    own = next((name for name in PREFERRED if name in fields), "FIELD")
    raise DataError(
        f"no {what}: none of the fields {', '.join(names)} is there; the record has {_names(fields)}; say which holds "
        f"it (`columns: {{{names[0]}: {own}}}`), or {LEAVE_OUT}"
    )


def checked_text(value: object, what: str) -> str:
    """A text as it stands, ends stripped.

    Raises:
        DataError: it is empty, not text, or holds NUL.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or isinstance(value, Written):
        raise DataError(f"{what} must be text, not {_kind(value)}; {LEAVE_OUT}, or map another field (`columns`)")
    text = value.strip()
    if not text:
        raise DataError(f"{what} is empty; {LEAVE_OUT}")
    if "\0" in text:
        raise DataError(f"{what} holds a NUL character; {LEAVE_OUT}")
    return text


def _kind(value: object) -> str:
    """What a value is that is no text, in words."""
    if isinstance(value, Written):
        return value.what
    names = {"NoneType": "null", "dict": "an object", "list": "a list", "bool": "true or false"}
    return names.get(type(value).__name__, type(value).__name__)


def own_id(value: object, field: str | None = None) -> str:
    """A record's own id as text; a refusal names the field that holds it.

    Raises:
        DataError: it is missing, empty, neither text nor an integer, or holds a lone surrogate.
    """
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
        where = "" if field is None else f" (field {field!r})"
        raise DataError(f"a record's own id{where} must be nonempty text or an integer, not {value!r:.80}")
    with refuse_as(DataError, "a record's own id can't be used", InputError):
        canonical_array([str(value)])
    return str(value)


def _turn_array(turn: Message, text: str) -> list[object]:
    return [turn.role, text, dict(turn.more)] if turn.more else [turn.role, text]


def _names(fields: Mapping[str, object]) -> str:
    return ", ".join(map(str, fields)) or "no fields"
