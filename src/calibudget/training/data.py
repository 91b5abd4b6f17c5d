"""From the rows of a train set to token ids, and to the tensors of one pass: padded rows, or sequences end to end.

The encoding is the one that scoring and generation use too.

Labels are chosen by position, never by the id of a padding token, so a tokenizer without a padding token, or with one
that is its end token, loses nothing: the end token of every response is taught.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibudget.errors import TrainingError
from calibudget.lm.attention import onto
from calibudget.lm.encoding import Encoded, Encoder
from calibudget.messages import counted
from calibudget.records import Message, Record
from calibudget.sequences import chunks
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
    """Encode the rows of a train set, as `store.train_set.read_train` gives them, in their order.

    Of an example with more than `max_length` tokens "refuse" refuses the set and "cut" takes the middle out of its
    prompt; responses stay whole. The encoder has no limit of its own.

    Raises:
        TrainingError: no rows, an id given twice, a row without messages, or one that is too long.
        ScoringError: a row that has no encoding.
    """
    examples: list[TrainingExample] = []
    seen: set[tuple[str, str]] = set()
    cut = 0
    for chunk in chunks(rows, _CHUNK):
        records = [record_of(row) for row in chunk]
        for row, encoded in zip(chunk, encoder.encode_all(records), strict=True):
            example = _example(row, encoded, max_length, too_long)
            if (example.source, example.record_id) in seen:
                raise TrainingError(f"{example.name}: stands twice in the train set")
            seen.add((example.source, example.record_id))
            examples.append(example)
            cut += example.length < encoded.total_length
    if not examples:
        raise TrainingError("the train set is empty; there is nothing to train on")
    if cut:
        warnings.warn(f"{counted(cut, 'prompt')} lost the middle, since max_length is {max_length}", stacklevel=2)
    return tuple(examples)


def record_of(row: Mapping[str, object]) -> Record:
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


#: Label of a position that teaches nothing.
NO_LABEL: Final = -100
_FILLER: Final = 0
#: What a packed row's length is a multiple of.
_MULTIPLE: Final = 128


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """Tensors of one pass. R rows of T tokens; L labelled positions; S sequences end to end.

    Attributes:
        input_ids: shape (R, T), int64.
        position_ids: place of each token in its own sequence, shape (R, T), int64.
        attention_mask: 1 where a token is, shape (R, T), int64; None when packed (then R is 1).
        starts: where each sequence starts, and the end of the last, shape (S + 1,), int32; None when padded.
        label_rows: places in the flattened (R * T) whose logits predict the labels, shape (L,), int64.
        labels: ids to predict, `NO_LABEL` for filling, shape (L,), int64.
    """

    input_ids: Tensor
    position_ids: Tensor
    attention_mask: Tensor | None
    starts: Tensor | None
    label_rows: Tensor
    labels: Tensor

    @property
    def shape_key(self) -> tuple[int, ...]:
        """What must be equal for two packed batches to have tensors of the same shapes."""
        sequences = 0 if self.starts is None else len(self.starts)
        return (*self.input_ids.shape, len(self.labels), sequences)

    def to(self, device: torch.device) -> Batch:
        """The same batch on a device; the copy doesn't hold up the caller."""
        moved = {
            name: onto(value, device)
            for name in self.__dataclass_fields__
            if (value := getattr(self, name)) is not None
        }
        return replace(self, **moved)


def without_labels(batch: Batch) -> Batch:
    """The same pass with nothing to learn: its loss and its gradients are exactly zero."""
    return replace(batch, labels=torch.full_like(batch.labels, NO_LABEL))


def padded_batch(examples: Sequence[TrainingExample]) -> Batch:
    """One row an example, filled up on the right."""
    width = max(example.length for example in examples)
    ids = np.full((len(examples), width), _FILLER, dtype=np.int64)
    mask = np.zeros_like(ids)
    for row, example in enumerate(examples):
        ids[row, : example.length] = example.ids
        mask[row, : example.length] = 1
    label_rows, labels = _labels(examples, [row * width for row in range(len(examples))])
    return Batch(
        input_ids=torch.from_numpy(ids),
        position_ids=torch.from_numpy(np.tile(np.arange(width), (len(examples), 1))),
        attention_mask=torch.from_numpy(mask),
        starts=None,
        label_rows=torch.from_numpy(label_rows),
        labels=torch.from_numpy(labels),
    )


def packed_batch(examples: Sequence[TrainingExample], *, longest: int, sequences: int | None = None) -> Batch:
    """All examples, at least one, end to end in one row, filled up to a length that few batches differ in.

    The row's length is a multiple of 128, and its filling is cut into sequences of at most `longest` tokens. With
    `sequences`, the S that every batch shall have, empty ones fill up, and the length is rounded up to an eighth of the
    power of two below it, so that whole shapes repeat, with at least one token of filling.
    """
    fixed = sequences is not None
    lengths = [example.length for example in examples]
    used = sum(lengths)
    width = _coarse(used + 1, parts=8) if fixed else -(-used // _MULTIPLE) * _MULTIPLE
    lengths += [min(longest, width - start) for start in range(used, width, longest)]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ids = np.full(width, _FILLER, dtype=np.int64)
    ids[:used] = np.concatenate([example.ids for example in examples])
    positions = np.arange(width) - np.repeat(offsets[:-1], lengths)
    label_rows, labels = _labels(examples, offsets[: len(examples)].tolist())
    if sequences is not None:
        offsets = _extended(offsets, sequences + 1, width)
        count = _coarse(len(labels), parts=4)
        label_rows, labels = _extended(label_rows, count, width - 1), _extended(labels, count, NO_LABEL)
    return Batch(
        input_ids=torch.from_numpy(ids[None]),
        position_ids=torch.from_numpy(positions[None]),
        attention_mask=None,
        starts=torch.from_numpy(offsets.astype(np.int32)),
        label_rows=torch.from_numpy(label_rows),
        labels=torch.from_numpy(labels),
    )


def fixed_sequences(batch_size: int, batch_tokens: int, longest: int) -> int:
    """Sequences that hold the largest batch of a run together with its filling."""
    return batch_size + 2 + batch_tokens // (4 * longest)


def _labels(examples: Sequence[TrainingExample], starts: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where labels are predicted, and the labels; a token is predicted from the place before it."""
    rows = [
        np.arange(start + example.prompt_length - 1, start + example.length - 1, dtype=np.int64)
        for example, start in zip(examples, starts, strict=True)
    ]
    labels = [example.ids[example.prompt_length :].astype(np.int64) for example in examples]
    return np.concatenate(rows), np.concatenate(labels)


def _coarse(count: int, *, parts: int) -> int:
    """`count` rounded up to a multiple of 128, and of the power of two below it over `parts`."""
    grain = max(_MULTIPLE, (1 << (count.bit_length() - 1)) // parts)
    return -(-count // grain) * grain


def _extended(values: NDArray[np.int64], count: int, value: int) -> NDArray[np.int64]:
    return np.concatenate([values, np.full(count - len(values), value, dtype=values.dtype)])
