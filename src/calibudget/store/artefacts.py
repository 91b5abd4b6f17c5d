"""`statistics.json` (paper 2.2), `allocation.json` (2.3) and `selection.json`.

What calibration said of each source; the quotas and everything that they were made from; and which examples were
selected, by digest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final

from calibudget.keys import canonical_array
from calibudget.records import AllocationPlan, Selection, Statistics
from calibudget.store.canonical import canonical_json, read_object, sha256_hex
from calibudget.store.json_records import Artefact
from calibudget.values import ByLabel, Count, Digest, Integer


def _unfit(statistics: Statistics) -> str | None:
    resamples = statistics.bootstrap.resamples
    for label, row in statistics.sources.items():
        if row.bootstrap_means is not None and len(row.bootstrap_means) != resamples:
            return f"sources.{label}.bootstrap_means: must be a list of length {resamples}"
        if row.error_rate is None and statistics.error == "nll+wrong":
            return f"sources.{label}.error_rate: must be a number, since the error rule is nll+wrong"
    return None


STATISTICS: Final = Artefact("calibudget.statistics/1", Statistics, check=_unfit, nulls=True)


def statistics_sha256(statistics: Statistics) -> str:
    """SHA-256 of the canonical `statistics.json`, by which an allocation names its statistics."""
    return sha256_hex(canonical_json(STATISTICS.to_json(statistics)))


def quotas_sha256(quotas: Mapping[str, int]) -> str:
    """Digest of a quota vector: SHA-256 of the RFC 8785 object of label to quota (paper 3.5, "quota hashes")."""
    return sha256_hex(canonical_json(dict(quotas)))


ALLOCATION: Final = Artefact(
    "calibudget.allocation/1",
    AllocationPlan,
    digest=("quotas_sha256", lambda plan: quotas_sha256(plan.quotas)),
    nulls=True,
)


def stated_quotas_sha256(path: Path) -> str | None:
    """The digest that `allocation.json` gives of its quotas, right or not; None in files from before it was kept."""
    stated = read_object(path).get("quotas_sha256")
    return None if stated is None else str(stated)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceDigest:
    """One source's picks: its quota in the budget's unit, and the digest of their ids in key order.

    `count` (examples) and `tokens` say what was picked for a quota of tokens; None where the quota counts examples.
    """

    quota: Count
    record_ids_sha256: Digest
    count: Count | None = None
    tokens: Count | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionDigest:
    """A selection without its ids; `selection.json`.

    Attributes:
        selector: name of the rule that chose among the candidates ("uniform").
        sources: quota and digest of each source, by label in code-point order.
        count: examples selected from all sources, the companion set apart.
        companion_count: companion records joined unchanged.
        selected_sha256: digest of all picks, sources in code-point order, each in key order.
        tokens: tokens of all picks; None where the budget counts examples.
        details: what the selector says of itself; None for the uniform draw.
    """

    seed: Integer
    selector: str
    sources: ByLabel[SourceDigest]
    count: Count
    companion_count: Count
    selected_sha256: Digest
    tokens: Count | None = None
    details: Mapping[str, object] | None = None


SELECTION: Final = Artefact("calibudget.selection/1", SelectionDigest)


def ids_sha256(ids: Iterable[str]) -> str:
    """Digest of an id list: SHA-256 of its RFC 8785 array, in the given order.

    Raises:
        InputError: an id holds a lone surrogate.
    """
    return sha256_hex(canonical_array(ids))


def digest_selection(selection: Selection) -> SelectionDigest:
    """What `selection.json` says of a selection."""
    picks, used = dict(sorted(selection.picks.items())), selection.tokens or {}
    return SelectionDigest(
        seed=selection.seed,
        selector=selection.selector,
        sources={
            label: SourceDigest(
                quota=used[label].quota if label in used else len(ids),
                record_ids_sha256=ids_sha256(ids),
                count=len(ids) if label in used else None,
                tokens=used[label].taken if label in used else None,
            )
            for label, ids in picks.items()
        },
        count=sum(map(len, picks.values())),
        companion_count=selection.companion_count,
        selected_sha256=ids_sha256(chain.from_iterable(picks.values())),
        tokens=None if selection.tokens is None else sum(use.taken for use in selection.tokens.values()),
        details=selection.details,
    )
