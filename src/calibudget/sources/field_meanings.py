"""What the fields of a row mean, said in one table: each is read, refused by name, or listed as not used.

A field that carries meaning (a context, earlier turns, a picture, a mark that says "don't teach this") is never passed
over: the row's format reads it, or the row is refused. Any other field that isn't read is a column not used.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Final, Literal

from calibudget.errors import DataError
from calibudget.sources.split_names import DEFAULT, split_shown

#: How a row's fields hold a prompt and a response; see `calibudget.sources.row_records`.
Format = Literal["alpaca", "prompt-completion", "messages", "sharegpt"]
#: `joined` goes to the end of the prompt; `flag` says that a row or turn is taught, `mark` that it isn't;
#: `verdict` says that a response was liked, `complaint` that it wasn't; `split` names the part of its set a row is of.
Meaning = Literal[
    "prompt", "response", "joined", "system", "history", "turns", "tools",
    "functions", "reasoning", "media", "flag", "mark", "verdict", "complaint", "split",
]  # fmt: skip

#: Field names that hold a prompt, the first that a row has wins (paper, appendix "Record and Role Integrity").
PROMPT_ALIASES: Final = ("instruction", "prompt", "question")
#: Field names that hold a response, the first that a row has wins.
RESPONSE_ALIASES: Final = ("response", "output", "completion", "answer")
#: Texts that belong to the prompt, in the order in which they are joined to it by line feeds.
JOINED: Final = ("input", "context", "passage", "document", "choices")
#: Names of the response that was preferred to another, none of which is read unless `columns` says so.
PREFERRED: Final = ("chosen",)
#: Characters of a reason for a skipped row that are kept.
_LONGEST_REASON: Final = 300
#: What to do about rows that can't be used.
LEAVE_OUT: Final = "leave such rows out (`on_error: skip`)"
#: Names of a system message.
SYSTEM: Final = ("system", "system_prompt", "system_message", "system_instruction")
#: Names of the turns before a prompt.
HISTORY: Final = ("history", "chat_history", "conversation_history")
_MEDIA: Final = tuple(
    f"{kind}{ending}"
    for kind in (
        "image", "img", "picture", "photo", "jpg", "jpeg", "png", "video", "audio", "speech", "sound", "pdf",
    )
    for ending in ("", "s", "_path", "_paths", "_url", "_urls", "_file", "_files", "_bytes", "_base64")
)  # fmt: skip
_NAMES: Final[Mapping[Meaning, tuple[str, ...]]] = {
    "prompt": PROMPT_ALIASES,
    "response": RESPONSE_ALIASES,
    "joined": JOINED,
    "system": SYSTEM,
    "history": HISTORY,
    "turns": ("messages", "conversations"),
    "tools": ("tools",),
    "functions": ("functions",),
    "reasoning": (
        "reasoning_content", "reasoning", "reasoning_trace", "reasoning_steps", "thinking", "think", "thought",
        "thoughts", "cot", "chain_of_thought", "rationale",
    ),
    "media": (*_MEDIA, "pixel_values"),
    "flag": (
        "weight", "loss", "loss_weight", "loss_mask", "train", "trained", "trainable", "training", "train_on_turn",
        "train_mask", "learn", "weights", "sample_weight", "sample_weights", "example_weight", "train_detail",
        "training_detail", "do_train", "use_for_training", "include_in_training",
    ),
    "mark": (
        "mask", "masked", "is_masked", "ignore", "ignored", "exclude", "excluded", "skip", "do_not_train", "dont_train",
        "no_train", "skip_training", "skip_train", "exclude_from_training", "no_loss", "ignore_loss", "skip_loss",
    ),
    "verdict": (
        "label", "kto_tag", "is_correct", "is_accepted", "accepted", "is_desirable", "desirable", "is_valid", "correct",
        "verified", "is_verified", "passed", "is_passed", "is_good", "keep", "include", "use",
    ),
    "complaint": (
        "rejected", "is_rejected", "is_undesirable", "undesirable", "is_wrong", "is_incorrect", "deleted",
        "is_deleted", "removed", "is_test", "is_validation",
    ),
    "split": ("split", "data_split", "dataset_split", "partition"),
}  # fmt: skip


def _folded(name: str) -> str:
    return re.sub(r"[\s_-]+", "", name).casefold()


_KNOWN: Final = {_folded(name): name for names in _NAMES.values() for name in names}
_MEANINGS: Final = {name: meaning for meaning, names in _NAMES.items() for name in names}

#: Meanings of fields that say whether a response or a turn is taught, and those fields.
TEACHING: Final[tuple[Meaning, ...]] = ("flag", "mark", "verdict", "complaint")
OF_TEACHING: Final = frozenset(name for meaning in TEACHING for name in _NAMES[meaning])
#: Fields that name the split that a row is of.
SPLIT: Final = frozenset(_NAMES["split"])
#: Fields that say something of the response alone, or of a row that isn't taught.
OF_THE_RESPONSE: Final = frozenset(name for meaning in ("reasoning", *TEACHING, "split") for name in _NAMES[meaning])

_EXCHANGE: Final[frozenset[Meaning]] = frozenset({"prompt", "response", "joined", "system", "history", "tools"})
_CONVERSATION: Final[frozenset[Meaning]] = frozenset({"turns", "system", "tools"})
_READ: Final[Mapping[Format, frozenset[Meaning]]] = {
    "alpaca": _EXCHANGE,
    "prompt-completion": _EXCHANGE,
    "messages": _CONVERSATION,
    "sharegpt": _CONVERSATION,
}
_READABLE: Final = _EXCHANGE | _CONVERSATION
#: The fields that some format reads.
READ: Final = tuple(name for name, means in _MEANINGS.items() if means in _READABLE)
#: The field that a conversation's format reads.
TURNS: Final[Mapping[Format, str]] = {"messages": "messages", "sharegpt": "conversations"}
#: The order in which the format `prompt-completion` looks for its fields; `alpaca` takes the aliases as they stand.
ORDERS: Final[Mapping[Format, tuple[tuple[str, ...], tuple[str, ...]]]] = {
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
_YES: Final = frozenset({"1", "true", "yes"})
_NO: Final = frozenset({"0", "false", "no"})
#: What a verdict is called that isn't true or false.
_DISLIKES: Final = frozenset(
    {"undesirable", "rejected", "disliked", "thumbs_down", "thumbs down", "negative", "bad", "incorrect", "wrong"}
)
#: Verdicts whose number may name a class or a choice, beside fields of a choice, or a response that is the label.
_CLASSES: Final = frozenset({"label", "correct"})
_OF_A_CHOICE: Final = frozenset({"choices", "options", "endings", "candidates", "answers", "classes"})
#: How columnar files write a list or an object of nothing, as text.
_EMPTY: Final = frozenset({"[]", "{}", "null"})
#: The fields of a picture or a sound as `datasets` keeps them, under any name.
_STRUCTS: Final = ({"bytes", "path"}, {"array", "sampling_rate"}, {"array", "path", "sampling_rate"})
#: A longer text names no split.
_LONGEST_SPLIT: Final = 40


@lru_cache(maxsize=4096)
def known(name: str) -> str | None:
    """How the table spells a field's name: case, spaces, hyphens and underscores aside, and the number of a picture."""
    folded = _folded(name)
    numbered = _KNOWN.get(folded.rstrip("0123456789"))
    return _KNOWN.get(folded) or (numbered if numbered and _MEANINGS[numbered] == "media" else None)


