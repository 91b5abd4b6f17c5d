"""What a training says of itself: step reports, `training.jsonl`, its rate, and the adapter's card.

The log holds no clock, so equal runs write equal bytes. The rate is also told as a share of what the device's own
matrix products reach.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Self

import torch
from torch import nn

from calibudget.errors import ArtefactError, InterruptedRunError, refuse_as
from calibudget.messages import counted
from calibudget.store.canonical import canonical_json, loads_object
from calibudget.store.files import flush, is_no_file
from calibudget.training.config import TrainingConfig

if TYPE_CHECKING:
    from calibudget.training.job import TrainingJob


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """How training stands after one step, for whoever listens.

    Attributes:
        step: optimizer steps taken.
        total: steps in all.
        epoch: pass over the train set, from 1.
        loss: loss of the step, nats a response token, or an example under `loss: sum_per_example`.
        learning_rate: geometric mean of the two factors' rates.
        tokens_per_second: over all devices, None while warming up.
        device_share: share of the devices' own rate of matrix products, None on a CPU and while warming up.
        seconds_left: at the pace so far, None while warming up.
    """

    step: int
    total: int
    epoch: int
    loss: float
    learning_rate: float
    tokens_per_second: float | None
    device_share: float | None
    seconds_left: float | None


#: Told after each step, in the main process.
Listener = Callable[[StepReport], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingResult:
    """A finished training.

    Attributes:
        steps: optimizer steps taken.
        final_loss: loss of the last step, in the same unit.
        tokens_per_second: over all devices, None for a run too short to tell.
        frozen_experts: names of the modules whose experts are stacked matrices and took no factors.
        stop_asked: whether a stop was asked for too late to cut the training short, so that it is still to be heeded.
    """

    adapter: Path
    log: Path
    config: TrainingConfig
    steps: int
    final_loss: float
    tokens_per_second: float | None
    frozen_experts: tuple[str, ...] = ()
    stop_asked: bool = False

    def heed_stop(self) -> None:
        """Stop here, for whoever has more to do after the training.

        Raises:
            InterruptedRunError: a stop was asked for during the last step, or while the adapter was written.
        """
        if self.stop_asked:
            raise InterruptedRunError(f"stopped after step {self.steps} of {self.steps}")


LOG_NAME: Final = "training.jsonl"


class TrainingLog:
    """The log of a run, open for appending; lines are seen by readers at once and on the disk after `sync`.

    Attributes:
        last_loss: loss of the last step that it held at opening, NaN if none.
    """

    def __init__(self, handle: BinaryIO, last_loss: float) -> None:
        self._handle = handle
        self.last_loss = last_loss

    @classmethod
    def open(cls, path: Path, *, steps: int) -> Self:
        """Open a log that holds the first `steps` steps; what it holds beyond them is cut off.

        Raises:
            ArtefactError: it holds fewer, or can't be read or written.
        """
        if is_no_file(path):
            raise ArtefactError(f"{path}: is no regular file, so no log can be kept in it; remove it")
        with refuse_as(ArtefactError, f"{path}: can't be opened", OSError):
            is_new = not path.exists()
            handle = path.open("x+b" if is_new else "r+b")
            if is_new:
                flush(path.parent)  # or a power cut could take its name, and leave the checkpoints
        last_loss = math.nan
        try:
            for step in range(1, steps + 1):
                last_loss = _loss(handle.readline(), step, path)
            handle.truncate()
        except BaseException:
            handle.close()
            raise
        return cls(handle, last_loss)

    def write(self, entry: Mapping[str, object]) -> None:
        """Add one step's line."""
        with refuse_as(ArtefactError, f"{self._handle.name}: can't be written", OSError):
            self._handle.write(canonical_json(dict(entry)) + b"\n")
            self._handle.flush()

    def sync(self) -> None:
        """Bring everything written to the disk."""
        os.fsync(self._handle.fileno())

    def close(self) -> None:
        """Close the file."""
        self._handle.close()


def _loss(line: bytes, step: int, path: Path) -> float:
    entry = loads_object(line, f"{path.name}:{step}") if line.endswith(b"\n") else {}
    loss = entry.get("loss")
    if entry.get("step") != step or isinstance(loss, bool) or not isinstance(loss, int | float):
        raise ArtefactError(f"{path}:{step}: isn't that of step {step}; the log was changed")
    return float(loss)


