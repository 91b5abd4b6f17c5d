"""Items whose prompt a training set holds: reported with their ids, since their scores say nothing."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from calibudget.evaluation.benchmarks import Benchmark
from calibudget.sources import SourceSpec, read_source


def training_prompts(path: Path) -> frozenset[str]:
    """Prompt hashes of a training set: `train.jsonl`, `train.parquet`, or any file that a source could be.

    Raises:
        DataError: the file is missing or holds no training examples; file and line are named.
    """
    spec = SourceSpec(label="train", path=str(path.absolute()), duplicates="keep")
    return frozenset(record.prompt_hash for record in read_source(spec, path.parent).records)


def shared_items(benchmark: Benchmark, prompts: Iterable[str]) -> tuple[str, ...]:
    """Ids of the items whose prompt, case and spacing apart, is one of these; in code-point order."""
    known = frozenset(prompts)
    return tuple(sorted(item.record.record_id for item in benchmark.items if item.record.prompt_hash in known))
