"""Scoring with a model in this process: one forward an example, decoding only where that doesn't settle the answer.

Batches are a function of the data and a token bound alone, never of memory, devices or workers. Greedy decoding
follows the reference response as long as the model's first choice equals the reference token, which the forward that
gives the NLL tells at once. So an example that agrees to its end token is answered already; the others are decoded
from the first disagreement on, over the keys and values which that forward left. The parsed answer is that of plain
greedy decoding: in float32 an example at whose choices two tokens nearly tie is decoded so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from operator import add, gt
from typing import Final

import torch

from calibudget.errors import ScoringError
from calibudget.lm.attention import Packed
from calibudget.lm.decode import Continuation, continue_greedily
from calibudget.lm.encoding import Encoder
from calibudget.lm.forward import TeacherForced, can_pack, plain_forward, teacher_forced
from calibudget.lm.loading import LanguageModel
from calibudget.lm.norms import join_norms
from calibudget.scoring.scorer import ANSWER_LIMITS, CalibrationItem, Measurement, ScorerSettings, Work, encoded
from calibudget.tasks.answers import PARSER_VERSION, answer_is_final


def plan_batches(works: Sequence[Work], batch_tokens: int) -> list[tuple[int, ...]]:
    """Part items, given by index, into batches of at most `batch_tokens` tokens, in a fixed order.

    Items that may be decoded equally far go together, so that none waits long for another; then those of one source,
    whose prompts begin alike; then those of like length. A batch has at most a quarter of `batch_tokens` as rows of
    logits, which bounds its memory. An item that is larger than a bound has a batch of its own.
    """

    def key(index: int) -> tuple[int, str, int, str]:
        work = works[index]
        return work.limit, work.item.record.source, work.example.total_length, work.item.record.record_id

    order = sorted(range(len(works)), key=key)
    examples = [works[index].example for index in order]
    sizes = [(example.total_length, len(example.response_ids)) for example in examples]
    return [tuple(order[run.start : run.stop]) for run in cut(sizes, (batch_tokens, batch_tokens // 4))]


def cut(sizes: Sequence[tuple[int, ...]], bounds: tuple[int, ...]) -> list[range]:
    """Consecutive runs of items whose sizes sum to at most the bounds, or single items above them."""
    runs: list[range] = []
    start, total = 0, (0,) * len(bounds)
    for index, own in enumerate(sizes):
        total = tuple(map(add, total, own))
        if index > start and any(map(gt, total, bounds)):
            runs.append(range(start, index))
            start, total = index, own
    return [*runs, range(start, len(sizes))] if sizes else []


_BATCH_TOKENS: Final = {"cpu": 4096, "cuda": 32768, "mps": 4096, "xpu": 32768}


def _checked(item: CalibrationItem, _ids: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """The logits of a step, if there is a first choice among them."""
    if not logits.amax(dim=-1).isfinite().all():
        raise ScoringError(f"{item.name}: the model gives logits that are no numbers while it answers")
    return logits


@contextmanager
def told_of_operations(device: torch.device) -> Iterator[None]:
    """Refuse by name an operation that a device lacks, as Apple's and Intel's do some.

    Raises:
        ScoringError: the device, and what torch said.
    """
    try:
        yield
    except NotImplementedError as error:
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise ScoringError(f"device: {device.type} can't do what this model needs: {said[0]}; say cpu") from error


class LocalScorer:
    """Scores with a loaded model; of the settings it takes those that aren't the model's.

    Without `batch_tokens` a batch has 32,768 on a GPU (4,096 on Apple's) and 4,096 on a CPU, which is recorded, since
    the last bits of an NLL depend on it. Decoding ends where more text couldn't change the verdict, and for exact
    answers 8 tokens after the reference's length at the latest; `early_end` False gives whole texts.

    Raises:
        ScoringError: a bound that isn't positive, or a tokenizer that doesn't fit the template.
    """

    def __init__(
        self, language_model: LanguageModel, settings: ScorerSettings | None = None, *, early_end: bool = True
    ) -> None:
        settings = settings or ScorerSettings()
        for name in ("batch_tokens", "max_new_tokens"):
            value = getattr(settings, name)
            if value is not None and value <= 0:
                raise ScoringError(f"{name} must be positive, not {value}")
        self._language_model = language_model
        self._model = language_model.model
        self._encoder: Encoder = language_model.encoder(settings.template, max_length=settings.max_length)
        self._stop_ids = language_model.stop_ids | {self._encoder.end_id}
        self._batch_tokens = settings.batch_tokens or _BATCH_TOKENS[self._model.device.type]
        self._max_new_tokens = settings.max_new_tokens
        self._early_end = early_end
        if self._model.device.type == "cuda":
            join_norms(self._model)
        with told_of_operations(self._model.device):
            self._packs = can_pack(self._model)

    def describe(self) -> Mapping[str, object]:
        """See `Scorer`; `forward` says whether examples were read packed or one by one."""
        return {
            "engine": "local",
            "model": dict(self._language_model.identity),
            "template": self._encoder.template,
            "batch_tokens": self._batch_tokens,
            "max_length": self._encoder.max_length,
            "max_new_tokens": self._max_new_tokens or dict(ANSWER_LIMITS),
            "forward": "packed" if self._packs else "plain",
            "parser_version": PARSER_VERSION,
            "versions": {name: version(name) for name in ("torch", "transformers")},
            **({} if self._early_end else {"early_end": False}),
        }

    def batches(self, items: Sequence[CalibrationItem]) -> list[tuple[int, ...]]:
        """See `Scorer`; sorted by how far items may be decoded, source, length and record id."""
        return plan_batches(self._encode(items), self._batch_tokens)

    def lengths(self, items: Sequence[CalibrationItem]) -> list[int]:
        """See `Scorer`."""
        return [work.example.total_length for work in self._encode(items)]

    def measure(self, items: Sequence[CalibrationItem]) -> list[Measurement]:
        """See `Scorer`; a batch that doesn't fit a GPU's memory is halved until it does, which is recorded."""
        try:
            with told_of_operations(self._model.device):
                return self._measure(self._encode(items))
        except torch.OutOfMemoryError as error:
            if len(items) == 1:
                raise ScoringError(f"{items[0].name}: out of GPU memory with this record alone") from error
        torch.cuda.empty_cache()
        half = len(items) // 2
        parts = [*self.measure(items[:half]), *self.measure(items[half:])]
        return [replace(measurement, batch_splits=measurement.batch_splits + 1) for measurement in parts]

    def _encode(self, items: Sequence[CalibrationItem]) -> list[Work]:
        return encoded(
            items,
            self._encoder,
            max_new_tokens=self._max_new_tokens,
            early_end=self._early_end,
            context_length=self._language_model.context_length,
            otherwise=self._batch_tokens,
        )

    def _measure(self, works: list[Work]) -> list[Measurement]:
        if self._packs:
            examples = [work.example for work in works]
            results, layout = teacher_forced(self._model, examples, keep=any(work.limit for work in works))
        else:
            results, layout = [plain_forward(self._model, work.example) for work in works], None
        texts = self._answers(works, results, layout)
        return [
            Measurement(
                source=work.item.record.source,
                record_id=work.item.record.record_id,
                response_tokens=len(work.example.response_ids),
                nll=result.nll,
                text=text,
            )
            for work, result, text in zip(works, results, texts, strict=True)
        ]

    def _answers(self, works: list[Work], results: list[TeacherForced], layout: Packed | None) -> list[str | None]:
        """The greedy texts: the forward settles some, the others are decoded, plainly where near ties leave doubt."""
        greedy = [
            None if result.doubtful else self._start(work, result) for work, result in zip(works, results, strict=True)
        ]
        undecided = [
            i
            for i, (work, result, ids) in enumerate(zip(works, results, greedy, strict=True))
            if work.limit and math.isfinite(result.nll) and (ids is None or not self._is_settled(work, ids))
        ]
        certain = {i: ids for i in undecided if (ids := greedy[i]) is not None}
        continued = self._continued(works, certain, layout) if layout is not None else {}
        for i in undecided:
            ids = continued.get(i)
            greedy[i] = self._generate(works[i]) if ids is None else ids
        return [
            self._text(work, ids) if work.limit and ids is not None else None
            for work, ids in zip(works, greedy, strict=True)
        ]

    def _continued(
        self, works: list[Work], starts: Mapping[int, tuple[int, ...]], layout: Packed
    ) -> dict[int, tuple[int, ...] | None]:
        """What decoding makes of some works' starts over the forward's keys and values, None where it is in doubt."""
        places = list(starts)
        found: dict[int, tuple[int, ...] | None] = {}
        sizes = [(len(works[i].example.prompt_ids) + works[i].limit,) for i in places]
        runs = cut(sizes, (2 * self._batch_tokens,))
        for number, run in enumerate(runs, 1):
            chosen = [places[i] for i in run]
            continuations = [self._continuation(works[i], layout.ends[i], starts[i]) for i in chosen]
            texts = continue_greedily(self._model, layout, continuations, self._stop_ids, release=number == len(runs))
            found |= zip(chosen, texts, strict=True)
        return found

    def _start(self, work: Work, result: TeacherForced) -> tuple[int, ...]:
        """What greedy decoding certainly gives: the agreed part of the reference and the model's next choice."""
        known = work.example.response_ids[: result.agreed]
        return (*known, *(() if result.next_id is None else (result.next_id,)))[: work.limit]

    def _is_settled(self, work: Work, start: tuple[int, ...]) -> bool:
        ends = len(start) == work.limit or not self._stop_ids.isdisjoint(start)
        return ends or self._is_final(work, start)

    def _is_final(self, work: Work, ids: Sequence[int]) -> bool:
        return self._early_end and answer_is_final(work.item.answer, self._text(work, ids))

    def _continuation(self, work: Work, part: int, start: tuple[int, ...]) -> Continuation:
        return Continuation(
            example=work.example,
            part=part,
            start=start,
            limit=work.limit,
            is_final=partial(self._is_final, work),
        )

    def _text(self, work: Work, ids: Sequence[int]) -> str:
        end = next((i for i, token in enumerate(ids) if token in self._stop_ids), len(ids))
        return work.opened + self._encoder.decode(ids[:end])

    def _generate(self, work: Work) -> tuple[int, ...]:
        """Plain greedy decoding of one example by transformers."""
        prompt = torch.tensor([work.example.prompt_ids], device=self._model.device)
        output = self._model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            do_sample=False,
            max_new_tokens=work.limit,
            eos_token_id=sorted(self._stop_ids),
            pad_token_id=self._encoder.end_id,
            logits_processor=[partial(_checked, work.item)],
        )
        return tuple(output[0, prompt.shape[1] :].tolist())
