"""Parting one source for this round: what calibrates, what may be drawn, and what earlier rounds have used up.

Reading every source of a recipe and parting it into calibration split and candidate pool.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import NamedTuple

from calibudget.errors import AllocationError, ScoringError
from calibudget.messages import counted, first_of
from calibudget.pipeline.hygiene import Findings, evaluation_twins, look
from calibudget.pipeline.progress import Progress, silent
from calibudget.pipeline.round_ledger import Ledger
from calibudget.pipeline.training_encoding import (
    ENCODED,
    TokenCounter,
    check_encodable,
    counted_by,
    each_encoded,
    token_counter,
    training_encoder,
    unfit_records,
    without_unfit,
)
from calibudget.recipe.schema import COMPANION, Recipe
from calibudget.records import Split
from calibudget.selection.draw import marked, unmarked
from calibudget.sequences import chunks
from calibudget.sources.duplicates import Resolved
from calibudget.sources.files import check_distinct_files
from calibudget.sources.hygiene.artefact import Hygiene
from calibudget.sources.hygiene.report import inspect_sources
from calibudget.sources.identity_index import Skips
from calibudget.sources.reading_workers import Readers
from calibudget.sources.split import Barred, Earlier, Parting
from calibudget.sources.split_names import listed
from calibudget.sources.whole_source import SourceRead, open_sources, read_source
from calibudget.store.splits import SourceIds, TokenCount


def part(
    recipe: Recipe,
    source: Resolved,
    ledger: Ledger | None,
    barred: Barred | None = None,
    skipped: frozenset[bytes] = frozenset(),
) -> Parting:
    """One source with its calibration and its evaluation split drawn.

    A later round uses the calibration records of the last one again (see `reused_calibration`), or draws its own from
    what no round has used, never with a prompt that some round trained on. Whatever was held out once stays out of
    the pool, and a candidate leaves it when its last exposure is spent.

    Raises:
        DataError: too few records, or a calibration record of the last round is gone.
    """
    earlier = None if ledger is None else _earlier(recipe, ledger, source.scan.spec.label)
    parting = Parting(source, earlier=earlier, barred=barred, skipped=skipped)
    return parting.draw(
        split_seed=recipe.split_seed,
        calibration_size=recipe.calibration_size,
        evaluation_size=recipe.evaluation_size,
    )


def _earlier(recipe: Recipe, ledger: Ledger, label: str) -> Earlier:
    spent = ledger.spent(label)
    drawn = {unmarked(one)[0] if recipe.max_repeats > 1 else one for one in spent}
    numbers = range(1, recipe.max_repeats + 1)
    return Earlier(
        held_out=frozenset(ledger.held_out(label)),
        calibration=frozenset(reused_calibration(recipe, ledger, label)),
        trained=frozenset(spent),
        used_up=frozenset(one for one in drawn if all(marked(one, number) in spent for number in numbers)),
    )


def reused_calibration(recipe: Recipe, ledger: Ledger, label: str) -> tuple[str, ...]:
    """Calibration records of earlier rounds that a recipe uses again; empty where it draws its own, or none."""
    draws_own = recipe.calibration == "none" or recipe.rounds is None or recipe.rounds.calibration == "fresh"
    return () if draws_own else ledger.calibration(label)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The sources of a recipe, read and parted, labels in code-point order.

    Attributes:
        sources: each after its pass.
        tokens: tokens by source and record id, None where the budget counts examples.
        token_counter: how they were counted, None likewise.
        ledger: the rounds before this one, None in a first round.
        findings: what the hygiene's checks found before anything left for it.
        unfit: records of a source that left since they can't be encoded, by label and reason.
    """

    splits: Mapping[str, Split]
    sources: Mapping[str, Resolved]
    companion: SourceRead | None
    tokens: Mapping[str, Mapping[str, TokenCount]] | None = None
    token_counter: Mapping[str, object] | None = None
    ledger: Ledger | None = None
    evaluation: Mapping[str, Resolved] = field(default_factory=dict)
    findings: Findings = field(default_factory=Findings)
    unfit: Mapping[str, Mapping[str, Skips]] = field(default_factory=dict)

    @property
    def pool_sizes(self) -> dict[str, int]:
        """N_k of each source, in examples."""
        return {label: split.pool_size for label, split in self.splits.items()}

    @property
    def ids(self) -> dict[str, SourceIds]:
        """The ids of each split, as `splits.parquet` has them."""
        return {
            label: SourceIds(
                calibration=tuple(record.record_id for record in split.calibration),
                candidates=split.candidate_ids,
                tokens=(self.tokens or {}).get(label, {}),
                evaluation=tuple(record.record_id for record in split.evaluation),
            )
            for label, split in self.splits.items()
        }

    @property
    def empty(self) -> tuple[str, ...]:
        """The sources that have no candidates left, each with what became of its records, in words."""
        told = []
        for label, split in self.splits.items():
            counts = {
                "calibrate": len(split.calibration),
                "have a calibration record's prompt": split.shared_prompts,
                "are held out for evaluation": len(split.evaluation),
                "are like an evaluation record": split.evaluation_twins,
                "left for an evaluation set or another source": split.barred,
                "were used by earlier rounds": split.spent,
            }
            why = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
            told += [f"source {label!r} has no candidates left: of its records {why}"] if not split.pool_size else []
        return tuple(told)

    @property
    def _read(self) -> dict[str, Resolved]:
        """All that was read, by what notes call it."""
        joined = {} if self.companion is None else {COMPANION: self.companion.source}
        return {**self.sources, **joined, **{f"evaluation set {name}": one for name, one in self.evaluation.items()}}

    @property
    def _files_left(self) -> list[str]:
        left = {label: one.scan.files_not_read for label, one in self._read.items()}
        return [f"{label}: files not read: {listed(names)}" for label, names in left.items() if names]

    @contextmanager
    def telling_empty(self) -> Iterator[None]:
        """Say of a budget that the pools don't hold which of them are empty and why, and what files weren't read."""
        try:
            yield
        except AllocationError as error:
            raise type(error)("; ".join([str(error), *self.empty, *self._files_left])) from error

    @property
    def notes(self) -> tuple[str, ...]:
        """What left each source and what of it isn't used, in words; what hygiene tells isn't told again."""
        told = []
        for label, split in self.splits.items():
            counts = {
                ("row", " left out by `where`"): self.sources[label].scan.tally.filtered,
                ("candidate", " like an evaluation record left out"): split.evaluation_twins,
                ("record", " used by earlier rounds"): split.spent,
            }
            words = ", ".join(counted(count, noun) + rest for (noun, rest), count in counts.items() if count)
            told += [f"{label}: {words}"] if words else []
        skips = {label: {**one.scan.tally.skips, **self.unfit.get(label, {})} for label, one in self._read.items()}
        skips |= {} if self.companion is None else {COMPANION: self.companion.tally.skips}
        told += [f"{label}: {_skipped(own)}" for label, own in skips.items() if own]
        told += self._files_left
        bearers: dict[tuple[str, ...], list[str]] = {}
        for label, one in self._read.items():
            bearers.setdefault(tuple(one.scan.tally.columns_not_used), []).append(label)
        for names, labels in bearers.items():
            told += [f"{first_of(labels)}: columns not used: {', '.join(map(_told, names))}"] if names else []
        return (*told, *self.empty)


