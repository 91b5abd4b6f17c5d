"""The seam of scoring: what goes into a scorer, what comes out, and how that becomes z.

Answers are parsed and judged here, and errors added. Items and measurements have a form as JSON, for the journal and
between processes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, runtime_checkable

from calibudget.errors import ScoringError
from calibudget.hardware import Device, Dtype
from calibudget.records import ErrorRule, Message, Record, Score, error_of
from calibudget.tasks.answers import AnswerSpec, answers_equal, parse_answer

if TYPE_CHECKING:
    from calibudget.lm.encoding import Encoded, Encoder


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationItem:
    """One calibration record and how its answer is checked."""

    record: Record
    answer: AnswerSpec

    @property
    def name(self) -> str:
        """The item as messages name it."""
        return self.record.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What a model says of one calibration record, before its answer is judged.

    Attributes:
        response_tokens: response tokens scored, end token included; at least 1.
        nll: mean negative log-likelihood over them, nats.
        text: the greedy answer, cut where more text couldn't change the parsed answer; None where the answer
            kind is "none".
        batch_splits: how often the record's batch was halved for want of memory; 0 as planned.
    """

    source: str
    record_id: str
    response_tokens: int
    nll: float
    text: str | None
    batch_splits: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorerSettings:
    """What makes a scorer, as plain values; the fields are those of `load_model` and `LocalScorer`.

    Attributes:
        kind: "local"; "openai" for `ServerScorer`, which `base_url` to `timeout` belong to; or "fake" for `FakeScorer`,
            which uses none of the other fields but `seconds`.
        model: a model's name for `resolve_model`; a server's scorer uses its tokenizer, and not its weights.
        adapter: directory of a LoRA adapter.
        gpus: GPUs that the model is split over at least.
        max_length: tokens that a record is cut to; None refuses records longer than the context.
        max_new_tokens: most tokens of an answer; None goes by the answer kind: 32 for choices, 128 for regex, 512 for
            numbers and mathematics.
        base_url: such as http://host:8000/v1; a key, where the server wants one, is in CALIBUDGET_SERVER_KEY.
        served_model: the model's name at the server; None is `model`, or the only one that is served.
        requests: how many are under way at once.
        timeout: seconds to wait for a reply, or for its next part.
        seconds: time that a batch of the fake scorer takes.
    """

    kind: Literal["local", "openai", "fake"] = "local"
    model: str = ""
    adapter: str | None = None
    gpus: int = 1
    device: Device = "auto"
    dtype: Dtype = "auto"
    template: Literal["alpaca", "chat"] = "alpaca"
    batch_tokens: int | None = None
    max_length: int | None = None
    max_new_tokens: int | None = None
    base_url: str | None = None
    served_model: str | None = None
    requests: int = 16
    timeout: float = 300.0
    seconds: float = 0.0


class Scorer(Protocol):
    """A model behind a batch plan: `FakeScorer`, `LocalScorer` or `ServerScorer`."""

    def describe(self) -> Mapping[str, object]:
        """Everything that the measurements depend on, as JSON; it holds `model`, an object.

        Two scorers with the same description give the same measurements for the same items.
        """
        ...

    def batches(self, items: Sequence[CalibrationItem]) -> list[tuple[int, ...]]:
        """Part the items, given by index, into batches: a function of the items and the description alone.

        Raises:
            ScoringError: an item that can't be scored; it is named, and nothing has been scored yet.
        """
        ...

    def lengths(self, items: Sequence[CalibrationItem]) -> list[int]:
        """Tokens of each item, prompt and response together; what the forward costs goes with them."""
        ...

    def measure(self, items: Sequence[CalibrationItem]) -> list[Measurement]:
        """Score the items of one batch, in the order given.

        Raises:
            ScoringError: an item whose score can't be used; it is named.
        """
        ...


@runtime_checkable
class ParallelScorer(Scorer, Protocol):
    """A scorer that can work on several batches at once, such as `ScorerPool`."""

    def measure_batches(
        self, batches: Mapping[int, Sequence[CalibrationItem]]
    ) -> Iterator[tuple[int, list[Measurement]]]:
        """Score numbered batches and give each back with its number, in whatever order they are done."""
        ...


