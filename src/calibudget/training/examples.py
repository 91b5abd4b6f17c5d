"""From the rows of a train set to token ids, with the one encoding that scoring and generation use too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Literal, cast

import numpy as np
from numpy.typing import NDArray

from calibudget.errors import TrainingError
from calibudget.lm import Encoded, Encoder
from calibudget.records import Message, Record
from calibudget.training.config import TooLong

#: Where an example comes from: a selected source example, or the companion set.
Role = Literal["source", "companion"]

#: Tokens of a prompt that a cut leaves at least, so that the template's own words survive it.
_LEAST_PROMPT: Final = 32
_CHUNK: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainingExample:
    """One example as token ids.

    Attributes:
        source: label of its source.
        record_id: its id.
        role: "source" or "companion".
        ids: prompt and response, shape (length,), int32.
        prompt_length: how many of them are prompt; at least 1 and less than all.
    """

    source: str
    record_id: str
    role: Role
    ids: NDArray[np.int32]
    prompt_length: int

    @property
    def length(self) -> int:
        """Tokens of prompt and response."""
        return len(self.ids)

    @property
    def response_length(self) -> int:
        """Tokens that training teaches, the end token included."""
        return len(self.ids) - self.prompt_length

    @property
    def name(self) -> str:
        """How messages name it."""
        return f"{self.source}/{self.record_id}"


def encode_examples(
    rows: Iterable[Mapping[str, object]], encoder: Encoder, *, max_length: int, too_long: TooLong
) -> tuple[TrainingExample, ...]:
    """Encode the rows of a train set, in their order.

    Args:
        rows: rows as `store.read_train` gives them.
        encoder: the model's encoding, without a limit of its own.
        max_length: most tokens of an example.
        too_long: "refuse" the set, or "cut" the middle out of a longer example's prompt; responses stay whole.

    Raises:
        TrainingError: no rows, an id given twice, a row without messages, or one that is too long.
        ScoringError: a row that has no encoding.
    """
    examples: list[TrainingExample] = []
    iterator = iter(rows)
    while chunk := list(islice(iterator, _CHUNK)):
        records = [_record(row) for row in chunk]
        for row, encoded in zip(chunk, encoder.encode_all(records), strict=True):
            examples.append(_example(row, encoded, max_length, too_long))
    if not examples:
        raise TrainingError("the train set is empty; there is nothing to train on")
    _check_unique(examples)
    return tuple(examples)


def _record(row: Mapping[str, object]) -> Record:
    """The record of a row; identity fields that encoding doesn't need stay empty."""
    turns = _turns(row)
    if turns is not None:
        if len(turns) < 2 or turns[-1].role != "assistant":
            raise TrainingError(
                f"{row['source']}/{row['record_id']}: its messages don't end with an assistant's answer"
            )
        prompt, completion = tuple(turns[:-1]), turns[-1].content
    else:
        prompt, completion = (Message(role="user", content=str(row["prompt"])),), str(row["completion"])
    return Record(
        source=str(row["source"]),
        record_id=str(row["record_id"]),
        prompt_hash="",
        prompt=prompt,
        completion=completion,
        answer=None,
        original={},
        tools=tuple(cast(list[dict[str, object]], row.get("tools", []))),
    )


def _turns(row: Mapping[str, object]) -> list[Message] | None:
    """The turns of a row that has some, the response the last of them."""
    if "messages" in row:
        found = row["messages"]
    elif isinstance(row["prompt"], list):
        found = [*row["prompt"], *cast(list[object], row["completion"])]
    else:
        return None
    return [Message.of(turn) for turn in cast(list[dict[str, Any]], found)]


def _example(row: Mapping[str, object], encoded: Encoded, max_length: int, too_long: TooLong) -> TrainingExample:
    prompt, response = encoded.prompt_ids, encoded.response_ids
    name = f"{row['source']}/{row['record_id']}"
    if not prompt:
        raise TrainingError(f"{name}: its prompt has no tokens, so nothing predicts its first response token")
    if encoded.total_length > max_length:
        prompt = _cut_prompt(name, encoded, max_length, too_long)
    return TrainingExample(
        source=str(row["source"]),
        record_id=str(row["record_id"]),
        role=cast(Role, row["role"]),
        ids=np.array(prompt + response, dtype=np.int32),
        prompt_length=len(prompt),
    )


def _cut_prompt(name: str, encoded: Encoded, max_length: int, too_long: TooLong) -> tuple[int, ...]:
    prompt = encoded.prompt_ids
    if too_long == "refuse":
        raise TrainingError(
            f"{name}: {encoded.total_length} tokens are more than max_length {max_length}; raise max_length, "
            "say too_long: cut to cut the middle out of such prompts, or leave the record out"
        )
    room = max_length - len(encoded.response_ids)
    if room < min(_LEAST_PROMPT, len(prompt)):
        raise TrainingError(
            f"{name}: its response of {len(encoded.response_ids)} tokens leaves too little of max_length {max_length} "
            "for the prompt; raise max_length or leave the record out"
        )
    end = room // 2
    return prompt[: room - end] + prompt[len(prompt) - end :]


def _check_unique(examples: Sequence[TrainingExample]) -> None:
    seen: set[tuple[str, str]] = set()
    for example in examples:
        identity = (example.source, example.record_id)
        if identity in seen:
            raise TrainingError(f"{example.name}: stands twice in the train set")
        seen.add(identity)
