from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from calibudget.errors import ArtefactError, InterruptedRunError, TrainingError
from calibudget.lm.loading import load_model
from calibudget.training import checkpoint as checkpoint_module
from calibudget.training import loop
from calibudget.training.checkpoint import save_checkpoint
from calibudget.training.config import TrainingConfig
from calibudget.training.loop import train
from calibudget.training.optimizer_step import Learner
from tests.conftest import bytes_in
from tests.training.conftest import training_job

#: Nine examples, of which five are companions, in batches of four: three steps an epoch, six in all.
SMALL: dict[str, Any] = {
    "rank": 2,
    "scaling": 4.0,
    "max_length": 256,
    "batch_size": 4,
    "epochs": 2,
    "learning_rate": 1e-3,
}


@pytest.fixture
def job_of(tiny_directory: Path, examples: Any, tmp_path: Path) -> Any:
    def make(name: str = "out", *, execution: Any = None, few: Any = None, **settings: Any) -> Any:
        options: dict[str, Any] = {"checkpoint_every": 2, "deterministic": True} | (execution or {})
        model, config = load_model(str(tiny_directory), device="cpu"), TrainingConfig(**(SMALL | settings))
        job = training_job(model, examples[:few], config, tmp_path / name, **options)
        return replace(job, evidence={"manifest_sha256": "0" * 64})

    return make


def lines_of(job: Any) -> Any:
    return [json.loads(line) for line in (job.output_dir / "training.jsonl").read_text().splitlines()]


def stop_after(step: Any) -> Any:
    def listen(report: Any) -> None:
        if report.step == step:
            os.kill(os.getpid(), signal.SIGINT)

    return listen


def test_a_run_leaves_an_adapter_a_card_and_a_log(job_of: Callable[..., Any]) -> None:
    job = job_of()
    reports: list[Any] = []
    result = train(job, listener=reports.append)
    assert sorted(bytes_in(job.output_dir)) == [
        "adapter/README.md",
        "adapter/adapter_config.json",
        "adapter/adapter_model.safetensors",
        "training.jsonl",
    ]
    lines = lines_of(job)
    assert [line["step"] for line in lines] == list(range(1, 7)) == [report.step for report in reports]
    assert sum(line["examples"] for line in lines) == 2 * 9
    assert sum(line["tokens"] for line in lines) == 2 * sum(example.length for example in job.examples)
    assert lines[-1]["loss"] < lines[0]["loss"]
    assert result.final_loss == lines[-1]["loss"]
    assert "time" not in lines[0]
    card = (result.adapter / "README.md").read_text()
    assert "0" * 64 in card
    assert "| companion | 5 |" in card
    assert "0.0003535533906" in card


def test_a_stop_in_the_last_step_is_left_to_whoever_has_more_to_do(job_of: Callable[..., Any]) -> None:
    job = job_of()
    result = train(job, listener=stop_after(6))
    assert result.stop_asked
    with pytest.raises(InterruptedRunError, match="after step 6 of 6"):
        result.heed_stop()
    assert (result.adapter / "adapter_model.safetensors").is_file()
    assert not job.checkpoints.exists()


