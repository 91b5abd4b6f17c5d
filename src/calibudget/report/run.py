"""What the report of a run shows, gathered from its artefacts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

from calibudget.allocation.plan import AllocationRequest
from calibudget.allocation.policies import policy_named
from calibudget.allocation.utility_factors import FACTORS
from calibudget.errors import CalibudgetError
from calibudget.evaluation.results import EVALUATION, Evaluation
from calibudget.pipeline.allocate import Comparison, compare_policies, request_of_run
from calibudget.pipeline.explain import Explanation, explain, sentence
from calibudget.pipeline.pools import Pools
from calibudget.pipeline.prepare import prepare
from calibudget.pipeline.progress import Progress
from calibudget.pipeline.round_ledger import ROUNDS
from calibudget.pipeline.run_directory import is_finished, recipe_of_run
from calibudget.pipeline.run_notes import Noticed, noticed
from calibudget.pipeline.verify import Verification, verify
from calibudget.pipeline.whatif import explore
from calibudget.records import AllocationPlan, Record, Score, SourceAllocation, Statistics
from calibudget.sources.hygiene.artefact import HYGIENE, Hygiene
from calibudget.store.artefacts import ALLOCATION, STATISTICS
from calibudget.store.canonical import loads_object, read_object
from calibudget.store.checksums import FileDigest, read_sums
from calibudget.store.manifest import MANIFEST, Manifest
from calibudget.store.scores import SCORES_NAME, read_scores

_Read = TypeVar("_Read")
#: What `train` writes, named here since its module loads torch.
TRAINING_LOG_NAME: Final = "training.jsonl"
#: With more sources than it, a source has its sentence, without its arithmetic and its records.
MOST_DETAILED: Final = 100
#: Characters of the texts of all records together; those of further records are left out.
_TEXT_ROOM: Final = 500_000
#: Characters of one text.
_LONGEST_TEXT: Final = 4_000
_BINS: Final = 24
#: What the manifest counts of a source: heads of columns, and fields.
_COUNTS: Final = (
    ("records read", "read"),
    ("duplicates", "duplicates"),
    ("skipped", "skipped"),
    ("left out by where", "filtered"),
    ("barred by hygiene", "barred"),
    ("sharing a calibration prompt", "shared_prompts"),
    ("spent in earlier rounds", "spent"),
    ("calibration", "calibration_size"),
    ("pool", "pool_size"),
)
#: Parts of the budget and of the floor that the sliders go through; 1 is what was asked.
_BUDGETS: Final = (0.25, 0.5, 0.75, 1, 1.25, 1.5, 2)
_FLOORS: Final = (0, 0.25, 0.5, 0.75, 1, 1.25, 1.5)
#: The same, with many sources.
_FEW: Final = (0, 0.5, 1, 1.5)
_MANY_SOURCES: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A calibration record: its score, and its texts where the sources were read."""

    score: Score
    prompt: str | None
    response: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """How the errors of a source's calibration records are distributed.

    Attributes:
        right: heights of the bins, records that were answered right or whose answers aren't checked, shape (24,).
        wrong: those answered wrong, which stand on them.
        examples: the three records with the largest error, the two around the median, and the one with the least.
    """

    right: tuple[int, ...]
    wrong: tuple[int, ...]
    examples: tuple[Example, ...]

    @property
    def count(self) -> int:
        """How many records were scored."""
        return sum(self.right) + sum(self.wrong)

    @property
    def bars(self) -> tuple[str, str]:
        """Both as paths of an image that is 24 wide and 10 high."""
        top = max(a + b for a, b in zip(self.right, self.wrong, strict=True)) or 1
        return _path(self.right, (0,) * _BINS, top), _path(self.wrong, self.right, top)


