"""The hygiene of a recipe's sources: what each check finds, what leaves for it, and the report of it all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from calibudget.pipeline.progress import Progress
from calibudget.recipe import COMPANION, Recipe
from calibudget.records import Record
from calibudget.sources import (
    Barred,
    Checked,
    EvaluationWords,
    HygieneRules,
    Matched,
    Matches,
    NearDuplicates,
    Resolved,
    Rows,
    barred,
    checked_records,
    checked_source,
    found,
    refuse,
    shared_prompts,
    shared_texts,
)
from calibudget.store import Checks


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What the checks found, by label; the companion set under its own.

    Attributes:
        checks: counted and named.
        repeats: records whose prompt an earlier one of the source has, those that left as duplicates among them.
        barred: what leaves each source for it.
    """

    checks: Mapping[str, Checks] = field(default_factory=dict)
    repeats: Mapping[str, int] = field(default_factory=dict)
    barred: Mapping[str, Barred] = field(default_factory=dict)


def look(
    recipe: Recipe,
    sources: Mapping[str, Resolved],
    evaluation: Mapping[str, Resolved],
    companion: Iterable[Record] | None,
    *,
    progress: Progress,
) -> Findings:
    """Make every check that the recipe asks for, before anything leaves.

    Args:
        recipe: its hygiene is used.
        sources: by label in code-point order, duplicates dealt with.
        evaluation: the evaluation sets, by name in code-point order.
        companion: the companion records; None without a companion set.
        progress: told how far the reading of texts is.

    Raises:
        DataError: something that the recipe refuses is there.
        DependencyError: near-duplicates are asked for, and datasketch is missing.
    """
    rules = recipe.hygiene_rules
    sets = _checked(sources)  # the companion set comes last, so that it is compared with them and they not with it
    texts: dict[str, Callable[[], Iterator[Record]]] = {label: source.again for label, source in sources.items()}
    if companion is not None:
        records = tuple(companion)
        sets[COMPANION] = checked_records("the companion set", records)
        texts[COMPANION] = lambda: iter(records)
    prompts, repeated = shared_prompts(_parts(sets), _parts(_checked(evaluation)))
    found_by: Mapping[str, Mapping[str, Mapping[str, Matches]]] = {
        "evaluation_prompts": prompts,
        "cross_source": shared_texts(_parts(sets)),
        "contamination": _contamination(rules, texts, evaluation, progress),
        "near_duplicates": _near_duplicates(rules, texts, evaluation, progress),
    }
    matched: dict[str, Matched] = {
        label: {check: by_label[label] for check, by_label in found_by.items() if by_label.get(label)} for label in sets
    }
    for label, one in sets.items():
        refuse(one, matched[label], rules)
    return Findings(
        checks={label: found(one, matched[label]) for label, one in sets.items()},
        repeats={label: repeated[label] + one.dropped for label, one in sources.items()},
        barred={label: barred(matched[label], rules) for label in sources},
    )


def _checked(sources: Mapping[str, Resolved]) -> dict[str, Checked]:
    return {label: checked_source(source) for label, source in sources.items()}


def _parts(sets: Mapping[str, Checked]) -> dict[str, Iterator[Rows]]:
    return {label: one.parts() for label, one in sets.items()}


def _contamination(
    rules: HygieneRules,
    texts: Mapping[str, Callable[[], Iterator[Record]]],
    evaluation: Mapping[str, Resolved],
    progress: Progress,
) -> dict[str, Mapping[str, Matches]]:
    if rules.contamination is None or not evaluation:
        return {}
    stage = "looking for runs of words of evaluation sets"
    progress(stage, 0, len(texts))
    asked = EvaluationWords({name: source.again() for name, source in evaluation.items()}, rules.contamination.ngram)
    matched: dict[str, Mapping[str, Matches]] = {}
    for label, records in texts.items():
        met = asked.look_up(records())
        matched[label] = {f"evaluation {name}": one for name, one in met.items()}
        progress(stage, len(matched), len(texts))
    return matched


def _near_duplicates(
    rules: HygieneRules,
    texts: Mapping[str, Callable[[], Iterator[Record]]],
    evaluation: Mapping[str, Resolved],
    progress: Progress,
) -> dict[str, Mapping[str, Matches]]:
    if rules.near_duplicates is None:
        return {}
    stage, total = "looking for near-duplicates", len(texts) + len(evaluation)
    kept = NearDuplicates(rules.near_duplicates)
    for done, (name, source) in enumerate(evaluation.items()):
        progress(stage, done, total)
        kept.add(f"evaluation {name}", source.again())
    matched: dict[str, Mapping[str, Matches]] = {}
    for done, (label, records) in enumerate(texts.items(), start=len(evaluation)):
        progress(stage, done, total)
        matched[label] = kept.look_up(f"source {label}", records(), joins=label != COMPANION)
    progress(stage, total, total)
    return matched
