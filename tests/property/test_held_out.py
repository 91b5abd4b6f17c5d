"""Evaluation splits: disjoint roles and twins that leave, against a naive computation from the rows alone."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from calibudget.keys import order_key
from calibudget.pipeline.prepare import Prepared, prepare
from calibudget.recipe.load import recipe_from_fields
from calibudget.recipe.yaml import parse_document
from calibudget.records import Message
from calibudget.sources.identity import identify

SEED = 7
WORDS = ("red", "blue", "green", "stone", "river", "cloud", "seven", "paper")


def _prepared(root: Path, sources: dict[str, list[tuple[str, str]]], calibration: int, evaluation: int) -> Prepared:
    for label, rows in sources.items():
        text = "".join(json.dumps({"instruction": prompt, "output": answer}) + "\n" for prompt, answer in rows)
        (root / f"{label}.jsonl").write_text(text)
    fields: dict[str, Any] = {
        "budget": 0,
        "engine": "fake",
        "error": "nll",
        "seed": SEED,
        "cache": False,
        "calibration": {"per_source": calibration},
        "evaluation": {"per_source": evaluation},
        "sources": {label: {"path": f"{label}.jsonl"} for label in sources},
    }
    return prepare(recipe_from_fields(fields, parse_document("{}", "recipe"), base_dir=root))


def _runs(prompt: str, answer: str) -> set[str]:
    words = f"{prompt} {answer}".lower().split()
    return {" ".join(words[at : at + 3]) for at in range(max(1, len(words) - 2))}


def _alike(one: tuple[str, str], other: tuple[str, str]) -> bool:
    first, second = _runs(*one), _runs(*other)
    return len(first & second) >= 0.8 * len(first | second)


prompts = st.lists(st.sampled_from(WORDS), min_size=6, max_size=14).map(" ".join)
rows = st.lists(
    st.tuples(prompts, st.sampled_from(("yes", "no"))), min_size=14, max_size=30, unique_by=lambda row: row[0]
)


@settings(max_examples=40, deadline=None)
@given(first=rows, second=rows, data=st.data())
def test_roles_are_disjoint_and_every_twin_leaves_and_is_counted(
    first: list[tuple[str, str]], second: list[tuple[str, str]], data: st.DataObject
) -> None:
    """Rows are repeated between sources, in another case, with another answer, and with a word more."""
    for prompt, answer in data.draw(st.lists(st.sampled_from(first), max_size=6)):
        second.append(
            data.draw(st.sampled_from([(prompt.upper(), "perhaps"), (prompt, answer), (f"{prompt} so", answer)]))
        )
    sources = {"a": first, "b": second}
    with tempfile.TemporaryDirectory() as folder:
        found = _prepared(Path(folder), sources, 2, 3)
    records = {
        label: {
            identify((Message(role="user", content=prompt),), answer).record_id: (prompt, answer)
            for prompt, answer in own
        }
        for label, own in sources.items()
    }
    calibrating, evaluating = {}, {}
    for label, own in records.items():
        ordered = sorted(own, key=lambda one: order_key("calibration", SEED, label, one))
        calibrating[label] = ordered[:2]
        taken = {own[one][0].lower() for one in calibrating[label]}
        left = [one for one in own if own[one][0].lower() not in taken]
        evaluating[label] = sorted(left, key=lambda one: order_key("evaluation", SEED, label, one))[:3]
    held_out = [records[label][one] for label, ids in evaluating.items() for one in ids]
    for label, own in records.items():
        taken = {own[one][0].lower() for one in calibrating[label]}
        free = {one: row for one, row in own.items() if row[0].lower() not in taken}
        pool = {
            one
            for one, row in free.items()
            if not any(row[0].lower() == other[0].lower() or _alike(row, other) for other in held_out)
        }
        split = found.splits[label]
        assert [record.record_id for record in split.calibration] == calibrating[label]
        assert [record.record_id for record in split.evaluation] == evaluating[label]
        assert set(split.candidate_ids) == pool
        assert split.evaluation_twins == len(free) - len(pool) - 3
        assert split.read == split.duplicates + 2 + 3 + split.shared_prompts + split.evaluation_twins + len(pool)
