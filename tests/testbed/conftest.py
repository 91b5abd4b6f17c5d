"""The testbed's data, generated once, and a small protocol over it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

PROTOCOL = Path(__file__).parents[2] / "testbed" / "protocols" / "testbed-1.yaml"

TINY = """\
name: tiny
model_sha256: null
data_sha256: null
training: {rank: 4, scaling: 4.0, learning_rate: 0.005, epochs: 1, batch_size: 4, max_length: 512}
calibration: {per_source: 30, resamples: 20, max_new_tokens: 2}
companion: 4
test_items: 3
decoded: 2
choosing: choose
policies:
  equal: {rule: equal}
  even: {rule: equal}
  calibudget: {rule: calibudget}
  answers: {rule: answers, exposures: [2, 4]}
  checkpoints: {rule: answers, exposures: [2, 4], checkpoints: true}
  charged: {rule: answers, exposures: [2, 4], checkpoints: true, charged: true}
  chosen: {rule: chosen, among: [answers, checkpoints]}
points:
  - {name: choose, half: choose, status: choosing, budget: 80, floor: 4, seeds: [1], policies: [answers, checkpoints]}
  - {name: main, half: choose, status: confirmatory, budget: 96, floor: 4, seeds: [1, 2],
     policies: [equal, even, calibudget, charged]}
"""


@pytest.fixture(scope="session")
def protocol_path() -> Any:
    return PROTOCOL


@pytest.fixture
def tiny_protocol(tmp_path: Path) -> Any:
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def testbed_data(tmp_path_factory: pytest.TempPathFactory) -> Any:
    pytest.importorskip("reasoning_gym")
    from testbed.data import generate

    directory = tmp_path_factory.mktemp("testbed-data")
    generate(directory)
    return directory


@pytest.fixture(scope="session")
def second_data(tmp_path_factory: pytest.TempPathFactory) -> Any:
    pytest.importorskip("reasoning_gym")
    from testbed.data import generate

    directory = tmp_path_factory.mktemp("testbed-2-data")
    generate(directory, ("confirm-2",))
    return directory
