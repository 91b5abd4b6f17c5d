"""UniMax and Slice Tuner: known answers, and optima against brute force."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from testbed.rivals.comparators import PowerLaw, slice_tuner_round, unimax_quotas


def test_unimax_gives_equal_quotas_up_to_its_epochs() -> None:
    # The five languages of its published package's own example, in units of 1,000 characters and four epochs.
    sizes = {"swe": 179_955_884, "fas": 184_595_788, "ekk": 42_541_080, "isl": 10_027_573, "fao": 549_707}
    quotas = unimax_quotas(sizes, 250_000_000, max_epochs=4)
    assert (quotas["fao"], quotas["isl"]) == (4 * 549_707, 4 * 10_027_573)
    assert {quotas[x] for x in ("swe", "fas", "ekk")} <= {69_230_293, 69_230_294}
    assert sum(quotas.values()) == 250_000_000
    assert unimax_quotas({"a": 10, "b": 100, "c": 1_000}, 200) == {"a": 10, "b": 95, "c": 95}


def objective(laws: Any, sizes: Any, held: Any, balance: Any) -> Any:
    mean = sum(laws[x].nll(held[x]) for x in laws) / len(laws)
    losses = [laws[x].nll(sizes[x]) for x in laws]
    return sum(loss + balance * max(0.0, loss / mean - 1) for loss in losses)


@pytest.mark.parametrize("balance", [0.0, 1.0, 10.0])
def test_one_shot_is_the_minimum_of_its_objective(balance: float) -> None:
    rng = random.Random(6)  # noqa: S311
    for _ in range(20):
        laws = {x: PowerLaw(scale=rng.uniform(0.5, 5), exponent=rng.uniform(0.05, 0.8)) for x in "abc"}
        held = {x: rng.randint(1, 6) for x in laws}
        upper = {x: held[x] + rng.randint(2, 6) for x in laws}
        added = slice_tuner_round(laws, held, 6, upper=upper, balance=balance)
        assert sum(added.values()) == 6
        made = {x: held[x] + added[x] for x in laws}
        assert all(held[x] <= made[x] <= upper[x] for x in laws)
        best = min(
            objective(laws, dict(zip(laws, sizes, strict=True)), held, balance)
            for sizes in itertools.product(*(range(held[x], upper[x] + 1) for x in laws))
            if sum(sizes) == sum(held.values()) + 6
        )
        assert objective(laws, made, held, balance) == pytest.approx(best, rel=1e-12)
