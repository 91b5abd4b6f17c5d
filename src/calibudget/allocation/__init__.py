"""Pure numbers of the method: need, reliability, utility, apportionment, policies and their checks."""

from calibudget.allocation.arrays import ArrayAllocation, apportion_arrays
from calibudget.allocation.bounds import (
    Amount,
    Group,
    Portion,
    least_units,
    most_units,
    parse_amount,
    parse_groups,
    resolve_groups,
)
from calibudget.allocation.check import check_plan
from calibudget.allocation.curve_quotas import Prediction, curve_intervals, prediction
from calibudget.allocation.curves import CurveSet, CurveWarning, WarmUps, fit_curves
from calibudget.allocation.exact.numbers import Real, mean_of
from calibudget.allocation.least_nll import minimise_nll, predict_nll
from calibudget.allocation.plan import plan, replicate_quotas
from calibudget.allocation.policies import POLICIES, Policy, policy_named, pooled_quotas
from calibudget.allocation.quotas import allocate, apportion
from calibudget.allocation.searching import fit_curves_to_means, search_quotas, weighted_mean
from calibudget.allocation.stability import Stability, WhatIf, order_probabilities, stability, what_if
from calibudget.allocation.statistics import (
    SmallCalibrationWarning,
    bootstrap,
    bootstrap_means,
    bootstrap_sd,
    summarise,
)
from calibudget.allocation.transfer import (
    MeasuredMixture,
    macro_run_sd,
    macro_warm_ups,
    perturbed_mixtures,
    transfers,
)
from calibudget.allocation.utility import (
    EPSILON,
    NEED_TRANSFORMS,
    Signal,
    availability,
    needs,
    power,
    products,
    reliability,
    utilities,
)

__all__ = [
    "EPSILON",
    "NEED_TRANSFORMS",
    "POLICIES",
    "Amount",
    "ArrayAllocation",
    "CurveSet",
    "CurveWarning",
    "Group",
    "MeasuredMixture",
    "Policy",
    "Portion",
    "Prediction",
    "Real",
    "Signal",
    "SmallCalibrationWarning",
    "Stability",
    "WarmUps",
    "WhatIf",
    "allocate",
    "apportion",
    "apportion_arrays",
    "availability",
    "bootstrap",
    "bootstrap_means",
    "bootstrap_sd",
    "check_plan",
    "curve_intervals",
    "fit_curves",
    "fit_curves_to_means",
    "least_units",
    "macro_run_sd",
    "macro_warm_ups",
    "mean_of",
    "minimise_nll",
    "most_units",
    "needs",
    "order_probabilities",
    "parse_amount",
    "parse_groups",
    "perturbed_mixtures",
    "plan",
    "policy_named",
    "pooled_quotas",
    "power",
    "predict_nll",
    "prediction",
    "products",
    "reliability",
    "replicate_quotas",
    "resolve_groups",
    "search_quotas",
    "stability",
    "summarise",
    "transfers",
    "utilities",
    "weighted_mean",
    "what_if",
]