def _path(heights: Sequence[int], below: Sequence[int], top: int) -> str:
    return "".join(
        f"M{x} {10 - 10 * (base + height) / top:.3g}h1v{10 * height / top:.3g}h-1z"
        for x, (height, base) in enumerate(zip(heights, below, strict=True))
        if height
    )


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """Everything that the report of a run shows; what can't be read is None, and `verification` says why.

    Attributes:
        verification: what re-deriving it found.
        comparison: the other policies on the same evidence; None where it can't be made.
        grid: what the sliders show, a JSON object; None where there is nothing to vary.
        largest_error: the right end of all distributions.
        has_texts: whether the sources were read for the records' texts.
        texts_left_out: how many records have none for want of room.
        evaluation: the benchmarks that `evaluate` left in the run; None where there are none.
        losses: of each optimizer step that `train` left in the run; empty where it wasn't trained on there.
    """

    name: str
    finished: bool
    verification: Verification
    manifest: Manifest | None
    plan: AllocationPlan | None
    statistics: Statistics | None
    hygiene: Hygiene | None
    sums: Mapping[str, FileDigest]
    explanations: tuple[Explanation, ...]
    comparison: Comparison | None
    grid: Mapping[str, Any] | None
    calibration: Mapping[str, Calibration]
    largest_error: float
    has_texts: bool
    texts_left_out: int
    noticed: tuple[Noticed, ...]
    evaluation: Evaluation | None = None
    losses: tuple[float, ...] = ()

    @property
    def detailed(self) -> bool:
        """Whether each source has its arithmetic and its records."""
        return self.plan is not None and len(self.plan.sources) <= MOST_DETAILED

    @cached_property
    def rows(self) -> list[SourceAllocation]:
        """The sources' rows of the plan."""
        return [] if self.plan is None else list(self.plan.sources.values())

    @cached_property
    def factors(self) -> list[str]:
        """The factors that the policy uses."""
        return [name for name in FACTORS if any(getattr(row, name) is not None for row in self.rows)]

    @cached_property
    def has_intervals(self) -> bool:
        """Whether the quotas have intervals."""
        return any(row.interval for row in self.rows)

    @cached_property
    def _ends(self) -> tuple[int, int]:
        """The right ends of the bars: the largest quota, and the most of a quota or interval above its floor."""
        above = (max(row.quota, row.interval[1] if row.interval else 0) - row.floor_quota for row in self.rows)
        return max((row.quota for row in self.rows), default=0) or 1, max(above, default=0) or 1

    def percent(self, quota: int) -> str:
        """Where a quota ends on the bars; none goes beyond their end."""
        return f"{min(100 * quota / self._ends[0], 100):.4g}"

    def percent_above(self, row: SourceAllocation, quota: int) -> str:
        """Where what a quota is above its source's floor quota ends on the enlarged bars."""
        return f"{100 * (quota - row.floor_quota) / self._ends[1]:.4g}"

    @staticmethod
    def percent_of(part: float, whole: float) -> str:
        """A part as a percentage."""
        return f"{100 * part / (whole or 1):.4g}"

    def total(self, field: str) -> int:
        """A column's sum."""
        return sum(getattr(row, field) for row in self.rows)

    def most(self, field: str) -> float:
        """The largest of a column."""
        return max(getattr(row, field) or 0.0 for row in self.rows)

    @property
    def fake(self) -> bool:
        """Whether hashes stand for scores."""
        return self.manifest is not None and self.manifest.recipe.get("engine") == "fake"

    @property
    def scored_by(self) -> str | None:
        """The model's name."""
        model = ((self.manifest and self.manifest.scorer) or {}).get("model")
        return str(model["name"]) if isinstance(model, Mapping) and "name" in model else None

    @cached_property
    def counts(self) -> list[tuple[str, str]]:
        """Heads and fields of what the manifest counts of each source; those of which there are none are left out."""
        rows = [] if self.manifest is None else self.manifest.sources.values()
        return [(head, field) for head, field in _COUNTS if any(getattr(row, field) for row in rows)]

    @property
    def evidence(self) -> Iterator[tuple[str, object]]:
        """Digests, seeds, model and versions, in words."""
        if self.manifest is None:
            return
        manifest = self.manifest
        yield "selected examples, SHA-256", manifest.selection.selected_sha256
        yield "quotas, SHA-256", manifest.allocation.quotas_sha256
        yield "seeds", ", ".join(f"{name} {seed}" for name, seed in asdict(manifest.seeds).items())
        for name, value in (self.statistics.model if self.statistics else {}).items():
            if value is not None:
                yield f"model: {name}", value
        yield "versions", ", ".join(f"{name} {number}" for name, number in manifest.versions.items())

    @property
    def recipe(self) -> dict[str, str]:
        """The recipe's fields as JSON, but for the sources, whose files the manifest binds."""
        fields = {} if self.manifest is None else self.manifest.recipe
        left_out = ("sources", "companion", "hygiene")
        return {name: json.dumps(value, ensure_ascii=False) for name, value in fields.items() if name not in left_out}

    @property
    def bounds(self) -> dict[str, str | None]:
        """Which of pool and cap each source reached; empty where none did."""
        bounds: dict[str, str | None] = {row: self.plan.bound_of(row) for row in self.plan.sources} if self.plan else {}
        return bounds if any(bounds.values()) else {}

    @cached_property
    def group_of(self) -> dict[str, str]:
        """The innermost group of each source; empty without groups."""
        named = {" / ".join(path): group for path, group in (self.plan.all_groups if self.plan else {}).items()}
        return {label: name for name, group in named.items() for label in group["sources"]}

    @property
    def groups(self) -> dict[str, list[SourceAllocation]]:
        """The rows of the plan by innermost group."""
        found: dict[str, list[SourceAllocation]] = {name: [] for name in sorted({*self.group_of.values()})}
        for label, row in self.plan.sources.items() if self.plan else ():
            if label in self.group_of:
                found[self.group_of[label]].append(row)
        return found


