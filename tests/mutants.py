"""Mutation score of `allocation`, `selection` and `store`: how many small faults do their tests notice?

    python tests/mutants.py [--children N] [--directory DIR] [--sample N] [--seconds N] [PACKAGE | PACKAGE.MODULE ...]

Copies source and tests to a temporary directory, lets mutmut (dependency group `mutants`) put faults into the named
packages or modules, runs the fast tests on each, and prints the score and every survivor's change as Markdown.
A directory given by name is kept: a run that was stopped goes on when the same command is given again. A sample is
drawn from a fixed seed, over all of the named modules alike.
What survives and why is in docs/mutation.md.

Left out of the score are faults that nothing can notice: `strict=` of a zip over sequences of equal length.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = {
    "allocation": ["tests/allocation", "tests/golden/test_allocation.py", "tests/property/test_apportion_arrays.py"],
    "selection": ["tests/selection", "tests/property/test_selection_draw.py", "tests/property/test_token_draw.py"],
    "store": ["tests/store"],
}
SEED = 20
CONFIG = """
[tool.pytest.ini_options]
addopts = "-p no:cacheprovider --import-mode=importlib"
filterwarnings = ["error"]
markers = ["slow: slow", "full: full"]

[tool.mutmut]
source_paths = ["src"]
only_mutate = {mutated}
pytest_add_cli_args_test_selection = {tests}
pytest_add_cli_args = ["-m", "not slow and not full"]
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--children", default="2")
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--sample", type=int, help="try so many faults; without, all")
    parser.add_argument("--seconds", type=float, help="report what was tried by then")
    parser.add_argument("modules", nargs="*", help="packages or modules; without, all three packages")
    arguments = parser.parse_args()
    modules = arguments.modules or list(TESTS)
    with tempfile.TemporaryDirectory() as name:
        place = arguments.directory or Path(name)
        if not (place / "src").exists():
            copy_sources(place, modules)
        run_mutants(place, modules, arguments.children, arguments.sample, arguments.seconds)
    return 0


def copy_sources(place: Path, modules: list[str]) -> None:
    shutil.copytree(ROOT / "src", place / "src", ignore=shutil.ignore_patterns("__pycache__"))
    tests = [test for package in dict.fromkeys(module.split(".")[0] for module in modules) for test in TESTS[package]]
    for test in tests:
        source, target = ROOT / test, place / test
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
    mutated = []
    for module in modules:
        path = f"src/calibudget/{module.replace('.', '/')}"
        mutated.append(f"{path}/*" if (ROOT / path).is_dir() else f"{path}.py")
    (place / "pyproject.toml").write_text(CONFIG.format(tests=tests, mutated=mutated))


def run_mutants(place: Path, modules: list[str], children: str, sample: int | None, seconds: float | None) -> None:
    mutmut = [sys.executable, "-m", "mutmut"]
    # the faults are made before their folder is named to the processes that tests start
    subprocess.run([*mutmut, "run", "nothing of this name"], cwd=place, check=False, capture_output=True)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(place.absolute() / "mutants" / "src"), os.getenv("PYTHONPATH", "")])
    chosen = [f"calibudget.{module}.*" for module in modules]
    if sample is not None:
        names = sorted(results_of(mutmut, place))
        print(f"{sample} of {len(names)} faults, seed {SEED}\n")
        chosen = random.Random(SEED).sample(names, min(sample, len(names)))  # noqa: S311 - cases, no secrets
    with suppress(subprocess.TimeoutExpired), (place / "mutmut.log").open("w") as log:
        command = [*mutmut, "run", "--max-children", children, *chosen]
        subprocess.run(command, cwd=place, check=False, stdout=log, stderr=log, timeout=seconds)
    checked = {m: r for m, r in results_of(mutmut, place).items() if r != "not checked"}
    left = [mutant for mutant, result in checked.items() if result not in ("killed", "timeout")]
    with ThreadPoolExecutor(int(children)) as pool:
        changes = dict(zip(left, pool.map(lambda mutant: change_of(mutmut, place, mutant), left), strict=True))
    report(checked, changes)


def results_of(mutmut: list[str], place: Path) -> dict[str, str]:
    listing = subprocess.run(
        [*mutmut, "results", "--all", "true"], cwd=place, check=True, capture_output=True, text=True
    )
    return dict(re.findall(r"(calibudget\S+): (.+)", listing.stdout))


def change_of(mutmut: list[str], place: Path, mutant: str) -> list[str]:
    shown = subprocess.run([*mutmut, "show", mutant], cwd=place, check=True, capture_output=True, text=True).stdout
    return [line for line in shown.splitlines() if re.match(r"[-+](?![-+])", line)]


def cannot_be_noticed(change: list[str]) -> bool:
    before, after = change[0][1:], change[-1][1:]
    return "strict=True" in before and re.sub(r",? ?strict=\w+", "", before) == re.sub(
        r",? ?strict=\w+|, (?=\))", "", after
    )


def report(results: dict[str, str], changes: dict[str, list[str]]) -> None:
    beyond = {m for m, change in changes.items() if change and cannot_be_noticed(change)}
    per_module: dict[str, Counter[str]] = {}
    for mutant, result in results.items():
        module = mutant.split(".x")[0].removeprefix("calibudget.")
        kind = "beyond notice" if mutant in beyond else "noticed" if result in ("killed", "timeout") else "survived"
        per_module.setdefault(module, Counter())[kind] += 1
    print("| module | faults | noticed | survived | beyond notice | score |\n|---|---:|---:|---:|---:|---:|")
    per_module["all"] = sum(per_module.values(), Counter())
    for module, counts in per_module.items():
        counted = counts["noticed"] + counts["survived"]
        score = f"{counts['noticed'] / counted:.1%}" if counted else ""
        columns = [counts.total(), counts["noticed"], counts["survived"], counts["beyond notice"], score]
        print("| " + " | ".join([module, *map(str, columns)]) + " |")
    for mutant, change in changes.items():
        if mutant not in beyond:
            print(f"\n{mutant} ({results[mutant]})\n" + "\n".join(f"    {line}" for line in change))


if __name__ == "__main__":
    sys.exit(main())
