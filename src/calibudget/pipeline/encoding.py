"""Whether records can be encoded as training will encode them: told before a run is verified, not by `train`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING

from calibudget.errors import InputError, RecipeError, ScoringError
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfit:
    """Records of one source that leave before anything is drawn.

    Attributes:
        texts: digests of their texts.
        too_long: how many of them are longer than the recipe takes.
    """

    texts: frozenset[bytes] = frozenset()
    too_long: int = 0


def unfit_records(recipe: Recipe, sources: Mapping[str, Resolved], *, progress: Progress) -> dict[str, Unfit]:
    """What can't be encoded, of the sources that say `on_error: skip`, and what `too_long: skip` leaves out, by label.

    Raises:
        DataError: a file changed since its pass.
        RecipeError: lengths are asked for, and the model's tokenizer can't be had.
    """
    found = dict.fromkeys(sources, Unfit())
    skips = {label: source.scan.spec.on_error == "skip" for label, source in sources.items()}
    looked_at = [label for label in sources if skips[label] or recipe.skips_beyond is not None]
    for done, label in enumerate(looked_at):
        progress("encoding", done, len(looked_at))
        faulty, long = _unfit(recipe, sources[label].again, skips=skips[label])
        texts = (digests(one.prompt, one.completion, one.tools)[0] for one in (*faulty, *long))
        found[label] = Unfit(texts=frozenset(texts), too_long=len(long))
    if looked_at:
        progress("encoding", len(looked_at), len(looked_at))
    return found


def without_unfit(recipe: Recipe, companion: SourceRead, *, skips: bool) -> tuple[SourceRead, int]:
    """A companion set without such records, which count as skipped; and how many of them were too long."""
    faulty, long = _unfit(recipe, lambda: companion.records, skips=skips)
    unfit = {record.record_id for record in (*faulty, *long)}
    kept = tuple(record for record in companion.records if record.record_id not in unfit)
    left = len(companion.records) - len(kept)
    return replace(companion, records=kept, skipped=companion.skipped + left), len(long)


def _unfit(
    recipe: Recipe, again: Callable[[], Iterable[Record]], *, skips: bool
) -> tuple[Sequence[Record], Sequence[Record]]:
    """The records that can't be encoded, where those are skipped, and those that are too long, where a recipe says."""
    check = _check(recipe) if skips else None
    faulty = [] if check is None else list(_faulty(check, again()))
    limit = recipe.skips_beyond
    if limit is None:
        return faulty, []
    encoder = training_encoder(recipe)
    if encoder is None:
        raise RecipeError("calibration.too_long: the tokenizer that counts can't be had; is the `model` at hand here?")
    return faulty, list(_longer(encoder, again(), limit))


def _longer(encoder: Encoder, records: Iterable[Record], limit: int) -> Iterator[Record]:
    """Records of more tokens than a limit; those that can't be encoded are skipped or refused for that."""
    for chunk in _chunks(records):
        faulty = {record.record_id for record in _faulty_of(encoder.encode_all, chunk)}
        fit = [record for record in chunk if record.record_id not in faulty]
        lengths = (one.total_length for one in encoder.encode_all(fit))
        yield from (record for record, length in zip(fit, lengths, strict=True) if length > limit)


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
