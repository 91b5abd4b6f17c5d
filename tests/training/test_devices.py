"""A model parted among processes trains to the same bits as one that each of them holds whole."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from calibudget.errors import DependencyError, TrainingError
from calibudget.training.config import Execution, TrainingConfig
from calibudget.training.data import padded_batch, without_labels
from calibudget.training.devices import Devices, plain_execution, shard_model
from calibudget.training.example_order import plan_steps, rows, share
from calibudget.training.loop import train
from tests.conftest import bytes_in
from tests.training.conftest import training_job

SETTINGS: dict[str, Any] = {
    "rank": 2,
    "scaling": 4.0,
    "max_length": 256,
    "batch_size": 5,
    "epochs": 3,
    "learning_rate": 1e-3,
}
#: So little that the two processes need different numbers of passes.
BATCH_TOKENS = 256

SCRIPT = """
import json, os, signal, sys
from functools import partial
from pathlib import Path

import numpy as np
import torch

torch.set_num_threads(1)
from calibudget.errors import InterruptedRunError
from calibudget.lm.loading import load_model
from calibudget.training.config import Execution, TrainingConfig
from calibudget.training.data import TrainingExample
from calibudget.training.devices import Devices
from calibudget.training.job import TrainingJob
from calibudget.training.loop import train

root, model_directory = Path(sys.argv[1]), sys.argv[2]
plan = json.loads((root / "plan.json").read_text())
examples = [TrainingExample(**e | {"ids": np.array(e["ids"], dtype=np.int32)}) for e in plan["examples"]]
devices = Devices("cpu")


def job_of(name, **options):
    return TrainingJob(
        language_model=load_model(model_directory, device="cpu"),
        examples=examples,
        config=TrainingConfig(**plan["settings"]),
        execution=Execution(device="cpu", batch_tokens=plan["batch_tokens"], deterministic=True, **options),
        output_dir=root / name,
        evidence={},
    )


train(job_of("whole"), devices=devices)
job = job_of("parted", shard=True, gradient_checkpointing=True)
train(job, devices=devices)
held = {
    "local": sum(p.to_local().numel() for p in job.language_model.model.parameters() if hasattr(p, "to_local")),
    "all": sum(p.numel() for p in job.language_model.model.parameters() if hasattr(p, "to_local")),
    "layers": len(job.language_model.model.get_decoder().layers),
}
(root / f"held-{devices.rank}.json").write_text(json.dumps(held))


def stop(report):
    if report.step == 1:
        os.kill(os.getpid(), signal.SIGINT)


torch.compile = partial(torch.compile, backend="aot_eager")  # traced and parted as for a GPU, without C++
options = {"shard": True, "compile": plan["compile"]}
try:
    train(job_of("stopped", **options), devices=devices, listener=stop)
except InterruptedRunError:
    train(job_of("stopped", **options), devices=devices, resume=True)
else:
    raise SystemExit("wasn't stopped")
if plan["compile"]:
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"]
"""


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.full)])
def test_a_parted_model_trains_to_the_same_bits(
    tiny_directory: Path, examples: Any, tmp_path: Path, language_model: Any, compiled: bool
) -> None:
    """The same order and losses as one process but for rounding; the same bits as two that hold it whole."""
    config = TrainingConfig(**SETTINGS)
    lengths = [example.length for example in examples]
    shares = [share(step.members, lengths, 2) for step in plan_steps(examples, config)]
    passes = [{len(rows(members, lengths, BATCH_TOKENS)) for members in parts} for parts in shares]
    assert any(len(counts) == 2 for counts in passes)
    fields = ("source", "record_id", "role", "prompt_length")
    listed = [{name: getattr(e, name) for name in fields} | {"ids": e.ids.tolist()} for e in examples]
    plan = {"examples": listed, "settings": SETTINGS, "batch_tokens": BATCH_TOKENS, "compile": compiled}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    (tmp_path / "program.py").write_text(SCRIPT)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    subprocess.run([*torchrun, str(tmp_path / "program.py"), str(tmp_path), str(tiny_directory)], check=True)

    assert bytes_in(tmp_path / "parted") == bytes_in(tmp_path / "whole") == bytes_in(tmp_path / "stopped")
    held = [json.loads((tmp_path / f"held-{rank}.json").read_text()) for rank in (0, 1)]
    assert held[0] == held[1]
    assert held[0]["local"] * 2 == held[0]["all"] > 60_000

    alone = training_job(language_model, examples, config, tmp_path / "alone", batch_tokens=4096, deterministic=True)
    train(alone)
    logs = [(tmp_path / name / "training.jsonl").read_text().splitlines() for name in ("alone", "parted")]
    for one, two in zip(*(map(json.loads, log) for log in logs), strict=True):
        for name in ("loss", "gradient_norm"):
            assert two.pop(name) == pytest.approx(one.pop(name), rel=1e-4)
        assert one == two
    found = load_file(tmp_path / "parted" / "adapter" / "adapter_model.safetensors")
    for name, value in load_file(alone.adapter / "adapter_model.safetensors").items():
        assert torch.linalg.vector_norm(found[name] - value) <= 5e-3 * torch.linalg.vector_norm(value), name


def test_a_peft_that_takes_a_part_for_the_whole_is_refused(
    monkeypatch: pytest.MonkeyPatch, language_model: Any
) -> None:
    monkeypatch.setattr("calibudget.training.devices.version", lambda _: "0.20.0")
    devices = Devices("cpu")
    devices.count = 2
    with pytest.raises(DependencyError, match=r"needs peft 0\.21 or later, not 0\.20\.0"):
        shard_model(language_model.model, devices)


def test_what_needs_whole_weights_is_left_out_or_refused() -> None:
    plain = plain_execution(Execution(shard=True, batch_tokens=2048))
    assert (plain.fuse, plain.graphs, plain.compile, plain.batch_tokens) == (False, False, None, 2048)
    for name in ("fuse", "graphs"):
        with pytest.raises(TrainingError, match=f"{name}: a model parted by `shard`"):
            plain_execution(Execution(shard=True, **{name: True}))  # type: ignore[arg-type]


def test_launching_with_fsdp_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = Devices("cpu")
    assert not devices.shards(None)
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    assert devices.shards(None)
    assert not devices.shards(False)


def test_a_pass_without_labels_teaches_nothing(learner_of: Callable[..., Any], examples: Any) -> None:
    learner = learner_of()
    loss = learner.gradients([without_labels(padded_batch(examples[:2]))], 10)
    assert loss.item() == 0.0
    assert all(not factor.gradient.any() for factor in learner.factors)
