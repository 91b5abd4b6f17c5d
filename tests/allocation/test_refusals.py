"""What the allocator refuses, and that each refusal names the field, the source and the value that are wrong."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from calibudget.allocation.arrays import apportion_arrays
from calibudget.allocation.bootstrap import MOST_RESAMPLES, bootstrap
from calibudget.allocation.bounds import Portion, _as_written, _read_amount, parse_amount, parse_groups
from calibudget.allocation.exact.numbers import as_count, as_double, as_doubles, sum_of
from calibudget.allocation.plan import AllocationRequest, plan
from calibudget.allocation.policies import policy_named
from calibudget.allocation.quotas import allocate, apportion, pose
from calibudget.allocation.source_labels import likely, listed, require_same_labels, sorted_labels
from calibudget.allocation.stability import stability, what_if
from calibudget.allocation.utility_factors import needs, power, products, utilities
from calibudget.errors import AllocationError, InputTypeError, UnfedPolicyError
from calibudget.records import Bootstrap, Exponents, SourceStatistics, Statistics

ROW = SourceStatistics(
    pool_size=500, calibration_size=9, mean_nll=1.5, error_rate=0.5, mean_error=2.0, bootstrap_sd=0.1
)
NESTED = {"g": {"sources": ["a"], "cap": 240, "groups": {"h": {"sources": ["b"], "floor": 150}}}}
STATISTICS = Statistics(model={}, error="nll+wrong", bootstrap=Bootstrap(resamples=3, seed=1), sources={"a": ROW})
UNLIKE = replace(STATISTICS, sources={"a": ROW, "b": replace(ROW, mean_error=1.0)})
REQUEST = AllocationRequest(policy="calibudget", pool_sizes={"a": 500}, budget=100, statistics=STATISTICS)


def of_row(policy: str = "calibudget", signal: Any = "error_rate", **fields: Any) -> Callable[[], object]:
    changed = replace(STATISTICS, sources={"a": replace(ROW, **fields)})
    return lambda: plan(replace(REQUEST, policy=policy, statistics=changed, signal=signal))


def of_request(**fields: Any) -> Callable[[], object]:
    return lambda: plan(replace(REQUEST, **fields))


def of_sources(sources: Any) -> Callable[[], object]:
    return of_request(statistics=replace(STATISTICS, sources=sources))


def of_means(*means: float | str, **other: Any) -> Callable[[], object]:
    rows = {"a": replace(ROW, bootstrap_means=(1.0, 2.0)), "b": replace(ROW, bootstrap_means=other.get("means", means))}
    return of_request(statistics=replace(STATISTICS, sources=rows), pool_sizes={"a": 500, "b": 500})


def of_pools(budget: int, **bounds: Any) -> Callable[[], object]:
    return lambda: allocate({"a": 100, "b": 50, "c": 10}, dict.fromkeys("abc", 1.0), budget, **bounds)


def of_groups(**fields: Any) -> Callable[[], object]:
    usual = {"policy": "weights", "weights": {"a": 1, "b": 1}, "pool_sizes": {"a": 500, "b": 300}, "budget": 500}
    return of_request(**(usual | fields))


#: By what is called: the error's type and the words that it has to hold, in this order.
REFUSED: list[tuple[Callable[[], object], type[Exception], list[str]]] = [
    # labels
    (lambda: sorted_labels([1]), InputTypeError, ["the numbers of the sources", "mapping by label", "[1]", "list"]),  # type: ignore[arg-type]
    (lambda: sorted_labels({1: 2}), InputTypeError, ["a source's label", "text", "1 (int)"]),  # type: ignore[dict-item]
    (lambda: require_same_labels("ab", {"a": 1, "c": 1, 2: 1}, "X", "Y"), AllocationError,  # type: ignore[dict-item]
     ["X and Y", "'b' is missing from X", "2, 'c' are missing from Y"]),
    (lambda: require_same_labels("ab", 7, "X", "Y"), InputTypeError, ["X must", "7 (int)"]),  # type: ignore[arg-type]
    # numbers
    (lambda: as_count(-(10**70), "n", "a"), AllocationError, ["n of 'a'", "negative", "-1000"]),
    (lambda: as_double(10**400, "n", "a"), AllocationError, ["n of 'a' is 1000", "too large"]),
    (lambda: as_doubles(3, "n", "a"), InputTypeError, ["n of 'a'", "sequence", "3 (int)"]),
    (lambda: as_doubles([1.0, "x"], "n", "a"), InputTypeError, ["n[1] of 'a'", "'x' (str)"]),
    (lambda: sum_of([1e308, -1.7e308, 1e308, 1.5e308], "n"), AllocationError, ["n sum", "-1.7e+308"]),
    (lambda: parse_amount(Fraction(1, 2), "n"), InputTypeError, ["n is 1/2"]),
    (lambda: next(bootstrap([], resamples="3", seed=1)), InputTypeError, ["resamples", "'3' (str)"]),  # type: ignore[arg-type]
    (lambda: next(bootstrap([], resamples=0, seed=1)), AllocationError, ["resamples", "0"]),
    (lambda: next(bootstrap([], resamples=10**6 + 1, seed=1)), AllocationError, ["resamples", "1000001"]),
    # utilities
    (lambda: needs([1.0], 3), InputTypeError, ["need_transform", "3 (int)"]),  # type: ignore[arg-type]
    (lambda: needs([1.0], "cube"), AllocationError, ["need_transform", "'cube'", "rank, log1p"]),
    (lambda: needs(7), InputTypeError, ["mean errors", "7 (int)"]),  # type: ignore[arg-type]
    (lambda: needs([1.7e308] * 3), AllocationError, ["the mean errors", "largest double"]),
    (lambda: power("2", 3), InputTypeError, ["the base of a power", "'2' (str)"]),  # type: ignore[arg-type]
    (lambda: power(2.0, "x"), InputTypeError, ["the exponent", "'x' (str)"]),  # type: ignore[arg-type]
    (lambda: power(2.0, -2000), AllocationError, ["2 to the power of -2000", "too small"]),
    (lambda: power(2.0, 2000), AllocationError, ["2 to the power of 2000", "too large"]),
    (lambda: products(["k"], [[1e-200], [1e-200]], {"x": 1, "y": 1}), AllocationError, ["'k'", "too small", "x, y"]),
    (lambda: products(["k"], [[1e200], [1e200]], {"x": 1, "y": 1}), AllocationError, ["'k'", "too large", "x, y"]),
    (lambda: utilities({"a": 3}, 1), InputTypeError, ["'a'", "row", "int"]),  # type: ignore[dict-item]
    (lambda: utilities({"a": {}}, 1), AllocationError, ["'a'", "pool_size"]),
    (lambda: utilities({"a": {"pool_size": 9, "mean_error": 1.0}}, 1), AllocationError, ["'a'", "bootstrap_sd"]),
    (lambda: utilities({"a": ROW}, "1"), InputTypeError, ["the floor must", "'1' (str)"]),  # type: ignore[arg-type]
    (lambda: utilities({"a": ROW}, 1, floors=[2]), InputTypeError, ["floors", "[2]"]),  # type: ignore[arg-type]
    (lambda: utilities({"a": ROW}, 1, floors={"a": 2.5}), InputTypeError, ["the floor of 'a'", "2.5 (float)"]),  # type: ignore[dict-item]
    (of_row(bootstrap_sd=-1.0), AllocationError, ["bootstrap_sd of 'a'", "negative", "-1"]),
    (of_row(bootstrap_sd=math.inf), AllocationError, ["bootstrap_sd of 'a'", "finite", "inf"]),
    (of_row(mean_error=math.nan), AllocationError, ["mean_error of 'a'", "finite", "nan"]),
    (lambda: utilities({"a": {"pool_size": 3.0, "mean_error": 1.0, "bootstrap_sd": 0.1}}, 1), InputTypeError,
     ["pool_size of 'a'", "integer", "3.0"]),
    (lambda: utilities({"a": {"pool_size": 9, "mean_error": None}}, 1), AllocationError, ["'a'", "no mean_error"]),
    (of_means(1.0), AllocationError, ["'a' has 2", "'b' has 1", "every source"]),
    (of_means(1.0, math.nan), AllocationError, ["bootstrap_means[1] of 'b'", "finite", "nan"]),
    (of_means(1.0, "x"), InputTypeError, ["bootstrap_means[1] of 'b'", "number", "'x' (str)"]),
    (of_means(means=5), InputTypeError, ["bootstrap_means of 'b'", "sequence"]),
    (of_row(mean_error="1"), InputTypeError, ["mean_error of 'a'", "'1' (str)"]),
    (of_row("val-error-floor", error_rate="1"), InputTypeError, ["error_rate of 'a'", "'1' (str)"]),
    (of_row("val-error-floor", error_rate=None), UnfedPolicyError, ["'a'", "error rate", "signal: z"]),
    (of_row("val-error-floor", signal="q"), AllocationError, ["signal", "'q'", "error_rate", "z"]),
    (of_row("val-error-floor", signal=4), InputTypeError, ["signal", "4 (int)"]),
    # requests
    (of_request(policy=3), InputTypeError, ["the policy", "3 (int)"]),
    (of_request(unit=3), InputTypeError, ["the unit", "3 (int)"]),
    (of_request(exponents=3), InputTypeError, ["exponents", "int"]),
    (of_request(statistics=3), InputTypeError, ["statistics", "int"]),
    (of_sources([1]), InputTypeError, ["the sources of the statistics", "[1]"]),
    (of_sources({"a": 1}), InputTypeError, ["statistics of 'a'", "int"]),
    (of_request(caps=[1]), InputTypeError, ["caps", "[1]"]),
    (of_request(weights=[1]), InputTypeError, ["weights", "[1]"]),
    (of_request(floor="x"), AllocationError, ["the floor", "x"]),
    (of_request(floors={"a": "x"}), AllocationError, ["the floor of 'a'", "x"]),
    (of_request(caps={"a": "x"}), AllocationError, ["the cap of 'a'", "x"]),
    (of_request(policy="pooled", pooled={"a": 1.5}), InputTypeError, ["pooled of 'a'", "1.5 (float)"]),
    (of_request(policy="pooled", pooled={"a": 100}, caps={"a": 5}), UnfedPolicyError, ["pooled", "caps", "groups"]),
    (of_request(caps={"b": "10% of pool"}), AllocationError, ["caps", "'b'"]),
    (of_request(policy="best"), AllocationError, ["'best'", "calibudget, need, need-availability"]),
    (of_request(statistics=None), UnfedPolicyError, ["calibudget needs statistics"]),
    (of_request(policy="weights"), UnfedPolicyError, ["weights needs weights"]),
    (of_request(policy="pooled"), UnfedPolicyError, ["pooled needs pooled", "one draw"]),
    (of_request(policy="equal", budget=600), AllocationError, ["600 is 100 above all pools"]),
    (of_request(policy="weights", weights={"a": -1}), AllocationError, ["weight of 'a'", "negative"]),
    (of_request(policy="weights", weights={"a": Fraction(1, 10**400)}), AllocationError, ["too small for a double"]),
    (of_request(policy="weights", weights={"b": 1}), AllocationError,
     ["weights and the pool sizes", "'a' is missing from weights"]),
    (of_request(pool_sizes={"b": 9}), AllocationError, ["statistics and the pool sizes", "'a' is missing"]),
    (of_request(pool_sizes={"a": 10**400}), AllocationError, ["pool size of 'a' is 1000"]),
    (of_request(exponents=Exponents(need=math.inf)), AllocationError, ["exponents.need", "finite"]),
    (of_request(exponents=Exponents(need=1e6), statistics=UNLIKE, pool_sizes={"a": 500, "b": 500}), AllocationError,
     ["exponents.need: of "]),
    (of_request(exponents=Exponents(reliability=1e6)), AllocationError, ["the power of 1e+06", "too small"]),
    (of_request(floors={"z": "5% of pool"}), AllocationError, ["floors names 'z'", "sources are 'a'"]),
    (of_request(caps={"a": "101% of pool"}), AllocationError, ["cap of 'a' is 1.01 of the pool"]),
    (of_request(unit="words"), AllocationError, ["the unit is 'words'", "examples or tokens"]),
    (of_groups(weights={"a": 1, "b": 0}, floors={"b": 50}, budget=600), AllocationError,
     ["weights of 0 ('b') and the caps leave 550 of 800 units, 50 short of the budget 600"]),
    (of_groups(weights={"a": 0, "b": 0}), AllocationError, ["all weights are 0: 'a', 'b'"]),
    (lambda: policy_named(b"equal"), InputTypeError, ["the policy", "bytes"]),  # type: ignore[arg-type]
    # quotas
    (lambda: apportion({"a": 1}, 1.5), InputTypeError, ["the budget", "1.5"]),  # type: ignore[arg-type]
    (lambda: apportion({}, 5), AllocationError, ["no sources", "5"]),
    (lambda: apportion({"a": -1}, 5), AllocationError, ["utility of 'a'", "negative", "-1"]),
    (lambda: apportion({"a": math.nan}, 5), AllocationError, ["utility of 'a'", "finite", "nan"]),
    (lambda: apportion({"a": 1}, 5, lower={"a": -1}), AllocationError, ["lower bound of 'a'", "negative", "-1"]),
    (lambda: apportion({"a": 1}, 5, upper={"a": math.inf}), AllocationError, ["upper bound of 'a'", "finite", "inf"]),
    (lambda: apportion({"a": 1}, 5, lower={"a": 6}), AllocationError, ["lower bounds come to 6, 1 above the budget 5"]),
    (lambda: apportion({"a": 1, "b": 1}, 5, upper={"a": 2, "b": 1}), AllocationError,
     ["upper bounds come to 3, 2 short of the budget 5"]),
    (lambda: apportion({"a": 1, "b": 1}, 5, upper={"a": 9, "c": 9, "d": 1}), AllocationError,
     ["'b' is missing from upper and 'c', 'd' are missing from utilities"]),
    (of_pools(60, floor=30), AllocationError, ["floors of 3 sources come to 70, 10 above the budget 60", "20 each"]),
    (of_pools(170), AllocationError, ["170 is 10 above all pools together (160)", "max_repeats"]),
    (of_pools(150, caps={"a": 20}), AllocationError, ["caps leave 80 of 160 units, 70 short of the budget 150"]),
    (of_pools(160, caps={"c": 5}), AllocationError, ["caps leave 155 of 160 units, 5 short of the budget 160"]),
    (of_pools(100, floor=30, caps={"a": 20}), AllocationError,
     ["cap of 'a' is 20, below its floor quota of 30", "at most 20"]),
    (of_pools(-1), AllocationError, ["the budget", "negative", "-1"]),
    (of_pools(10, floor=-2), AllocationError, ["the floor", "negative", "-2"]),
    (of_pools(10, caps={"y": 1, "x": 1}), AllocationError, ["caps names 'x', 'y'", "sources are 'a', 'b', 'c'"]),
    (lambda: apportion({"a": 1, "b": 1}, 5, lower={"a": 1, "b": 3}, upper={"a": 1, "b": 2}), AllocationError,
     ["'b' is 3", "2"]),
    (lambda: pose({"a": 5, "b": 5}, 8, floors={"a": 2, "b": 3}, caps={"a": 2, "b": 1}), AllocationError,
     ["cap of 'b' is 1", "3"]),
    (lambda: apportion({"a": 1}, 5, lower={"b": 1}), AllocationError, ["lower and utilities", "'a'", "'b'"]),
    (lambda: apportion({"a": 1}, 5, upper={"b": 1}), AllocationError, ["upper and utilities", "'a'", "'b'"]),
    (lambda: apportion({"a": 1}, "5"), InputTypeError, ["the budget", "'5' (str)"]),  # type: ignore[arg-type]
    (lambda: pose({"a": 2.5}, 1), InputTypeError, ["the pool size of 'a'", "2.5 (float)"]),  # type: ignore[dict-item]
    (lambda: pose({"a": 2}, 1, floors={"b": 1, 3: 1}), AllocationError, ["floors", "3, 'b'", "sources are 'a'"]),  # type: ignore[dict-item]
    (lambda: pose({"apples": 2}, 1, caps={"aples": 1}), AllocationError, ["caps", "'aples'", "mean 'apples'"]),
    (lambda: pose({"a": 2}, 1, caps=[1]), InputTypeError, ["caps", "[1]"]),  # type: ignore[arg-type]
    (lambda: pose({"a": 2}, 1, caps={"a": 1.5}), InputTypeError, ["the cap of 'a'", "1.5 (float)"]),  # type: ignore[dict-item]
    (lambda: pose({"abc": 2}, 1, caps={"ab": 1}), AllocationError, ["caps", "'ab'", "mean 'abc'"]),
    (lambda: allocate({"a": 2, "b": 2}, {"a": 1.0, "b": -1.0}, 1), AllocationError, ["the utility of 'b'", "-1"]),
    (lambda: allocate({"a": 2}, {"b": 1}, 1), AllocationError, ["utilities and pool_sizes", "'a'", "'b'"]),
    # arrays
    (lambda: apportion_arrays(np.ma.masked_array([1.0], mask=[True]), 1), InputTypeError, ["utilities", "masked"]),
    (lambda: apportion_arrays([[1.0], [1.0, 2.0]], 1), InputTypeError, ["utilities", "array of numbers"]),
    (lambda: apportion_arrays([[1.0]], 1), InputTypeError, ["utilities", "one dimension", "2"]),
    (lambda: apportion_arrays(["x"], 1), InputTypeError, ["utilities", "<U1"]),
    (lambda: apportion_arrays(np.array([1 + 0j]), 1), InputTypeError, ["utilities", "complex128"]),
    (lambda: apportion_arrays(np.array([1], dtype=np.longdouble), 1), InputTypeError, ["utilities", "float128"]),
    (lambda: apportion_arrays([1.0], 1, lower=np.ma.array([1], mask=[True])), InputTypeError, ["lower", "masked"]),
    (lambda: apportion_arrays([1.0], 1, upper=[[1], [1, 2]]), InputTypeError, ["upper", "array of numbers"]),
    (lambda: apportion_arrays([1.0], 1, lower=[[0]]), InputTypeError, ["lower", "(1,)", "(1, 1)"]),
    (lambda: apportion_arrays([1.0], 1, upper=[1.5]), InputTypeError, ["upper", "float64"]),
    (lambda: apportion_arrays([1.0], 1, upper=[-1], labels=["k"]), AllocationError, ["upper", "'k'", "-1"]),
    (lambda: apportion_arrays([], 5), AllocationError, ["no sources", "5"]),
    (lambda: apportion_arrays([1.0], 1, labels=[2]), InputTypeError, ["labels[0]", "2 (int)"]),  # type: ignore[list-item]
    # groups and amounts
    (lambda: parse_groups([1], ["a"]), AllocationError, ["groups", "object"]),  # type: ignore[arg-type]
    (lambda: parse_groups({"g": 5}, ["a"]), AllocationError, ["groups.g", "object"]),
    (lambda: parse_groups({"g": {"sources": "a"}}, ["a"]), AllocationError, ["groups.g.sources", "list"]),
    (lambda: parse_groups({"g": {"sources": [1]}}, ["a"]), AllocationError, ["groups.g.sources.0", "text"]),
    (lambda: parse_groups({"g": {"groups": 3}}, ["a"]), AllocationError, ["groups.g.groups", "object"]),
    (lambda: parse_groups({"g": {"sources": ["a"], "floor": "x"}}, ["a"]), AllocationError, ["groups.g.floor", "'x'"]),
    (lambda: parse_groups({"g": {"sources": ["a"], "cap": "x"}}, ["a"]), AllocationError, ["groups.g.cap", "'x'"]),
    (lambda: parse_groups({"g": {"sources": ["aples"]}}, ["apples"]), AllocationError, ["'aples'", "mean 'apples'"]),
    (lambda: parse_amount("30%", "n"), AllocationError, ["n is '30%'"]),
    (lambda: parse_amount(Portion(share=0.5, of="pool", text="x"), "n"), InputTypeError, ["share of n", "0.5"]),  # type: ignore[arg-type]
    (of_groups(floor=100, groups=NESTED),
     AllocationError, ["cap of group 'g'", "240", "250"]),
    (of_groups(groups={"g": {"sources": ["a", "b"], "floor": 999}}), AllocationError, ["'g'", "999", "800"]),
    (of_groups(groups={"g": {"sources": ["a"]}}), AllocationError, ["groups miss 'b'", "exactly one group"]),
    (of_groups(groups={"g": {"sources": ["a", "b"]}, "h": {"sources": ["b", "a"]}}), AllocationError,
     ["overlap in 'a', 'b'"]),
    (of_groups(groups={"g": {"sources": ["a", "b", "f"]}}), AllocationError, ["unknown sources: 'f'", "are 'a', 'b'"]),
    (of_groups(groups={"g": {"sources": ["a", "b"]}, "h": {}}), AllocationError, ["groups.h", "empty group"]),
    (of_groups(groups={"g": {"source": ["a", "b"]}}), AllocationError, ["groups.g.source", "not a field"]),
    (of_groups(groups={"g": {"sources": ["a"], "cap": 0.5}}), AllocationError, ["groups.g.cap", "0.5", "of what?"]),
    (of_groups(groups={"g": {"sources": ["a"], "groups": {"a": {"sources": ["b"]}}}}), AllocationError,
     ["groups.g", "both called 'a'"]),
    (of_groups(groups={"g": {"sources": ["b"], "groups": {"h": {"sources": ["a"], "floor": 100}}, "cap": 50}}),
     AllocationError, ["cap of group 'g' is 50", "members' floors come to 100"]),
    (of_groups(groups={"g": {"sources": ["a", "b"], "floor": 20, "cap": 10}}), AllocationError,
     ["cap of group 'g' is 10, below its floor of 20"]),
    (of_groups(groups={"g": {"sources": ["a"], "cap": 100}, "h": {"sources": ["b"]}}), AllocationError,
     ["floors of 0 the groups can take 400 (g 100, h 300), 100 short of the 500"]),
    (of_groups(groups={"g": {"sources": ["a"], "floor": 400}, "h": {"sources": ["b"], "floor": 200}}), AllocationError,
     ["floors of 0 the groups need 600 (g 400, h 200), 100 above the 500"]),
    (lambda: _read_amount([1]), ValueError, ["the amount", "[1]"]),
    # stability
    (lambda: stability("ab"), InputTypeError, ["allocations", "'ab'"]),  # type: ignore[arg-type]
    (lambda: stability([{"a": 1}]), AllocationError, ["stability", "at least two"]),
    (lambda: stability([{}, {}]), AllocationError, ["at least one source"]),
    (lambda: stability([{"a": 1, "b": 2}, {"a": 1}]), AllocationError, ["'b' is missing from allocation 2"]),
    (lambda: what_if(replace(REQUEST, policy="best"), budgets=[1], common_floors=[0]), AllocationError, ["'best'"]),
    (lambda: what_if(REQUEST, budgets=[1.5], common_floors=[0]), InputTypeError, ["the budget", "integer"]),  # type: ignore[list-item]
    (lambda: stability([{"a": 1}, {"a": 1.5}]), InputTypeError, ["allocation", "of 'a'", "1.5 (float)"]),  # type: ignore[dict-item]
    (lambda: what_if(REQUEST, budgets="12", common_floors=[0]), InputTypeError, ["budgets", "'12'"]),  # type: ignore[arg-type]
    (lambda: what_if(REQUEST, budgets=[1], common_floors=3), InputTypeError, ["common_floors", "3"]),  # type: ignore[arg-type]
    (lambda: what_if(REQUEST, budgets=[1], common_floors=[0], exponents=3), InputTypeError, ["exponents", "3"]),  # type: ignore[arg-type]
]  # fmt: skip


def test_a_refusal_names_what_is_wrong(subtests: pytest.Subtests) -> None:
    for call, error, words in REFUSED:
        with subtests.test(words=words):
            with pytest.raises(error, match=".*".join(rf"(?<!\w){re.escape(word)}" for word in words)) as raised:
                call()
            assert "None" not in str(raised.value)
            assert type(raised.value) is error


def test_what_stands_at_a_bound_is_taken() -> None:
    assert list(bootstrap([], resamples=1, seed=1)) == list(bootstrap([], resamples=MOST_RESAMPLES, seed=1)) == []
    assert as_count(0, "n") == 0
    least = float(np.finfo(float).tiny)
    assert power(least, 1) == least
    assert products(["k"], [[least], [1.0]], {"x": 1, "y": 1}) == [least]
    assert power(2.0**511, -2.0) == 2.0**-1022
    assert apportion({"a": 1, "b": 1}, 4, lower={"a": 2, "b": 2}).quotas == {"a": 2, "b": 2}
    assert apportion({"a": 1, "b": 1}, 4, upper={"a": 2, "b": 2}).quotas == {"a": 2, "b": 2}
    assert allocate({"a": 2, "b": 2}, {"a": 1, "b": 1}, 2).quotas == {"a": 1, "b": 1}
    assert allocate({"a": 1, "b": 9}, {"a": 1, "b": 0}, 1).floor_quotas == {"a": 0, "b": 0}
    assert pose({"a": 1}, 1).floor_quotas == [0]
    assert apportion({"a": 0, "b": 1}, 5).quotas == {"a": 0, "b": 5}
    full = np.array([2**64 - 1, 2**63], dtype=np.uint64)
    assert apportion_arrays([1.0], 2**63 - 1, upper=full[:1]).quotas.tolist() == [2**63 - 1]
    assert apportion_arrays([0.0, 1.0], 2).quotas.dtype == np.int64
    assert apportion_arrays([1.0, 3.0], 4, lower=[1, 1], upper=full).quotas.tolist() == [1, 3]
    assert apportion_arrays([1.0, 1.0], 4, lower=[2, 2], upper=[2, 2]).quotas.tolist() == [2, 2]
    assert apportion_arrays([0, 2], 2).quotas.tolist() == [0, 2]
    assert apportion_arrays([2**53 + 1, 2**53], 3, upper=[9, 9]).quotas.tolist() == [2, 1]
    assert apportion_arrays([], 0, labels=[]).quotas.tolist() == []
    with pytest.raises(AllocationError, match="doesn't fit"):
        apportion_arrays([1.0], 2**63)


def test_words_for_labels() -> None:
    assert listed("abcde") == "'a', 'b', 'c', 'd', 'e'"
    assert listed("abcdef") == "'a', 'b', 'c', 'd', 'e' and 1 more"
    assert listed("abc", most=2) == "'a', 'b' and 1 more"
    assert likely("aples", ["apples", "pears"]).endswith("mean 'apples'?")
    assert "mean" not in likely("zzz", ["apples", "pears"])


def test_a_share_is_kept_as_it_was_written() -> None:
    assert parse_amount("30 % of budget", "n") == Portion(share=Fraction(3, 10), of="budget", text="30 % of budget")
    assert _as_written(parse_amount("30 % of budget", "n")) == "30 % of budget"
    assert _as_written(parse_amount(7, "n")) == 7
    assert _read_amount(7) == 7


def test_exponents_of_the_factors_count(subtests: pytest.Subtests) -> None:
    """Policies are made on import, before a fault can be put in; so their maker is called here."""
    from calibudget.allocation.policies import POLICIES, _factor_policy
    from calibudget.allocation.utility_factors import Evidence, product_of

    evidence = Evidence(
        labels=["a", "b"],
        pool_sizes=[500, 900],
        capacities=[400, 900],
        statistics=[ROW, replace(ROW, bootstrap_sd=1.0)],
        mean_errors=[1.0, 3.0],
        exponents=Exponents(need=2.0, availability=1.0, reliability=3.0),
    )
    factors = {"need": [0.5, 1.5], "availability": [20.0, 30.0], "reliability": [1 / 1.1, 0.5]}
    for names in (("reliability", "need", "availability"), ("availability",), ("need", "reliability")):
        with subtests.test(names=names):
            worth = product_of(evidence, names)
            assert worth.factors == {name: values for name, values in factors.items() if name in names}
            assert list(worth.factors) == [name for name in factors if name in names]
            powers = {"need": 2.0, "availability": 1.0, "reliability": 3.0}
            expected = [math.prod(factors[name][k] ** powers[name] for name in worth.factors) for k in range(2)]
            assert worth.utilities == pytest.approx(expected, rel=1e-14)
            assert worth.from_means is ("need" in names)
            policy = _factor_policy("why", *names)
            assert (policy.summary, policy.wants, policy.factors) == ("why", "statistics", names)
            assert policy.rule(evidence) == worth
    with pytest.raises(InputTypeError, match=r"^exponents.need must be a number"):
        product_of(replace(evidence, exponents=Exponents(need="2")), ["need"])  # type: ignore[arg-type]
    assert POLICIES["calibudget"].factors == tuple(factors)
