"""What the fields of a row mean, said in one table: each is read, refused by name, or listed as not used.

A field that carries meaning (a context, earlier turns, a picture, a mark that says "don't teach this") is never passed
over: the row's format reads it, or the row is refused. Any other field that isn't read is a column not used.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Final, Literal

from calibudget.errors import DataError

if TYPE_CHECKING:
    from calibudget.sources.spec import Format

#: `joined` goes to the end of the prompt; `flag` says whether a row or turn is taught, `verdict` whether it was liked.
Meaning = Literal[
    "prompt", "response", "joined", "system", "history", "turns", "tools",
    "functions", "reasoning", "media", "flag", "verdict",
]  # fmt: skip

#: Field names that hold a prompt, the first that a row has wins (paper, appendix "Record and Role Integrity").
PROMPT_ALIASES: Final = ("instruction", "prompt", "question")
#: Field names that hold a response, the first that a row has wins.
RESPONSE_ALIASES: Final = ("response", "output", "completion", "answer")
#: Texts that belong to the prompt, in the order in which they are joined to it by line feeds.
JOINED: Final = ("input", "context")
#: Names of a system message.
SYSTEM: Final = ("system", "system_prompt", "system_message")
#: Whether a response was liked.
VERDICTS: Final = ("label", "kto_tag")
_MEDIA: Final = tuple(
    f"{kind}{ending}"
    for kind in ("image", "video", "audio")
    for ending in ("", "s", "_path", "_paths", "_url", "_urls")
)
_NAMES: Final[Mapping[Meaning, tuple[str, ...]]] = {
    "prompt": PROMPT_ALIASES,
    "response": RESPONSE_ALIASES,
    "joined": JOINED,
    "system": SYSTEM,
    "history": ("history",),
    "turns": ("messages", "conversations"),
    "tools": ("tools",),
    "functions": ("functions",),
    "reasoning": ("reasoning_content", "reasoning", "thinking"),
    "media": _MEDIA,
    "flag": ("weight", "loss", "train", "trainable", "train_on_turn", "loss_mask"),
    "verdict": VERDICTS,
}
#: The table: what a known field means, in a row or in a turn.
MEANINGS: Final[Mapping[str, Meaning]] = {name: meaning for meaning, names in _NAMES.items() for name in names}

#: Fields that say something of the response alone.
OF_THE_RESPONSE: Final = frozenset(name for meaning in ("reasoning", "flag", "verdict") for name in _NAMES[meaning])

_EXCHANGE: Final[frozenset[Meaning]] = frozenset({"prompt", "response", "joined", "system", "history", "tools"})
_CONVERSATION: Final[frozenset[Meaning]] = frozenset({"turns", "system", "tools"})
_READ: Final[Mapping[Format, frozenset[Meaning]]] = {
    "alpaca": _EXCHANGE,
    "prompt-completion": _EXCHANGE,
    "messages": _CONVERSATION,
    "sharegpt": _CONVERSATION,
}
#: The field that a conversation's format reads.
TURNS: Final[Mapping[Format, str]] = {"messages": "messages", "sharegpt": "conversations"}
#: The order in which the format `prompt-completion` looks for its fields; `alpaca` takes the aliases as they stand.
_ORDERS: Final[Mapping[Format, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "alpaca": (PROMPT_ALIASES, RESPONSE_ALIASES),
    "prompt-completion": (("prompt", "instruction", "question"), ("completion", "response", "output", "answer")),
}
#: What the fields say that no format without a place for them may pass over.
_CARRIED: Final[Mapping[Meaning, str]] = {
    "joined": "holds a part of the prompt that a row of this form has no place for",
    "system": "holds a system message that a row of this form has no place for",
    "history": "holds earlier turns that a row of this form has no place for",
    "tools": "describes tools that a row of this form has no place for",
    "functions": "describes functions; write them as `tools`",
    "reasoning": "holds reasoning, which would be neither taught nor shown to the model",
    "media": "holds images, video or sound; only text can be trained on",
}
#: Meanings of fields that, true or false, only say how the data was made.
_SWITCHES: Final = ("reasoning", "media")
_TAUGHT: Final = frozenset({"1", "1.0", "true"})
_NOT_TAUGHT: Final = frozenset({"0", "0.0", "false"})
_QUOTES: Final = ("`", '"', "'")
_WORD_AFTER: Final = re.compile(r"\s+(?:html\s+)?(?:tag|element|attribute)", re.IGNORECASE)
_TOKEN: Final = re.compile(r"<(?:\|?|start_of_)(image|video|audio)(?:|_pad|[_ ]?\d+)\|?>", re.IGNORECASE)
#: An image as Qwen-VL's sets name it; HTML's `img` is never closed.
_NAMED_IMAGE: Final = re.compile(r"<img>[^<>\n]+</img>")


def names_read(format: Format, names: Collection[str]) -> set[str]:  # noqa: A002 - the recipe's word
    """Which of a row's fields its format reads."""
    wanted: Iterable[tuple[str, ...]] = [(TURNS[format],)] if format in TURNS else _ORDERS[format]
    firsts = {next((name for name in one if name in names), None) for one in wanted}
    read = _READ[format] - {"prompt", "response", "turns"}
    return {name for name in names if name in firsts or MEANINGS.get(name) in read}


