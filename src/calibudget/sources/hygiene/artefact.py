"""`hygiene.json`: what the sources repeat and share with one another and with evaluation sets, and what was done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from calibudget.records import SourceFile
from calibudget.store.json_records import Artefact
from calibudget.values import ByLabel, ByName, Count, Digest, Positive, Rate

#: How many of the records that a check found are named.
NAMED_IDS: Final = 100
#: How many records are alike, by what; zeros are left out.
Counts = ByName[Positive]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Records of one set that a check found alike something of another set.

    Attributes:
        records: how many.
        others: how many different prompts, texts or records of the other set they are alike.
        record_ids: the first `NAMED_IDS` of them in key order (of the companion set in code-point order).
        record_ids_sha256: digest of all of their ids in that order.
    """

    records: Positive
    others: Positive
    record_ids: tuple[str, ...]
    record_ids_sha256: Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """How many records of one set have a prompt that another set has too; zeros are left out.

    Attributes:
        candidates: by label, of the other sources' candidates.
        calibration: by label, of the sources' calibration records.
        companion: of the companion set.
        evaluation: by name, of the evaluation sets.
    """

    candidates: Counts
    calibration: Counts
    companion: Count
    evaluation: Counts

    def __bool__(self) -> bool:
        return bool(self.candidates or self.calibration or self.companion or self.evaluation)


#: By check, then by the other set ("source <label>" or "evaluation <name>").
Checks = ByName[ByName[Found]]


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

    records: Count
    duplicates: Count
    repeats: Count
    checks: Checks
    barred: Count
    shared_prompts: Count
    pool_size: Count
    repeated_prompts: Count
    prompts: Overlap
    answers: Counts
    majority: Rate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationHygiene:
    """What was noticed in one evaluation set.

    Attributes:
        files: the files that it was read from, or the hub data set.
        records: its records.
        repeated_prompts: those whose prompt an earlier one has.
        columns_not_used: fields that its rows had and nothing used, sorted; None in files from before they were kept.
    """

    files: tuple[SourceFile, ...]
    records: Count
    repeated_prompts: Count
    columns_not_used: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompanionHygiene:
    """What was noticed in the companion set, which is joined unchanged whatever is found.

    `files` is what it was read from, None in reports from before that was kept.
    """

    checks: Checks
    prompts: Overlap
    files: tuple[SourceFile, ...] | None = None


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
    sources: ByLabel[SourceHygiene]
    evaluation: ByLabel[EvaluationHygiene]
    companion: CompanionHygiene | None


HYGIENE: Final = Artefact("calibudget.hygiene/1", Hygiene)
