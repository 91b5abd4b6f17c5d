from __future__ import annotations

from typing import Any

import pyarrow.parquet as pq
import pytest

from calibudget.records import (
    AllocationPlan,
    Bootstrap,
    Exponents,
    Score,
    Selection,
    SourceAllocation,
    SourceStatistics,
    Statistics,
)
from tests.conftest import record_of, split_of

SEED = 42


def make_record(source: Any, number: Any) -> Any:
    return record_of(
        source,
        number,
        prompt=f"question {number}",
        completion=f"answer {number}",
        answer=str(number),
        original={"question": f"question {number}", "answer": number, "note": None},
    )


def make_split(source: Any, *, calibration: Any, pool_size: Any) -> Any:
    records = [make_record(source, number) for number in range(calibration + pool_size)]
    return split_of(records, calibration=calibration)


@pytest.fixture
def splits() -> Any:
    return [make_split("piqa", calibration=3, pool_size=20), make_split("boolq", calibration=3, pool_size=10)]


@pytest.fixture
def scores(splits: Any) -> Any:
    return [
        Score(
            source=record.source,
            record_id=record.record_id,
            response_tokens=4,
            nll=nll,
            correct=correct,
            prediction=prediction,
            error=nll + float(not correct),
        )
        for split in splits
        for record, nll, correct, prediction in zip(
            split.calibration, (0.1, 1 / 3, 2.5e-7), (True, False, False), ("true", None, "é"), strict=True
        )
    ]


@pytest.fixture
def statistics() -> Any:
    return Statistics(
        model={"name": "fake", "sha256": None},
        error="nll+wrong",
        bootstrap=Bootstrap(resamples=3, seed=SEED),
        sources={
            "boolq": SourceStatistics(
                pool_size=10,
                calibration_size=3,
                mean_nll=0.1 + 0.2,
                error_rate=1 / 3,
                mean_error=1.1,
                bootstrap_sd=5e-324,
                bootstrap_means=(1.0, 1e17, 0.1),
            ),
            "piqa": SourceStatistics(
                pool_size=20,
                calibration_size=3,
                mean_nll=1e22,
                error_rate=0.0,
                mean_error=1e22,
                bootstrap_sd=0.0,
            ),
        },
    )


@pytest.fixture
def plan() -> Any:
    def row(pool_size: Any, quota: Any, **more: Any) -> Any:
        fields: dict[str, Any] = {
            "pool_size": pool_size,
            "floor_quota": 2,
            "residual_capacity": pool_size - 2,
            "need": 1 / 3,
            "availability": 2.8284271247461903,
            "reliability": 0.9,
            "utility": 0.1 + 0.2,
            "share": float(quota - 2) + 0.25,
            "residual_quota": quota - 2,
            "quota": quota,
        }
        return SourceAllocation(**fields, **more)

    return AllocationPlan(
        policy="calibudget",
        unit="examples",
        budget=12,
        floor=2,
        floors={"piqa": 2},
        caps=None,
        groups={"commonsense": ["boolq", "piqa"]},
        exponents=Exponents(),
        need_transform=None,
        epsilon=1e-12,
        statistics_sha256="ab" * 32,
        residual_budget=8,
        sources={"boolq": row(10, 5, interval=(4, 6)), "piqa": row(20, 7)},
    )


@pytest.fixture
def selection(splits: Any) -> Any:
    quotas = {"boolq": 5, "piqa": 7}
    picks = {
        split.source: tuple(record.record_id for record in split.candidates[: quotas[split.source]]) for split in splits
    }
    return Selection(seed=SEED, selector="uniform", picks=picks, companion_count=2)


@pytest.fixture
def dictionaries() -> Any:
    """The columns that a Parquet file stores as dictionaries, in each of its row groups; none has statistics."""

    def found(path: Any) -> Any:
        groups = pq.ParquetFile(path).metadata
        columns = [
            [groups.row_group(i).column(j) for j in range(groups.num_columns)] for i in range(groups.num_row_groups)
        ]
        assert not any(column.is_stats_set for group in columns for column in group)
        return [[one.path_in_schema for one in group if "RLE_DICTIONARY" in one.encodings] for group in columns]

    return found