def test_an_update_that_breaks_the_factors_is_refused_in_the_last_step_too(
    job_of: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    job, update, rates = job_of(), Learner.update, []

    def broken(self: Any, given: Any) -> Any:
        rates.append(given)
        norm = update(self, given)
        if len(rates) == 6:
            self.factors[1].values.data[0] = float("inf")
        return norm

    monkeypatch.setattr(Learner, "update", broken)
    with pytest.raises(TrainingError, match=r"step 6: its update leaves factors"):
        train(job)
    assert not job.adapter.exists()


@pytest.mark.slow
def test_equal_runs_write_equal_bytes_and_another_seed_gives_another_adapter(job_of: Callable[..., Any]) -> None:
    one, same, other = job_of("one"), job_of("same"), job_of("other", seed=43)
    train(one)
    torch.manual_seed(7)  # the global generator plays no part
    train(same)
    train(other)
    assert bytes_in(one.output_dir) == bytes_in(same.output_dir)
    weights = "adapter/adapter_model.safetensors"
    assert bytes_in(one.output_dir)[weights] != bytes_in(other.output_dir)[weights]


@pytest.mark.slow
def test_padded_packed_and_accumulated_runs_agree(job_of: Callable[..., Any]) -> None:
    executions = ({"pack": False}, {"pack": True}, {"pack": True, "batch_tokens": 256})
    adapters = []
    for number, execution in enumerate(executions):
        job = job_of(str(number), execution=execution)
        train(job)
        adapters.append(load_file(job.adapter / "adapter_model.safetensors"))
    for name, value in adapters[0].items():
        for other in adapters[1:]:
            assert (other[name] - value).norm() <= 2e-3 * value.norm(), name


@pytest.mark.slow
@pytest.mark.parametrize("step", [1, 4])
def test_a_stopped_run_resumes_to_the_same_bytes(job_of: Callable[..., Any], step: int) -> None:
    whole, stopped = job_of("whole"), job_of("stopped")
    train(whole)
    with pytest.raises(InterruptedRunError, match="stopped after step") as caught:
        train(stopped, listener=stop_after(step))
    assert caught.value.exit_code == 3
    assert not stopped.adapter.exists()
    with pytest.raises(ArtefactError, match="unfinished training"):
        train(job_of("stopped"))
    train(job_of("stopped"), resume=True)
    assert bytes_in(stopped.output_dir) == bytes_in(whole.output_dir)


def test_an_adapter_that_is_there_is_never_overwritten_and_found_finished(job_of: Callable[..., Any]) -> None:
    job = job_of()
    done = train(job)
    before = bytes_in(job.output_dir)
    for other, resume in ((job_of(), False), (job_of(rank=8), True)):
        with pytest.raises(ArtefactError, match="adapter"):
            train(other, resume=resume)
    again = train(job_of(), resume=True)
    assert (again.steps, again.final_loss) == (done.steps, done.final_loss)
    assert bytes_in(job.output_dir) == before


def test_a_damaged_checkpoint_and_a_changed_log_are_refused(job_of: Callable[..., Any]) -> None:
    job = job_of()
    with pytest.raises(InterruptedRunError):
        train(job, listener=stop_after(2))
    log, path = job.output_dir / "training.jsonl", next(job.checkpoints.glob("step-*/tensors.safetensors"))
    whole, data = log.read_bytes(), bytearray(path.read_bytes())
    log.write_text('{"step": 2}\n')
    with pytest.raises(ArtefactError, match=":1: "):
        train(job_of(), resume=True)
    log.write_bytes(whole)
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(ArtefactError, match="damaged"):
        train(job_of(), resume=True)


def test_a_loss_that_isnt_finite_names_the_batch(job_of: Callable[..., Any]) -> None:
    job = job_of(learning_rate=1e30, max_grad_norm=None, schedule="constant", warmup_fraction=0.0)
    with pytest.raises(TrainingError, match=r"step 2: loss nan") as caught:
        train(job)
    named = [example.name for example in job.examples if example.name in str(caught.value)]
    assert len(named) == 4
    assert not job.adapter.exists()


def test_checkpoints_are_written_by_the_clock_unless_told(
    job_of: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = []
    save = loop.save_checkpoint  # type: ignore[attr-defined]
    monkeypatch.setattr(loop, "save_checkpoint", lambda root, **rest: saved.append(rest["step"]) or save(root, **rest))  # type: ignore[func-returns-value]
    train(job_of("hour", execution={"checkpoint_every": None}))
    assert saved == [6]
    saved.clear()
    monkeypatch.setattr(loop, "_SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    train(job_of("now", execution={"checkpoint_every": None}))
    assert saved == [2, 4, 6, 6]


def test_what_a_killed_writer_of_a_checkpoint_left_goes_with_the_next(tmp_path: Path) -> None:
    (tmp_path / ".calibudget-0123456789abcdef.tmp").mkdir()
    save_checkpoint(tmp_path, step=1, tensors={"one": torch.ones(1)}, identity="")
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


def test_recovery_steps_are_logged_under_their_own_schedule(job_of: Callable[..., Any]) -> None:
    job = job_of(recovery_steps=2, recovery_learning_rate=5e-4, warmup_fraction=0.0)
    train(job)
    recovery = [line for line in lines_of(job) if line["phase"] == "recovery"]
    assert [line["step"] for line in recovery] == [7, 8]
    assert recovery[0]["learning_rate"] == 5e-4
    assert recovery[0]["examples"] == 4


def test_atomic_directories_are_whole_or_absent(tmp_path: Path) -> None:
    def write_half() -> None:
        with checkpoint_module.atomic_directory(tmp_path / "a") as directory:
            (directory / "file").write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert list(tmp_path.iterdir()) == []
    with checkpoint_module.atomic_directory(tmp_path / "a") as directory:
        (directory / "file").write_text("whole")
    with pytest.raises(ArtefactError, match="exists"), checkpoint_module.atomic_directory(tmp_path / "a"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
