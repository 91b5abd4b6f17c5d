"""The hygiene of a recipe's sources: what each check finds, what leaves for it, and the report of it all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Final

from calibudget.pipeline.progress import Progress, each
from calibudget.recipe.schema import COMPANION, Recipe
from calibudget.records import Record
from calibudget.sources.duplicates import Resolved
from calibudget.sources.hygiene.artefact import Checks
from calibudget.sources.hygiene.checks import (
    Checked,
    Matched,
    Matches,
    Texts,
    barred,
    checked_records,
    found,
    kept_findings,
    refuse,
    shared_prompts,
    shared_texts,
)
from calibudget.sources.hygiene.contamination import EvaluationWords
from calibudget.sources.hygiene.near_duplicates import HeldOutWords, NearDuplicates
from calibudget.sources.identity_table import Rows
from calibudget.sources.spec import HygieneRules, NearDuplicatesRule
from calibudget.sources.split import Barred
from calibudget.sources.whole_source import SourceRead
from calibudget.store.canonical import canonical_json, sha256_hex

#: What the evaluation splits of all sources are called where what is like them is kept.
_HELD_OUT: Final = "held out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What the checks found, by label; the companion set under its own.

    Attributes:
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
    companion: SourceRead | None,
    *,
    progress: Progress,
) -> Findings:
    """Make every check that the recipe asks for, before anything leaves.

    Raises:
        DataError: something that the recipe refuses is there, or a file changed since its pass.
        DependencyError: near-duplicates are asked for, and datasketch is missing.
    """
    rules, folder = recipe.hygiene, recipe.reading.cache
    sets = _checked(sources)  # the companion set comes last, so that it is compared with them and they not with it
    texts = {label: Texts.of(source) for label, source in sources.items()}
    exams = {f"evaluation {name}": Texts.of(source) for name, source in evaluation.items()}
    if companion is not None and recipe.companion_spec is not None:
        sets[COMPANION] = checked_records(recipe.companion_spec.name, companion.records)
        texts[COMPANION] = Texts(records=lambda: companion.records, spec=recipe.companion_spec, files=companion.files)
    prompts, repeated = shared_prompts(_parts(sets), _parts(_checked(evaluation)))
    found_by: Mapping[str, Mapping[str, Mapping[str, Matches]]] = {
        "evaluation_prompts": prompts,
        "cross_source": shared_texts(_parts(sets)),
        "contamination": _contamination(rules, texts, exams, folder, progress),
        "near_duplicates": _near_duplicates(rules, texts, exams, folder, progress),
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
    """Sources after their pass, their records in key order."""
    return {
        label: Checked(name=one.scan.spec.name, parts=one.parts, ids=one.scan.ids, place=one.scan.place)
        for label, one in sources.items()
    }


def _parts(sets: Mapping[str, Checked]) -> dict[str, Iterator[Rows]]:
    return {label: one.parts() for label, one in sets.items()}


def _contamination(
    rules: HygieneRules,
    texts: Mapping[str, Texts],
    exams: Mapping[str, Texts],
    folder: Path | None,
    progress: Progress,
) -> dict[str, Mapping[str, Matches]]:
    """Source by source; the evaluation sets are read once, and only where something isn't kept."""
    if rules.contamination is None or not exams:
        return {}
    ngram = rules.contamination.ngram

    @cache
    def asked() -> EvaluationWords:
        return EvaluationWords({name: exam.records() for name, exam in exams.items()}, ngram)

    def look_up(own: Texts) -> Mapping[str, Matches]:
        return asked().look_up(own.records())

    matched: dict[str, Mapping[str, Matches]] = {}
    for label, own in each(progress, "looking for runs of words of evaluation sets", texts.items()):
        follows_from = {"source": own, **exams}
        matched[label] = kept_findings(folder, ["contamination", ngram], follows_from, partial(look_up, own))
    return matched


def _near_duplicates(
    rules: HygieneRules,
    texts: Mapping[str, Texts],
    exams: Mapping[str, Texts],
    folder: Path | None,
    progress: Progress,
) -> dict[str, Mapping[str, Matches]]:
    """All sources or none, since what is found in one hangs on those before it."""
    rule = rules.near_duplicates
    if rule is None:
        return {}
    kept = NearDuplicates(rule)
    stage, total = "looking for near-duplicates", len(texts) + len(exams)

    @cache
    def everything() -> Mapping[str, Mapping[str, Matches]]:
        for done, (name, exam) in enumerate(exams.items()):
            progress(stage, done, total)
            kept.add(name, exam.records())
        matched = {}
        for done, (label, own) in enumerate(texts.items(), start=len(exams)):
            progress(stage, done, total)
            matched[label] = kept.look_up(f"source {label}", own.records(), joins=label != COMPANION)
        return matched

    def look_up(label: str) -> Mapping[str, Matches]:
        return everything()[label]

    settings = [rule.threshold, rule.permutations, rule.ngram, rule.seed, version("datasketch")]
    sets = {**exams, **{f"source {label}": own for label, own in texts.items()}}
    matched = {
        label: kept_findings(folder, ["near_duplicates", *settings, label], sets, partial(look_up, label))
        for label in texts
    }
    progress(stage, total, total)
    return matched


def evaluation_twins(
    recipe: Recipe,
    held_out: Sequence[Sequence[Record]],
    sources: Mapping[str, Resolved],
    *,
    progress: Progress,
) -> dict[str, Barred]:
    """Of each source, what is like a record that some source holds out for evaluation; empty without such records.

    That is a record with its prompt, or one that is nearly alike: by the recipe's rule of near-duplicates, or its
    defaults.
    """
    if recipe.evaluation == "none":
        return {}
    prompts = frozenset(bytes.fromhex(record.prompt_hash) for records in held_out for record in records)
    rule = recipe.hygiene.near_duplicates or NearDuplicatesRule()
    words = HeldOutWords(held_out, rule)
    drawn = [[record.prompt_hash, record.record_id] for records in held_out for record in records]
    check = ["evaluation_twins", rule.threshold, rule.ngram, sha256_hex(canonical_json(drawn))]

    def look_up(source: Resolved) -> Mapping[str, Matches]:
        alike = words.like(source.again())
        return {_HELD_OUT: alike} if alike.digests else {}

    twins = {}
    for label, source in each(progress, "looking for twins of evaluation records", sources.items()):
        follows_from = {name: Texts.of(one) for name, one in sources.items()} | {"looked at": Texts.of(source)}
        kept = kept_findings(recipe.reading.cache, check, follows_from, partial(look_up, source))
        twins[label] = Barred(prompts=prompts, texts=kept[_HELD_OUT].digests if kept else frozenset())
    return twins
