"""docs/formats.md is enough: a second implementation, written from it alone, comes to the product's bits."""

from __future__ import annotations

import random
import runpy
import warnings
from pathlib import Path

import pytest

from calibudget.allocation.bootstrap import summarise
from calibudget.allocation.plan import AllocationRequest, plan
from calibudget.records import Score
from calibudget.store.artefacts import ALLOCATION, STATISTICS, statistics_sha256
from calibudget.store.canonical import canonical_json

SECOND = runpy.run_path(str(Path(__file__).parent / "second_implementation.py"))
MODEL = {"name": "mådel", "dtype": "float32"}
LABELS = ["boolq", "piqa", "Social IQa", "é", "z", "math", "日本", "a-b"]


def made_up(luck: random.Random) -> tuple[dict[str, list[tuple[float, bool | None]]], dict[str, int]]:
    """Calibration scores and pools: nats of every size, ties, zeros, tiny pools, checked answers or none."""
    labels = luck.sample(LABELS, luck.randint(1, len(LABELS)))
    checked, size = luck.random() < 0.7, luck.choice([1e-9, 0.3, 3.0, 40.0, 1e7])
    scores, pools = {}, {}
    for label in labels:
        nlls = [luck.choice([0.0, 0.5, luck.uniform(0, size)]) for _ in range(luck.randint(2, 24))]
        scores[label] = [(nll, luck.random() < 0.5 if checked else None) for nll in nlls]
        pools[label] = luck.choice([0, 1, 3, luck.randint(0, 50), luck.randint(0, 10**6), 10**12])
    return scores, pools


@pytest.mark.parametrize(
    "number", [*range(20), *(pytest.param(number, marks=pytest.mark.full) for number in range(20, 100))]
)
def test_statistics_and_allocation_are_the_same_bytes(number: int) -> None:
    luck = random.Random(number)  # noqa: S311 - reproducible, no secret
    scores, pools = made_up(luck)
    seed, resamples = luck.choice([0, 42, 2**40]), luck.choice([1, 2, 39, 40, 41])
    given = [
        Score(
            source=label,
            record_id=f"r{place}",
            response_tokens=1,
            nll=nll,
            correct=right,
            prediction=None,
            error=nll + 1 if right is False else nll,
        )
        for label, rows in scores.items()
        for place, (nll, right) in enumerate(rows)
    ]
    rule = "nll" if given[0].correct is None else "nll+wrong"
    luck.shuffle(given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        own = summarise(given, pools, model=MODEL, error=rule, resamples=resamples, bootstrap_seed=seed)  # type: ignore[arg-type]
    second = SECOND["statistics"](scores, pools, seed, resamples, MODEL)
    assert SECOND["canonical"](second).encode() == canonical_json(STATISTICS.to_json(own))

    floor = luck.choice([0, 1, 5, 1000])
    least, most = sum(min(size, floor) for size in pools.values()), sum(pools.values())
    budget = luck.choice([least, most, luck.randint(least, most), min(most, least + luck.randint(0, 100))])
    request = AllocationRequest(
        policy="calibudget",
        pool_sizes=pools,
        budget=budget,
        floor=floor,
        statistics=own,
        statistics_sha256=statistics_sha256(own),
    )
    again = SECOND["allocation"](second, budget, floor)
    assert SECOND["canonical"](again).encode() == canonical_json(ALLOCATION.to_json(plan(request)))


def test_the_second_implementation_is_short_and_shares_nothing() -> None:
    text = (Path(__file__).parent / "second_implementation.py").read_text()
    assert len(text.splitlines()) <= 150
    assert "import calibudget" not in text
    assert "numpy" not in text.partition('"""\n')[2]
