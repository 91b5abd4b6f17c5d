"""One process's bench: splits, warm-ups and full trainings of a half, each made once and kept in the results."""

from __future__ import annotations

import base64
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from filelock import FileLock

from calibudget.allocation.bootstrap import summarise
from calibudget.allocation.policies import pooled_quotas
from calibudget.keys import order_keys
from calibudget.records import Record, Score, Split, Statistics
from calibudget.selection.draw import draw_queues
from calibudget.sources.whole_source import SourceRead
from testbed.candidates import POOLS
from testbed.data import FamilyData, HalfData
from testbed.protocol import PolicyRule, Protocol
from testbed.results import Line, Results, key_of
from testbed.rivals.merging import best_mixture

if TYPE_CHECKING:
    from testbed.lab import Lab, Plan

COMPANION_LABEL: Final = "companion"
_KEPT_SPLITS: Final = 4
#: Epochs of a merged model's experts, and calibration records of each source that judge a mixture of them.
MERGING_EPOCHS: Final = 3
MERGING_RECORDS: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What a warm-up, or the base model, says of one seed's calibration records.

    Attributes:
        nll: by source, of each calibration record in key order, nats.
        wrong: by source, whether its answer is wrong; None where answers weren't decoded.
        tokens: by source, of each record's response; empty where the line is older than this field.
        examples: that the warm-up trained on, times its epochs.
        seconds: training and measuring.
    """

    nll: Mapping[str, Sequence[float]]
    wrong: Mapping[str, Sequence[bool]] | None
    tokens: Mapping[str, Sequence[int]]
    examples: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedProxy:
    """The best of the merged models that were tried.

    Attributes:
        weights: of each source's expert, >= 0, summing to 1.
        examples: that the experts trained on, times their epochs.
        seconds: training, merging and measuring.
        found: mean answer probability of each mixture that was tried, in order.
    """

    weights: Mapping[str, float]
    examples: int
    seconds: float
    found: Sequence[float]


class Bench:
    """A half's data, the lab, and the results that all processes share.

    Args:
        data: the half.
        protocol: what runs.
        results: where everything measured is kept.
        locks: folder of the locks that keep two processes from measuring the same thing.
        lab: gives the loaded model; called when something must be measured.
    """

    def __init__(
        self, data: HalfData, protocol: Protocol, results: Results, locks: Path, lab: Callable[[], Lab]
    ) -> None:
        self.data = data
        self.protocol = protocol
        self.results = results
        self._locks = locks
        self._lab = lab
        self.splits = lru_cache(maxsize=_KEPT_SPLITS)(self._split)
        self._test_plans: list[Plan] = []
        self._rotates = any(point.rotate_pools for point in protocol.points if point.half == data.half)

    def pool_sizes(self, seed: int) -> dict[str, int]:
        """N_k by label; the same at every seed unless the pools rotate, since no two records share a prompt."""
        return {label: split.pool_size for label, split in self.splits(seed).items()}

    def pooled(self, seed: int, budget: int) -> dict[str, int]:
        """Quotas of one draw from all pools together."""
        keys = {}
        for label, split in self.splits(seed).items():
            key = order_keys("selection", seed, label)
            keys[label] = [key(record.record_id) for record in split.candidates]
        return pooled_quotas(keys, budget)

    def statistics(self, seed: int, probe: Probe) -> Statistics:
        """The calibration statistics of a probe that decoded answers (paper 2.2)."""
        splits, wrong_by_label = self.splits(seed), probe.wrong or {}
        scores = [
            Score(
                source=label,
                record_id=record.record_id,
                response_tokens=1,
                nll=nll,
                correct=not wrong,
                prediction=None,
                error=nll + float(wrong),
            )
            for label, split in splits.items()
            for record, nll, wrong in zip(split.calibration, probe.nll[label], wrong_by_label[label], strict=True)
        ]
        return summarise(
            scores,
            {label: split.pool_size for label, split in splits.items()},
            model={},
            error="nll+wrong",
            resamples=self.protocol.calibration.resamples,
            bootstrap_seed=seed,
        )

    def probe(self, seed: int, exposures: Mapping[str, int], *, decode: bool) -> Probe:
        """Train on so many examples of each source and measure the calibration records; nothing is trained on for 0."""
        config = self.protocol.config
        asked: dict[str, object] = {"half": self.data.half, "exposures": dict(exposures), "decode": decode}
        key = key_of("probe", seed=seed, training=self._training_key, **asked)
        line = self._once(key, lambda: self._measure_probe(seed, exposures, decode=decode))
        marks = line["wrong"]
        return Probe(
            nll=line["nll"],
            wrong=None if marks is None else {label: [mark == "1" for mark in own] for label, own in marks.items()},
            tokens=line.get("tokens", {}),
            examples=config.epochs * sum(exposures.values()),
            seconds=line["seconds"],
        )

    def checkpoints(self, seed: int, exposures: Sequence[int]) -> list[Probe]:
        """Probes at the checkpoints of one training that goes through each example once; only the last one costs."""
        key = key_of(
            "checkpoints", half=self.data.half, seed=seed, exposures=list(exposures), training=self._training_key
        )
        line = self._once(key, lambda: self._measure_checkpoints(seed, exposures))
        last = len(exposures) - 1
        return [
            Probe(
                nll=nll,
                wrong=None,
                tokens=line.get("tokens", {}),
                examples=exposures[-1] * len(nll) if number == last else 0,
                seconds=line["seconds"] if number == last else 0.0,
            )
            for number, nll in enumerate(line["nll"])
        ]

    def merging(self, seed: int, rule: PolicyRule, trained: int) -> MergedProxy:
        """Train an expert a source and look for the merged model with the likeliest answers.

        Args:
            seed: of the cell.
            rule: how many epochs and evaluations.
            trained: examples of its source that each expert sees.
        """
        key = key_of(
            "merging", half=self.data.half, seed=seed, exposure=trained, evaluations=rule.evaluations,
            training=self._training_key,
        )  # fmt: skip
        line = self._once(key, lambda: self._measure_merging(seed, trained, rule.evaluations))
        examples = MERGING_EPOCHS * trained * len(self.data.families)
        return MergedProxy(weights=line["weights"], examples=examples, seconds=line["seconds"], found=line["found"])

    def run(self, seed: int, quotas: Mapping[str, int]) -> Line:
        """Train on quotas and measure the held-out records; equal quotas of a seed are trained on once."""
        key = key_of("run", half=self.data.half, seed=seed, quotas=dict(quotas), training=self._training_key)
        return self._once(key, lambda: self._measure_run(seed, quotas))

    @property
    def _training_key(self) -> dict[str, object]:
        protocol = self.protocol
        return {"training": dict(protocol.training), "companion": protocol.companion, "data": self.data.sha256}

    def _once(self, key: str, measure: Callable[[], Mapping[str, object]]) -> Line:
        line = self.results.find(key)
        if line is not None:
            return line
        with FileLock(self._locks / f"{key}.lock"):
            return self.results.find(key) or self.results.add(key, measure())

    def _split(self, seed: int) -> dict[str, Split]:
        return {
            label: _split(self._pool(label, family, seed), seed, self.protocol.calibration.per_source)
            for label, family in self.data.families.items()
        }

    def _pool(self, label: str, family: FamilyData, seed: int) -> SourceRead:
        """What a family may train on and calibrate with at a seed: all of it, or the first part of it."""
        if not self._rotates:
            return family.train
        place = list(self.data.families).index(label) + seed
        size = POOLS[place % len(POOLS)] + self.protocol.calibration.per_source
        tally = replace(family.train.tally, read=size)
        return replace(family.train, records=family.train.records[:size], tally=tally)

    def _picks(self, seed: int, quotas: Mapping[str, int]) -> dict[str, list[Record]]:
        splits = self.splits(seed)
        queues = {label: [record.record_id for record in split.candidates] for label, split in splits.items()}
        selection = draw_queues(queues, quotas, selection_seed=seed)
        by_id = {label: {record.record_id: record for record in split.candidates} for label, split in splits.items()}
        return {label: [by_id[label][name] for name in picks] for label, picks in selection.picks.items()}

    def _measure_probe(self, seed: int, exposures: Mapping[str, int], *, decode: bool) -> dict[str, object]:
        start = time.perf_counter()
        lab = self._lab()
        if any(exposures.values()):
            lab.train(self._picks(seed, exposures), (), seed=seed, epochs=self.protocol.config.epochs)
        elif not lab.is_blank:
            lab.blank()
        records = {label: split.calibration for label, split in self.splits(seed).items()}
        scores = _by_label(lab.measure(lab.plan(self.data.families, records, decode=decode)))
        wrong = {label: _marks([not score.correct for score in own]) for label, own in scores.items()}
        return {
            "half": self.data.half,
            "seed": seed,
            "exposures": dict(exposures),
            "nll": {label: [round(score.nll, 6) for score in own] for label, own in scores.items()},
            "wrong": wrong if decode else None,
            "tokens": {label: [score.response_tokens for score in own] for label, own in scores.items()},
            "seconds": round(time.perf_counter() - start, 3),
        }

    def _measure_checkpoints(self, seed: int, exposures: Sequence[int]) -> dict[str, object]:
        start = time.perf_counter()
        lab = self._lab()
        picks = self._picks(seed, dict.fromkeys(self.data.families, exposures[-1]))
        edges = [0, *exposures]
        stages = [{label: records[low:high] for label, records in picks.items()} for low, high in pairwise(edges)]
        records = {label: split.calibration for label, split in self.splits(seed).items()}
        plan = lab.plan(self.data.families, records, decode=False)
        found = []
        for _ in lab.train_in_stages(stages, seed=seed):
            scores = _by_label(lab.measure(plan))
            found.append({label: [round(score.nll, 6) for score in own] for label, own in scores.items()})
        return {
            "half": self.data.half,
            "seed": seed,
            "exposures": list(exposures),
            "nll": found,
            "tokens": {label: [score.response_tokens for score in own] for label, own in scores.items()},
            "seconds": round(time.perf_counter() - start, 3),
        }

    def _measure_merging(self, seed: int, trained: int, evaluations: int) -> dict[str, object]:
        start = time.perf_counter()
        lab = self._lab()
        picks = self._picks(seed, dict.fromkeys(self.data.families, trained))
        experts = [lab.expert({label: records}, seed=seed, epochs=MERGING_EPOCHS) for label, records in picks.items()]
        records = {label: split.calibration[:MERGING_RECORDS] for label, split in self.splits(seed).items()}
        plan = lab.plan(self.data.families, records, decode=False)

        def likely(weights: Sequence[float]) -> float:
            scores = _by_label(lab.measure_merged(plan, experts, weights))
            return math.fsum(_answers(own)["probability"] for own in scores.values()) / len(scores)

        weights, found = best_mixture(likely, len(experts), evaluations=evaluations, seed=seed)
        return {
            "half": self.data.half,
            "seed": seed,
            "exposure": trained,
            "weights": dict(zip(picks, [round(weight, 6) for weight in weights], strict=True)),
            "found": [round(value, 6) for value in found],
            "seconds": round(time.perf_counter() - start, 3),
        }

    def _measure_run(self, seed: int, quotas: Mapping[str, int]) -> dict[str, object]:
        start = time.perf_counter()
        lab = self._lab()
        picks = self._picks(seed, quotas)
        drawn = time.perf_counter()
        companion = self.data.companion.train.records[: self.protocol.companion]
        trained = lab.train(picks, companion, seed=seed, epochs=self.protocol.config.epochs)
        done = time.perf_counter()
        scores = _by_label([score for plan in self._plans(lab) for score in lab.measure(plan)])
        measured = time.perf_counter()
        seconds = {"select": drawn - start, "train": done - drawn, "evaluate": measured - done}
        return {
            "half": self.data.half,
            "seed": seed,
            "quotas": dict(quotas),
            "tasks": {label: _task(own) for label, own in scores.items()},
            "items": {label: _packed([score.nll for score in own]) for label, own in scores.items()},
            "answers": {label: _answers(own) for label, own in scores.items()},
            "right": {
                label: _marks([bool(score.correct) for score in own if score.correct is not None])
                for label, own in scores.items()
            },
            "steps": trained.steps,
            "tokens": trained.tokens,
            "final_loss": trained.final_loss,
            "seconds": {name: round(value, 3) for name, value in seconds.items()},
        }

    def _plans(self, lab: Lab) -> list[Plan]:
        """The held-out records: those that are decoded, and the rest of them."""
        if not self._test_plans:
            protocol = self.protocol
            families = {**self.data.families, self.data.companion.family.name: self.data.companion}
            tests = {label: family.test[: protocol.test_items] for label, family in families.items()}
            decoded = {label: records[: protocol.decoded] for label, records in tests.items()}
            rest = {label: records[protocol.decoded :] for label, records in tests.items()}
            self._test_plans = [lab.plan(families, decoded, decode=True)]
            if any(rest.values()):
                self._test_plans.append(lab.plan(families, rest, decode=False))
        return self._test_plans


def unpacked(text: str) -> np.ndarray:
    """The NLLs that a line's `items` hold, shape (items,), float64 of what was rounded to half precision."""
    return np.frombuffer(base64.b64decode(text), dtype="<f2").astype(np.float64)


