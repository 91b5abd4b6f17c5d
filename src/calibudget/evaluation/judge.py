"""From a model's text to a verdict, strictly: what can't be parsed, is missing or took too long is wrong."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Final, NamedTuple

from calibudget.evaluation.benchmarks import Benchmark
from calibudget.evaluation.code_tasks import humaneval_case, mbpp_case
from calibudget.evaluation.instructions import CHECKER_VERSION, check_instructions, detect_language
from calibudget.evaluation.panel_prompts import answer_of_gold
from calibudget.evaluation.results import ItemVerdict, Prediction
from calibudget.evaluation.sandbox import Sandbox, open_sandbox
from calibudget.scoring.scorer import CalibrationItem
from calibudget.tasks.answers import PARSER_VERSION, AnswerSpec, answers_equal, equal_at_sight, parse_answer
from calibudget.tasks.presets import PRESETS, preset

_Pair = tuple[CalibrationItem, str]
_CASES: Final = {"humaneval": humaneval_case, "mbpp": mbpp_case}


class Judgement(NamedTuple):
    """A verdict, the parsed answer (None where nothing could be parsed or a checker judged), and a reason."""

    verdict: ItemVerdict
    prediction: str | None = None
    reason: str = ""


class Judge:
    """Judges texts of any benchmark; without a sandbox verdicts on generated code are deferred."""

    def __init__(self, sandbox: Sandbox | None) -> None:
        self._sandbox = sandbox

    def describe(self, benchmark: Benchmark) -> dict[str, object]:
        """What a benchmark's verdicts depend on beside the texts."""
        if benchmark.task.check == "code":
            return {"check": "code", "sandbox": self._sandbox.describe() if self._sandbox else None}
        version = CHECKER_VERSION if benchmark.task.check == "instructions" else PARSER_VERSION
        answer = benchmark.own_answer
        own = {} if answer is None else {"answer": {**asdict(answer), "labels": list(answer.labels)}}
        return {"check": benchmark.task.check, "version": version, **own}

    def judge(self, benchmark: Benchmark, texts: Mapping[str, str]) -> dict[str, Judgement]:
        """A judgement of each of a benchmark's items by the model's text; an item without one is unparsable."""
        pairs = [(item, texts.get(item.record.record_id, "")) for item in benchmark.items]
        sandbox = self._sandbox
        if benchmark.task.check == "code" and sandbox is None:
            judgements = [Judgement("deferred", None, "no sandbox on the machine that evaluated")] * len(pairs)
        elif sandbox is not None and benchmark.task.check == "code":
            judgements = _each(lambda pair: judge_code(sandbox, benchmark.name, *pair), pairs)
        elif benchmark.task.check == "instructions":
            judgements = [judge_instructions(item, text) for item, text in pairs]
        else:
            judgements = _each(lambda pair: judge_answer(*pair), pairs)
        return {item.record.record_id: one for (item, _), one in zip(pairs, judgements, strict=True)}


def _each(judge: Callable[[_Pair], Judgement], pairs: Sequence[_Pair]) -> list[Judgement]:
    """All judgements, as many at once as there are processors: programs and hard mathematics run in processes apart."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(judge, pairs))


def open_judge(benchmarks: Iterable[Benchmark], *, defer_code: bool = False) -> Judge:
    """A judge for these benchmarks, everything that it will need seen to work before anything is generated.

    Raises:
        DependencyError: a sandbox, math-verify, if-verifiable or langdetect is missing; the install line is named.
    """
    needs_sandbox = False
    for benchmark in benchmarks:
        needs_sandbox |= benchmark.task.check == "code" and not defer_code
        if any(item.answer.kind == "math" for item in benchmark.items):
            answers_equal(AnswerSpec(kind="math"), r"\frac{1}{2}", "0.5")
        if benchmark.task.check == "instructions":
            detect_language("Which language is this?")
    return Judge(open_sandbox() if needs_sandbox else None)


def judge_answer(item: CalibrationItem, text: str) -> Judgement:
    """By the answer that the text gives, where there is one to check."""
    if item.answer.kind == "none":
        return Judgement("unchecked")
    prediction = parse_answer(item.answer, text)
    if prediction is None:
        return Judgement("unparsable", None, "" if text.strip() else "empty")
    is_right = answers_equal(item.answer, item.record.answer or "", prediction)
    return Judgement("right" if is_right else "wrong", prediction)


def judged_again(one: Prediction, own: AnswerSpec | None = None) -> tuple[str | None, str]:
    """Parsed answer and verdict of a text whose answer is parsed, from the prediction's own text and gold answer.

    What can't be derived is as the prediction says: the answer where the question's options are needed to parse it (a
    letter of BBH), and which of right and wrong it is where only math-verify could say. `own` checks a user's own task.
    """
    gold = one.gold or ""
    if own is not None and own.kind == "none":
        return None, "unchecked"
    spec = own or (preset(one.task).answer if one.task in PRESETS else answer_of_gold(one.task, gold))
    prediction = one.prediction if spec is None else parse_answer(spec, one.text)
    if prediction is None:
        return None, "unparsable"
    is_right = prediction == gold if spec is None else equal_at_sight(spec, gold, prediction)
    if is_right is None:
        return prediction, one.verdict if one.verdict in {"right", "wrong"} else "right or wrong"
    return prediction, "right" if is_right else "wrong"


def judge_instructions(item: CalibrationItem, text: str) -> Judgement:
    """By all instructions of the prompt together (prompt-level strict accuracy)."""
    if not text.strip():
        return Judgement("unparsable", None, "empty")
    missed = check_instructions(item.record.original, text)
    return Judgement("wrong", None, "not followed: " + ", ".join(missed)) if missed else Judgement("right")


def judge_code(sandbox: Sandbox, task: str, item: CalibrationItem, text: str) -> Judgement:
    """By the tests of the data set, once (pass@1 of a greedy text)."""
    if not text.strip():
        return Judgement("unparsable", None, "empty")
    result = sandbox.run(_CASES[task](item.record.original, text))
    if result.passed:
        return Judgement("right")
    verdict: ItemVerdict = "timeout" if result.verdict == "timeout" else "wrong"
    return Judgement(verdict, None, f"{result.verdict}: {result.reason}")
