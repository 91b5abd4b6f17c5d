"""The hygiene report of the eight real commonsense sources, as Markdown tables (docs/hygiene.md).

CALIBUDGET_DATA=... python benchmarks/hygiene.py
"""

import os
from pathlib import Path

from calibudget.pipeline.preparing import hygiene_of, prepare
from calibudget.recipe import load_recipe

TESTS = ("arc_challenge", "arc_easy", "boolq", "hellaswag_valsplit", "openbookqa", "piqa", "social_i_qa", "winogrande")
RECIPE = Path(__file__).parent.parent / "examples" / "commonsense.yaml"


def main() -> None:
    sets = ", ".join(
        f"{name}: {{path: commonsense/{name}.test.jsonl.gz, preset: {name.removesuffix('_valsplit')}}}"
        for name in TESTS
    )
    overrides = [f"data_dir={os.environ['CALIBUDGET_DATA']}", "duplicates=drop", f"hygiene.evaluation={{{sets}}}"]
    recipe = load_recipe(RECIPE, [*overrides, "hygiene.evaluation_prompts=keep"])
    prepared = prepare(recipe)
    hygiene = hygiene_of(recipe, prepared)
    print(
        "| source | records | duplicates | repeated prompts | left for calibration's prompts | pool | majority answer |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|")
    for label, row in hygiene.sources.items():
        split = prepared.splits[label]
        share = "" if row.majority is None else f"{max(row.answers, key=row.answers.get)} {row.majority:.1%}"
        print(
            f"| {label} | {split.read:,} | {row.duplicates:,} | {row.repeated_prompts:,} | {row.shared_prompts:,} "
            f"| {split.pool_size:,} | {share} |"
        )
    print("\n| source | prompts also elsewhere | whole records also elsewhere |\n|---|---|---|")
    for label, row in hygiene.sources.items():
        print(f"| {label} | {told(row.prompts)} | {told(row.records)} |")
    print(f"| companion | {told(hygiene.companion)} | |")


def told(overlap) -> str:
    counts = [(f"evaluation {name}", count) for name, count in overlap.evaluation.items()]
    counts += [(f"calibration of {name}", count) for name, count in overlap.calibration.items()]
    counts += [(name, count) for name, count in overlap.candidates.items()]
    counts += [("companion", overlap.companion)] if overlap.companion else []
    return ", ".join(f"{name} {count:,}" for name, count in counts) or "none"


if __name__ == "__main__":
    main()
