"""Many rounds in one process: memory stays flat, and no file, lock, thread or process is left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

#: One round: a run on what the round before left, its verification, a training on the tiny model and an evaluation.
PROGRAM = """
import ctypes, gc, json, os, sys, threading
from pathlib import Path
from calibudget.pipeline.run import run
from calibudget.pipeline.verify import verify
from calibudget.pipeline.evaluate import EvaluationRequest, evaluate
from calibudget.pipeline.evaluated_models import Generation
from calibudget.pipeline.train import train
from calibudget.recipe.load import load_recipe

out, rounds = Path(sys.argv[1]), int(sys.argv[2])
for number in range(rounds):
    place, before = out / str(number), [str(out / str(one)) for one in range(number)]
    changes = ["budget=2", "floor=0", "policy=proportional", f"seed={number}"]
    changes += [f"rounds={json.dumps({'previous': before})}"] if before else []
    run(load_recipe("model.yaml", changes), place)
    options = ("rank=2", "batch_size=2", "epochs=1", "max_length=512", "device=cpu")
    train(place, options)
    request = EvaluationRequest(tasks=("piqa=piqa.test.jsonl",), data_dir=Path("data"))
    evaluate(place, request, engine=Generation(device="cpu"))
    assert verify(place, data_dir="data").differences == ()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what was freed, in whichever thread, is given back before it is counted
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    print(json.dumps({
        "bytes": pages * os.sysconf("SC_PAGE_SIZE"), "files": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(), "children": len(children),
        "locks": Path("/proc/locks").read_text().count(f" {os.getpid()} "),
    }), flush=True)
"""


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")
@pytest.mark.parametrize("rounds", [4, pytest.param(24, marks=pytest.mark.full)])
def test_rounds_in_one_process_leave_nothing_behind(zygote: Any, tmp_path: Path, rounds: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), str(rounds)],
        cwd=zygote.folder,
        env=os.environ
        | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
        | {"MALLOC_ARENA_MAX": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    for name in ("files", "threads", "children", "locks"):
        assert told[-1][name] <= told[1][name], (name, told)
    half = len(told) // 2  # what the first rounds import and compile stays
    assert told[-1]["bytes"] - told[half]["bytes"] < 2_000_000 * (len(told) - half), told
