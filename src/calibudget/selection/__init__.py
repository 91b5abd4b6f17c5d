"""From quotas to examples: the keyed draw, the selectors, proxy scores and sketches, digests, rows of the train set."""

from calibudget.selection.digests import canonical_selected_indices_sha256
from calibudget.selection.draw import draw, draw_queues
from calibudget.selection.proxy import (
    PAPER_CONTRACT,
    PAPER_SUBGROUPS,
    ProxyContract,
    ProxyHeader,
    ProxyPool,
    ProxyRecord,
    ProxyScores,
    proxy_pool,
    ranked,
    top,
)
from calibudget.selection.proxy_checks import check_merged, check_pool, check_shard, merge_shards
from calibudget.selection.proxy_lines import parse_proxy_lines, proxy_lines
from calibudget.selection.repeats import exposures, marked, unmarked
from calibudget.selection.rows import RowOrder, RowRole, TrainRows, train_layout, train_row, train_rows
from calibudget.selection.scored_selectors import Band, column_selector, influence_selector, quality_selector
from calibudget.selection.selectors import UNIFORM, Mix, Scored, Selector, Uniform
from calibudget.selection.sketch import CountSketch
from calibudget.selection.tokens import draw_tokens
from calibudget.store import digest_selection, ids_sha256

__all__ = [
    "PAPER_CONTRACT",
    "PAPER_SUBGROUPS",
    "UNIFORM",
    "Band",
    "CountSketch",
    "Mix",
    "ProxyContract",
    "ProxyHeader",
    "ProxyPool",
    "ProxyRecord",
    "ProxyScores",
    "RowOrder",
    "RowRole",
    "Scored",
    "Selector",
    "TrainRows",
    "Uniform",
    "canonical_selected_indices_sha256",
    "check_merged",
    "check_pool",
    "check_shard",
    "column_selector",
    "digest_selection",
    "draw",
    "draw_queues",
    "draw_tokens",
    "exposures",
    "ids_sha256",
    "influence_selector",
    "marked",
    "merge_shards",
    "parse_proxy_lines",
    "proxy_lines",
    "proxy_pool",
    "quality_selector",
    "ranked",
    "top",
    "train_layout",
    "train_row",
    "train_rows",
    "unmarked",
]
