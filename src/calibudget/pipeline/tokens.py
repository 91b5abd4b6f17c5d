"""Counting every record's tokens, as scoring and training will encode it: what a token budget is spent in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from calibudget.errors import ScoringError
from calibudget.pipeline.encoding import ENCODED
from calibudget.pipeline.prepare import Prepared
from calibudget.pipeline.progress import Progress, silent
from calibudget.recipe.schema import Recipe
from calibudget.records import Record
from calibudget.sequences import chunks
from calibudget.store.splits import TokenCount


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCounter:
    """How records are counted.

    Attributes:
        count: prompt and response tokens of each record, the end token included, after truncation; raises a
            ScoringError that names a record which can't be encoded.
        tokenizer_sha256: digest of the tokenizer's serial form, None where words are counted.
    """

    count: Callable[[Sequence[Record]], list[TokenCount]]
    tokenizer_sha256: str | None = None


def token_counter(recipe: Recipe) -> TokenCounter:
    """The counter that a recipe's engine, model, template and maximal length ask for; no weights are loaded."""
    if recipe.engine == "fake":
        return TokenCounter(count=lambda records: [_words(record, recipe.max_length) for record in records])
    from calibudget.lm.encoding import Encoder
    from calibudget.lm.loading import load_tokenizer, tokenizer_digest

    tokenizer = load_tokenizer(recipe.model or "")
    encoder = Encoder(recipe.template, tokenizer, recipe.max_length)

    def count(records: Sequence[Record]) -> list[TokenCount]:
        encoded = encoder.encode_all(records)
        return [TokenCount(prompt=len(one.prompt_ids), response=len(one.response_ids)) for one in encoded]

    return TokenCounter(count=count, tokenizer_sha256=tokenizer_digest(tokenizer))


def _words(record: Record, max_length: int | None) -> TokenCount:
    """The words of all turns of the prompt, those of the response and one for its end, cut to a maximal length."""
    prompt = sum(len(turn.content.split()) for turn in record.prompt)
    response = len(record.completion.split()) + 1
    if max_length is not None:
        response = min(response, max_length - prompt)
    if response < 1:
        raise ScoringError(
            f"{record.name}: its prompt of {prompt} words leaves no room "
            f"within max_length {max_length}; raise max_length or leave the record out"
        )
    return TokenCount(prompt=prompt, response=response)


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
        for chunk in chunks(chain(split.calibration, split.candidates), ENCODED):
            progress("counting tokens", done, total)
            counted[label] |= _count(counter, chunk, skips=skips[label])
            done += len(chunk)
    progress("counting tokens", total, total)
    return replace(prepared, tokens=counted, token_counter=settings | {"tokenizer_sha256": counter.tokenizer_sha256})


def _count(counter: TokenCounter, records: Sequence[Record], *, skips: bool) -> dict[str, TokenCount]:
    try:
        return {record.record_id: count for record, count in zip(records, counter.count(records), strict=True)}
    except ScoringError:
        if not skips:
            raise
    if len(records) == 1:
        return {}
    return {name: count for record in records for name, count in _count(counter, [record], skips=True).items()}