_SIZE: Final = 8192
_SECONDS: Final = 0.2


def flops_per_token(model: Any) -> float:
    """Floating-point operations of one trained token in the layers' matrix products; the output head left out.

    Frozen weights cost two operations a parameter forward and two backward; factors cost two more for their gradient.
    """
    head = model.get_base_model().get_output_embeddings()
    flops = 0.0
    for module in model.modules():
        if isinstance(module, nn.Linear) and module is not head:
            flops += module.weight.numel() * (6.0 if module.weight.requires_grad else 4.0)
    return flops


def measure_device(device: torch.device, dtype: torch.dtype) -> float | None:
    """Operations a second of a large matrix product on a GPU, over a fifth of a second; None on a CPU."""
    if device.type != "cuda":
        return None
    left, right = (torch.randn(_SIZE, _SIZE, device=device, dtype=dtype) for _ in range(2))
    product = left @ right
    torch.cuda.synchronize(device)
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < _SECONDS:
        for _ in range(5):
            torch.mm(left, right, out=product)
        torch.cuda.synchronize(device)
        count += 5
    return count * 2.0 * _SIZE**3 / (time.perf_counter() - start)


class Pace:
    """Counts tokens against the clock; the first steps, which compile and warm up, don't count."""

    def __init__(self) -> None:
        self._left = 2
        self._start = time.perf_counter()
        self._tokens = 0
        self._steps = 0

    def add(self, tokens: int) -> None:
        """Count one finished step."""
        if self._left:
            self._left -= 1
            self._start = time.perf_counter()
            return
        self._tokens += tokens
        self._steps += 1

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens of prompts and responses a second; None while there is too little to tell."""
        elapsed = time.perf_counter() - self._start
        return self._tokens / elapsed if self._tokens and elapsed > _SECONDS else None

    def seconds_left(self, steps: int) -> float | None:
        """How long that many further steps take at the pace so far."""
        return steps * (time.perf_counter() - self._start) / self._steps if self._steps else None


CARD_NAME: Final = "README.md"


def model_card(
    job: TrainingJob,
    *,
    target_modules: Collection[str],
    frozen_experts: Collection[str],
    final_loss: float,
    versions: Mapping[str, str],
) -> str:
    """The text of `README.md`; it holds no time, path or host name.

    The loss is the mean of the last optimizer step, in nats a token or an example, as `loss` of the configuration says.
    """
    model, config, evidence = job.language_model.identity, job.config, job.evidence
    factor_rates = config.factor_rates(config.learning_rate)
    settings = asdict(config) | {"target_modules": sorted(target_modules)}
    settings |= {"rate of A": factor_rates[0], "rate of B": factor_rates[1]}
    settings |= {"frozen experts": sorted(frozen_experts)} if frozen_experts else {}
    counts = Counter(example.source for example in job.examples)
    on_a_hub = [f"base_model: {model['name']}"] if model.get("kind") == "hub" else []  # where hubs link it
    front = ["---", *on_a_hub, "library_name: peft", "pipeline_tag: text-generation"]
    front += ["tags:", "- lora", "- calibudget", "---"]
    unit = "a response token" if config.loss == "token_mean" else "an example"
    elsewhere = evidence.get("calibrated_on")
    words = [
        f"# LoRA+ adapter for {model.get('name')}",
        f"Trained on {counted(len(job.examples), 'example')} whose quotas were set by calibudget"
        f"{f', calibrated on another model ({elsewhere})' if elsewhere is not None else ''}. "
        f"The last optimizer step had a mean loss of {final_loss:.4f} nats {unit}.",
    ]
    parts = [
        "\n".join(front),
        *words,
        _table("Base model", {key: value for key, value in model.items() if value is not None}),
        _table("Evidence", evidence),
        _table("Examples by source", dict(sorted(counts.items()))),
        _table("Configuration", settings),
        _table("Versions", versions),
    ]
    return "\n\n".join(parts) + "\n"


def _table(title: str, rows: Mapping[str, object]) -> str:
    lines = [f"## {title}", "", "| | |", "|---|---|"]
    return "\n".join([*lines, *(f"| {_cell(key)} | {_cell(value)} |" for key, value in rows.items())])


def _cell(value: object) -> str:
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value))
    return f"{value:.10g}" if isinstance(value, float) else str(value).replace("|", "\\|")
