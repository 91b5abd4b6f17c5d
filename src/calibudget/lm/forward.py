"""One teacher-forced forward of many examples, without padding, with logits at response positions only.

It gives each example's NLL, how far greedy decoding would follow the reference, and the keys and values from which
decoding goes on. What examples have in common at their beginning is computed once.
"""

from __future__ import annotations

import inspect
import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Final

import torch
from torch import Tensor

from calibudget.lm.attention import Packed, attending, onto
from calibudget.lm.encoding import Encoded
from calibudget.lm.placement import cards_of, keep_where_they_are, last_device
from calibudget.lm.prefix_tree import grow

#: Rows of logits that are turned to float32 at once.
_CHUNK: Final = 256
#: Pieces of a batch for each card that a model lies on: of n pieces in turn, c cards wait for c - 1 steps in n + c - 1.
_PIECES_PER_CARD: Final = 4
_ATTENTION_LAYERS: Final = frozenset({"full_attention", "sliding_attention"})
#: Kinds of rotary position whose angles depend on the longest sequence of the batch.
_LENGTH_DEPENDENT: Final = frozenset({"dynamic", "longrope"})
#: Logits in float32 that are nearer than this could change places in another order of sums, which moves them by 1e-5.
_TIE: Final = 2e-4
#: A packed model's log-probabilities differ from its own plain forward by rounding only; contamination is far above.
_TOLERANCE: Final = {torch.float32: 1e-3, torch.bfloat16: 0.25, torch.float16: 0.05}


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherForced:
    """What one forward says of one example.

    Attributes:
        nll: mean negative log-likelihood of the response tokens, nats; NaN if the model gives one that isn't finite.
        agreed: leading response tokens that equal the model's own first choice.
        next_id: the first choice where it first differs; None when every token agrees.
        doubtful: whether one of these choices is a near tie, so that other arithmetic could have made another, or none.
    """

    nll: float
    agreed: int
    next_id: int | None
    doubtful: bool


@torch.inference_mode()
def teacher_forced(model: Any, examples: Sequence[Encoded], *, keep: bool = True) -> tuple[list[TeacherForced], Packed]:
    """Read all examples in one forward; over several cards in as many pieces as keep them all at work.

    For a model of which `can_pack` holds, and examples whose prompts have tokens. Gives one result an example, and the
    layout, which keeps keys and values if told to; only decoding needs them.
    """
    pieces = _pieces(examples, cards_of(model))
    readings = [_Reading(model, piece, keep=keep) for piece in pieces]
    for reading in readings:  # a card gets to work on a piece while the next one still has its predecessor
        reading.begin(model)
    return [result for reading in readings for result in reading.results()], Packed.joined(
        [reading.layout for reading in readings]
    )


def _pieces(examples: Sequence[Encoded], cards: int) -> list[Sequence[Encoded]]:
    """The examples in their order, in so many runs of about equally many tokens as keep the cards at work."""
    if cards == 1:
        return [examples]
    count = min(_PIECES_PER_CARD * cards, len(examples))
    share = sum(example.total_length for example in examples) / count
    ends = list(accumulate(example.total_length for example in examples))
    cuts = [0, *(min(max(bisect_left(ends, share * i) + 1, i), len(examples) - count + i) for i in range(1, count))]
    return [examples[start:end] for start, end in pairwise([*cuts, len(examples)]) if start < end]


class _Reading:
    """A forward that is under way: everything that it needs is on its devices before it begins."""

    def __init__(self, model: Any, examples: Sequence[Encoded], *, keep: bool) -> None:
        parts, ends = grow(examples)
        self.layout = Packed(parts, ends, model.device, keep=keep)
        self._lengths = [len(example.response_ids) for example in examples]
        self._wanted = [i for example in examples for i in example.response_ids]
        places = [part.depth + i for part in parts for i in range(len(part.ids))]
        rows = [
            self.layout.starts[end] + len(example.prompt_ids) - parts[end].depth - 1 + i
            for example, end in zip(examples, ends, strict=True)
            for i in range(len(example.response_ids))
        ]
        last = last_device(model)
        if last != model.device:
            keep_where_they_are(model, "logits_to_keep")
            for device in {parameter.device for parameter in model.parameters()}:
                self.layout.on(device).prepare()
        self._ids = onto(torch.tensor([[i for part in parts for i in part.ids]]), model.device)
        self._places = onto(torch.tensor([places]), model.device)
        self._rows = onto(torch.tensor(rows), last)
        self._found: list[Tensor] = []

    def begin(self, model: Any) -> None:
        """Send the forward on its way, and what is read off its logits."""
        with attending(model, self.layout):
            logits = model(
                input_ids=self._ids, position_ids=self._places, use_cache=False, logits_to_keep=self._rows
            ).logits[0]
        self._found = _read_off(logits, onto(torch.tensor(self._wanted), logits.device))

    def results(self) -> list[TeacherForced]:
        """Wait for it, and one result an example."""
        return _results(self._found, self._wanted, self._lengths)


