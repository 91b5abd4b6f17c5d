"""Each line of an explanation, computed again from the digits that it shows, comes to what it says."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibudget.allocation.plan import AllocationRequest, plan
from calibudget.allocation.policies import POLICIES
from calibudget.errors import AllocationError, InputError
from calibudget.pipeline.explain import Explanation, explain, read_evidence
from calibudget.records import Bootstrap, Exponents, SourceStatistics, Statistics

_LABELS = ["arc", "boolq", "gsm8k", "piqa"]


def computed(formula: str) -> float | None:
    """A line's own arithmetic, by another reader of it; None for a line that is taken from a file."""
    expression = formula.split(", ")[0]
    if not any(sign in expression for sign in ("+", "*", "/", "sqrt", " - ", "smaller")):
        return None
    expression = re.sub(r"smaller of (\S+) and (\S+)", r"min(\1;\2)", expression)
    expression = expression.replace(",", "").replace(";", ",").replace("^", "**")
    if not re.fullmatch(r"[-0-9.e+*/() ,]*|(?:[-0-9.e+*/() ,]|sqrt|log|min)*", expression):
        return None
    return float(eval(expression, {"__builtins__": {}, "sqrt": math.sqrt, "log": math.log, "min": min}))  # noqa: S307


def check(explanation: Explanation) -> int:
    count = 0
    for step in explanation.steps:
        value = computed(step.formula)
        if value is not None:
            # Six digits of each factor; a difference of large numbers loses as many as they share.
            assert value == pytest.approx(step.value, rel=3e-5, abs=1e-9), step
            count += 1
    return count


@st.composite
def requests(draw: st.DrawFn) -> AllocationRequest:
    pools = {label: draw(st.integers(0, 4000)) for label in _LABELS}
    policy = draw(st.sampled_from([name for name in POLICIES if name != "pooled"]))
    rows = {
        label: SourceStatistics(
            pool_size=pools[label],
            calibration_size=100,
            mean_nll=(nll := draw(st.integers(0, 4000)) / 1000),
            error_rate=(wrong := draw(st.integers(0, 100)) / 100),
            mean_error=nll + wrong,
            bootstrap_sd=draw(st.integers(0, 500)) / 1000,
        )
        for label in _LABELS
    }
    groups = {"exams": {"sources": ["arc", "piqa"]}, "rest": {"sources": ["boolq", "gsm8k"]}}
    return AllocationRequest(
        policy=policy,
        pool_sizes=pools,
        budget=draw(st.integers(1, 9000)),
        floor=draw(st.integers(0, 1500)),
        caps=draw(st.sampled_from([None, {"boolq": 1500, "arc": 1600}])),
        groups=draw(st.sampled_from([None, groups])),
        weights={label: draw(st.integers(0, 3)) for label in _LABELS} if policy == "weights" else None,
        statistics=Statistics(model={}, error="nll+wrong", bootstrap=Bootstrap(resamples=200, seed=42), sources=rows),
        statistics_sha256="0" * 64,
        exponents=draw(st.sampled_from([Exponents(), Exponents(need=2.0, availability=0.25, reliability=0.0)])),
        need_transform=draw(st.sampled_from([None, "rank", "log1p"])),
    )


@given(requests())
def test_every_line_of_every_policy_comes_to_what_it_says(request: AllocationRequest) -> None:
    try:
        made = plan(request, intervals=False)
    except AllocationError:
        return
    for label, row in made.sources.items():
        explanation = explain(made, request.statistics, label)
        assert check(explanation) >= 3
        assert explanation.steps[-1].value == row.quota
        assert f"{label} gets {row.quota:,} of {made.budget:,}" in explanation.sentence


def test_a_run_explains_its_sources_and_names_the_one_that_was_meant(finished: Path) -> None:
    plan_of_run, statistics = read_evidence(finished / "run")
    for label in ("boolq", "piqa"):
        assert check(explain(plan_of_run, statistics, label)) >= 7
    with pytest.raises(InputError, match=r"no source 'bolq' in this allocation; did you mean 'boolq'\?"):
        explain(plan_of_run, statistics, "bolq")
