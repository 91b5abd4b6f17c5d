"""What a person should know about a run that its quotas don't say, in words.

Which quotas would be others if its batches had been split otherwise, what is left out or repeated, and what the sources
repeat and share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Final, NamedTuple

from calibudget.allocation.policies import policy_named
from calibudget.messages import counted
from calibudget.pipeline.allocate import plan_recipe
from calibudget.pipeline.pools import Pools
from calibudget.recipe.schema import Recipe
from calibudget.records import (
    ANSWER_CAP,
    AllocationPlan,
    ErrorRule,
    Score,
    Selection,
    SourceStatistics,
    Statistics,
)
from calibudget.selection.draw import unmarked
from calibudget.sources.hygiene.artefact import Checks, Hygiene, Overlap, SourceHygiene
from calibudget.store.manifest import Manifest

#: How far another split of the batches moved an NLL where it was measured, nats, by precision, and what is taken for
#: the means of others (docs/decisions: batches).
TOLERANCE: Final = {"float32": 1e-5}
COARSE: Final = 1e-2
#: What is said beside every table whose scores are made up.
FAKE_NOTE: Final = "engine: fake: the scores are hashes, no model was asked, and the quotas mean nothing"
#: How many times as long as others, on average, a source's answers are when they differ widely.
_WIDELY: Final = 8.0


def boundary_notes(
    recipe: Recipe, pools: Pools, statistics: Statistics | None, plan: AllocationPlan, provenance: Mapping[str, object]
) -> Iterator[str]:
    """Tell which sources' quotas sit on a rounding boundary, where batches were split for want of memory."""
    splits = provenance.get("batch_splits")
    if statistics is None or not isinstance(splits, int) or splits == 0:
        return
    tolerance = TOLERANCE.get(str(statistics.model.get("dtype")), COARSE)
    named = near_boundary(recipe, pools, statistics, plan, tolerance)
    told = f"{', '.join(named)} may get another quota elsewhere" if named else "no quota would be another one"
    if tolerance == COARSE:
        moves = f"which is taken to move mean NLLs by about {tolerance:g} in this precision"
    else:
        moves = f"which moved NLLs by about {tolerance:g} where it was measured"
    yield f"batches were halved {counted(splits, 'time')} for want of memory, {moves}: {told}"


def near_boundary(
    recipe: Recipe, pools: Pools, statistics: Statistics, plan: AllocationPlan, tolerance: float
) -> tuple[str, ...]:
    """The sources whose quotas change when every NLL may be off by `tolerance`, ascending.

    A unit passes from one source to another most easily when one of them needs as much more, and all others as much
    less, as the tolerance allows, or the other way round; so each source is raised and lowered against the rest and
    the plan made anew. To first order no other combination moves more.

    Means and bootstrap standard deviations move by no more than single NLLs do, so `tolerance` (nats) is theirs too.
    """
    moved: set[str] = set()
    for label in statistics.sources:
        for change in (tolerance, -tolerance):
            sources = {
                other: _shifted(row, change if other == label else -change) for other, row in statistics.sources.items()
            }
            quotas = plan_recipe(recipe, pools, replace(statistics, sources=sources), intervals=False).quotas
            moved |= {other for other, quota in quotas.items() if quota != plan.quotas[other]}
    return tuple(sorted(moved))


def _shifted(row: SourceStatistics, change: float) -> SourceStatistics:
    """Statistics by which a source is worth a little more (or less): a greater mean, trusted a little more."""
    return replace(row, mean_error=max(row.mean_error + change, 0.0), bootstrap_sd=max(row.bootstrap_sd - change, 0.0))


def run_notes(recipe: Recipe, selection: Selection, manifest: Manifest) -> Iterator[str]:
    """An unused floor, examples too long for their quota, and repeated ones."""
    if recipe.engine == "fake" and recipe.calibration != "none":
        yield FAKE_NOTE
    if recipe.floor and not policy_named(recipe.policy).has_floor:
        floors = recipe.model_dump(mode="json")["floor"]
        yield f"the policy {recipe.policy!r} knows no floor: `floor: {floors}` isn't used, and counts as 0"
    for label, row in manifest.sources.items():
        if row.tokens is not None and row.tokens.too_long:
            left_out = counted(row.tokens.too_long, "candidate")
            yield f"{label}: {left_out} longer than its quota of {counted(row.quota, 'token')} left out"
    for label, picks in selection.picks.items() if recipe.max_repeats > 1 else ():
        count = sum(unmarked(pick)[1] > 1 for pick in picks)
        if count:
            yield f"{label}: {counted(count, 'row')} of repeated examples"


