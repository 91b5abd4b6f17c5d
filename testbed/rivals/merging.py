"""A merged model as the proxy of a mixture: experts of single sources, merged by weights that become shares.

After MergeMix (arXiv 2601.17858): training an expert a domain once lets many mixtures be tried by merging alone, and
the best merging weights are taken as the data mixture. Here the experts are LoRA updates, merged exactly, and a mixture
is judged by how likely the merged model makes the reference answers of the calibration records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from calibudget.allocation.quotas import apportion


def best_mixture(
    judge: Callable[[Sequence[float]], float], count: int, *, evaluations: int, seed: int
) -> tuple[list[float], list[float]]:
    """Weights with the highest value among those tried, and the values in the order tried.

    Equal weights and each expert at half the weight come first; then draws around the best so far, ever nearer.

    Args:
        judge: a mixture's value.
        count: experts, K.
        evaluations: mixtures to try, at least 1.
        seed: of the draws.
    """
    equal = np.full(count, 1 / count)
    tried = [equal, *((equal + np.eye(count)[k]) / 2 for k in range(count))][:evaluations]
    values = [judge(weights.tolist()) for weights in tried]
    draws = np.random.default_rng([seed, count, evaluations])
    while len(tried) < evaluations:
        best = tried[int(np.argmax(values))]
        concentration = count * 2.0 ** (1 + 4 * len(tried) / evaluations)
        tried.append(draws.dirichlet(concentration * (0.9 * best + 0.1 * equal)))
        values.append(judge(tried[-1].tolist()))
    return tried[int(np.argmax(values))].tolist(), values


def merged_quotas(
    weights: Mapping[str, float], budget: int, *, lower: Mapping[str, int], upper: Mapping[str, int]
) -> dict[str, int]:
    """The budget in proportion to merging weights, between bounds."""
    return dict(apportion(weights, budget, lower=lower, upper=upper).quotas)
