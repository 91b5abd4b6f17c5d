"""What training says while it goes on, and when it is done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from calibudget.errors import InterruptedRunError
from calibudget.training.config import TrainingConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """How training stands after one step, for whoever listens.

    Attributes:
        step: optimizer steps taken.
        total: steps in all.
        epoch: pass over the train set, from 1.
        loss: mean loss of the step's response tokens, nats.
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
        adapter: directory of the adapter.
        log: the file `training.jsonl`.
        config: what was trained.
        steps: optimizer steps taken.
        final_loss: mean loss of the last step's response tokens, nats.
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
