"""Pure numbers of the method: need, reliability, utility, apportionment, policies and their checks."""

from calibudget.allocation.amounts import Amount, Portion, least_units, most_units, parse_amount
from calibudget.allocation.apportionment import apportion
from calibudget.allocation.arrays import ArrayAllocation, apportion_arrays
from calibudget.allocation.bootstrap import bootstrap, bootstrap_means, bootstrap_sd
from calibudget.allocation.check import check_plan
from calibudget.allocation.exact import Real
from calibudget.allocation.groups import Group, parse_groups, resolve_groups
from calibudget.allocation.need import EPSILON, NEED_TRANSFORMS, availability, needs, reliability, utilities
from calibudget.allocation.planning import plan, replicate_quotas
from calibudget.allocation.policies import POLICIES, Policy, policy_named, pooled_quotas
from calibudget.allocation.rule import allocate
from calibudget.allocation.stability import Stability, order_probabilities, stability
from calibudget.allocation.summary import SmallCalibrationWarning, summarise
from calibudget.allocation.whatif import WhatIf, what_if
from calibudget.allocation.worth import Signal

__all__ = [
    "EPSILON",
    "NEED_TRANSFORMS",
    "POLICIES",
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
    "most_units",
    "needs",
    "order_probabilities",
    "parse_amount",
    "parse_groups",
    "plan",
    "policy_named",
    "pooled_quotas",
    "reliability",
    "replicate_quotas",
    "resolve_groups",
    "stability",
    "summarise",
    "utilities",
    "what_if",
]