_LIMITS: Final = {"choice": 32, "true_false": 32, "number": 512, "math": 512, "regex": 128, "none": 0}
_EXACT_MARGIN: Final = 8
#: Most new tokens by answer kind, as a scorer describes them. `exact` may use as many as the reference has and a few
#: more, since a longer text can't be equal to it.
ANSWER_LIMITS: Final = {**_LIMITS, "exact": f"reference + {_EXACT_MARGIN}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One item on its way.

    Attributes:
        limit: most tokens that are decoded for its answer; 0 where none is checked.
        opened: the mark of reasoning that its prompt opens.
    """

    item: CalibrationItem
    example: Encoded
    limit: int
    opened: str


def encoded(
    items: Sequence[CalibrationItem],
    encoder: Encoder,
    *,
    max_new_tokens: int | None,
    context_length: int | None,
    early_end: bool = True,
    otherwise: int,
) -> list[Work]:
    """The items' ids, and how far their answers may go.

    What the user asks for goes before the limit of the answer's kind, and that before `otherwise`; an `exact` answer
    ends soon after the reference's length if it may end early, and none goes beyond the context.

    Raises:
        ScoringError: an item that can't be encoded; it is named.
    """

    def limit(kind: str, example: Encoded) -> int:
        if kind == "none":
            return 0
        most = max_new_tokens or _LIMITS.get(kind, otherwise)
        if kind == "exact" and early_end:
            most = min(most, len(example.response_ids) + _EXACT_MARGIN)
        return most if context_length is None else min(most, context_length - len(example.prompt_ids))

    examples = encoder.encode_all([item.record for item in items])
    return [
        Work(item=item, example=one, limit=limit(item.answer.kind, one), opened=encoder.opened_reasoning(one))
        for item, one in zip(items, examples, strict=True)
    ]


def to_scores(
    items: Sequence[CalibrationItem], measurements: Iterable[Measurement], error: ErrorRule
) -> tuple[Score, ...]:
    """Judge every measurement (paper 2.2: z is the NLL plus one if the parsed greedy answer is wrong).

    Measurements may come in any order; scores are in that of the items. Answers of an item that says how they are
    checked are judged whatever the rule is.

    Raises:
        ScoringError: under "nll+wrong" a source without checkable answer; an item without a measurement, or the
            other way round; a checkable answer that wasn't decoded.
        DependencyError: answers of kind `math` that need math-verify, which isn't installed.
    """
    found = {(one.source, one.record_id): one for one in measurements}
    scores = []
    for item in items:
        measurement = found.pop((item.record.source, item.record.record_id), None)
        if measurement is None:
            raise ScoringError(f"{item.name}: no measurement, or given twice")
        scores.append(_score(item, measurement, error))
    for source, record_id in found:
        raise ScoringError(f"source {source!r}, record {record_id}: measured, and no calibration record")
    return tuple(scores)


def _score(item: CalibrationItem, measurement: Measurement, error: ErrorRule) -> Score:
    gold, text = item.record.answer, measurement.text
    if item.answer.kind != "none" and (gold is None or text is None):
        missing = "no gold answer" if gold is None else "no decoded answer"
        raise ScoringError(f"{item.name}: {missing}, though its source's answers are of kind {item.answer.kind}")
    correct, prediction = judged(item, text or "")
    if error == "nll+wrong" and correct is None:
        raise ScoringError(
            f"{item.name}: has no checkable answer, so it would be starved beside sources that have one; "
            "choose error: nll for all sources, or name the source's answer"
        )
    return Score(
        source=measurement.source,
        record_id=measurement.record_id,
        response_tokens=measurement.response_tokens,
        nll=measurement.nll,
        correct=correct,
        prediction=prediction,
        error=error_of(error, nll=measurement.nll, response_tokens=measurement.response_tokens, correct=correct),
    )


def judged(item: CalibrationItem, text: str) -> tuple[bool | None, str | None]:
    """Whether a text answers a calibration record rightly, and the answer that was read in it.

    Both are None where its source has no checkable answer.
    """
    if item.answer.kind == "none" or item.record.answer is None:
        return None, None
    prediction = parse_answer(item.answer, text)
    return answers_equal(item.answer, item.record.answer, prediction), prediction


def item_to_json(item: CalibrationItem) -> dict[str, object]:
    """All of an item that its score depends on (a record's original fields stay behind)."""
    record, answer = item.record, item.answer
    return {
        "source": record.source,
        "record_id": record.record_id,
        "prompt": [turn.fields for turn in record.prompt],
        "tools": list(record.tools),
        "completion": record.completion,
        "answer": record.answer,
        "kind": answer.kind,
        "labels": list(answer.labels),
        "pattern": answer.pattern,
    }


def item_from_json(value: Mapping[str, Any]) -> CalibrationItem:
    """The item that `item_to_json` gave, without the fields that no score depends on."""
    record = Record(
        source=value["source"],
        record_id=value["record_id"],
        prompt_hash="",
        prompt=tuple(map(Message.of, value["prompt"])),
        tools=tuple(value["tools"]),
        completion=value["completion"],
        answer=value["answer"],
        original={},
    )
    answer = AnswerSpec(kind=value["kind"], labels=tuple(value["labels"]), pattern=value["pattern"])
    return CalibrationItem(record=record, answer=answer)


def measurement_from_json(value: Mapping[str, Any]) -> Measurement:
    """The measurement whose fields a JSON object holds, which may have a whole NLL as an integer."""
    return Measurement(**{**value, "nll": float(value["nll"])})
