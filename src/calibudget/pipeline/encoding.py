"""Whether records can be encoded as training will encode them: told before a run is verified, not by `train`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    encoder = training_encoder(recipe) if skipping else None
    if encoder is None:
        return {}
    found: dict[str, frozenset[bytes]] = {}
    for done, label in enumerate(skipping):
        progress("encoding", done, len(skipping))
        faulty = _faulty(encoder, sources[label].again())
        found[label] = frozenset(digests(one.prompt, one.completion, one.tools)[0] for one in faulty)
    progress("encoding", len(skipping), len(skipping))
    return found


def without_faulty(recipe: Recipe, companion: SourceRead) -> SourceRead:
    """A companion set that says `on_error: skip` without the records that can't be encoded, which are counted."""
    encoder = training_encoder(recipe)
    if encoder is None:
        return companion
    faulty = {record.record_id for record in _faulty(encoder, companion.records)}
    kept = tuple(record for record in companion.records if record.record_id not in faulty)
    left = len(companion.records) - len(kept)
    return replace(companion, records=kept, skipped=companion.skipped + left) if left else companion


def check_encodable(recipe: Recipe, records: Iterable[Record]) -> None:
    """Refuse records, drawn or held out, that `train` or `evaluate` would refuse, where a model is at hand."""
    encoder = training_encoder(recipe)
    if encoder is None:
        return
    for chunk in _chunks(records):
        try:
            encoder.encode_all(chunk)
        except ScoringError as error:
            raise ScoringError(
                f"{error}; it was drawn, so take it out of the data, or say `on_error: skip` for "
                "its source, which leaves such records out before the draw"
            ) from error


def _chunks(records: Iterable[Record]) -> Iterator[Sequence[Record]]:
    iterator = iter(records)
    while chunk := tuple(islice(iterator, _CHUNK)):
        yield chunk


def _faulty(encoder: Encoder, records: Iterable[Record]) -> Iterator[Record]:
    """The records that can't be encoded."""
    for chunk in _chunks(records):
        yield from _faulty_of(encoder, chunk)


def _faulty_of(encoder: Encoder, records: Sequence[Record]) -> Iterator[Record]:
    """Those of a few records, found by halves."""
    try:
        encoder.encode_all(records)
    except ScoringError:
        if len(records) == 1:
            yield records[0]
            return
        half = len(records) // 2
        yield from _faulty_of(encoder, records[:half])
        yield from _faulty_of(encoder, records[half:])
