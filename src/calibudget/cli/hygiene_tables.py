"""What the sources repeat and share, as a table that a person likes to read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from calibudget.cli.tables import new_table, print_table
from calibudget.store import Checks, Hygiene, Overlap, SourceHygiene
from calibudget.wording import counted

#: What a check says of so many records; the other set's name follows.
_WORDS: Final[Mapping[str, str]] = {
    "evaluation_prompts": "with a prompt of",
    "cross_source": "that stand as they are in",
    "contamination": "sharing {ngram} words in a row, or all of a shorter prompt, with",
    "near_duplicates": "nearly alike records of",
}
_DONE: Final = {"drop": "left out", "keep": "kept"}


def print_hygiene(hygiene: Hygiene) -> None:
    """What was noticed, one line a finding, with what was done; nothing where nothing was."""
    rows = [(label, *row) for label, one in hygiene.sources.items() for row in _source(one, hygiene.rules, label)]
    if hygiene.companion is not None:
        rows += [("companion", *row) for row in _checks(hygiene.companion.checks, hygiene.rules, joined=True)]
        rows += [("companion", *row) for row in _prompts(hygiene.companion.prompts, "joined as it is")]
    if not rows:
        return
    table = new_table("what sources repeat and share")
    for column in ("source", "records", "found", "done"):
        table.add_column(column, justify="right" if column == "records" else "left", no_wrap=column != "found")
    before = ""
    for label, count, words, done in rows:
        table.add_row("" if label == before else label, f"{count:,}", words, done)
        before = label
    print_table(table, folds=True)


def _source(row: SourceHygiene, rules: Mapping[str, object], label: str) -> Iterator[tuple[int, str, str]]:
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
