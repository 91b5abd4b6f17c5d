"""The only place that joins the stages: run, score, select, verify, and what the commands show of them."""

from calibudget.pipeline.allocate import (
    Comparison,
    compare_policies,
    plan_allocation,
    request_from_files,
    request_of_run,
)
from calibudget.pipeline.demo import demo
from calibudget.pipeline.distribution import check_distribution
from calibudget.pipeline.dry_run import DryRun, dry_run
from calibudget.pipeline.explore import PairOrder, StabilityAudit, audit, explore, exponent_grid, read_measured
from calibudget.pipeline.init import draft_recipe
from calibudget.pipeline.rounds import ledger_of
from calibudget.pipeline.run import RunResult, run
from calibudget.pipeline.score import export_calibration, score
from calibudget.pipeline.select import select
from calibudget.pipeline.statistics import read_pool_sizes, statistics_of_file
from calibudget.pipeline.verify import Verification, verify

__all__ = [
    "Comparison",
    "DryRun",
    "PairOrder",
    "RunResult",
    "StabilityAudit",
    "Verification",
    "audit",
    "check_distribution",
    "compare_policies",
    "demo",
    "draft_recipe",
    "dry_run",
    "explore",
    "exponent_grid",
    "export_calibration",
    "ledger_of",
    "plan_allocation",
    "read_measured",
    "read_pool_sizes",
    "request_from_files",
    "request_of_run",
    "run",
    "score",
    "select",
    "statistics_of_file",
    "verify",
]