def meaning(name: str) -> Meaning | None:
    """What a field means, in a row or in a turn; None for one that the table doesn't know."""
    spelling = known(name)
    return None if spelling is None else _MEANINGS[spelling]


def spellings(names: Collection[str]) -> dict[str, str]:
    """The fields that some format reads and that are spelt in another way: our names to theirs."""
    found: dict[str, str] = {}
    for name in names:
        ours = known(name)
        if ours is not None and ours not in names and _MEANINGS[ours] in _READABLE:
            found.setdefault(ours, name)
    return found


def check_spelt_once(names: Iterable[str], read: Collection[str]) -> None:
    """Refuse a field that a row has under two spellings, of which only one would be read."""
    spelt = {known(name) for name in read} - {None}
    for name in names:
        if name not in read and known(name) in spelt:
            raise DataError(f"the fields {known(name)!r} and {name!r} are one; map one of them away under `columns`")


def passed_over(name: str, ignored: Collection[str]) -> bool:
    """Whether a field is one that the recipe leaves out on purpose."""
    return name in ignored or known(name) in ignored


def names_read(format: Format, names: Collection[str]) -> set[str]:  # noqa: A002 - the recipe's word
    """Which of a row's fields, spelt as the table does, its format reads."""
    wanted: Iterable[tuple[str, ...]] = [(TURNS[format],)] if format in TURNS else ORDERS[format]
    firsts = {next((name for name in one if name in names), None) for one in wanted}
    read = _READ[format] - {"prompt", "response", "turns"}
    return {name for name in names if name in firsts or _MEANINGS.get(name) in read}


def fields_to_check(row: Mapping[str, object], read: Collection[str]) -> tuple[str, ...]:
    """Which fields must be looked at in every row like this one: they aren't read, though they may say what counts."""
    asked = {*_CARRIED, *TEACHING, "split"}
    return tuple(
        name
        for name, value in row.items()
        if name not in read
        and (meaning(name) in asked or (meaning(name) is None and isinstance(value, Mapping | list)))
    )


