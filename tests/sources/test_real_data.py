"""The real sources: what is known of their repeats must be found (the data notes' table of repeated prompts)."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibudget.sources.hygiene.report import inspect_sources
from calibudget.sources.spec import SourceSpec
from calibudget.sources.split import Parting
from calibudget.sources.whole_source import open_source, read_source

pytestmark = pytest.mark.data


@pytest.mark.parametrize(
    ("label", "file", "count", "repeats"),
    [
        ("boolq", "boolq", 9_427, 0),
        ("piqa", "piqa", 16_113, 6),
        ("hellaswag", "hellaswag_valsplit", 7_988, 0),
        ("arc_easy", "arc_easy", 2_251, 0),
        ("arc_challenge", "arc_challenge", 1_119, 1),
        ("openbookqa", "openbookqa", 4_957, 5),
        pytest.param("social_i_qa", "social_i_qa", 33_410, 29, marks=pytest.mark.slow),
        pytest.param("winogrande", "winogrande", 63_238, 22_752, marks=pytest.mark.slow),
    ],
)
def test_counts_and_repeated_prompts(data_dir: Path, label: str, file: str, count: int, repeats: int) -> None:
    spec = SourceSpec(label=label, path=f"commonsense/{file}.train.jsonl.gz", preset=label)
    split = Parting(open_source(spec, data_dir, selection_seed=42)).draw(split_seed=42, calibration_size=0).split()
    hygiene = inspect_sources([split], [spec]).sources[label]
    assert split.read == count
    assert hygiene.duplicates + hygiene.repeated_prompts == repeats
    assert sum(hygiene.answers.values()) == split.pool_size == count - hygiene.duplicates


def test_the_largest_winogrande_size_alone_hardly_repeats(data_dir: Path) -> None:
    spec = SourceSpec(
        label="winogrande",
        path="commonsense/winogrande.train.jsonl.gz",
        preset="winogrande",
        where={"size": "xl"},
        duplicates="keep",
    )
    read = read_source(spec, data_dir)
    assert (read.tally.read, read.tally.filtered) == (63_238, 63_238 - 40_398)
    assert len({record.prompt_hash for record in read.records}) == 40_394


def test_the_one_piqa_prompt_of_its_test_set_is_found(data_dir: Path) -> None:
    spec = SourceSpec(label="piqa", path="commonsense/piqa.train.jsonl.gz", preset="piqa")
    test = SourceSpec(label="test", path="commonsense/piqa.test.jsonl.gz", preset="piqa")
    split = Parting(open_source(spec, data_dir, selection_seed=42)).draw(split_seed=42, calibration_size=0).split()
    hygiene = inspect_sources([split], [spec], evaluation={"piqa": open_source(test, data_dir, selection_seed=42)})
    assert hygiene.sources["piqa"].prompts.evaluation == {"piqa": 1}
    assert hygiene.sources["piqa"].duplicates == 6
