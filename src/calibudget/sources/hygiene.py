"""What a reader of the evidence should know about the sources: repeats, shared prompts, uneven answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from calibudget.records import Record, Split

#: Most answers that count as labels; a source with more of them has free answers.
_MOST_LABELS: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceHygiene:
    """What was noticed in one source.

    Attributes:
        duplicates: records removed or renamed because an equal one is there.
        repeated_prompts: candidates whose prompt an earlier candidate has (with another response, or a copy).
        shared_prompts: candidates that left because a calibration record has their prompt.
        calibrated_elsewhere: candidates whose prompt calibrates another source.
        answers: candidates by gold answer, in code-point order; empty where answers are free or not checked.
        majority: share of the most frequent of those answers, None without them.
    """

    duplicates: int
    repeated_prompts: int
    shared_prompts: int
    calibrated_elsewhere: int
    answers: Mapping[str, int]
    majority: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hygiene:
    """What was noticed in all sources, by label in code-point order, and in the companion set.

    Attributes:
        sources: one entry a source.
        companion_in_calibration: companion records whose prompt calibrates some source.
        companion_in_candidates: companion records whose prompt some candidate has.
    """

    sources: Mapping[str, SourceHygiene]
    companion_in_calibration: int
    companion_in_candidates: int


def inspect_sources(splits: Iterable[Split], companion: Sequence[Record] = ()) -> Hygiene:
    """Count repeats, shared prompts and answers over all sources."""
    ordered = sorted(splits, key=lambda split: split.source)
    calibrating: dict[str, set[str]] = {}
    for split in ordered:
        for record in split.calibration:
            calibrating.setdefault(record.prompt_hash, set()).add(split.source)
    candidates = {record.prompt_hash for split in ordered for record in split.candidates}
    return Hygiene(
        sources={split.source: _inspect(split, calibrating) for split in ordered},
        companion_in_calibration=sum(record.prompt_hash in calibrating for record in companion),
        companion_in_candidates=sum(record.prompt_hash in candidates for record in companion),
    )


def _inspect(split: Split, calibrating: Mapping[str, set[str]]) -> SourceHygiene:
    answers = Counter(record.answer for record in split.candidates if record.answer is not None)
    labels = {answer: answers[answer] for answer in sorted(answers)} if len(answers) <= _MOST_LABELS else {}
    return SourceHygiene(
        duplicates=split.duplicates,
        repeated_prompts=len(split.candidates) - len({record.prompt_hash for record in split.candidates}),
        shared_prompts=split.shared_prompts,
        calibrated_elsewhere=sum(bool(calibrating.get(record.prompt_hash)) for record in split.candidates),
        answers=labels,
        majority=max(labels.values()) / sum(labels.values()) if labels else None,
    )