def _packed(values: Sequence[float]) -> str:
    return base64.b64encode(np.array(values, dtype="<f2").tobytes()).decode("ascii")


def _marks(values: Sequence[bool]) -> str:
    return "".join("1" if value else "0" for value in values)


def _by_label(scores: Sequence[Score]) -> dict[str, list[Score]]:
    found: dict[str, list[Score]] = {}
    for score in scores:
        found.setdefault(score.source, []).append(score)
    return found


def _answers(scores: Sequence[Score]) -> dict[str, float]:
    """What whole reference answers take: their mean NLL in nats, and their mean probability."""
    nats = [score.response_tokens * score.nll for score in scores]
    return {
        "nll": math.fsum(nats) / len(nats),
        "probability": math.fsum(math.exp(-one) for one in nats) / len(nats),
    }


def _task(scores: Sequence[Score]) -> dict[str, object]:
    checked = [score.correct for score in scores if score.correct is not None]
    return {
        "items": len(scores),
        "nll": math.fsum(score.nll for score in scores) / len(scores),
        "accuracy": sum(checked) / len(checked) if checked else None,
        "checked": len(checked),
    }


def _split(read: SourceRead, seed: int, calibration_size: int) -> Split:
    """A source in memory, without duplicates, parted as the product parts it; every pool is far larger."""
    label = read.source.scan.spec.label
    draw, pick = (order_keys(role, seed, label) for role in ("calibration", "selection"))
    calibration = sorted(read.records, key=lambda record: draw(record.record_id))[:calibration_size]
    prompts = {record.prompt_hash for record in calibration}
    pool = [record for record in read.records if record.prompt_hash not in prompts]
    return Split(
        source=label,
        calibration=tuple(calibration),
        candidates=tuple(sorted(pool, key=lambda record: pick(record.record_id))),
        read=read.tally.read,
        duplicates=read.source.duplicates,
        skipped=read.tally.skipped,
        shared_prompts=len(read.records) - len(pool) - len(calibration),
    )
