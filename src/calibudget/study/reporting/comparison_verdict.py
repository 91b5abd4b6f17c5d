"""What a comparison came to, a sentence for each other policy and endpoint."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from calibudget.messages import counted
from calibudget.study.protocol import Measure
from calibudget.study.reporting.claims import Claim, Effects, judge_claims, seeds_needed, t_interval
from calibudget.study.reporting.endpoint_display import UNITS, amount, p_said
from calibudget.study.reporting.results import Block, Results
from calibudget.study.reporting.table import decimal

#: A difference that may be worth having, by measure: the seeds are told that would show it.
WORTH: Final[dict[Measure, float]] = {"accuracy": 0.01, "answer_probability": 0.01, "nll": 0.01, "answer_nll": 0.1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How the focus compares with one other policy on one endpoint; in the endpoint's own unit.

    Attributes:
        primary: whether the endpoint is claimed; the others are described.
        seeds: paired seeds.
        difference: mean over seeds, focus minus other; None where the endpoint is undefined.
        interval: Student's interval of it over seeds; None for one seed.
        adjusted_p: of the paired t test, after Holm over all other policies; None where nothing is tested.
        seeds_needed: that would show a difference of `worth` with the spread seen; None where no number would.
        worth: see `WORTH`.
    """

    other: str
    endpoint: str
    primary: bool
    seeds: int
    difference: float | None
    interval: tuple[float, float] | None
    adjusted_p: float | None
    seeds_needed: int | None
    worth: float
    words: str


def verdicts(results: Results) -> tuple[Verdict, ...]:
    """Every other policy on every endpoint, the primary ones first; a comparison has one block.

    The primary endpoints are judged together after Holm, over all other policies.
    """
    block = next(results.blocks())
    protocol = results.protocol
    others = [policy for policy in block.policies if policy != protocol.focus]
    endpoints = dict.fromkeys((*protocol.primary, *protocol.endpoints))
    pairs = [(other, name) for name in endpoints for other in others]
    found = {pair: block.paired(pair[1], pair[0]) for pair in pairs}
    claimed = {
        " / ".join(pair): (one, protocol.endpoints[pair[1]].direction)
        for pair, one in found.items()
        if one is not None and pair[1] in protocol.primary and block.final
    }
    claims = judge_claims(claimed, alpha=protocol.analysis.alpha)
    return tuple(
        _verdict(block, other, name, one, claims.get(f"{other} / {name}")) for (other, name), one in found.items()
    )


def _verdict(block: Block, other: str, name: str, found: Effects | None, claim: Claim | None) -> Verdict:
    protocol = block.protocol
    measure, analysis = protocol.endpoints[name].measure, protocol.analysis
    worth = WORTH[measure]
    interval = None if found is None else t_interval(found, level=analysis.level)
    needed = None
    if found is not None and found.sd is not None:
        needed = seeds_needed(worth, found.sd, alpha=analysis.alpha, power=analysis.power)
    words = list(_words(measure, found, interval, claim, needed, is_primary=name in protocol.primary))
    return Verdict(
        other=other,
        endpoint=name,
        primary=name in protocol.primary,
        seeds=len(block.seeds),
        difference=None if found is None else found.mean,
        interval=interval,
        adjusted_p=None if claim is None else claim.adjusted_p,
        seeds_needed=needed,
        worth=worth,
        words=f"{protocol.focus} minus {other}, {name}: {'; '.join(words)}",
    )


def _words(
    measure: Measure,
    found: Effects | None,
    interval: tuple[float, float] | None,
    claim: Claim | None,
    needed: int | None,
    *,
    is_primary: bool,
) -> Iterator[str]:
    if found is None:
        yield "undefined for a seed, so nothing is said"
        return
    unit = UNITS[measure]
    ends = (
        ""
        if interval is None
        else " [" + ", ".join(decimal(unit.scale * e, unit.digits, signed=True) for e in interval) + "]"
    )
    yield f"{amount(found.mean, measure)}{ends} over {counted(found.seeds, 'seed')}"
    if interval is None:
        yield "one seed says nothing of spread"
        return
    if not is_primary:
        yield "described, not judged"
        return
    if claim is not None and (claim.supported or claim.opposed):
        yield f"shown to be {'better' if claim.supported else 'worse'}, adjusted {p_said(claim.adjusted_p or 0.0)}"
        return
    yield "no difference shown"
    least = f"{decimal(unit.scale * WORTH[measure], 0 if unit.scale > 1 else unit.digits)} {unit.difference}"
    yield f"{'no number of' if needed is None else f'about {needed:,}'} seeds would be needed for {least}"
