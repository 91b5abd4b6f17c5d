"""From quotas to examples: the keyed draw, its digests, and the rows of the train set."""

from calibudget.selection.digests import canonical_selected_indices_sha256
from calibudget.selection.draw import UNIFORM, draw
from calibudget.selection.rows import RowOrder, RowRole, train_layout, train_row, train_rows
from calibudget.store import digest_selection, ids_sha256

__all__ = [
    "UNIFORM",
    "RowOrder",
    "RowRole",
    "canonical_selected_indices_sha256",
    "digest_selection",
    "draw",
    "ids_sha256",
    "train_layout",
    "train_row",
    "train_rows",
]