def length_notes(scores: Sequence[Score], error: ErrorRule) -> Iterator[str]:
    """Tell of sources whose answers differ widely in tokens, or of answers at the cap where they count whole."""
    lengths: dict[str, list[int]] = {}
    for score in scores:
        lengths.setdefault(score.source, []).append(score.response_tokens)
    if error == "nll_per_answer":
        capped = Counter(score.source for score in scores if score.error >= ANSWER_CAP)
        for label, count in sorted(capped.items()):
            yield f"{label}: {count:,} of its {len(lengths[label]):,} answers count {ANSWER_CAP:g} nats, the most"
        return
    means = {label: fmean(own) for label, own in sorted(lengths.items())}
    short, long = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
    if means[long] >= _WIDELY * means[short]:
        yield (
            f"answers differ widely in length: {counted(round(means[short]), 'token')} on average in {short}, "
            f"{means[long]:,.0f} in {long}, so an NLL a token says little of one beside the other; "
            "`error: nll_per_answer` shows what whole answers would change"
        )


class Noticed(NamedTuple):
    """One finding of the hygiene: in which source, of how many records, what, and what was done with them."""

    source: str
    records: int
    found: str
    done: str

    @property
    def line(self) -> str:
        """The finding as one line."""
        return f"{self.source}: {self.records:,} {self.found}" + (f", {self.done}" if self.done else "")


def noticed(hygiene: Hygiene) -> list[Noticed]:
    """What the sources repeat and share, one finding after the other, in words; empty where nothing was found."""
    rows = [
        Noticed(label, *row) for label, one in hygiene.sources.items() for row in _of_source(one, hygiene.rules, label)
    ]
    if hygiene.companion is not None:
        rows += [Noticed("companion", *row) for row in _checks(hygiene.companion.checks, hygiene.rules, joined=True)]
        rows += [Noticed("companion", *row) for row in _prompts(hygiene.companion.prompts, "joined as it is")]
    return rows


#: What a check says of so many records; the other set's name follows.
_WORDS: Final[Mapping[str, str]] = {
    "evaluation_prompts": "with a prompt of",
    "cross_source": "that stand as they are in",
    "contamination": "sharing {ngram} words in a row, or all of a shorter prompt, with",
    "near_duplicates": "nearly alike records of",
}
_DONE: Final = {"drop": "left out", "keep": "kept"}


def _of_source(row: SourceHygiene, rules: Mapping[str, object], label: str) -> Iterator[tuple[int, str, str]]:
    duplicates = rules.get("duplicates")
    action = duplicates.get(label, "") if isinstance(duplicates, Mapping) else ""
    if row.duplicates:
        yield row.duplicates, "that repeat an earlier record", _DONE.get(action, "")
    if row.repeats > row.duplicates:
        yield row.repeats - row.duplicates, "that repeat an earlier prompt, with another response", "kept"
    yield from _checks(row.checks, rules)
    if row.shared_prompts:
        yield row.shared_prompts, "with a prompt of its calibration records", "left out"
    yield from _prompts(row.prompts, "kept")
    if row.majority is not None and row.majority > 1.2 / len(row.answers):
        answer = max(row.answers, key=lambda one: row.answers[one])
        yield row.answers[answer], f"of {row.pool_size:,} are answered {answer}: {row.majority:.0%}", ""


def _checks(checks: Checks, rules: Mapping[str, object], *, joined: bool = False) -> Iterator[tuple[int, str, str]]:
    for check, words in _WORDS.items():
        rule = rules.get(check)
        known = rule if isinstance(rule, Mapping) else {}
        done = "joined as it is" if joined else _DONE.get(str(known.get("action")), "")
        for other, one in checks.get(check, {}).items():
            yield (
                one.records,
                f"{words.format(**known)} {_named(other)} ({counted(one.others, 'different one')} there)",
                done,
            )


def _prompts(prompts: Overlap, done: str) -> Iterator[tuple[int, str, str]]:
    """What is shared with sources and the companion set; evaluation sets are a check of their own."""
    for label, count in prompts.candidates.items():
        yield count, f"whose prompt is also in {label}", done
    for label, count in prompts.calibration.items():
        yield count, f"whose prompt also calibrates {label}", done
    if prompts.companion:
        yield prompts.companion, "whose prompt is also in the companion set", done


def _named(other: str) -> str:
    kind, _, name = other.partition(" ")
    return f"the evaluation set {name}" if kind == "evaluation" else name
