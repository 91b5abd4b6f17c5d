"""Our parsers beside math-verify and lm-eval on every GSM8K and MATH reference solution.

Each data set's own solutions are put in a model's place, so every grader should call all of them right; then each
solution is held against the next problem's answer, so it should call all of them wrong (but where two answers happen
to be the same). Usage: CALIBUDGET_DATA=… python benchmarks/evaluation_agreement.py  (needs lm-eval and math-verify)
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from calibudget.evaluation.benchmarks import load_benchmark
from calibudget.scoring.scorer import CalibrationItem
from calibudget.tasks.answers import answers_equal, parse_answer

Grader = Callable[[CalibrationItem, str, str], bool]


def ours(item: CalibrationItem, gold: str, text: str) -> bool:
    return answers_equal(item.answer, gold, parse_answer(item.answer, text))


def math_verify(item: CalibrationItem, gold: str, text: str) -> bool:
    from math_verify import parse, verify

    wanted = gold if item.answer.kind == "number" else f"${gold}$"
    return bool(verify(parse(wanted, parsing_timeout=None), parse(text, parsing_timeout=None), timeout_seconds=None))


def lm_eval_gsm8k(_item: CalibrationItem, gold: str, text: str) -> bool:
    """gsm8k's flexible-extract filter and its exact match."""
    found = re.findall(r"(-?[$0-9.,]{2,})|(-?[0-9]+)", text)
    last = next(part for part in found[-1] if part) if found else "[invalid]"
    clean = lambda one: re.sub(r"\.$", "", re.sub(r"(?s).*#### ", "", re.sub(r"[,$]", "", one))).casefold()  # noqa: E731
    return clean(last) == clean(gold)


def lm_eval_math(_item: CalibrationItem, gold: str, text: str) -> bool:
    from lm_eval.tasks.hendrycks_math.utils import is_equiv, last_boxed_only_string, remove_boxed

    boxed = last_boxed_only_string(text)
    try:
        return bool(boxed) and bool(is_equiv(remove_boxed(boxed), gold))
    except (AssertionError, IndexError):
        return False


def main() -> None:
    data = Path(os.environ["CALIBUDGET_DATA"])
    for task, theirs in (("gsm8k", lm_eval_gsm8k), ("math", lm_eval_math)):
        items = load_benchmark(task, data).items
        golds = [item.record.answer or "" for item in items]
        graders: dict[str, Grader] = {"ours": ours, "math-verify": math_verify, "lm-eval": theirs}
        print(f"{task}: {len(items):,} reference solutions")
        verdicts: dict[str, list[bool]] = {}
        for name, grade in graders.items():
            own = [grade(item, gold, item.record.completion) for item, gold in zip(items, golds, strict=True)]
            shifted = golds[1:] + golds[:1]
            other = [grade(item, gold, item.record.completion) for item, gold in zip(items, shifted, strict=True)]
            same = sum(a == b for a, b in zip(golds, shifted, strict=True))
            verdicts[name] = own
            print(f"  {name:12} own answer {sum(own):,} right, next answer {sum(other):,} ({same:,} equal strings)")
        for name in ("math-verify", "lm-eval"):
            apart = [i for i, (a, b) in enumerate(zip(verdicts["ours"], verdicts[name], strict=True)) if a != b]
            print(f"  ours and {name} differ on {len(apart):,} of them")
            for i in apart[:12]:
                print(f"    gold {golds[i]!r:.70} text …{items[i].record.completion[-70:]!r}")


if __name__ == "__main__":
    main()
