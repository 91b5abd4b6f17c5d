"""`scores.parquet`: what the model said of each calibration record (paper 2.2), and scores made elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final

import pyarrow as pa
from pydantic import AfterValidator

from calibudget.errors import ArtefactError, refuse_as
from calibudget.messages import shown
from calibudget.records import ErrorRule, Nats, Score, error_of
from calibudget.store.canonical import canonical_json, sha256_hex
from calibudget.store.evaluation_logs import Judge, rows_elsewhere, table_rows
from calibudget.store.json_records import Artefact, Shape
from calibudget.store.parquet import columns, load_table, read_table, table_metadata, write_table
from calibudget.values import Count, Flag, Number, Text, check_labels

SCORES_NAME: Final = "scores.parquet"
_COLUMNS: Final = columns(
    "source string, record_id string, response_tokens int64, nll double, correct bool?, prediction string?, "
    "error double"
)


def _with_model(provenance: Mapping[str, object]) -> Mapping[str, object]:
    if not isinstance(provenance.get("model"), Mapping):
        raise ValueError(f"needs an object `model`, not {shown(provenance.get('model'))}")
    return provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class _Metadata:
    """What the table says of itself."""

    error: ErrorRule
    provenance: Annotated[Mapping[str, object], AfterValidator(_with_model)]


_METADATA: Final = Artefact("calibudget.scores/1", _Metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A row; one made elsewhere may leave out what has a default."""

    source: Text
    nll: Nats
    record_id: Text | None = None
    response_tokens: Count | None = None
    correct: Flag | None = None
    prediction: Text | None = None
    error: Number | None = None


_ROW: Final = Shape(_Row)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreFile:
    """Scores as a file holds them.

    Attributes:
        scores: one a calibration record, ordered by source, then record id.
        error: the rule that made each `error` of its NLL and correctness.
        provenance: what scored them ("model" at least), None for a file made elsewhere that doesn't say.
    """

    scores: tuple[Score, ...]
    error: ErrorRule
    provenance: Mapping[str, object] | None

    @property
    def model(self) -> dict[str, object]:
        """What identifies the model that scored; empty for a file that doesn't say."""
        model = (self.provenance or {}).get("model")
        return dict(model) if isinstance(model, Mapping) else {}


def write_scores(path: Path, scores: Iterable[Score], *, error: ErrorRule, provenance: Mapping[str, object]) -> None:
    """Write `scores.parquet`, atomically.

    `provenance` says what scored them, and holds at least an object "model".

    Raises:
        ArtefactError: a score isn't finite, its error isn't the rule's, or the file can't be written.
    """
    rows = [_row_json(score) for score in ordered(scores)]
    checked = _parse_rows(((f"{path.name}: score {n}", row) for n, row in enumerate(rows, start=1)), path.name, error)
    values = {name: [getattr(score, name) for score in checked] for name in _COLUMNS.names}
    metadata = _METADATA.to_json(_Metadata(error=error, provenance=provenance))
    write_table(path, pa.table(values, schema=_COLUMNS), metadata, dictionary=["source"])


def read_scores(path: Path) -> ScoreFile:
    """Read the `scores.parquet` of a run directory.

    Raises:
        ArtefactError: the file is missing or damaged, or a column or row isn't what it should be; it is named.
    """
    table, metadata = read_table(path, _COLUMNS)
    own = _METADATA.parse(metadata, f"{path.name}: schema metadata")
    scores = _parse_rows(table_rows(table, path.name), path.name, own.error)
    if scores != ordered(scores):
        raise ArtefactError(f"{path.name}: rows must ascend by source and record id")
    return ScoreFile(scores=scores, error=own.error, provenance=own.provenance)


