"""What a reader of the evidence should know about the sources: repeats, shared prompts and records, uneven answers.

Everything is counted from the tables of identities, part by part, so memory doesn't grow with the sources. A prompt is
the same as another under the prompt hash, a record under its text's digest, whatever ids the recipe takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from calibudget.records import Record, Split
from calibudget.sources.identity import digests
from calibudget.sources.making import answer_labels
from calibudget.sources.pool import CandidatePool
from calibudget.sources.spec import SourceSpec
from calibudget.sources.table import ROW, IdentityTable, Rows, same_as_before

_Column = Literal["prompt", "text"]
_COMPANION: Final = ("companion", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """How many records of one set have a prompt (or a text) that another set has too; zeros are left out.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceHygiene:
    """What was noticed in one source.

    Attributes:
        duplicates: records removed or renamed because an equal one is there.
        repeated_prompts: candidates whose prompt an earlier candidate has (with another response, or a copy).
        shared_prompts: candidates that left because a calibration record has their prompt.
        barred: records that left because an evaluation set has their prompt, or another source the record itself.
        prompts: candidates whose prompt is elsewhere too.
        records: candidates that are elsewhere too, prompt and response.
        answers: candidates by gold answer, in the order of the labels; empty where answers are free or not checked.
        majority: share of the most frequent of those answers, None without them.
    """

    duplicates: int
    repeated_prompts: int
    shared_prompts: int
    barred: int
    prompts: Overlap
    records: Overlap
    answers: Mapping[str, int]
    majority: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hygiene:
    """What was noticed in all sources, by label in code-point order, and in the companion set, None without one."""

    sources: Mapping[str, SourceHygiene]
    companion: Overlap | None


def inspect_sources(
    splits: Iterable[Split],
    specs: Iterable[SourceSpec],
    companion: Sequence[Record] | None = None,
    evaluation: Mapping[str, Sequence[Record]] | None = None,
) -> Hygiene:
    """Count repeats, shared prompts, shared records and answers over all sources.

    Args:
        splits: the sources, parted.
        specs: what the recipe says of them; for the labels of their answers.
        companion: the companion records, None without a companion set.
        evaluation: the records of each evaluation set by name.
    """
    ordered = sorted(splits, key=lambda split: split.source)
    labels = {spec.label: answer_labels(spec) for spec in specs}
    sets = {("candidates", one.source): one.candidates for one in ordered}
    sets |= {("calibration", one.source): one.calibration for one in ordered if one.calibration}
    sets |= {} if companion is None else {_COMPANION: companion}
    sets |= {("evaluation", name): records for name, records in sorted((evaluation or {}).items())}
    prompts, texts = _Counts(sets, "prompt"), _Counts(sets, "text")
    return Hygiene(
        sources={one.source: _inspect(one, labels.get(one.source, ()), prompts, texts) for one in ordered},
        companion=None if companion is None else prompts.overlap(_COMPANION),
    )


def as_rows(records: Iterable[Record]) -> Rows:
    """Records as rows of a table, as far as their prompts and texts go."""
    found = [digests(record.prompt, record.completion, record.tools) for record in records]
    rows = np.zeros(len(found), dtype=ROW)
    for column, values in (("text", [text for text, _ in found]), ("prompt", [prompt for _, prompt in found])):
        rows[column] = np.frombuffer(b"".join(values), dtype="V32")
    return rows


class _Counts:
    """Of every set, how many of its records have a prompt or text that each set has."""

    def __init__(self, sets: Mapping[tuple[str, str], Sequence[Record]], column: _Column) -> None:
        self._names = list(sets)
        table = IdentityTable()
        for number, records in enumerate(sets.values()):
            for rows in records.chunks() if isinstance(records, CandidatePool) else [as_rows(records)]:
                own = rows.copy()
                own["key"], own["file"] = rows[column], number
                table.add_rows(own)
        self._shared = np.zeros((len(sets), len(sets)), dtype=np.int64)
        self._repeated = np.zeros(len(sets), dtype=np.int64)
        for rows in table.parts():
            self._count(rows)

    def repeated(self, name: tuple[str, str]) -> int:
        """Records of a set whose prompt or text an earlier one of it has."""
        return int(self._repeated[self._names.index(name)])

    def overlap(self, name: tuple[str, str]) -> Overlap:
        """What a set shares with the others."""
        own = self._names.index(name)
        found = {other: int(self._shared[own, n]) for n, other in enumerate(self._names) if n != own}
        found.pop(("calibration", name[1]), 0)  # its prompts left the pool

        def of(kind: str) -> dict[str, int]:
            return {label: count for (what, label), count in found.items() if what == kind and count}

        return Overlap(
            candidates=of("candidates"),
            calibration=of("calibration"),
            companion=found.get(_COMPANION, 0),
            evaluation=of("evaluation"),
        )

    def _count(self, rows: Rows) -> None:
        if not len(rows):
            return
        group = np.cumsum(~same_as_before(rows["key"])) - 1
        member = rows["file"].astype(np.int64)
        there = np.zeros((int(group[-1]) + 1, len(self._names)), dtype=np.bool_)
        there[group, member] = True
        for number in np.unique(member).tolist():
            mine: NDArray[np.int64] = group[member == number]
            self._shared[number] += there[mine].sum(axis=0)
            self._repeated[number] += len(mine) - int(there[:, number].sum())


def _inspect(split: Split, labels: Sequence[str], prompts: _Counts, texts: _Counts) -> SourceHygiene:
    name = ("candidates", split.source)
    answers = split.candidates.answers(labels) if isinstance(split.candidates, CandidatePool) else {}
    return SourceHygiene(
        duplicates=split.duplicates,
        repeated_prompts=prompts.repeated(name),
        shared_prompts=split.shared_prompts,
        barred=split.barred,
        prompts=prompts.overlap(name),
        records=texts.overlap(name),
        answers=answers,
        majority=max(answers.values()) / sum(answers.values()) if answers else None,
    )