def check_row(row: Mapping[str, object], names: Iterable[str], split: str = DEFAULT) -> list[str]:
    """Refuse a row that isn't to be taught, or says something that isn't read.

    Returns:
        Those that turned out to say nothing about teaching, so that they are columns not used.
    """
    unused = []
    for name in names:
        value, means = row[name], meaning(name)
        if _is_media(value):
            means = "media"
        if _is_empty(value):
            continue
        if means in TEACHING:
            if not check_teaching(row, name, f"the field {name!r}"):
                unused.append(name)
        elif means == "split":
            shown = split_shown(value) if isinstance(value, str) and len(value) < _LONGEST_SPLIT else None
            if shown is not None and shown != (split_shown(split) or split):
                raise DataError(
                    f"the field {name!r} is {value!r}, and the source reads the split {split!r}; say which rows are "
                    f"read (`where: {{{name}: {split}}}`), or leave the field out on purpose "
                    f"(`columns: {{{name}: null}}`)"
                )
            unused.append(name)
        elif means is None or (isinstance(value, bool) and means in _SWITCHES):
            unused.append(name)
        else:
            raise DataError(f"the field {name!r} {_CARRIED[means]}; {way_out(name)}")
    return unused


def check_teaching(row: Mapping[str, object], name: str, what: str) -> bool:
    """Refuse a row or turn with a field which says that it isn't to be taught, or only in part.

    Returns:
        Whether the field says that it is to be taught; False where it says nothing of that.
    """
    value, means = row[name], meaning(name)
    text = _stated(value)
    if means in ("flag", "mark"):
        parts = {_stated(one) for one in value} if isinstance(value, list) else set()
        text = parts.pop() if len(parts) == 1 else text
        taught, untaught = (_YES, _NO) if means == "flag" else (_NO, _YES)
        if known(name) == "mask" and not isinstance(value, bool):  # of a loss mask 1 is taught, of a masked turn 0
            taught = untaught = frozenset()
        if text not in taught:
            how = "isn't to be taught" if text in untaught else "is to be taught in some other way than whole"
            raise DataError(f"{what} is {value!r:.40}, which says that it {how}; {way_out(name)}")
        return True
    against, asked = (_YES, _NO) if means == "complaint" else (_NO | _DISLIKES, _YES)
    if isinstance(value, bool) or known(name) not in _CLASSES or not _is_class(row, text):
        if text in against:
            raise DataError(f"{what} is {value!r}, which marks a response that isn't to be taught; {way_out(name)}")
        return isinstance(value, bool) or (means == "complaint" and text in asked)
    return False


def _stated(value: object) -> str:
    """What a flag says: a number by its value, whatever its form; empty for a list or an object."""
    text = str(value).strip().casefold() if isinstance(value, str | int | float) else ""
    try:
        return f"{float(text):g}"
    except ValueError:
        return text


def _is_class(row: Mapping[str, object], label: str) -> bool:
    """Whether a row's label names a class or a choice: the row has choices, or its response is or states the label."""
    said = {known(name): value for name, value in row.items() if meaning(name) in ("response", "turns")}
    if "completion" in said and any(known(name) == "prompt" for name in row):  # the form of KTO
        return False
    lasts = [value[-1] if isinstance(value, list) and value else value for value in said.values()]
    texts = [one.get("content", one.get("value")) if isinstance(one, Mapping) else one for one in lasts]
    responses = [str(text).strip().casefold() for text in texts if isinstance(text, str | int | float)]
    return any(name.casefold() in _OF_A_CHOICE for name in row) or any(
        text == label or (label.isalpha() and re.search(rf"\b{label}\b", text)) for text in responses
    )


def check_turn_field(name: str, value: object, place: str) -> None:
    """Refuse a field of a turn that carries meaning and isn't read."""
    means = "media" if _is_media(value) else meaning(name)
    if _is_empty(value) or (isinstance(value, bool) and means in _SWITCHES):
        return
    if means in ("media", "reasoning", "functions", "tools"):
        says = _CARRIED[means] if means != "tools" else "describes tools; give them as the row's `tools`"
        raise DataError(f"{place}: the field {name!r} {says}; {way_out(name)}")


def is_blank(value: object) -> bool:
    """Whether a value says nothing: null, white space, or a list or mapping of nothing else."""
    if isinstance(value, str):
        return not value.strip()
    if isinstance(value, Mapping):
        return all(map(is_blank, value.values()))
    return value is None or (isinstance(value, list) and all(map(is_blank, value)))


def _is_empty(value: object) -> bool:
    """Whether a value says nothing, or is the text of a list of nothing."""
    return is_blank(value) or (isinstance(value, str) and value.strip() in _EMPTY)


def _is_media(value: object) -> bool:
    """Whether a value is a picture or a sound as `datasets` keeps them, or a list of such."""
    if isinstance(value, list):
        return bool(value) and all(map(_is_media, value))
    if not isinstance(value, Mapping) or set(value) not in _STRUCTS or is_blank(value):
        return False
    return not isinstance(value.get("bytes"), int)  # the length of a file that is described


def reason_of(error: DataError) -> str:
    """Why a row can't be used, without the way out that skipping it is."""
    return re.sub(rf"(?:; |, or ){re.escape(LEAVE_OUT)}.*", "", str(error), flags=re.DOTALL)[:_LONGEST_REASON]


def way_out(name: str) -> str:
    """What to do about rows with a field that can't be used."""
    return f"{LEAVE_OUT}, or the field on purpose (`columns: {{{name}: null}}`)"
