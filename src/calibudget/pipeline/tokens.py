"""Counting every record's tokens, as scoring and training will encode it: what a token budget is spent in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Protocol

from calibudget.errors import ScoringError
from calibudget.pipeline.prepare import Prepared
from calibudget.pipeline.progress import Progress, silent
from calibudget.recipe import Recipe
from calibudget.records import Record, Split
from calibudget.store.splits import TokenCount

if TYPE_CHECKING:
    from calibudget.lm.encoding import Template

#: Records encoded at a time.
_CHUNK = 1024


class TokenCounter(Protocol):
    """The seam to the tokenizer."""

    @property
    def tokenizer_sha256(self) -> str | None:
        """Digest of the tokenizer's serial form, None where it has none."""
        ...

    def count(self, records: Sequence[Record]) -> list[TokenCount]:
        """Prompt and response tokens of each record, the end token included, after truncation.

        Raises:
            ScoringError: a record that can't be encoded; it is named.
        """
        ...


class WordCounter:
    """Counts for `engine: fake`: the words of all turns of the prompt, those of the response and one for its end.

    Args:
        max_length: words that a record's response is cut to fit in, or None.
    """

    tokenizer_sha256: str | None = None

    def __init__(self, max_length: int | None) -> None:
        self._max_length = max_length

    def count(self, records: Sequence[Record]) -> list[TokenCount]:
        """See `TokenCounter`."""
        return [self._count(record) for record in records]

    def _count(self, record: Record) -> TokenCount:
        prompt = sum(len(turn.content.split()) for turn in record.prompt)
        response = len(record.completion.split()) + 1
        if self._max_length is not None:
            response = min(response, self._max_length - prompt)
        if response < 1:
            raise ScoringError(
                f"source {record.source}, record {record.record_id}: its prompt of {prompt} words leaves no room "
                f"within max_length {self._max_length}; raise max_length or leave the record out"
            )
        return TokenCount(prompt=prompt, response=response)


class EncodedCounter:
    """Counts with the model's own tokenizer under the recipe's template; no weights are loaded.

    Args:
        model: a name for `lm.resolve_model`.
        template: as the recipe says.
        max_length: tokens that a record is cut to, or None.
    """

    def __init__(self, model: str, template: Template, max_length: int | None) -> None:
        from calibudget.lm.encoding import Encoder
        from calibudget.lm.loading import load_tokenizer, tokenizer_digest

        tokenizer = load_tokenizer(model)
        self._encoder = Encoder(template, tokenizer, max_length)
        self.tokenizer_sha256 = tokenizer_digest(tokenizer)

    def count(self, records: Sequence[Record]) -> list[TokenCount]:
        """See `TokenCounter`."""
        return [
            TokenCount(prompt=len(encoded.prompt_ids), response=len(encoded.response_ids))
            for encoded in self._encoder.encode_all(records)
        ]


def token_counter(recipe: Recipe) -> TokenCounter:
    """The counter that a recipe's engine, model, template and maximal length ask for."""
    if recipe.engine == "fake":
        return WordCounter(recipe.max_length)
    return EncodedCounter(recipe.model or "", recipe.template, recipe.max_length)


def counted_by(recipe: Recipe) -> dict[str, object] | None:
    """What a recipe says of how tokens are counted, as the manifest has it; None where it counts examples."""
    if recipe.unit == "examples":
        return None
    return {"engine": recipe.scorer, "template": recipe.template, "max_length": recipe.max_length}


def with_tokens(
    recipe: Recipe, prepared: Prepared, counter: TokenCounter | None = None, *, progress: Progress = silent
) -> Prepared:
    """The prepared sources with every record's tokens, where the budget counts tokens; else as they are.

    Raises:
        ScoringError: a record that can't be encoded, unless its source says `on_error: skip`: then it is left
            without a count, so that no quota holds it.
    """
    settings = counted_by(recipe)
    if settings is None:
        return prepared
    counter = counter or token_counter(recipe)
    skips = {spec.label: spec.on_error == "skip" for spec in recipe.source_specs()}
    total = sum(len(split.calibration) + len(split.candidates) for split in prepared.splits.values())
    counted: dict[str, dict[str, TokenCount]] = {}
    done = 0
    for label, split in prepared.splits.items():
        counted[label] = {}
        for chunk in _chunks(split):
            progress("counting tokens", done, total)
            counted[label] |= _count(counter, chunk, skips=skips[label])
            done += len(chunk)
    progress("counting tokens", total, total)
    return replace(prepared, tokens=counted, token_counter=settings | {"tokenizer_sha256": counter.tokenizer_sha256})


def _chunks(split: Split) -> Iterator[Sequence[Record]]:
    records = chain(split.calibration, split.candidates)
    while chunk := tuple(islice(records, _CHUNK)):
        yield chunk


def _count(counter: TokenCounter, records: Sequence[Record], *, skips: bool) -> dict[str, TokenCount]:
    try:
        return {record.record_id: count for record, count in zip(records, counter.count(records), strict=True)}
    except ScoringError:
        if not skips:
            raise
    if len(records) == 1:
        return {}
    return {name: count for record in records for name, count in _count(counter, [record], skips=True).items()}