def aliases(format: Format) -> tuple[tuple[str, ...], tuple[str, ...]]:  # noqa: A002 - the recipe's word
    """The names that a format of one exchange looks for, of the prompt and of the response."""
    return _ORDERS[format]


def checked(names: Iterable[str], read: Collection[str]) -> tuple[str, ...]:
    """Which fields must be looked at in every row: they aren't read, though they may say something that counts."""
    asked = {*_CARRIED, "flag", "verdict"}
    return tuple(name for name in names if name not in read and MEANINGS.get(name) in asked)


def check_row(row: Mapping[str, object], names: Iterable[str]) -> list[str]:
    """Refuse a row that isn't to be taught, or says something that isn't read.

    Args:
        row: its fields.
        names: those to look at, see `checked`.

    Returns:
        Those that turned out to say nothing about teaching, so that they are columns not used.

    Raises:
        DataError: the field is named, and what to do.
    """
    unused = []
    for name in names:
        value, meaning = row[name], MEANINGS[name]
        if is_blank(value):
            continue
        if meaning == "flag":
            check_flag(value, f"the field {name!r}", name)
        elif isinstance(value, bool) and meaning in _SWITCHES:
            unused.append(name)
        elif meaning != "verdict":
            raise DataError(f"the field {name!r} {_CARRIED[meaning]}; {_way_out(name)}")
        elif _is_disliked(row, name):
            raise DataError(
                f"the field {name!r} is {value!r}, which marks a response that isn't to be taught; {_way_out(name)}"
            )
        elif not isinstance(value, bool):
            unused.append(name)
    return unused


def check_flag(value: object, what: str, name: str) -> None:
    """Refuse a row or turn that is marked as not to be taught, or only in part.

    Raises:
        DataError: see above; `what` says which field of which turn it is.
    """
    text = str(value).strip().casefold()
    if text not in _TAUGHT:
        how = "isn't to be taught" if text in _NOT_TAUGHT else "is to be taught in some other way than whole"
        raise DataError(f"{what} is {value!r:.40}, which says that it {how}; {_way_out(name)}")


def check_turn_field(name: str, value: object, place: str) -> None:
    """Refuse a field of a turn that carries meaning and isn't read.

    Raises:
        DataError: the turn and the field are named.
    """
    meaning = MEANINGS.get(name)
    if isinstance(value, bool) and meaning in _SWITCHES:
        return
    if meaning in ("media", "reasoning", "functions", "tools") and not is_blank(value):
        says = _CARRIED[meaning] if meaning != "tools" else "describes tools; give them as the row's `tools`"
        raise DataError(f"{place}: the field {name!r} {says}; {_way_out(name)}")


def check_text(text: str, place: str, ignored: Collection[str]) -> None:
    """Refuse a text with a token that stands for an image, a video or a sound, unless that is left out on purpose.

    What is written like one is also a word of HTML: one that is closed later, stands in quotes, or is called a tag is.

    Raises:
        DataError: the token is named.
    """
    if "<" not in text:
        return
    named = _NAMED_IMAGE.search(text)
    if named is not None and "image" not in ignored:
        raise DataError(f"{place} holds {named[0]:.60}, which names an image; {_way_out('image')}")
    for found in _TOKEN.finditer(text):
        kind = found[1].lower()
        is_word = (
            f"</{kind}>" in text or _WORD_AFTER.match(text, found.end()) or text[: found.start()].endswith(_QUOTES)
        )
        if not is_word and kind not in ignored and f"{kind}s" not in ignored:
            raise DataError(f"{place} holds {found[0]}, which stands for media; {_way_out(kind)}")


def is_blank(value: object) -> bool:
    """Whether a value says nothing: null, white space, or a list or mapping of nothing else."""
    if isinstance(value, str):
        return not value.strip()
    if isinstance(value, Mapping):
        return all(map(is_blank, value.values()))
    return value is None or (isinstance(value, list) and all(map(is_blank, value)))


def _is_disliked(row: Mapping[str, object], name: str) -> bool:
    """Whether a verdict is negative; 0 and texts are one only where the row has the shape of KTO's sets."""
    value = row[name]
    if isinstance(value, bool):
        return not value
    is_verdict = name != "label" or ("prompt" in row and "completion" in row)
    return is_verdict and isinstance(value, int | float | str) and str(value).strip().casefold() in _NOT_TAUGHT


def _way_out(name: str) -> str:
    return f"leave such rows out (`on_error: skip`), or the field on purpose (`columns: {{{name}: null}}`)"
