"""The bits of a matrix product don't depend on how many threads, and so how many workers, share the cores."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

#: Products of the shapes of a small model: a few rows, and a long inner sum that MKL likes to split among threads.
PRODUCTS = """
import calibudget.lm, hashlib, torch
for threads in (1, 2, 3, 8):
    torch.set_num_threads(threads)
    digest = hashlib.sha256()
    for rows in (1, 7, 17, 40, 64, 100, 150):
        for inner, outer in ((576, 576), (576, 192), (1536, 576), (4096, 576)):
            generator = torch.Generator().manual_seed(rows * inner + outer)
            left, right = torch.randn(rows, inner, generator=generator), torch.randn(outer, inner, generator=generator)
            digest.update(torch.nn.functional.linear(left, right).numpy().tobytes())
    print(digest.hexdigest())
"""


def digests(**environment: str) -> set[str]:
    own = {name: value for name, value in os.environ.items() if name != "MKL_CBWR"}
    command = [sys.executable, "-c", PRODUCTS]
    result = subprocess.run(command, env=own | environment, capture_output=True, text=True, check=True)
    lines = result.stdout.split()
    assert len(lines) == 4
    return set(lines)


def test_products_have_the_same_bits_for_any_number_of_threads() -> None:
    assert len(digests()) == 1


def test_without_the_strict_mode_they_differ() -> None:
    if len(digests(MKL_CBWR="AUTO")) == 1:
        pytest.skip("this processor's matrix products don't depend on the number of threads in any mode")
    assert len(digests(MKL_CBWR="AUTO,STRICT")) == 1
