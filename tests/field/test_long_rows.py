"""Six sources with rows of 40 MB: reading them takes the memory of one such row, however many there are."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROW_BYTES = 40 * 10**6
RECIPE = """
budget: 40
policy: equal
calibration: none
sources:
{sources}
"""
# The high-water mark of the process's own memory: `ru_maxrss` begins at that of the process that started it.
READ = """
import re, sys
from pathlib import Path
from calibudget.pipeline.prepare import prepare
from calibudget.recipe.load import load_recipe

prepared = prepare(load_recipe(sys.argv[1]))
peak = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())
print(sum(prepared.pool_sizes.values()), int(peak[1]) // 1024)
"""


def peak_mib(root: Path, count: Any) -> Any:
    """Records read, and the peak memory of a process that reads so many sources, in MiB."""
    sources = "\n".join(f"  s{number}: {{path: s{number}.jsonl.gz}}" for number in range(count))
    recipe = root / f"{count}.yaml"
    recipe.write_text(RECIPE.format(sources=sources))
    done = subprocess.run([sys.executable, "-c", READ, str(recipe)], capture_output=True, text=True, check=True)
    read, peak = map(int, done.stdout.split())
    return read, peak


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak memory where Linux keeps it")
def test_six_sources_of_40_mb_rows_take_the_memory_of_one_row(tmp_path: Path) -> None:
    long = json.dumps({"prompt": "summarise " + "word " * (ROW_BYTES // 5), "completion": "words"}).encode() + b"\n"
    packed = gzip.compress(long, 1)
    for number in range(6):
        short = "".join(json.dumps({"prompt": f"{number}: {i}?", "completion": str(i)}) + "\n" for i in range(50))
        (tmp_path / f"s{number}.jsonl.gz").write_bytes(gzip.compress(short.encode()) + packed)
    read, one = peak_mib(tmp_path, 1)
    assert read == 51
    read, six = peak_mib(tmp_path, 6)
    assert read == 6 * 51
    print(f"peak MiB: {one} for one source, {six} for six")
    assert six < one + 100
    assert six < 12 * ROW_BYTES / 2**20 + 150
