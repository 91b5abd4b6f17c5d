"""The frozen panel's scores, taken out of an evaluation of the whole modern six: the same texts and verdicts, no model.

    python benchmarks/evaluation_panel.py OUT

OUT holds the `predictions.parquet` of `calibudget evaluate MODEL --tasks modern`, its code judged. Beside each score
stands the whole task's, and how probable it is that as many random items of the task hold as few right answers as the
panel's, or fewer. The last line compares ModernMacro with that of random panels of the same sizes.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

from scipy.stats import hypergeom

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from calibudget.evaluation.aggregates import TaskScore, aggregate
from calibudget.evaluation.benchmarks import frozen_panel
from calibudget.evaluation.results import OPEN, PREDICTIONS_NAME, read_predictions

#: Random panels drawn, and the seed of their draws.
DRAWS, SEED = 10_000, 0


def random_macros(whole: Mapping[str, TaskScore], panel: Mapping[str, TaskScore]) -> list[float]:
    """ModernMacro of random panels with as many items of each task, ascending."""
    draw = random.Random(SEED)
    macros = []
    for _ in range(DRAWS):
        drawn = {
            task: TaskScore(
                items=panel[task].items,
                right=sum(one < total.right for one in draw.sample(range(total.items), panel[task].items)),
            )
            for task, total in whole.items()
        }
        macro = aggregate(drawn)["ModernMacro"].score
        assert macro is not None
        macros.append(macro)
    return sorted(macros)


def main() -> None:
    rows = read_predictions(Path(sys.argv[1]) / PREDICTIONS_NAME)
    panel: dict[str, TaskScore] = {}
    whole: dict[str, TaskScore] = {}
    print("| task | items | right | score % | ± se | unparsable | NLL | whole task % | P |\n|---|" + "---:|" * 8)
    for task, ids in frozen_panel().items():
        own = {row.item_id: row for row in rows if row.task == task}
        asked = [own[one] for one in ids]
        if any(one.verdict in OPEN for one in own.values()):
            sys.exit(f"{task}: its verdicts are deferred; judge its texts first (calibudget evaluate OUT --rejudge)")
        score, total = (
            TaskScore(items=len(some), right=sum(one.verdict == "right" for one in some))
            for some in (asked, list(own.values()))
        )
        panel[task], whole[task] = score, total
        nlls = [one.nll for one in asked if one.nll is not None]
        nll = f"{fmean(nlls):.3f}" if nlls else ""
        few = hypergeom.cdf(score.right, total.items, total.right, score.items)
        print(
            f"| {task} | {score.items} | {score.right} | {100 * score.score:.2f} | {100 * score.standard_error:.2f} "
            f"| {sum(one.verdict == 'unparsable' for one in asked)} | {nll} | {100 * total.score:.2f} | {few:.3f} |"
        )
    means, found_means = aggregate(whole), aggregate(panel)
    for name, one in found_means.items():
        if one.score is not None and one.standard_error is not None and (mean := means[name].score) is not None:
            shown = f"{100 * one.score:.2f} | {100 * one.standard_error:.2f} | | | {100 * mean:.2f}"
            print(f"| **{name}** | | | {shown} | |")
    if (macro := found_means["ModernMacro"].score) is not None:
        others = random_macros(whole, panel)
        low, high = (100 * others[int(share * DRAWS)] for share in (0.025, 0.975))
        below = sum(one <= macro for one in others) / DRAWS
        print(
            f"\nModernMacro of {DRAWS:,} random panels: 95% from {low:.2f}% to {high:.2f}%; {below:.3f} as low or lower"
        )


if __name__ == "__main__":
    main()
