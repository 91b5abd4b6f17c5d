"""The training loop: steps in their planned order, each logged, checkpoints between them, an adapter at the end."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from importlib.metadata import distributions
from types import FrameType
from typing import Any, Final, Literal

import torch
from torch import Tensor

from calibudget.errors import ArtefactError, InterruptedRunError, TrainingError
from calibudget.keys import torch_seed
from calibudget.store.canonical import read_bytes
from calibudget.store.files import clean_stale, directory_lock, make_directory, remove_directory
from calibudget.training import report
from calibudget.training.checkpoint import atomic_directory, load_checkpoint, save_checkpoint
from calibudget.training.config import Execution
from calibudget.training.devices import Devices, plain_execution, shard_model
from calibudget.training.example_order import Step, plan_steps, rate_factor, share, warmup_steps
from calibudget.training.job import TrainingJob, check_usable
from calibudget.training.layers import ADAPTER
from calibudget.training.optimizer_step import Learner
from calibudget.training.target_layers import save_adapter
from calibudget.training.trackers import Trackers

_SECONDS_BETWEEN_CHECKPOINTS: Final = 600.0
#: What a process may ask of all.
_Wish = Literal["stop", "save"]
_LIBRARIES: Final = ("calibudget", "torch", "transformers", "peft", "safetensors")


def train(
    job: TrainingJob,
    *,
    devices: Devices | None = None,
    resume: bool = False,
    listener: report.Listener | None = None,
    conclude: Callable[[], None] | None = None,
) -> report.TrainingResult:
    """Train an adapter and write it to `adapter/` of the output directory, with `training.jsonl` beside it.

    With `resume` an unfinished training of the same job goes on, or starts where there is none; one that is finished is
    left as it is. In the main process `conclude` is called once adapter and log are whole, before the checkpoints go;
    if it is killed, resuming calls it again. The listener is told after each step.

    Raises:
        TrainingError: something that can't be trained on; or a loss that isn't finite, its records named.
        ArtefactError: an adapter or another training is there already, or the disk can't be written.
        InterruptedRunError: stopped on request; `resume` goes on.
    """
    devices = devices or Devices(job.execution.device)
    job.output_dir.mkdir(parents=True, exist_ok=True)
    lock = directory_lock(job.output_dir) if devices.is_main else nullcontext()
    with lock, _determinism(job.execution), _stop_requests() as stop:
        if devices.is_main:
            check_usable(job.output_dir, resume=resume)
        run = _Run(job, devices, stop, listener)
        try:
            result = run.finish(conclude)
        except torch.OutOfMemoryError as error:
            raise TrainingError(
                f"out of GPU memory with batch_tokens {job.execution.batch_tokens}; make it smaller, or say "
                "gradient_checkpointing: true"
            ) from error
        finally:
            run.close()
    return replace(result, stop_asked=stop.is_made)


class _StopRequest:
    """Whether someone asked to stop."""

    def __init__(self) -> None:
        self.is_made = False


@contextmanager
def _stop_requests() -> Iterator[_StopRequest]:
    """While the block runs, Ctrl-C or SIGTERM only sets the request, and a second one interrupts at once.

    Outside of the main thread, where signals can't be handled, nothing is changed.
    """
    request = _StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return

    def note(_signal: int, _frame: FrameType | None) -> None:
        if request.is_made:
            raise KeyboardInterrupt
        request.is_made = True

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Taken:
    """A step that the device may still be working on.

    Its numbers are loss, processes asked to stop, processes that want a checkpoint, and gradient norm; they are on the
    CPU once the device's event `ready` has happened.
    """

    number: int
    step: Step
    rate: float
    tokens: int
    response_tokens: int
    numbers: Tensor
    ready: Any


class _Run:
    """One training from its first or its resumed step to its end."""

    def __init__(
        self, job: TrainingJob, devices: Devices, stop: _StopRequest, listener: report.Listener | None
    ) -> None:
        self._job, self._devices, self._stop, self._listener = job, devices, stop, listener
        self._lengths = [example.length for example in job.examples]
        self._steps = plan_steps(job.examples, job.config)
        self._identity = job.identity()
        model = job.language_model.model
        self._shards = devices.shards(job.execution.shard)
        execution = plain_execution(job.execution) if self._shards else job.execution
        if self._shards:
            shard_model(model, devices)
        self._learner = Learner(model, str(job.language_model.identity["name"]), job.config, execution)
        self._is_finished = job.adapter.exists() and not job.checkpoints.exists()  # see `check_usable`
        self._done = len(self._steps) if self._is_finished else self._restore()
        self._log: report.TrainingLog | None = None
        self._trackers = Trackers((), job.output_dir, {})
        if devices.is_main:
            beside = job.output_dir.absolute()
            beside = beside.with_name(f"{beside.name}.tensorboard")
            self._trackers = Trackers(job.execution.report_to, beside, asdict(job.config))
            self._log = report.TrainingLog.open(job.output_dir / report.LOG_NAME, steps=self._done)
        self._last_loss = math.nan if self._log is None else self._log.last_loss
        self._pace = report.Pace()
        self._saved = time.monotonic()
        peak = report.measure_device(devices.device, model.dtype)
        self._token_share = (
            None if peak is None else report.flops_per_token(self._learner.model) / (peak * devices.count)
        )

    def finish(self, conclude: Callable[[], None] | None) -> report.TrainingResult:
        """Take the steps that are left and write the adapter."""
        pending: _Taken | None = None
        every = self._job.execution.checkpoint_every
        while self._done < len(self._steps):
            taken = self._take(self._steps[self._done])
            # the step before is looked at only now, so that the device always has work
            asked: set[_Wish] = set() if pending is None else self._settle(pending)
            pending = taken
            self._done += 1
            is_due = every is not None and self._done % every == 0  # by the count, which is the same in all processes
            if asked or self._stops_alone or is_due:
                asked |= self._settle(pending)
                pending = None
                self._save()
            if ("stop" in asked or self._stops_alone) and self._done < len(self._steps):
                raise InterruptedRunError(f"stopped after step {self._done} of {len(self._steps)}")
        if pending is not None:
            self._settle(pending)
        if not self._is_finished:
            self._save()
        elif self._devices.is_main:
            self._check_card()
        return self._conclude(conclude)

    @property
    def _stops_alone(self) -> bool:
        """Whether to stop at once, without asking the other processes."""
        return self._stop.is_made and self._devices.count == 1

    def close(self) -> None:
        """Close what is open, whatever happened."""
        self._trackers.finish()
        if self._log is not None:
            self._log.close()

    def _restore(self) -> int:
        """How many steps were taken already; the learner stands after them."""
        if self._devices.is_main:
            make_directory(self._job.checkpoints)
            clean_stale(self._job.checkpoints)
            clean_stale(self._job.output_dir)
        self._devices.wait()
        found = load_checkpoint(self._job.checkpoints, self._identity)
        if found is None:
            return 0
        steps, tensors = found
        self._learner.load(tensors, steps)
        return steps

    def _take(self, step: Step) -> _Taken:
        """Start one optimizer step; its numbers are read later."""
        examples, devices = self._job.examples, self._devices
        response_tokens = sum(examples[index].response_length for index in step.members)
        shares = share(step.members, self._lengths, devices.count)
        if self._job.config.dropout:
            torch.manual_seed(torch_seed("dropout", self._job.config.seed, f"{self._done}:{devices.rank}"))
        if self._shards:
            batches = self._learner.even_batches(examples, shares, devices.rank)
        else:
            batches = self._learner.batches(examples, shares[devices.rank])
        units = self._job.config.loss_unit(len(step.members), response_tokens)
        loss = self._learner.gradients(batches, units)
        by_the_clock = self._job.execution.checkpoint_every is None
        is_late = by_the_clock and time.monotonic() - self._saved >= _SECONDS_BETWEEN_CHECKPOINTS
        wishes = [torch.full_like(loss, float(wish)) for wish in (self._stop.is_made, is_late)]
        counts = torch.stack([loss, *wishes])
        devices.add_up([*(factor.gradient for factor in self._learner.factors), counts])
        rate = self._rate(step)
        norm = self._learner.update(self._job.config.factor_rates(rate))
        numbers = torch.cat([counts, norm[None]]).to("cpu", non_blocking=True)
        ready: Any = torch.cuda.Event() if loss.is_cuda else None  # type: ignore[no-untyped-call]
        if ready is not None:
            ready.record()
        return _Taken(
            number=self._done + 1,
            step=step,
            rate=rate,
            tokens=sum(self._lengths[index] for index in step.members),
            response_tokens=response_tokens,
            numbers=numbers,
            ready=ready,
        )

    def _rate(self, step: Step) -> float:
        """The geometric mean of the factors' rates in one step."""
        config = self._job.config
        peak = (config.recovery_learning_rate if step.phase == "recovery" else None) or config.learning_rate
        warmup = warmup_steps(step.total, config.warmup_fraction)
        return peak * rate_factor(step.index, step.total, warmup, config.schedule)

    def _settle(self, taken: _Taken) -> set[_Wish]:
        """Wait for a step's numbers, check and log them; what any process asked for."""
        if taken.ready is not None:
            taken.ready.synchronize()
        loss, stops, saves, norm = taken.numbers.tolist()
        if not (math.isfinite(loss) and math.isfinite(norm)):
            names = ", ".join(self._job.examples[index].name for index in taken.step.members)
            raise TrainingError(
                f"step {taken.number}: loss {loss}, gradient norm {norm}; the learning rate may be too high, or one "
                f"of the step's records is at fault: {names}"
            )
        self._last_loss = loss
        self._pace.add(taken.tokens)
        if self._log is not None:
            entry = {
                "step": taken.number,
                "phase": taken.step.phase,
                "epoch": taken.step.epoch,
                "loss": loss,
                "gradient_norm": norm,
                "learning_rate": taken.rate,
                "examples": len(taken.step.members),
                "tokens": taken.tokens,
                "response_tokens": taken.response_tokens,
            }
            self._log.write(entry)
            self._report(taken, loss, norm)
        wishes: dict[_Wish, float] = {"stop": stops, "save": saves}
        return {wish for wish, count in wishes.items() if count > 0}

    def _report(self, taken: _Taken, loss: float, norm: float) -> None:
        speed = self._pace.tokens_per_second
        values = {"loss": loss, "gradient_norm": norm, "learning_rate": taken.rate, "epoch": float(taken.step.epoch)}
        self._trackers.log(values | ({} if speed is None else {"tokens_per_second": speed}), taken.number)
        told = report.StepReport(
            step=taken.number,
            total=len(self._steps),
            epoch=taken.step.epoch,
            loss=loss,
            learning_rate=taken.rate,
            tokens_per_second=speed,
            device_share=None if speed is None or self._token_share is None else speed * self._token_share,
            seconds_left=self._pace.seconds_left(len(self._steps) - taken.number),
        )
        if self._listener is not None:
            self._listener(told)

    def _save(self) -> None:
        """Write the checkpoint of the steps taken, unless it is there.

        Raises:
            TrainingError: factors that the last update made infinite.
        """
        if not all(factor.values.isfinite().all() for factor in self._learner.factors):
            raise TrainingError(
                f"step {self._done}: its update leaves factors that are no finite numbers; the learning rate may be "
                "too high"
            )
        if self._log is not None:
            self._log.sync()
            tensors = self._learner.tensors()
            save_checkpoint(self._job.checkpoints, step=self._done, tensors=tensors, identity=self._identity)
        self._devices.wait()
        self._saved = time.monotonic()

    def _conclude(self, conclude: Callable[[], None] | None) -> report.TrainingResult:
        """Write the adapter from the last step's factors; checkpoints are removed when it is whole."""
        job = self._job
        if self._devices.is_main:
            if not job.adapter.exists():
                with atomic_directory(job.adapter) as directory:
                    save_adapter(self._learner.model, directory)
                    (directory / report.CARD_NAME).write_text(self._card(), encoding="utf-8")
            if conclude is not None and not self._is_finished:
                conclude()
            if job.checkpoints.exists():
                remove_directory(job.checkpoints)
            clean_stale(job.output_dir)
        self._devices.wait()
        return report.TrainingResult(
            adapter=job.adapter,
            log=job.output_dir / report.LOG_NAME,
            config=job.config,
            steps=len(self._steps),
            final_loss=self._last_loss,
            tokens_per_second=self._pace.tokens_per_second,
            frozen_experts=self._learner.frozen_experts,
        )

    def _check_card(self) -> None:
        """Refuse an adapter that its card says to be of another training than this one."""
        path = self._job.adapter / report.CARD_NAME
        texts = self._card(), read_bytes(path).decode(errors="replace")
        if len({text.partition("## Versions")[0] for text in texts}) == 2:
            raise ArtefactError(
                f"{self._job.adapter}: is of a finished training of another model, train set or configuration; give "
                "the same ones, or name another directory"
            )

    def _card(self) -> str:
        return report.model_card(
            self._job,
            target_modules=self._learner.model.peft_config[ADAPTER].target_modules,
            frozen_experts=self._learner.frozen_experts,
            final_loss=self._last_loss,
            versions=_versions(),
        )


def _versions() -> dict[str, str]:
    """Versions of the libraries that are installed as such; a source tree on the path isn't."""
    found = {name: next(iter(distributions(name=name)), None) for name in _LIBRARIES}
    return {name: distribution.version for name, distribution in found.items() if distribution is not None}


@contextmanager
def _determinism(execution: Execution) -> Iterator[None]:
    """While the block runs, the same numbers give the same bits on the same device, if that is asked."""
    if not execution.deterministic:
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
