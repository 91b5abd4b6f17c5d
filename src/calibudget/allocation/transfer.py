"""What a source's exposure does to all sources: warm-ups with one source more or less, read as learning curves.

Li, Liu and Xing (ICML 2025, "Data mixing optimization for supervised fine-tuning of large language models") train
small mixtures in which one source at a time is enlarged or reduced, and see by the others what it gives to them. Their
law is in `mixing_laws`; here the same mixtures give every source a curve of the macro NLL, which whatever reads
learning curves takes as it is, exact quotas and intervals included. Effects are added up: what two sources do only
together isn't seen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from calibudget.allocation.curve_shapes import shape
from calibudget.allocation.curves import WarmUps
from calibudget.allocation.exact.numbers import MOST_NLL, Real, as_count, as_weight, sum_of
from calibudget.allocation.labels import require_same_labels, sorted_labels
from calibudget.allocation.statistics import Floats
from calibudget.errors import AllocationError
from calibudget.messages import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredMixture:
    """One small training and what it left.

    Attributes:
        quotas: units of each source that it trained on, >= 1.
        nll: of each source the NLLs of its calibration records, in the same order after every training, nats, finite.
    """

    quotas: Mapping[str, int]
    nll: Mapping[str, Sequence[float]]


def perturbed_mixtures(exposures: Mapping[str, Sequence[int]]) -> list[dict[str, int]]:
    """The mixtures that show transfer: all sources at their middle exposure, then each alone at its other ones.

    Args:
        exposures: units by source, ascending, as many of each source, two or more; of an even number of them the middle
            one is the lower.

    Returns:
        1 + K (E - 1) mixtures of K sources with E exposures each, labels in code-point order.

    Raises:
        InputTypeError, AllocationError: fewer than two sources or exposures, or exposures that don't ascend from 1 on.
    """
    labels = sorted_labels(exposures)
    if len(labels) < 2:
        raise AllocationError(f"transfer needs two sources or more, but there is {counted(len(labels), 'source')}")
    counts = {label: [as_count(one, "an exposure", label) for one in exposures[label]] for label in labels}
    for label, own in counts.items():
        if len(own) < 2 or own[0] < 1 or own != sorted(set(own)) or len(own) != len(counts[labels[0]]):
            raise AllocationError(
                f"the exposures of {label!r} are {own}, but transfer needs two or more of every source, as many of "
                "each, ascending from 1 on"
            )
    base = {label: own[(len(own) - 1) // 2] for label, own in counts.items()}
    return [base, *({**base, label: one} for label, own in counts.items() for one in own if one != base[label])]


def macro_warm_ups(
    mixtures: Sequence[MeasuredMixture], weights: Mapping[str, Real] | None = None
) -> dict[str, WarmUps]:
    """The (weighted) macro NLL against each source's exposure, as warm-ups of that source.

    The curve of source k is that of base + K * (macro - base), K sources, base being the macro NLL of the first
    mixture. So the plain mean over the curves at any quotas is the macro NLL that the sources' effects add up to, and
    their slopes are K times what a doubling of the source lowers it by. The records of all sources stand in every
    curve, each taken less its source's own mean, so that only noise makes them differ.

    Args:
        mixtures: those of `perturbed_mixtures`, the first one first.
        weights: what a nat of each source is worth, >= 0; default 1. They are part of the curves.

    Raises:
        InputTypeError, AllocationError: mixtures that aren't perturbed ones, other records from one to the next, or
            weights that can't be used.
    """
    labels = _checked(mixtures)
    worth = _shares(labels, weights)
    found = {}
    for label in labels:
        own = sorted([mixtures[0], *_of(mixtures, label)], key=lambda mixture: mixture.quotas[label])
        rows = [_weighed(mixture, mixtures[0], worth) for mixture in own]
        found[label] = WarmUps(exposures=[mixture.quotas[label] for mixture in own], nll=rows)
    return found


def macro_run_sd(run_sd: float, labels: Sequence[str], weights: Mapping[str, Real] | None = None) -> float:
    """By how much `macro_warm_ups` differ from one training to the next if a source's mean NLL does by `run_sd`, nats.

    Raises:
        InputTypeError, AllocationError: weights that can't be used.
    """
    shares = _shares(labels, weights)
    return run_sd * len(shares) * math.sqrt(math.fsum(share * share for share in shares.values()))


def transfers(mixtures: Sequence[MeasuredMixture]) -> dict[str, dict[str, float]]:
    """By source, what a doubling of its exposure lowers each source's mean NLL by, its own included, nats.

    Raises:
        InputTypeError, AllocationError: as `macro_warm_ups`.
    """
    labels = _checked(mixtures)
    found = {}
    for label in labels:
        own = sorted([mixtures[0], *_of(mixtures, label)], key=lambda mixture: mixture.quotas[label])
        straight = shape(tuple(mixture.quotas[label] for mixture in own))
        found[label] = {
            other: straight.slope([math.fsum(mixture.nll[other]) / len(mixture.nll[other]) for mixture in own])
            for other in labels
        }
    return found


def _checked(mixtures: Sequence[MeasuredMixture]) -> list[str]:
    """The sources of perturbed mixtures."""
    if not mixtures:
        raise AllocationError("there are no mixtures to see transfer by")
    base = mixtures[0]
    labels = sorted_labels(base.quotas)
    for number, mixture in enumerate(mixtures):
        require_same_labels(labels, mixture.quotas, f"the quotas of mixture {number}", "the quotas of mixture 0")
        require_same_labels(labels, mixture.nll, f"the NLLs of mixture {number}", "the quotas of mixture 0")
        changed = [label for label in labels if mixture.quotas[label] != base.quotas[label]]
        if number and len(changed) != 1:
            raise AllocationError(
                f"mixture {number} changes {counted(len(changed), 'source')} of mixture 0; transfer is seen where "
                "exactly one is changed"
            )
        for label in labels:
            nlls = mixture.nll[label]
            if len(nlls) != len(base.nll[label]) or not nlls or not all(map(math.isfinite, nlls)):
                raise AllocationError(
                    f"mixture {number} has {counted(len(nlls), 'NLL')} of {label!r}; every mixture needs those of the "
                    "same calibration records, finite"
                )
            if max(map(abs, nlls)) > MOST_NLL:
                worst = max(map(abs, nlls))
                raise AllocationError(
                    f"mixture {number} has an NLL of size {worst:g} of {label!r}, too large to fit a curve to"
                )
    return labels


def _of(mixtures: Sequence[MeasuredMixture], label: str) -> list[MeasuredMixture]:
    """The mixtures in which a source is changed."""
    found = [mixture for mixture in mixtures[1:] if mixture.quotas[label] != mixtures[0].quotas[label]]
    if not found:
        raise AllocationError(f"no mixture changes {label!r}, so that nothing shows what it gives")
    return found


def _shares(labels: Sequence[str], weights: Mapping[str, Real] | None) -> dict[str, float]:
    """Each source's part of the macro NLL; they sum to 1."""
    if weights is None:
        return dict.fromkeys(labels, 1 / len(labels))
    require_same_labels(labels, weights, "weights", "the mixtures")
    values = {label: as_weight(weights[label], "the weight", label) for label in labels}
    total = sum_of(list(values.values()), "the weights")
    if not total:
        raise AllocationError("all weights are 0, so that nothing is to be minimised")
    return {label: value / total for label, value in values.items()}


def _weighed(mixture: MeasuredMixture, base: MeasuredMixture, shares: Mapping[str, float]) -> list[float]:
    """Of every record what it adds to base + K * (macro - base), less its source's mean, plus that of all."""
    count = sum(map(len, mixture.nll.values()))
    parts: list[Floats] = []
    for label, share in shares.items():
        now, first = (np.array(one.nll[label], dtype=np.float64) for one in (mixture, base))
        parts.append((first + len(shares) * (now - first)) * (share * count / len(now)))
    means = [math.fsum(part.tolist()) / len(part) for part in parts]
    whole = math.fsum(mean * len(part) for mean, part in zip(means, parts, strict=True)) / count
    return [value for mean, part in zip(means, parts, strict=True) for value in (part - mean + whole).tolist()]