class _Read(NamedTuple):
    """Everything that a recipe names, read: sources and evaluation sets by label, and the companion set."""

    sources: dict[str, Resolved]
    evaluation: dict[str, Resolved]
    companion: SourceRead | None


def _skipped(skips: Mapping[str, Skips]) -> str:
    """What was skipped and why, the most frequent reason first."""
    rows = sum(one.rows for one in skips.values())
    reasons = sorted(skips.items(), key=lambda item: -item[1].rows)
    if len(reasons) == 1:
        reason, one = reasons[0]
        return f"{counted(rows, 'row')} skipped: {reason} ({'' if rows == 1 else 'the first is '}{one.first})"
    told = "; ".join(f"{one.rows:,} ({one.first}{' first' * (one.rows > 1)}): {reason}" for reason, one in reasons)
    return f"{counted(rows, 'row')} skipped; {told}"


def _told(column: str) -> str:
    """A column's name as a person may read it among others."""
    return column if column.isidentifier() or re.fullmatch(r"[\w\-.\[\]]+", column) else repr(column)


def _read(recipe: Recipe, progress: Progress) -> _Read:
    evaluation_specs = recipe.evaluation_specs()
    of_records = recipe.all_specs.values()
    total = len(of_records) + len(evaluation_specs)
    check_distinct_files(of_records, recipe.data_root, partial(progress, "finding files", total=len(of_records)))
    sources: dict[str, Resolved] = {}
    evaluation: dict[str, Resolved] = {}
    companion = None
    with Readers(recipe.reading) as readers:
        progress("reading sources", 0, total)
        opened = partial(open_sources, data_dir=recipe.data_root, selection_seed=recipe.selection_seed, readers=readers)
        for source in opened(recipe.specs.values()):
            sources[source.scan.spec.label] = source
            progress("reading sources", len(sources), total)
        if recipe.companion_spec is not None:
            companion = read_source(recipe.companion_spec, recipe.data_root, readers=readers)
            companion = without_unfit(recipe, companion, skips=recipe.companion_spec.on_error == "skip")
            progress("reading sources", len(sources) + 1, total)
        for source in opened(evaluation_specs):
            evaluation[source.scan.spec.label] = source
            progress("reading sources", total - len(evaluation_specs) + len(evaluation), total)
    return _Read(sources, evaluation, companion)


