"""`hygiene.json` comes back as it was written, and what isn't one is refused by its field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import ArtefactError
from calibudget.records import SourceFile
from calibudget.sources.hygiene.artefact import (
    HYGIENE,
    CompanionHygiene,
    EvaluationHygiene,
    Found,
    Hygiene,
    Overlap,
    SourceHygiene,
)
from calibudget.store.artefacts import ids_sha256

OVERLAP = Overlap(candidates={"piqa": 2}, calibration={}, companion=1, evaluation={"exam": 3})
FOUND = Found(records=2, others=1, record_ids=("a", "b"), record_ids_sha256=ids_sha256(["a", "b"]))
WHOLE = Hygiene(
    rules={"duplicates": {"boolq": "drop"}, "contamination": {"action": "keep", "ngram": 13}, "near_duplicates": None},
    sources={
        "boolq": SourceHygiene(
            records=30,
            duplicates=3,
            repeats=4,
            checks={"contamination": {"evaluation exam": FOUND}},
            barred=0,
            shared_prompts=1,
            pool_size=24,
            repeated_prompts=1,
            prompts=OVERLAP,
            answers={"false": 9, "true": 15},
            majority=15 / 24,
        )
    },
    evaluation={
        "exam": EvaluationHygiene(
            files=(SourceFile(name="exam.jsonl", bytes=1, sha256="0" * 64),), records=5, repeated_prompts=0
        )
    },
    companion=CompanionHygiene(checks={}, prompts=Overlap(candidates={}, calibration={}, companion=0, evaluation={})),
)


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        (("sources", "boolq", "repeats"), -1, r"sources\.boolq\.repeats"),
        (("sources", "boolq", "majority"), 1.5, r"sources\.boolq\.majority"),
        (("sources", "boolq", "answers", "true"), 0, r"sources\.boolq\.answers\.true"),
        (("sources", "boolq", "checks", "contamination", "evaluation exam", "others"), 0, "others"),
        (("sources", "boolq", "prompts", "extra"), {}, r"sources\.boolq\.prompts\.extra"),
        (("evaluation", "exam", "files"), [{}], r"evaluation\.exam\.files"),
        (("companion",), [], "companion"),
    ],
)
def test_a_wrong_field_is_named(tmp_path: Path, path: Any, value: Any, field: str) -> None:
    file = tmp_path / "hygiene.json"
    HYGIENE.write(file, WHOLE)
    root = inner = json.loads(file.read_text())
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    file.write_text(json.dumps(root))
    with pytest.raises(ArtefactError, match=rf"hygiene\.json: .*{field}"):
        HYGIENE.read(file)
