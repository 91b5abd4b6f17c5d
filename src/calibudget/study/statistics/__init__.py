"""What can be said of paired cells: pure functions of numbers."""

from calibudget.study.statistics.bootstrap import Interval, TaskItems, bootstrap_examples, bootstrap_tasks
from calibudget.study.statistics.claims import (
    Claim,
    detectable_effect,
    holm,
    judge_claims,
    seeds_needed,
    sign_flip_p,
    t_interval,
    t_test_p,
)
from calibudget.study.statistics.geometry import QuotaShift, correlations, quota_shift
from calibudget.study.statistics.paired import Effects, Wins, effects, wins
from calibudget.study.statistics.panels import Stratum, panel_score, strata_of

__all__ = [
    "Claim",
    "Effects",
    "Interval",
    "QuotaShift",
    "Stratum",
    "TaskItems",
    "Wins",
    "bootstrap_examples",
    "bootstrap_tasks",
    "correlations",
    "detectable_effect",
    "effects",
    "holm",
    "judge_claims",
    "panel_score",
    "quota_shift",
    "seeds_needed",
    "sign_flip_p",
    "strata_of",
    "t_interval",
    "t_test_p",
    "wins",
]