def prepare(
    recipe: Recipe, ledger: Ledger | None = None, *, is_finished: bool = False, progress: Progress = silent
) -> Prepared:
    """Read, normalise, drop duplicates and draw the calibration and evaluation splits (paper 2.1).

    What the ledger's rounds spent leaves the pools. What a finished run (`is_finished`) held out is taken as it is.

    Raises:
        DataError: a file, a line or a record can't be used, a source is too small for its calibration split, or an
            earlier round's calibration split can't be drawn again.
        ScoringError: a record that is held out can't be encoded; see `check_encodable`.
    """
    sources, evaluation, companion = _read(recipe, progress)
    findings = look(recipe, sources, evaluation, companion, progress=progress)
    unfit = unfit_records(recipe, sources, progress=progress)
    parted = {
        label: part(recipe, source, ledger, findings.barred[label], unfit[label].texts)
        for label, source in sources.items()
    }
    twins = evaluation_twins(recipe, [one.evaluation for one in parted.values()], sources, progress=progress)
    splits = {label: one.split(twins.get(label)) for label, one in parted.items()}
    # what a template takes for no turns is told before anything is scored
    if not is_finished and training_encoder(recipe) is not None:
        held_out = (one for split in splits.values() for one in (*split.calibration, *split.evaluation))
        check_encodable(recipe, held_out, lambda one: sources[one.source].place_of(one.record_id))
    return Prepared(
        splits=splits,
        sources=sources,
        companion=companion,
        evaluation=evaluation,
        findings=findings,
        ledger=ledger,
        unfit={label: one.skips for label, one in unfit.items()},
    )


def with_tokens(
    recipe: Recipe, prepared: Prepared, counter: TokenCounter | None = None, *, progress: Progress = silent
) -> Prepared:
    """The prepared sources with every record's tokens, where the budget counts tokens; else as they are.

    Raises:
        ScoringError: a record that can't be encoded, unless its source says `on_error: skip`: then it is left
            without a count, so that no quota holds it.
    """
    settings = counted_by(recipe)
    if settings is None:
        return prepared
    counter = counter or token_counter(recipe)
    total = sum(len(split.calibration) + len(split.candidates) for split in prepared.splits.values())
    counted: dict[str, dict[str, TokenCount]] = {}
    done = 0
    for label, split in prepared.splits.items():
        counted[label] = {}
        for chunk in chunks(chain(split.calibration, split.candidates), ENCODED):
            progress("counting tokens", done, total)
            for record, count in each_encoded(counter.count, chunk):
                if not isinstance(count, ScoringError):
                    counted[label][record.record_id] = count
                elif recipe.specs[label].on_error != "skip":
                    raise count
            done += len(chunk)
    progress("counting tokens", total, total)
    return replace(prepared, tokens=counted, token_counter=settings | {"tokenizer_sha256": counter.tokenizer_sha256})


def hygiene_rules(recipe: Recipe) -> dict[str, object]:
    """What a recipe has looked for, as `hygiene.json` says it."""
    return recipe.hygiene.to_json({label: spec.duplicates for label, spec in recipe.specs.items()})


def hygiene_of(recipe: Recipe, prepared: Prepared) -> Hygiene:
    """What was noticed in prepared sources, and what was done; see `inspect_sources`."""
    return inspect_sources(
        prepared.splits.values(),
        recipe.specs.values(),
        prepared.companion,
        prepared.evaluation,
        checks=prepared.findings.checks,
        repeats=prepared.findings.repeats,
        rules=hygiene_rules(recipe),
    )
