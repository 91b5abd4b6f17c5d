"""Records as training will encode and render them: whether they can be, their tokens, and a train set's texts.

Tokens are what a token budget is spent in. The texts are those that were scored, for trainers that apply no template.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final, TypeVar

from calibudget.errors import DependencyError, InputError, RecipeError, ScoringError
from calibudget.pipeline.progress import Progress, each
from calibudget.recipe.schema import Recipe
from calibudget.records import Record
from calibudget.selection.train_rows import Texts
from calibudget.sequences import chunks
from calibudget.sources.duplicates import Resolved
from calibudget.sources.identity import digests
from calibudget.sources.identity_index import Skips, add_skips
from calibudget.sources.whole_source import SourceRead
from calibudget.store.manifest import Manifest
from calibudget.store.splits import TokenCount

if TYPE_CHECKING:
    from calibudget.lm.encoding import Encoder, Template

#: Records encoded at a time.
ENCODED: Final = 1024
#: The lengths of records, in tokens (in characters where no model is at hand); raises a ScoringError for one that can't
#: be encoded.
_Check = Callable[[Sequence[Record]], list[int]]
Made = TypeVar("Made")


def training_encoder(recipe: Recipe) -> Encoder | None:
    """The encoding that `train` uses, where the recipe names a model; None where none is at hand.

    Of a model that a server holds the ids that it embeds aren't known.
    """
    if recipe.scorer == "fake" or recipe.model is None:
        return None
    try:
        return encoder_of(recipe.model, recipe.template, weights=recipe.scorer == "local")
    except InputError:  # scores were made elsewhere, or whoever verifies has no model
        return None


@lru_cache(maxsize=2)
def encoder_of(model: str, template: Template, *, weights: bool = False) -> Encoder:
    """The encoder of a model's tokenizer; with `weights` it knows which ids the model embeds."""
    from calibudget.lm.encoding import Encoder
    from calibudget.lm.loading import load_tokenizer, outline_model

    if not weights:
        return Encoder(template, load_tokenizer(model))
    outline = outline_model(model)
    return Encoder(template, outline.tokenizer, embedding_size=outline.embedding_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfit:
    """Records of one source that leave before anything is drawn.

    `texts` are digests of their texts; `skips` says how many leave, by the reason.
    """

    texts: frozenset[bytes] = frozenset()
    skips: Mapping[str, Skips] = field(default_factory=dict)


def unfit_records(recipe: Recipe, sources: Mapping[str, Resolved], *, progress: Progress) -> dict[str, Unfit]:
    """What can't be encoded, of the sources that say `on_error: skip`, and what `too_long: skip` leaves out, by label.

    Raises:
        DataError: a file changed since its pass.
        RecipeError: lengths are asked for, and the model's tokenizer can't be had.
    """
    found = dict.fromkeys(sources, Unfit())
    skips = {label: source.scan.spec.on_error == "skip" for label, source in sources.items()}
    looked_at = [label for label in sources if skips[label] or recipe.skips_beyond is not None]
    for label in each(progress, "encoding", looked_at):
        unfit = list(_unfit(recipe, sources[label].again(), skips=skips[label]))
        texts = frozenset(digests(one.prompt, one.completion, one.tools)[0] for one, _ in unfit)
        found[label] = Unfit(texts=texts, skips=_skips(unfit))
    return found


def without_unfit(recipe: Recipe, companion: SourceRead, *, skips: bool) -> SourceRead:
    """A companion set without such records, which count as skipped."""
    unfit = list(_unfit(recipe, companion.records, skips=skips))
    ids = {record.record_id for record, _ in unfit}
    kept = tuple(record for record in companion.records if record.record_id not in ids)
    left = len(companion.records) - len(kept)
    tally = replace(companion.tally, skipped=companion.tally.skipped + left)
    return replace(companion, records=kept, tally=replace(tally, skips={**tally.skips, **_skips(unfit)}))


def _skips(unfit: Iterable[tuple[Record, str]]) -> dict[str, Skips]:
    skips: dict[str, Skips] = {}
    for record, reason in unfit:
        add_skips(skips, reason, 1, partial("record {}".format, record.record_id))
    return skips


def _unfit(recipe: Recipe, records: Iterable[Record], *, skips: bool) -> Iterator[tuple[Record, str]]:
    """The records that leave, each with the reason."""
    limit = recipe.skips_beyond
    if limit is not None and training_encoder(recipe) is None:
        raise RecipeError("calibration.too_long: the tokenizer that counts can't be had; is the `model` at hand here?")
    check = _check(recipe) if skips or limit is not None else None
    if check is None:
        return
    for chunk in chunks(records, ENCODED):
        for record, length in each_encoded(check, chunk):
            if isinstance(length, ScoringError):
                if skips:
                    yield record, str(length).removeprefix(f"{record.name}: ")
            elif limit is not None and length > limit:
                yield record, f"longer than `max_length` of {limit:,} tokens"


def check_encodable(
    recipe: Recipe, records: Iterable[Record], place_of: Callable[[Record], str | None] = lambda _: None
) -> None:
    """Refuse records, drawn or held out, that `train` or `evaluate` would refuse, as far as what is at hand can tell.

    `place_of` says in words where a record stands, None where that isn't known.

    Raises:
        ScoringError: the first such record is named, with its file and line, and the way out.
    """
    check = _check(recipe)
    if check is None:
        return
    for chunk in chunks(records, ENCODED):
        try:
            check(chunk)
        except ScoringError as error:
            record = next((one for one, length in each_encoded(check, chunk) if isinstance(length, ScoringError)), None)
            place = None if record is None else place_of(record)
            told = str(error)
            if record is not None and place is not None:
                told = f"{place}, record {record.record_id}: {told.removeprefix(f'{record.name}: ')}"
            raise ScoringError(
                f"{told}; take it out of the data, or say `on_error: skip` for its source, which leaves such "
                "records out before the draw"
            ) from error


def _check(recipe: Recipe) -> _Check | None:
    """How records are encoded, or only rendered where no model is at hand; None where neither is."""
    encoder = training_encoder(recipe)
    if encoder is not None:
        return lambda records: [one.total_length for one in encoder.encode_all(records)]
    if recipe.output.layout == "rendered" and (recipe.template == "alpaca" or not recipe.has_tokenizer):
        from calibudget.lm.encoding import alpaca_text

        return lambda records: [len(alpaca_text(record)) for record in records]
    return None


def each_encoded(
    encode: Callable[[Sequence[Record]], list[Made]], records: Sequence[Record]
) -> Iterator[tuple[Record, Made | ScoringError]]:
    """Records with what is made of each; those that can't be encoded, found by halves, with the error."""
    try:
        yield from zip(records, encode(records), strict=True)
    except ScoringError as error:
        half = len(records) // 2
        for part in (records[:half], records[half:]) if half else ():
            yield from each_encoded(encode, part)
        if not half:
            yield records[0], error


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """How rows are rendered.

    Attributes:
        texts: a record's prompt and completion, the end included; None where the rows aren't rendered.
        end: the text that ends a response, None where no model says which.
    """

    texts: Texts | None = None
    end: str | None = None


def rendering(recipe: Recipe) -> Rendering:
    """How a recipe's rows are rendered.

    Without a model to be scored the alpaca template needs none: its texts have no end, which trainers add.

    Raises:
        ScoringError, DependencyError: a chat template without its tokenizer.
    """
    if recipe.output.layout != "rendered":
        return Rendering()
    is_scored = recipe.calibration != "none" or recipe.unit == "tokens"
    if recipe.has_tokenizer and (recipe.template == "chat" or is_scored):
        try:
            return _of_model(str(recipe.model), recipe.template)
        except (ScoringError, DependencyError) as error:
            if recipe.template == "chat":
                raise type(error)(f"output.layout: rendered: {error}; or say output.layout=turns") from error
    return bare_alpaca("")


def bare_alpaca(end: str) -> Rendering:
    """The alpaca template with a given end, which needs no tokenizer."""
    from calibudget.lm.encoding import alpaca_text

    def texts(record: Record) -> tuple[str, str]:
        return alpaca_text(record), record.completion + end

    return Rendering(texts=texts, end=end or None)


def rendering_again(recipe: Recipe, manifest: Manifest | None) -> Rendering | None:
    """How the rows of a finished run were rendered; None where that needs a tokenizer which isn't here."""
    if recipe.output.layout != "rendered" or is_earlier(manifest):
        return Rendering()
    if recipe.template == "alpaca":
        end = None if manifest is None or manifest.train_set is None else manifest.train_set.get("end")
        return bare_alpaca(str(end or ""))
    try:
        return _of_model(str(recipe.model), recipe.template)
    except (ScoringError, DependencyError):
        return None


def is_earlier(manifest: Manifest | None) -> bool:
    """Whether a run is from before manifests told the layout; its rows are bare texts or lists of turns."""
    return manifest is not None and manifest.train_set is None


def taught(recipe: Recipe, end: str | None) -> Mapping[str, object]:
    """What the manifest says of a train set: its layout, the field that is taught, and the text that ends it."""
    layout = recipe.output.layout
    return {"layout": layout, "taught": "messages[-1]" if layout == "messages" else "completion", "end": end}


def _of_model(model: str, template: Template) -> Rendering:
    encoder = encoder_of(model, template)
    return Rendering(texts=lambda record: encoder.rendered([record])[0], end=encoder.end)
