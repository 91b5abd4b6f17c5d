"""The scoring stage: from a recipe's calibration splits to scores with their provenance."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from calibudget.errors import ArtefactError, RecipeError, ScoringError
from calibudget.messages import counted
from calibudget.pipeline.calibration import calibration_items, settings_of
from calibudget.pipeline.progress import Progress, silent, whole
from calibudget.pipeline.run_directory import check_no_run
from calibudget.pipeline.shared_resources import Shared, read_sources
from calibudget.pipeline.training_encoding import encoder_of, training_encoder
from calibudget.recipe.schema import Recipe
from calibudget.records import ErrorRule, Record, Score, Split
from calibudget.scoring.batches import Shard, measure_all
from calibudget.scoring.scorer import (
    CalibrationItem,
    Measurement,
    Scorer,
    item_to_json,
    judged,
    to_scores,
)
from calibudget.scoring.settings import make_scorer, open_scorer
from calibudget.sources.cache_files import Kept, kept_or_made, kept_path
from calibudget.store.canonical import canonical_json
from calibudget.store.files import move_into_place, work_directory, write_atomic
from calibudget.store.scores import ScoreFile, ordered, read_scores, read_scores_file, write_scores
from calibudget.workers import Engine

#: Of the folder beside an output, which holds what is done of it; gone when it is whole.
WORK_SUFFIX: Final = ".work"
_KEPT: Final = "calibudget.measurements/1"


def score(
    recipe: Recipe,
    *,
    output: str | Path | None = None,
    shared: Shared | None = None,
    progress: Progress = silent,
    shard: Shard | None = None,
) -> tuple[Score, ...]:
    """Score the calibration split of every source (paper 2.2).

    Args:
        recipe: its sources, model and calibration are used, nothing else.
        output: a `scores.parquet` to write, which `run --scores` takes on any machine; finished batches are kept
            in a folder beside it until it is whole, and are not scored again.
        shared: what this has in common with runs in this process.
        progress: told how far reading and scoring are.
        shard: what of it is scored here; `merge_scores` puts all shards together.

    Returns:
        The scores, ordered by source, then record id.

    Raises:
        RecipeError: the recipe says `calibration: none`.
        ArtefactError: the output exists, or other work was begun for it.
        DataError, ScoringError, DependencyError: data or model can't be used.
    """
    if output is None:
        return _read_and_score(recipe, shared, None, progress, shard).scores
    path = Path(output)
    work = path.parent / f"{path.name}{WORK_SUFFIX}"
    if not work.exists():
        _check_new(path)
    with work_directory(work) as journal:
        is_whole = path.exists()
        if not journal.exists():
            _check_new(path)  # again, for what another command did meanwhile
        scored = _read_and_score(recipe, shared, journal, progress, shard)
        if not is_whole:
            made = work / f"whole-{path.name}"
            write_scores(made, scored.scores, error=scored.error, provenance=scored.provenance or {})
            move_into_place(made, path)
        elif read_scores(path).scores != scored.scores:  # it wasn't killed between writing them and tidying up
            raise ArtefactError(f"{path}: exists already, and isn't what {work.name} was begun for; move one away")
    return scored.scores


def _check_new(output: Path) -> None:
    check_no_run(output.parent)
    if output.exists():
        raise ArtefactError(f"{output}: exists already; name another output, or move it away")


@contextmanager
def _new_file(output: Path) -> Iterator[Path]:
    """Where to make a file that becomes the output when the block ends; of several commands one makes it."""
    _check_new(output)
    work = output.with_name(f"{output.name}{WORK_SUFFIX}")
    with work_directory(work) as journal:
        _check_new(output)  # again, for what another command did meanwhile
        if journal.exists():
            raise ArtefactError(f"{work}: holds scoring begun for {output.name}; finish or remove it, or name another")
        made = work / f"whole-{output.name}"
        yield made
        move_into_place(made, output)


def merge_scores(paths: Sequence[str | Path], output: str | Path) -> tuple[Score, ...]:
    """Put the shards of one scoring together: the file that one machine would have written.

    Raises:
        ArtefactError: a file is no shard, or of another scoring; one is missing or given twice; the output exists.
    """
    with _new_file(Path(output)) as made:
        merged = _merged([(path, read_scores(path)) for path in map(Path, paths)])
        write_scores(made, merged.scores, error=merged.error, provenance=merged.provenance or {})
    return merged.scores


def _merged(files: Sequence[tuple[Path, ScoreFile]]) -> ScoreFile:
    """All shards of one scoring, put together."""
    shards: dict[int, Path] = {}
    work: tuple[int, ErrorRule, dict[str, object]] | None = None
    halved = 0
    for path, found in files:
        stated = dict(found.provenance or {})
        shard = stated.pop("shard", None)
        if not isinstance(shard, dict) or {*map(type, shard.values())} != {int} or set(shard) != {"index", "count"}:
            raise ArtefactError(f"{path}: is no shard; `calibudget score RECIPE --shard 1/4` writes one")
        splits = stated.pop("batch_splits", 0)
        halved = max(halved, splits if isinstance(splits, int) else 0)
        own = (shard["count"], found.error, stated)
        work = work or own
        if own != work:
            raise ArtefactError(
                f"{path}: was scored otherwise than {files[0][0]} (another model, precision, batch or rule)"
            )
        if shard["index"] in shards:
            raise ArtefactError(f"{path}: is shard {shard['index']}, and so is {shards[shard['index']]}")
        shards[shard["index"]] = path
    if work is None:
        raise ArtefactError("no shard is given, so there is nothing to put together")
    count, error, provenance = work
    if missing := sorted(set(range(1, count + 1)) - set(shards)):
        raise ArtefactError(f"shard {missing[0]} of {count} is missing ({counted(len(missing), 'shard')} in all)")
    scores = ordered(one for _, file in files for one in file.scores)
    return ScoreFile(scores=scores, error=error, provenance={**provenance, "batch_splits": halved})


def export_calibration(recipe: Recipe, output: str | Path, *, progress: Progress = silent) -> int:
    """Write the calibration records as the texts that are scored, to be scored elsewhere; how many is returned.

    The file is JSONL, a line a record, ordered by source, then record id: `source`, `record_id`, `prompt` and
    `completion` under the template (no BOS, the end included), `response_tokens`, `answer`. `run --scores` takes back
    what comes of it.

    Raises:
        RecipeError: the recipe says `calibration: none`, or no model whose tokenizer could render.
        ArtefactError: the output exists.
        ScoringError: a record that can't be rendered, or that `max_length` cuts.
        DataError, DependencyError: data or tokenizer can't be used.
    """
    settings = settings_of(recipe)
    if not recipe.has_tokenizer:
        why = "`model` is missing" if recipe.model is None else "`engine: fake` has no model"
        raise RecipeError(
            f"{why}, whose tokenizer says where a rendered record ends; name a model, with `engine: local`"
        )
    with _new_file(Path(output)) as made:
        encoder = encoder_of(settings.model, settings.template)
        items = calibration_items(recipe, read_sources(recipe, None, progress=progress).splits.values())
        records = sorted((item.record for item in items), key=lambda record: (record.source, record.record_id))
        lines: list[dict[str, object]] = []
        for record, encoded, (prompt, completion) in zip(
            records, encoder.encode_all(records), encoder.rendered(records), strict=True
        ):
            if settings.max_length is not None and encoded.total_length > settings.max_length:
                raise ScoringError(
                    f"{record.name}: calibration.max_length cuts its "
                    f"{encoded.total_length} tokens to {settings.max_length}, which no text can say; leave it out"
                )
            own = {"source": record.source, "record_id": record.record_id, "prompt": prompt, "completion": completion}
            lines.append({**own, "response_tokens": len(encoded.response_ids), "answer": record.answer})
        write_atomic(made, b"".join(canonical_json(line) + b"\n" for line in lines))
    return len(lines)


def _read_and_score(
    recipe: Recipe, shared: Shared | None, journal_path: Path | None, progress: Progress, shard: Shard | None
) -> ScoreFile:
    if shared is None:
        check_scorer(recipe)
    splits = read_sources(recipe, shared, progress=progress).splits
    with scorer_for(recipe, shared, progress) as scorer:
        return score_splits(recipe, splits, scorer, journal_path=journal_path, progress=progress, shard=shard)


def score_splits(
    recipe: Recipe,
    splits: Mapping[str, Split],
    scorer: Scorer,
    *,
    journal_path: Path | None = None,
    progress: Progress = silent,
    shard: Shard | None = None,
) -> ScoreFile:
    """Score calibration splits that are already drawn; see `score`."""
    items = calibration_items(recipe, splits.values())

    def measure() -> list[Measurement]:
        return measure_all(
            scorer,
            items,
            journal_path=journal_path,
            progress=lambda done, total: progress("scoring", done, total),
            shard=shard,
        )

    # what a server says of itself doesn't name its weights, so its scores may be another model's tomorrow
    folder = recipe.reading.cache if recipe.scorer == "local" and shard is None else None
    measurements, were_kept = _kept_measurements(folder, scorer, items, measure)
    if were_kept:
        progress("scores found in the cache", len(items), len(items))
    splits_made = max((one.batch_splits for one in measurements), default=0)
    provenance = {"versions": {}, **scorer.describe(), "batch_splits": splits_made}
    if shard is not None:
        provenance["shard"] = {"index": shard.index, "count": shard.count}
        scored = {(one.source, one.record_id) for one in measurements}
        items = [item for item in items if (item.record.source, item.record.record_id) in scored]
    scores = ordered(to_scores(items, measurements, recipe.error))
    return ScoreFile(scores=scores, error=recipe.error, provenance=provenance)


@cache
def _files() -> TypeAdapter[Kept[list[Measurement]]]:
    return TypeAdapter(Kept[list[Measurement]])


def _kept_measurements(
    folder: Path | None,
    scorer: Scorer,
    items: Sequence[CalibrationItem],
    measure: Callable[[], list[Measurement]],
) -> tuple[list[Measurement], bool]:
    """What a scorer says of all items: what is kept of an earlier time, or what it says now, which is then kept.

    It follows from all that the scorer says it depends on (model, precision, device, versions), from the items in their
    order and from this code. Budgets, floors, policies and the seeds of later stages play no part.
    """
    if folder is None:
        return measure(), False
    path = kept_path(folder, "measurements", _KEPT, dict(scorer.describe()), [item_to_json(item) for item in items])
    return kept_or_made(path, _KEPT, _files(), measure)


def check_scorer(recipe: Recipe) -> None:
    """Refuse a recipe that nothing can be scored with here, before its sources are read; no weights are loaded.

    Raises:
        RecipeError: it says `calibration: none`.
        ScoringError, DependencyError: the model can't be found or loaded, or its server not be used; a cluster's nodes
            may have another.
    """
    settings = settings_of(recipe)
    if settings.kind == "openai":
        make_scorer(settings)
    elif settings.kind == "local" and recipe.address is None:
        from calibudget.lm.loading import check_loadable

        check_loadable(
            settings.model,
            device=settings.device,
            dtype=settings.dtype,
            adapter=recipe.adapter,
            gpus=settings.gpus,
        )


@contextmanager
def scorer_for(recipe: Recipe, shared: Shared | None, progress: Progress) -> Iterator[Scorer]:
    """The scorer that a recipe asks for, wherever it says; workers end with the block.

    A model is loaded here, unless it is shared and has no adapter on it; workers load their own.
    """
    settings = settings_of(recipe)
    engine: Engine = "ray" if recipe.engine == "ray" else "local"
    with ExitStack() as stack:
        with whole(progress, "loading the model"):
            if shared is not None and recipe.adapter is None and recipe.engine == "local" and recipe.scorers == 1:
                own = shared.model(settings.model, device=settings.device, dtype=settings.dtype, gpus=settings.gpus)
                scorer = make_scorer(settings, own)
            else:
                opened = open_scorer(settings, engine=engine, workers=recipe.scorers, address=recipe.address)
                scorer = stack.enter_context(opened)
        yield scorer


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenScores:
    """Scores that were made elsewhere, as they were read: texts in them aren't judged yet."""

    recipe: Recipe
    files: tuple[Path, ...]
    verdict: str | None
    found: ScoreFile

    def check(self, splits: Mapping[str, Split]) -> ScoreFile:
        """The scores, if they are those of exactly these calibration splits, their texts judged.

        Raises:
            ArtefactError: the files lack a calibration record, or score a record that isn't one.
        """
        items = calibration_items(self.recipe, splits.values())
        wanted = {(item.record.source, item.record.record_id): item for item in items}
        given = {(score.source, score.record_id) for score in self.found.scores}
        named = " and ".join(map(str, self.files))
        if missing := wanted.keys() - given:
            source, record_id = min(missing)
            raise ArtefactError(
                f"{named}: lacks {len(missing):,} of {counted(len(wanted), 'calibration record')} (the first: source "
                f"{source!r}, record {record_id}); was it made with this recipe, its seeds and its data?"
            )
        if strays := given - wanted.keys():
            source, record_id = min(strays)
            raise ArtefactError(
                f"{named}: scores {counted(len(strays), 'record')} outside this recipe's calibration splits (the "
                f"first: source {source!r}, record {record_id})"
            )
        found = read_scores_file(
            *self.files,
            error=self.recipe.error,
            verdict=self.verdict,
            judge=lambda source, record_id, text: judged(wanted[source, record_id], text),
        )
        self._check_lengths(found, [item.record for item in items])
        return replace(found, provenance=found.provenance or {"model": {}})

    def _check_lengths(self, found: ScoreFile, records: Sequence[Record]) -> None:
        """Refuse a `response_tokens` that isn't what the recipe's model counts, where its tokenizer is at hand."""
        told = {(one.source, one.record_id): one.response_tokens for one in found.scores}
        encoder = training_encoder(self.recipe) if any(told.values()) else None
        if encoder is None:
            return
        limit = settings_of(self.recipe).max_length or math.inf
        for record, encoded in zip(records, encoder.encode_all(records), strict=True):
            count, own = told[record.source, record.record_id], len(encoded.response_ids)
            if count and count != own and encoded.total_length <= limit:
                raise ArtefactError(
                    f"{' and '.join(map(str, self.files))}: {record.name}: response_tokens: is {count}, and the "
                    f"recipe's model counts {own} (`calibudget score --export` writes it); correct it, or leave it out"
                )


def read_given(
    recipe: Recipe, scores: str | Path | Sequence[str | Path] | None, verdict: str | None = None
) -> GivenScores | None:
    """Read scores that were made elsewhere, before any source is read; see `read_scores_file`."""
    files = (scores,) if isinstance(scores, str | Path) else scores or ()
    if not files:
        return None
    paths = tuple(map(Path, files))
    found = read_scores_file(*paths, error=recipe.error, verdict=verdict, judge=lambda *_: (False, None))
    return GivenScores(recipe=recipe, files=paths, verdict=verdict, found=found)
