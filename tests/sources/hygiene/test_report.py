from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from calibudget.records import Split
from calibudget.sources.hygiene.report import inspect_sources
from calibudget.sources.spec import SourceSpec
from calibudget.sources.split import Parting
from calibudget.sources.whole_source import open_source, read_source
from calibudget.tasks.answers import AnswerSpec

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
    write("exam.jsonl", [row(n) for n in (1, 2, 99)])

    def spec(label: str) -> SourceSpec:
        return SourceSpec(label=label, path=f"{label}.jsonl", answer=TRUTH)

    def split(label: str, size: int) -> Split:
        source = open_source(spec(label), tmp_path, selection_seed=0)
        return Parting(source).draw(split_seed=0, calibration_size=size).split()

    hygiene = inspect_sources(
        [split("two", 25), split("one", 0)],
        [spec("one"), spec("two")],
        read_source(spec("companion"), tmp_path),
        {"exam": open_source(spec("exam"), tmp_path, selection_seed=0)},
    )
    one, two = hygiene.sources["one"], hygiene.sources["two"]
    assert list(hygiene.sources) == ["one", "two"]
    assert one.duplicates == 1
    assert one.repeated_prompts == 1
    assert one.answers == {"false": 4, "true": 17}
    assert one.majority == 17 / 21
    assert one.prompts.calibration == {"two": 6}  # 15 to 19, and 19 once more
    assert one.prompts.companion == 2
    assert one.prompts.evaluation == {"exam": 2}
    assert two.answers == {}
    assert two.majority is None
    assert not two.prompts
    assert hygiene.companion is not None
    assert hygiene.companion.prompts.calibration == {"two": 1}
    assert hygiene.companion.prompts.candidates == {"one": 2}
    assert hygiene.companion.prompts.evaluation == {"exam": 2}
