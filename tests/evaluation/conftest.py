from __future__ import annotations

import os
from pathlib import Path

import pytest

from calibudget.errors import DependencyError
from calibudget.evaluation.sandbox import Limits, Sandbox, open_sandbox


@pytest.fixture(scope="session")
def sandbox() -> Sandbox:
    try:
        return open_sandbox(Limits(wall_seconds=60.0))
    except DependencyError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def data_dir() -> Path:
    folder = os.environ.get("CALIBUDGET_DATA")
    if not folder:
        pytest.skip("CALIBUDGET_DATA names no folder with the real data sets")
    return Path(folder)
