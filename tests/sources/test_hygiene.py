from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from calibudget.sources import SourceRead, SourceSpec, inspect_sources, read_source, split_source
from calibudget.tasks import AnswerSpec

Write = Callable[..., Path]
TRUTH = AnswerSpec(kind="true_false")


def row(number: int, answer: str = "true") -> dict[str, str]:
    return {"prompt": f"Is it {number}?", "completion": answer}


def test_repeats_shared_prompts_and_uneven_answers_are_counted(tmp_path: Path, write: Write) -> None:
    write(
        "one.jsonl", [row(0), row(0), *(row(n, "false" if n < 4 else "true") for n in range(1, 20)), row(19, "false")]
    )
    write("two.jsonl", [row(n) for n in range(15, 40)])
    write("companion.jsonl", [row(n) for n in (0, 1, 38, 99)])

    def read(label: str) -> SourceRead:
        return read_source(SourceSpec(label=label, path=f"{label}.jsonl", answer=TRUTH), tmp_path)

    splits = [
        split_source(read(label), split_seed=0, selection_seed=0, calibration_size=size)
        for label, size in (("two", 25), ("one", 0))
    ]
    hygiene = inspect_sources(splits, read("companion").records)
    one, two = hygiene.sources["one"], hygiene.sources["two"]
    assert list(hygiene.sources) == ["one", "two"]
    assert one.duplicates == 1
    assert one.repeated_prompts == 1
    assert one.answers == {"false": 4, "true": 17}
    assert one.majority == 17 / 21
    assert one.calibrated_elsewhere == 6  # 15 to 19, and 19 once more
    assert two.answers == {}
    assert two.majority is None
    assert hygiene.companion_in_calibration == 1
    assert hygiene.companion_in_candidates == 2


def test_free_answers_are_not_listed(tmp_path: Path, write: Write) -> None:
    write("one.jsonl", [{"prompt": f"p{n}", "completion": f"{n}"} for n in range(50)])
    source = read_source(SourceSpec(label="one", path="one.jsonl", answer=AnswerSpec(kind="number")), tmp_path)
    split = split_source(source, split_seed=0, selection_seed=0, calibration_size=0)
    assert inspect_sources([split]).sources["one"].answers == {}