def read_scores_file(
    *paths: Path, error: ErrorRule | None = None, verdict: str | None = None, judge: Judge | None = None
) -> ScoreFile:
    """Read scores from any place: Parquet, JSONL, lm-eval's `samples_*.jsonl`, Inspect's logs.

    Args:
        paths: one file, or several that say different things of the same records (the log-probability in one, the
            answer in another), which are joined by source and record id.
        error: the error rule; None takes the file's own, else `nll+wrong` when every row says whether it is
            correct and `nll` when none does.
        verdict: of a log with several, the metric or scorer that says what is right; then no text is judged.
        judge: judges the texts that rows hold; without it, and where a row has none, their own verdict goes.

    Raises:
        ArtefactError: a file can't be read, or a row isn't what it should be; file and line or row are named.
    """
    own, name = None, " and ".join(path.name for path in paths)
    if len(paths) == 1 and paths[0].suffix == ".parquet":
        table = load_table(paths[0])
        metadata = table_metadata(table, name)
        own = None if metadata is None else _METADATA.parse(metadata, f"{name}: schema metadata")
    rows = rows_elsewhere(paths, verdict=verdict, judge=judge if verdict is None else None)
    rule = own.error if own is not None else error or _guess_rule(rows)
    scores = ordered(_parse_rows(rows, name, rule))
    if error is not None and error != rule:
        rule = error
        scores = tuple(_by_rule(score, rule, f"{name}: {score.record_id!r} of {score.source!r}") for score in scores)
    return ScoreFile(scores=scores, error=rule, provenance=None if own is None else own.provenance)


def scores_sha256(scores: Iterable[Score]) -> str:
    """Digest of one source's scores: SHA-256 of the RFC 8785 array of its rows in record-id order."""
    rows = [list(_row_json(score).values())[1:] for score in ordered(scores)]
    return sha256_hex(canonical_json(rows))


def ordered(scores: Iterable[Score]) -> tuple[Score, ...]:
    """The scores by source, then record id."""
    return tuple(sorted(scores, key=lambda score: (score.source, score.record_id)))


def _row_json(score: Score) -> dict[str, object]:
    return {name: getattr(score, name) for name in _COLUMNS.names}


def _guess_rule(rows: Sequence[tuple[str, Mapping[str, object]]]) -> ErrorRule:
    known = [row.get("correct") is not None for _, row in rows]
    if any(known) and not all(known):
        place = rows[known.index(False)][0]
        raise ArtefactError(
            f"{place}: `correct` is missing while other rows have it; give it everywhere, "
            "or ask for the error rule `nll`"
        )
    return "nll+wrong" if all(known) else "nll"


def _parse_rows(rows: Iterable[tuple[str, Mapping[str, object]]], name: str, error: ErrorRule) -> tuple[Score, ...]:
    scores: list[Score] = []
    seen: dict[tuple[str, str], str] = {}
    for place, row in rows:
        score = _parse_row(row, place, f"row-{len(scores) + 1}", error)
        twin = seen.setdefault((score.source, score.record_id), place)
        if twin != place:
            raise ArtefactError(f"{place}: record_id: {score.record_id!r} was scored at {twin} already")
        scores.append(score)
    if not scores:
        raise ArtefactError(f"{name}: holds no scores")
    with refuse_as(ArtefactError, f"{name}: source", ValueError):
        check_labels(sorted({score.source for score in scores}))
    return tuple(scores)


def _parse_row(value: Mapping[str, object], place: str, default_id: str, error: ErrorRule) -> Score:
    row = _ROW.parse(value, place)
    score = Score(
        source=row.source,
        record_id=row.record_id or default_id,
        response_tokens=row.response_tokens or 0,
        nll=row.nll + 0.0,  # -0.0 becomes 0.0, as in canonical JSON
        correct=row.correct,
        prediction=row.prediction,
        error=0.0,
    )
    made = _by_rule(score, error, place)
    if row.error is not None and row.error != made.error:
        raise ArtefactError(f"{place}: error: must be {made.error!r} by the rule {error}, not {row.error!r}")
    return made


def _by_rule(score: Score, rule: ErrorRule, place: str) -> Score:
    """The score with its error by a rule, which may need what it lacks."""
    if rule == "nll+wrong" and score.correct is None:
        raise ArtefactError(f"{place}: correct: must be true or false under the error rule nll+wrong, not None")
    if rule == "nll_per_answer" and not score.response_tokens:
        raise ArtefactError(f"{place}: response_tokens: the error rule nll_per_answer needs the answer's length")
    error = error_of(rule, nll=score.nll, response_tokens=score.response_tokens, correct=score.correct)
    return replace(score, error=error)
