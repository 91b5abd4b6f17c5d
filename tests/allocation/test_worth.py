"""Rules from evidence to utilities, by themselves."""

from __future__ import annotations

import math
from typing import Any

import pytest

from calibudget.allocation import utility
from calibudget.errors import AllocationError
from calibudget.records import Exponents, SourceStatistics


def row(sd: Any) -> Any:
    return SourceStatistics(
        pool_size=1, calibration_size=2, mean_nll=1.0, error_rate=0.5, mean_error=9.0, bootstrap_sd=sd
    )


EVIDENCE = utility.Evidence(
    labels=["a", "b"],
    pool_sizes=[30, 40],
    capacities=[16, 81],
    statistics=[row(1.0), row(0.25)],
    mean_errors=[1.0, 3.0],
    exponents=Exponents(need=2.0, availability=1.0, reliability=0.5),
)


def test_products_take_their_factors_in_the_papers_order() -> None:
    made = utility.product_of("reliability", "need", "availability")(EVIDENCE)
    assert list(made.factors) == ["need", "availability", "reliability"]
    assert made.factors == {"need": [0.5, 1.5], "availability": [4.0, 9.0], "reliability": [0.5, 0.8]}
    assert made.utilities == [0.25 * 4.0 * math.sqrt(0.5), 2.25 * 9.0 * math.sqrt(0.8)]
    assert made.from_means is True


def test_each_factor_stands_alone() -> None:
    assert utility.product_of("need")(EVIDENCE).utilities == [0.25, 2.25]
    made = utility.product_of("availability", "reliability")(EVIDENCE)
    assert made.utilities == [4.0 * math.sqrt(0.5), 9.0 * math.sqrt(0.8)]
    assert list(made.factors) == ["availability", "reliability"]
    assert made.from_means is False


def test_bad_exponents_are_named() -> None:
    for name in utility.FACTORS:
        evidence = utility.Evidence(labels=[], pool_sizes=[], capacities=[], exponents=Exponents(**{name: math.nan}))
        with pytest.raises(AllocationError, match=f"^exponents.{name} must be finite, but is nan$"):
            utility.product_of(name)(evidence)


def test_plain_rules_have_no_means() -> None:
    assert utility.pool_size(EVIDENCE) == utility.Worth(utilities=[30.0, 40.0])
    assert utility.equal_worth(EVIDENCE) == utility.Worth(utilities=[1.0, 1.0])
    assert utility.root_of_capacity(EVIDENCE) == utility.Worth(
        utilities=[4.0, 9.0], factors={"availability": [4.0, 9.0]}
    )
    assert utility.calibration_error(EVIDENCE) == utility.Worth(utilities=[0.5, 0.5])
