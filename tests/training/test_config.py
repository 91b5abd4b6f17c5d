from __future__ import annotations

import math
from typing import Any

import pytest

from calibudget.errors import TrainingError
from calibudget.training.config import Execution, TrainingConfig, parse_options


def test_the_defaults_are_the_papers() -> None:
    """Paper 3.1: rank 128, scaling 128, no dropout, 2e-5 with ratio 8, three epochs of 32, 1,024 tokens, cosine, 3%."""
    config = TrainingConfig()
    assert (config.rank, config.scaling, config.dropout, config.weight_decay) == (128, 128.0, 0.0, 0.0)
    assert (config.epochs, config.batch_size, config.max_length) == (3, 32, 1024)
    assert (config.schedule, config.warmup_fraction) == ("cosine", 0.03)
    a, b = config.factor_rates(config.learning_rate)
    assert a == pytest.approx(2e-5 / math.sqrt(8))
    assert b == pytest.approx(2e-5 * math.sqrt(8))
    assert math.sqrt(a * b) == pytest.approx(2e-5)


def test_values_out_of_range_are_refused_by_name(subtests: pytest.Subtests) -> None:
    for field, value in [
        ("rank", 0),
        ("rank", True),
        ("learning_rate", 0.0),
        ("learning_rate_ratio", -8.0),
        ("warmup_fraction", 1.0),
        ("weight_decay", -0.1),
        ("max_grad_norm", 0.0),
        ("schedule", "cosin"),
        ("too_long", "drop"),
        ("target_modules", ()),
    ]:
        with subtests.test(field=field, value=value), pytest.raises(TrainingError, match=field):
            TrainingConfig(**{field: value})  # type: ignore[arg-type]


def test_other_plain_values_are_refused_by_name(subtests: pytest.Subtests) -> None:
    cases: list[Any] = [
        ({"rnak": 8}, "^rnak: no option of training; did you mean 'rank'\\?$"),
        (
            {"precision": "float32"},
            "^precision: no option of training; there are 'batch_size', 'beta1', .*'weight_decay'$",
        ),
        ({"rank": "8"}, "^rank: must be an integer$"),
        ({"rank": -1}, "rank: must be at least 1"),
        ({"report_to": ["wandbb"]}, "report_to"),
    ]
    for fields, message in cases:
        with subtests.test(message=message):
            kind = Execution if "report_to" in fields else TrainingConfig
            with pytest.raises(TrainingError, match=message):
                parse_options(kind, fields)


def test_an_unknown_option_may_have_meant_one_that_stands_elsewhere() -> None:
    with pytest.raises(TrainingError, match=r"^dtyp: no option of training; did you mean 'dtype'\?$"):
        parse_options(TrainingConfig, {"dtyp": "float32"}, elsewhere=["dtype"])
