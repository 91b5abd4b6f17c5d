"""Pure numbers of the method: need, reliability, utility, apportionment, policies and their checks."""

from calibudget.allocation.apportionment import apportion
from calibudget.allocation.bootstrap import bootstrap_means, bootstrap_sd
from calibudget.allocation.check import check_plan
from calibudget.allocation.exact import Real
from calibudget.allocation.need import EPSILON, NEED_TRANSFORMS, availability, needs, reliability, utilities
from calibudget.allocation.planning import plan
from calibudget.allocation.policies import POLICIES, Policy, policy_named, pooled_quotas
from calibudget.allocation.rule import allocate
from calibudget.allocation.summary import SmallCalibrationWarning, summarise
from calibudget.allocation.worth import Signal

__all__ = [
    "EPSILON",
    "NEED_TRANSFORMS",
    "POLICIES",
    "Policy",
    "Real",
    "Signal",
    "SmallCalibrationWarning",
    "allocate",
    "apportion",
    "availability",
    "bootstrap_means",
    "bootstrap_sd",
    "check_plan",
    "needs",
    "plan",
    "policy_named",
    "pooled_quotas",
    "reliability",
    "summarise",
    "utilities",
]
