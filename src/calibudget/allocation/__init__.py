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
from calibudget.allocation.exact.numbers import Real, mean_of
from calibudget.allocation.plan import plan, pose_case, replicate_quotas
from calibudget.allocation.policies import POLICIES, REFUTED, Policy, policy_named, pooled_quotas, refuse_removed
from calibudget.allocation.quotas import allocate, apportion
from calibudget.allocation.request import AllocationRequest
from calibudget.allocation.stability import Stability, WhatIf, order_probabilities, stability, what_if
from calibudget.allocation.statistics import (
    SmallCalibrationWarning,
    bootstrap,
    bootstrap_means,
    bootstrap_sd,
    summarise,
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
    "REFUTED",
    "AllocationRequest",
    "Amount",
    "ArrayAllocation",
    "Group",
    "Policy",
    "Portion",
    "Real",
    "Signal",
    "SmallCalibrationWarning",
    "Stability",
    "WhatIf",
    "allocate",
    "apportion",
    "apportion_arrays",
    "availability",
    "bootstrap",
    "bootstrap_means",
    "bootstrap_sd",
    "check_plan",
    "least_units",
    "mean_of",
    "most_units",
    "needs",
    "order_probabilities",
    "parse_amount",
    "parse_groups",
    "plan",
    "policy_named",
    "pooled_quotas",
    "pose_case",
    "power",
    "products",
    "refuse_removed",
    "reliability",
    "replicate_quotas",
    "resolve_groups",
    "stability",
    "summarise",
    "utilities",
    "what_if",
]
