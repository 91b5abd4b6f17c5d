"""What a reader of the evidence should know about the parted sources: repeats, shared prompts, uneven answers.

Everything is counted from the tables of identities, part by part, so memory doesn't grow with the sources. A prompt is
the same as another under the prompt hash, a record under its text's digest, whatever ids the recipe takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from calibudget.records import Record, Split
from calibudget.sources.candidates import CandidatePool
from calibudget.sources.duplicates import Resolved
from calibudget.sources.hygiene.artefact import (
    Checks,
    CompanionHygiene,
    EvaluationHygiene,
    Hygiene,
    Overlap,
    SourceHygiene,
)
from calibudget.sources.hygiene.checks import as_rows, groups, shared_counts
from calibudget.sources.identity_table import Rows
from calibudget.sources.row_records import answer_labels
from calibudget.sources.spec import SourceSpec
from calibudget.sources.whole_source import SourceRead

_COMPANION: Final = ("companion", "")


def inspect_sources(
    splits: Iterable[Split],
    specs: Iterable[SourceSpec],
    companion: SourceRead | None = None,
    evaluation: Mapping[str, Resolved] | None = None,
    *,
    checks: Mapping[str, Checks] | None = None,
    repeats: Mapping[str, int] | None = None,
    rules: Mapping[str, object] | None = None,
) -> Hygiene:
    """Count repeats, shared prompts and answers over all sources, and put what the checks found beside them.

    `checks` are by label, of the companion set under "companion"; `repeats` are those before anything left.
    """
    ordered = sorted(splits, key=lambda split: split.source)
    labels = {spec.label: answer_labels(spec) for spec in specs}
    sets = sorted((evaluation or {}).items())
    pieces = {("candidates", one.source): _pieces(one.candidates) for one in ordered}
    pieces |= {("calibration", one.source): _pieces(one.calibration) for one in ordered if one.calibration}
    pieces |= {} if companion is None else {_COMPANION: _pieces(companion.records)}
    pieces |= {("evaluation", name): source.parts() for name, source in sets}
    prompts = _Prompts(pieces)
    known, before = checks or {}, repeats or {}
    return Hygiene(
        rules=rules or {},
        sources={
            one.source: _source(
                one,
                prompts,
                labels=labels.get(one.source, ()),
                checks=known.get(one.source, {}),
                repeats=before.get(one.source, 0),
            )
            for one in ordered
        },
        evaluation={
            name: EvaluationHygiene(
                files=source.scan.files,
                records=source.count,
                repeated_prompts=prompts.repeated(("evaluation", name)),
                columns_not_used=tuple(source.scan.tally.columns_not_used),
            )
            for name, source in sets
        },
        companion=None
        if companion is None
        else CompanionHygiene(
            checks=known.get("companion", {}), prompts=prompts.overlap(_COMPANION), files=companion.files
        ),
    )


def _pieces(records: Sequence[Record]) -> Iterator[Rows]:
    return records.chunks() if isinstance(records, CandidatePool) else iter([as_rows(records)])


class _Prompts:
    """Of every set, how many of its records have a prompt that each set has."""

    def __init__(self, sets: Mapping[tuple[str, str], Iterable[Rows]]) -> None:
        self._names = list(sets)
        columns = ((rows["prompt"] for rows in pieces) for pieces in sets.values())
        self._shared, self._repeated = shared_counts(groups(columns), len(sets))

    def repeated(self, name: tuple[str, str]) -> int:
        """Records of a set whose prompt an earlier one of it has."""
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


def _source(split: Split, prompts: _Prompts, *, labels: Sequence[str], checks: Checks, repeats: int) -> SourceHygiene:
    name = ("candidates", split.source)
    answers = split.candidates.answers(labels) if isinstance(split.candidates, CandidatePool) else {}
    return SourceHygiene(
        records=split.pool_size
        + len(split.calibration)
        + split.shared_prompts
        + len(split.evaluation)
        + split.evaluation_twins
        + split.spent
        + split.barred,
        duplicates=split.duplicates,
        repeats=repeats,
        checks=checks,
        barred=split.barred,
        shared_prompts=split.shared_prompts,
        pool_size=split.pool_size,
        repeated_prompts=prompts.repeated(name),
        prompts=prompts.overlap(name),
        answers=answers,
        majority=max(answers.values()) / sum(answers.values()) if answers else None,
    )