def _read_off(logits: Tensor, targets: Tensor) -> list[Tensor]:
    """Loss, first choice and whether that is in doubt of each row of logits (rows, V) with targets (rows,)."""
    losses, choices, doubts = [], [], []
    for start in range(0, len(targets), _CHUNK):
        doubts.append(doubtful_choices(logits[start : start + _CHUNK]))
        scores = logits[start : start + _CHUNK].float()
        wanted = targets[start : start + _CHUNK, None]
        losses.append(scores.logsumexp(dim=-1) - scores.gather(1, wanted)[:, 0])
        choices.append(scores.argmax(dim=-1))
    return [torch.cat(losses), torch.cat(choices), torch.cat(doubts)]


def _results(found: list[Tensor], wanted_ids: list[int], lengths: list[int]) -> list[TeacherForced]:
    """Per-example results, rows parted by `lengths`."""
    loss, choice, doubt = (tensor.tolist() for tensor in found)
    results, start = [], 0
    for length in lengths:
        own = slice(start, start + length)
        results.append(_result(loss[own], choice[own], doubt[own], wanted_ids[own]))
        start += length
    return results


def doubtful_choices(logits: Tensor) -> Tensor:
    """Whether the first choice of each row of logits (..., V) is no number or, in float32, a near tie; shape (...)."""
    first = logits.amax(dim=-1, keepdim=True)
    doubtful = ~first[..., 0].isfinite()
    if logits.dtype == torch.float32:
        doubtful |= (logits >= first - _TIE).sum(dim=-1) > 1
    return doubtful


def _result(losses: list[float], choices: list[int], doubts: list[bool], targets: list[int]) -> TeacherForced:
    agreed = next((i for i, pair in enumerate(zip(choices, targets, strict=True)) if pair[0] != pair[1]), len(targets))
    return TeacherForced(
        nll=math.fsum(losses) / len(losses) if all(map(math.isfinite, losses)) else math.nan,
        agreed=agreed,
        next_id=choices[agreed] if agreed < len(targets) else None,
        doubtful=any(doubts[: agreed + 1]),
    )


def can_pack(model: Any) -> bool:
    """Whether a model may be read packed: its code allows it, and a probe agrees with its plain forward.

    Models with layers other than attention (recurrent, convolutional), with attention biases or sinks, or whose
    positions depend on the longest sequence are read one example at a time instead.
    """
    config = model.config.get_text_config()
    fits = (
        getattr(model, "_supports_attention_backend", False)
        and not model.config.is_encoder_decoder
        and "logits_to_keep" in inspect.signature(model.forward).parameters
        and set(getattr(config, "layer_types", None) or ()) <= _ATTENTION_LAYERS
        and not positions_depend_on_batch(config)
    )
    return fits and _probe_agrees(model)


def positions_depend_on_batch(config: Any) -> bool:
    """Whether a text model's rotary angles depend on the longest sequence of the batch, which they look at."""
    rope = getattr(config, "rope_parameters", None) or {}
    kinds = {part.get("rope_type") for part in (rope, *rope.values()) if isinstance(part, dict)}
    return bool(kinds & _LENGTH_DEPENDENT)


@torch.inference_mode()
def _probe_agrees(model: Any) -> bool:
    """Read three short sequences packed and plainly; NLLs must be the same but for rounding."""
    vocabulary = model.get_input_embeddings().num_embeddings
    ids = [(7 * i * i + 11 * i + 3) % vocabulary for i in range(36)]
    examples = [
        Encoded(prompt_ids=(*ids[:4], *ids[start : start + 4]), response_ids=tuple(ids[start + 4 : start + 10]))
        for start in (4, 15, 26)
    ]
    try:
        packed = [result.nll for result in teacher_forced(model, examples)[0]]
    except (NotImplementedError, TypeError, AttributeError, KeyError, RuntimeError):
        return False
    plain = [plain_forward(model, example).nll for example in examples]
    tolerance = _TOLERANCE.get(model.dtype, 0.05)
    return all(abs(one - other) <= tolerance for one, other in zip(packed, plain, strict=True))


@torch.inference_mode()
def plain_forward(model: Any, example: Encoded) -> TeacherForced:
    """`teacher_forced` of one example through the model's own, unchanged attention."""
    ids = torch.tensor([example.prompt_ids + example.response_ids[:-1]], device=model.device)
    logits = model(input_ids=ids, use_cache=False).logits[0, len(example.prompt_ids) - 1 :]
    targets = torch.tensor(example.response_ids, device=logits.device)
    return _results(_read_off(logits, targets), list(example.response_ids), [len(targets)])[0]
