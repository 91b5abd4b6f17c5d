"""The hygiene report of the eight real commonsense sources, as Markdown tables (docs/hygiene.md).

    CALIBUDGET_DATA=... python benchmarks/hygiene.py [key=value ...]

The sources of examples/commonsense.yaml under `duplicates: drop`, everything else looked for and kept.
"""

import os
import resource
import sys
import time
from pathlib import Path

from calibudget.pipeline.prepare import hygiene_of, prepare
from calibudget.recipe.load import load_recipe

RECIPE = Path(__file__).parent.parent / "examples" / "commonsense.yaml"
CHECKS = ("evaluation_prompts", "cross_source", "contamination", "near_duplicates")


def main() -> None:
    overrides = [f"data_dir={os.environ['CALIBUDGET_DATA']}", "duplicates=drop", *sys.argv[1:]]
    recipe = load_recipe(RECIPE, overrides)
    started = time.perf_counter()
    prepared = prepare(recipe)
    hygiene = hygiene_of(recipe, prepared)
    wall = time.perf_counter() - started
    print("| source | records | equal to an earlier one | other repeated prompts | pool | most frequent answer |")
    print("|---|---:|---:|---:|---:|---:|")
    for label, row in hygiene.sources.items():
        share = "" if row.majority is None else f"{max(row.answers, key=row.answers.get)} {row.majority:.1%}"
        print(
            f"| {label} | {prepared.splits[label].read:,} | {row.duplicates:,} | {row.repeats - row.duplicates:,} "
            f"| {row.pool_size:,} | {share} |"
        )
    looked = [check for check in CHECKS if hygiene.rules[check] is not None]
    print(f"\n| source | {' | '.join(looked)} |\n|---|{'---|' * len(looked)}")
    for label, row in [*hygiene.sources.items(), ("companion", hygiene.companion)]:
        print(f"| {label} | {' | '.join(told(row.checks.get(check, {})) for check in looked)} |")
    use = resource.getrusage(resource.RUSAGE_SELF)
    print(f"\n{wall:.0f} s wall, {use.ru_utime + use.ru_stime:.0f} CPU s, {use.ru_maxrss / 1024:.0f} MB")


def told(found) -> str:
    return ", ".join(f"{other} {one.records:,} ({one.others:,})" for other, one in found.items()) or "none"


if __name__ == "__main__":
    main()
