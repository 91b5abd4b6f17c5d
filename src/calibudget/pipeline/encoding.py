"""Whether records can be encoded as training will encode them: told before a run is verified, not by `train`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING

from calibudget.errors import InputError, ScoringError
from calibudget.pipeline.progress import Progress
from calibudget.recipe import Recipe
from calibudget.records import Record
from calibudget.sources.duplicates import Resolved
from calibudget.sources.identity import digests
from calibudget.sources.source import SourceRead

if TYPE_CHECKING:
    from calibudget.lm.encoding import Encoder, Template

#: Records encoded at a time.
_CHUNK = 1024


def training_encoder(recipe: Recipe) -> Encoder | None:
    """The encoding that `train` uses, where the recipe names a model; None where none is at hand.

    Of a model that a server holds the ids that it embeds aren't known.
    """
    if recipe.scorer == "fake" or recipe.model is None:
        return None
    try:
        return _encoder(recipe.model, recipe.template, weights=recipe.scorer == "local")
    except InputError:  # scores were made elsewhere, or whoever verifies has no model
        return None


@lru_cache(maxsize=2)
def _encoder(model: str, template: Template, *, weights: bool) -> Encoder:
    from calibudget.lm.encoding import Encoder
    from calibudget.lm.loading import load_tokenizer, outline_model

    if not weights:
        return Encoder(template, load_tokenizer(model))
    outline = outline_model(model).language_model
    return Encoder(template, outline.tokenizer, embedding_size=outline.embedding_size)


def not_encodable(
    recipe: Recipe, sources: Mapping[str, Resolved], *, progress: Progress
) -> dict[str, frozenset[bytes]]:
    """Digests of the texts that can't be encoded, of the sources that say `on_error: skip`, by label.

    Raises:
        DataError: a file changed since its pass.
    """
    skipping = [label for label, source in sources.items() if source.scan.spec.on_error == "skip"]
    check = _check(recipe) if skipping else None
    if check is None:
        return {}
    found: dict[str, frozenset[bytes]] = {}
    for done, label in enumerate(skipping):
        progress("encoding", done, len(skipping))
        faulty = _faulty(check, sources[label].again())
        found[label] = frozenset(digests(one.prompt, one.completion, one.tools)[0] for one in faulty)
    progress("encoding", len(skipping), len(skipping))
    return found


def without_faulty(recipe: Recipe, companion: SourceRead) -> SourceRead:
    """A companion set that says `on_error: skip` without the records that can't be encoded, which are counted."""
    check = _check(recipe)
    if check is None:
        return companion
    faulty = {record.record_id for record in _faulty(check, companion.records)}
    kept = tuple(record for record in companion.records if record.record_id not in faulty)
    left = len(companion.records) - len(kept)
    return replace(companion, records=kept, skipped=companion.skipped + left) if left else companion


def check_encodable(
    recipe: Recipe, records: Iterable[Record], place_of: Callable[[Record], str | None] = lambda _: None
) -> None:
    """Refuse records, drawn or held out, that `train` or `evaluate` would refuse, as far as what is at hand can tell.

    Args:
        recipe: its model, template and layout say how records are rendered.
        records: the records.
        place_of: where one stands, in words, None where that isn't known.

    Raises:
        ScoringError: the first such record is named, with its file and line, and the way out.
    """
    check = _check(recipe)
    if check is None:
        return
    for chunk in _chunks(records):
        try:
            check(chunk)
        except ScoringError as error:
            record = next(_faulty_of(check, chunk), None)
            place = None if record is None else place_of(record)
            told = f"{place}: " if place is not None else ""
            raise ScoringError(
                f"{told}{error}; take it out of the data, or say `on_error: skip` for its source, which leaves such "
                "records out before the draw"
            ) from error


def _check(recipe: Recipe) -> Callable[[Sequence[Record]], object] | None:
    """What raises a ScoringError for records that can't be encoded, or only rendered where no model is at hand."""
    encoder = training_encoder(recipe)
    if encoder is not None:
        return encoder.encode_all
    if recipe.output.layout == "rendered" and (recipe.template == "alpaca" or not recipe.has_tokenizer):
        from calibudget.lm.encoding import alpaca_text

        return lambda records: [alpaca_text(record) for record in records]
    return None


def _chunks(records: Iterable[Record]) -> Iterator[Sequence[Record]]:
    iterator = iter(records)
    while chunk := tuple(islice(iterator, _CHUNK)):
        yield chunk


def _faulty(check: Callable[[Sequence[Record]], object], records: Iterable[Record]) -> Iterator[Record]:
    """The records that can't be encoded."""
    for chunk in _chunks(records):
        yield from _faulty_of(check, chunk)


def _faulty_of(check: Callable[[Sequence[Record]], object], records: Sequence[Record]) -> Iterator[Record]:
    """Those of a few records, found by halves."""
    try:
        check(records)
    except ScoringError:
        if len(records) == 1:
            yield records[0]
            return
        half = len(records) // 2
        yield from _faulty_of(check, records[:half])
        yield from _faulty_of(check, records[half:])