def run_facts(directory: Path, data_dir: Path | None, progress: Progress) -> RunFacts:
    """Gather what the report of a run shows.

    Raises:
        InputError: the sources below `data_dir` can't be read.
    """
    plan = _or_none(lambda: ALLOCATION.read(directory / ALLOCATION.name))
    statistics = _or_none(lambda: STATISTICS.read(directory / STATISTICS.name))
    hygiene = _or_none(lambda: HYGIENE.read(directory / HYGIENE.name))
    manifest = _or_none(lambda: MANIFEST.parse(read_object(directory / MANIFEST.name), MANIFEST.name))
    scored = _or_none(lambda: read_scores(directory / SCORES_NAME))
    scores = () if scored is None else scored.scores
    records = {} if data_dir is None else _records(directory, data_dir, progress)
    largest = max((score.error for score in scores), default=0.0) or 1.0
    calibration, left_out = calibration_of(scores, records, largest)
    given = manifest is not None and manifest.allocation.given
    asked = None if plan is None or given else _or_none(lambda: request_of_run(directory))
    return RunFacts(
        name=directory.resolve().name,
        finished=is_finished(directory),
        verification=verify(directory),
        manifest=manifest,
        plan=plan,
        statistics=statistics,
        hygiene=hygiene,
        sums=_or_none(lambda: read_sums(directory)) or {},
        explanations=() if plan is None else _or_none(lambda: explained(plan, statistics)) or (),
        comparison=None if asked is None else _or_none(lambda: compare_policies(*asked)),
        grid=None if plan is None or asked is None else _or_none(lambda: grid_of(plan, *asked)),
        calibration=calibration,
        largest_error=largest,
        has_texts=bool(records),
        texts_left_out=left_out,
        noticed=() if hygiene is None else tuple(noticed(hygiene)),
        evaluation=_or_none(lambda: EVALUATION.read(directory / EVALUATION.name)),
        losses=_or_none(lambda: tuple(_losses(directory / TRAINING_LOG_NAME))) or (),
    )


def _losses(path: Path) -> Iterator[float]:
    for number, line in enumerate(path.read_bytes().splitlines() if path.is_file() else (), start=1):
        yield float(str(loads_object(line, f"{path.name}:{number}")["loss"]))


def explained(plan: AllocationPlan, statistics: Statistics | None) -> tuple[Explanation, ...]:
    """Why each source has its quota; of many sources the sentences alone."""
    if len(plan.sources) <= MOST_DETAILED:
        return tuple(explain(plan, statistics, label) for label in plan.sources)
    return tuple(Explanation(source=label, sentence=sentence(plan, label), steps=()) for label in plan.sources)


