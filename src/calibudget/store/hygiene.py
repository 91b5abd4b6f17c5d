"""`hygiene.json`: what the sources repeat and share with one another and with evaluation sets, and what was done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from calibudget.store.canonical import canonical_json, read_object
from calibudget.store.codec import Fields, open_artefact
from calibudget.store.files import write_atomic
from calibudget.store.manifest import SourceFile, parse_files

HYGIENE_NAME: Final = "hygiene.json"
#: How many of the records that a check found are named.
NAMED_IDS: Final = 100
_SCHEMA: Final = "calibudget.hygiene/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Records of one set that a check found alike something of another set.

    Attributes:
        records: how many.
        others: how many different prompts, texts or records of the other set they are alike.
        record_ids: the first `NAMED_IDS` of them in key order (of the companion set in code-point order).
        record_ids_sha256: digest of all of their ids in that order.
    """

    records: int
    others: int
    record_ids: tuple[str, ...]
    record_ids_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """How many records of one set have a prompt that another set has too; zeros are left out.

    Attributes:
        candidates: by label, of the other sources' candidates.
        calibration: by label, of the sources' calibration records.
        companion: of the companion set.
        evaluation: by name, of the evaluation sets.
    """

    candidates: Mapping[str, int]
    calibration: Mapping[str, int]
    companion: int
    evaluation: Mapping[str, int]

    def __bool__(self) -> bool:
        return bool(self.candidates or self.calibration or self.companion or self.evaluation)


#: By check, then by the other set ("source <label>" or "evaluation <name>").
Checks = Mapping[str, Mapping[str, Found]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceHygiene:
    """What was noticed in one source.

    Attributes:
        records: records once duplicates were dealt with; the checks look at these.
        duplicates: records removed or renamed because an equal one is there.
        repeats: records whose prompt an earlier one has, those that left as duplicates among them.
        checks: what each check found.
        barred: records that left for it.
        shared_prompts: candidates that left because a calibration record has their prompt.
        pool_size: candidates that remain; what follows is said of them.
        repeated_prompts: candidates whose prompt an earlier candidate has (with another response, or a copy).
        prompts: candidates whose prompt is elsewhere too.
        answers: candidates by gold answer, in the order of the labels; empty where answers are free or not checked.
        majority: share of the most frequent of those answers, None without them.
    """

    records: int
    duplicates: int
    repeats: int
    checks: Checks
    barred: int
    shared_prompts: int
    pool_size: int
    repeated_prompts: int
    prompts: Overlap
    answers: Mapping[str, int]
    majority: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationHygiene:
    """What was noticed in one evaluation set.

    Attributes:
        files: the files that it was read from, or the hub data set.
        records: its records.
        repeated_prompts: those whose prompt an earlier one has.
    """

    files: tuple[SourceFile, ...]
    records: int
    repeated_prompts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompanionHygiene:
    """What was noticed in the companion set, which is joined unchanged whatever is found."""

    checks: Checks
    prompts: Overlap


@dataclass(frozen=True, slots=True, kw_only=True)
class Hygiene:
    """What `hygiene.json` holds; mappings in code-point order.

    Attributes:
        rules: by check, what was looked for, and what the recipe says is done with it; `duplicates` by label.
        sources: by label.
        evaluation: by name.
        companion: None without a companion set.
    """

    rules: Mapping[str, object]
    sources: Mapping[str, SourceHygiene]
    evaluation: Mapping[str, EvaluationHygiene]
    companion: CompanionHygiene | None


def hygiene_to_json(hygiene: Hygiene) -> dict[str, object]:
    """The `hygiene.json` object."""
    return {"schema": _SCHEMA, **asdict(hygiene)}


def write_hygiene(path: Path, hygiene: Hygiene) -> None:
    """Write `hygiene.json`, atomically.

    Raises:
        ArtefactError: the file can't be written.
    """
    write_atomic(path, canonical_json(hygiene_to_json(hygiene)))


def read_hygiene(path: Path) -> Hygiene:
    """Read `hygiene.json`.

    Raises:
        ArtefactError: the file is missing or torn, or a field isn't what it should be; both are named.
    """
    root = open_artefact(read_object(path), path.name, _SCHEMA)
    hygiene = Hygiene(
        rules=root.mapping("rules"),
        sources={label: _parse_source(row) for label, row in root.by_label("sources").items()},
        evaluation={name: _parse_evaluation(row) for name, row in root.by_label("evaluation").items()},
        companion=root.nullable("companion", lambda name: _parse_companion(root.child(name))),
    )
    root.finish()
    return hygiene


def _parse_source(row: Fields) -> SourceHygiene:
    source = SourceHygiene(
        records=row.integer("records"),
        duplicates=row.integer("duplicates"),
        repeats=row.integer("repeats"),
        checks=_parse_checks(row),
        barred=row.integer("barred"),
        shared_prompts=row.integer("shared_prompts"),
        pool_size=row.integer("pool_size"),
        repeated_prompts=row.integer("repeated_prompts"),
        prompts=_parse_overlap(row.child("prompts")),
        answers=_counts(row, "answers"),
        majority=row.nullable("majority", lambda name: row.number(name, minimum=0.0, maximum=1.0)),
    )
    row.finish()
    return source


def _parse_evaluation(row: Fields) -> EvaluationHygiene:
    evaluation = EvaluationHygiene(
        files=parse_files(row), records=row.integer("records"), repeated_prompts=row.integer("repeated_prompts")
    )
    row.finish()
    return evaluation


def _parse_companion(row: Fields) -> CompanionHygiene:
    companion = CompanionHygiene(checks=_parse_checks(row), prompts=_parse_overlap(row.child("prompts")))
    row.finish()
    return companion


def _parse_checks(row: Fields) -> dict[str, dict[str, Found]]:
    checks = row.child("checks")
    return {
        check: {other: _parse_found(checks.child(check).child(other)) for other in sorted(checks.mapping(check))}
        for check in sorted(row.mapping("checks"))
    }


def _parse_found(row: Fields) -> Found:
    found = Found(
        records=row.integer("records", minimum=1),
        others=row.integer("others", minimum=1),
        record_ids=row.texts("record_ids"),
        record_ids_sha256=row.digest("record_ids_sha256"),
    )
    row.finish()
    return found


def _parse_overlap(row: Fields) -> Overlap:
    overlap = Overlap(
        candidates=_counts(row, "candidates"),
        calibration=_counts(row, "calibration"),
        companion=row.integer("companion"),
        evaluation=_counts(row, "evaluation"),
    )
    row.finish()
    return overlap


def _counts(row: Fields, name: str) -> dict[str, int]:
    inner = row.child(name)
    return {key: inner.integer(key, minimum=1) for key in sorted(row.mapping(name))}
