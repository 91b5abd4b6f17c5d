"""Which examples make up each optimizer step, on how many devices whatsoever, and how they are laid into batches.

The order of an epoch is a keyed one: it depends on the examples' identities and the seed and on nothing else. Devices
share the examples of one step; they never change which those are.

How the learning rate moves over the steps: a linear warm-up from 0, then a fall to 0 (paper 3.1: cosine, 3%).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from calibudget.errors import TrainingError
from calibudget.keys import order_keys
from calibudget.training.config import Schedule, TrainingConfig
from calibudget.training.data import TrainingExample

Phase = Literal["training", "recovery"]
#: Tokens of an example by its index.
Lengths = Sequence[int] | Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One optimizer step.

    Attributes:
        phase: "training", or "recovery" for the steps on the companion set at the end.
        epoch: pass over the phase's examples, from 1.
        index: step within its phase, from 0.
        total: steps of the phase.
        members: indices of the examples it trains on.
    """

    phase: Phase
    epoch: int
    index: int
    total: int
    members: tuple[int, ...]


def plan_steps(examples: Sequence[TrainingExample], config: TrainingConfig) -> tuple[Step, ...]:
    """Every optimizer step of a run, in order.

    Sources and companion set are one shuffled union, without reweighting (paper 2.4); an epoch's last step takes
    what is left.

    Raises:
        TrainingError: a recovery phase without companion examples.
    """
    per_epoch = math.ceil(len(examples) / config.batch_size)
    batches = [
        batch for n in range(config.epochs) for batch in _epoch(examples, range(len(examples)), "epoch", n, config)
    ]
    steps = _steps("training", batches, per_epoch)
    if not config.recovery_steps:
        return tuple(steps)
    companion = [index for index, example in enumerate(examples) if example.role == "companion"]
    if not companion:
        raise TrainingError("recovery_steps: the train set holds no companion examples to recover on")
    per_pass = math.ceil(len(companion) / config.batch_size)
    passes = math.ceil(config.recovery_steps / per_pass)
    batches = [batch for n in range(passes) for batch in _epoch(examples, companion, "recovery", n, config)]
    return (*steps, *_steps("recovery", batches[: config.recovery_steps], per_pass))


def _epoch(
    examples: Sequence[TrainingExample], members: Sequence[int], role: str, number: int, config: TrainingConfig
) -> list[tuple[int, ...]]:
    """The batches of one pass: ascending under the key of role "epoch:<n>" or "recovery:<n>", n from 1."""
    labels = sorted({examples[index].source for index in members})
    keys = {label: order_keys(f"{role}:{number + 1}", config.seed, label) for label in labels}
    ordered = sorted(members, key=lambda index: keys[examples[index].source](examples[index].record_id))
    size = config.batch_size
    return [tuple(ordered[start : start + size]) for start in range(0, len(ordered), size)]


def _steps(phase: Phase, batches: Sequence[tuple[int, ...]], per_epoch: int) -> list[Step]:
    return [
        Step(phase=phase, epoch=index // per_epoch + 1, index=index, total=len(batches), members=members)
        for index, members in enumerate(batches)
    ]


def share(members: Sequence[int], lengths: Lengths, parts: int) -> list[list[int]]:
    """Part the examples of a step so that every part has about as many tokens, each in the order of `members`."""
    loads = [0] * parts
    owner: dict[int, int] = {}
    for index in sorted(members, key=lambda index: (-lengths[index], index)):
        part = loads.index(min(loads))
        owner[index] = part
        loads[part] += lengths[index]
    return [[index for index in members if owner[index] == part] for part in range(parts)]


def packs(members: Sequence[int], lengths: Lengths, batch_tokens: int) -> list[list[int]]:
    """Part examples into as few packs as hold them, of about equal lengths, none longer than `batch_tokens`.

    An example that is longer by itself has a pack of its own.
    """
    if not members:
        return []
    total = sum(lengths[index] for index in members)
    for count in range(math.ceil(total / batch_tokens), len(members) + 1):
        parts = share(members, lengths, count)
        if all(sum(lengths[index] for index in part) <= batch_tokens for part in parts):
            return [part for part in parts if part]
    return [[index] for index in members]


def rows(members: Sequence[int], lengths: Lengths, batch_tokens: int) -> list[list[int]]:
    """Part examples, longest first, into batches whose padded rows hold at most `batch_tokens` tokens."""
    batches: list[list[int]] = []
    for index in sorted(members, key=lambda index: (-lengths[index], index)):
        if batches and (len(batches[-1]) + 1) * lengths[batches[-1][0]] <= batch_tokens:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def warmup_steps(total: int, fraction: float) -> int:
    """Steps of the warm-up, rounded up as transformers does."""
    return math.ceil(total * fraction)


def rate_factor(step: int, total: int, warmup: int, schedule: Schedule) -> float:
    """What the peak rates are multiplied by in one step, in [0, 1]; the same as transformers' schedules of these names.

    `step` counts the steps taken before, 0 <= step < total: the very first step of a warm-up has the factor 0.
    """
    if step < warmup:
        return step / max(1, warmup)
    progress = (step - warmup) / max(1, total - warmup)
    match schedule:
        case "constant":
            return 1.0
        case "linear":
            return max(0.0, 1.0 - progress)
        case "cosine":
            return max(0.0, 0.5 * (1.0 + math.cos(math.pi * progress)))
