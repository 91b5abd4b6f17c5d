from __future__ import annotations

import pytest

from calibudget.errors import DependencyError
from calibudget.evaluation.sandbox import Limits, Sandbox, open_sandbox


@pytest.fixture(scope="session")
def sandbox() -> Sandbox:
    try:
        return open_sandbox(Limits(wall_seconds=60.0))
    except DependencyError as error:
        pytest.skip(str(error))