def _or_none(read: Callable[[], _Read]) -> _Read | None:
    """What is read, or None where the directory doesn't allow it: `verify` names the reason."""
    try:
        return read()
    except CalibudgetError:
        return None


def _records(directory: Path, data_dir: Path, progress: Progress) -> dict[tuple[str, str], Record]:
    """The calibration records with their texts, read from the sources again."""
    recipe = recipe_of_run(directory, [f"data_dir={json.dumps(str(data_dir.absolute()), ensure_ascii=False)}"])
    ledger = ROUNDS.read(directory / ROUNDS.name) if recipe.rounds is not None else None
    prepared = prepare(recipe, ledger, is_finished=True, progress=progress)
    return {
        (label, record.record_id): record for label, split in prepared.splits.items() for record in split.calibration
    }


def calibration_of(
    scores: Sequence[Score], records: Mapping[tuple[str, str], Record], largest: float
) -> tuple[dict[str, Calibration], int]:
    """The distribution and the examples of each source, and how many examples have no text for want of room."""
    by_source: dict[str, list[Score]] = {}
    for score in scores:
        by_source.setdefault(score.source, []).append(score)
    found, room, left_out = {}, _TEXT_ROOM, 0
    for label, own in by_source.items():
        heights = {True: [0] * _BINS, False: [0] * _BINS}
        for score in own:
            place = int(_BINS * max(score.error, 0.0) / largest)
            heights[score.correct is not False][min(place, _BINS - 1)] += 1
        examples = []
        for score in _chosen(own):
            record = records.get((label, score.record_id))
            texts = (None, None) if record is None else (_prompt(record), _cut(record.completion))
            length = sum(len(text or "") for text in texts)
            if length > room:
                texts, length, left_out = (None, None), 0, left_out + 1
            room -= length
            examples.append(Example(score=score, prompt=texts[0], response=texts[1]))
        found[label] = Calibration(right=tuple(heights[True]), wrong=tuple(heights[False]), examples=tuple(examples))
    return found, left_out


def _chosen(scores: Sequence[Score]) -> list[Score]:
    ordered = sorted(scores, key=lambda score: (-score.error, score.record_id))
    middle = len(ordered) // 2
    places = sorted({*range(min(3, len(ordered))), *range(max(middle - 1, 0), middle + 1), len(ordered) - 1})
    return [ordered[place] for place in places]


def _prompt(record: Record) -> str:
    turns = record.prompt
    return _cut(turns[0].content if record.is_plain else "\n\n".join(f"{turn.role}: {turn.content}" for turn in turns))


def _cut(text: str) -> str:
    more = len(text) - _LONGEST_TEXT
    return text if more <= 0 else f"{text[:_LONGEST_TEXT]} … and {more:,} characters more"


def grid_of(plan: AllocationPlan, request: AllocationRequest, pools: Pools | None) -> dict[str, Any] | None:
    """The quotas at every stop of the sliders, computed by `whatif`; None where there is nothing to vary."""
    few = _FEW if len(plan.sources) > _MANY_SOURCES else ()
    most = sum(request.pool_sizes.values())
    asked = request.budget
    budgets = sorted({asked, *(min(round(asked * part), most) for part in few or _BUDGETS)} - {0})
    floors: list[int | str] = [request.floor]  # type: ignore[list-item]  # a recipe's amounts are plain
    if policy_named(plan.policy).has_floor and len(plan.floors or {}) < len(plan.sources):
        whole = plan.floor or asked // max(2 * len(plan.sources), 1)
        floors = sorted({plan.floor, *(round(whole * part) for part in few or _FLOORS)})
    points = explore(request, pools, budgets=budgets, floors=floors, exponents=[plan.exponents])
    if len(points) < 2:
        return None
    return {
        "labels": list(plan.sources),
        "budgets": budgets,
        "floors": [floor if isinstance(floor, int) else plan.floor for floor in floors],
        "asked": [budgets.index(asked), floors.index(plan.floor) if len(floors) > 1 else 0],
        "points": [
            {
                "quotas": None if point.quotas is None else list(point.quotas.values()),
                "residual": point.residual_budget,
                "refusal": point.refusal,
            }
            for point in points
        ],
    }
