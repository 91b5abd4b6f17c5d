"""A sixteenth of the real sources and of GSM8K, for a study that shall only prove its machinery.

    python benchmarks/study_data.py DATA OUT [--companion COUNT]

Of each training file the first sixteenth in keyed order of its lines (of GSM8K's, COUNT lines if that is given), of
each test file the first 64 lines; names stay as they are, so that recipes and tasks find them.
"""

from __future__ import annotations

import argparse
import gzip
from pathlib import Path

from calibudget.keys import order_key

SOURCES = (
    "arc_challenge",
    "arc_easy",
    "boolq",
    "hellaswag_valsplit",
    "openbookqa",
    "piqa",
    "social_i_qa",
    "winogrande",
)
COMPANION = "math/gsm8k.train.jsonl.gz"
PART, TEST_ITEMS = 16, 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--companion", type=int)
    given = parser.parse_args()
    names = [f"commonsense/{name}.{part}.jsonl.gz" for name in SOURCES for part in ("train", "test")]
    for name in [*names, COMPANION, "math/gsm8k.test.jsonl.gz", "math/math.test.jsonl.gz"]:
        lines = gzip.decompress((given.data / name).read_bytes()).splitlines(keepends=True)
        count = TEST_ITEMS if ".test." in name else len(lines) // PART
        if name == COMPANION and given.companion is not None:
            count = given.companion
        order = sorted(range(len(lines)), key=lambda number, name=name: order_key("reduced", 0, name, str(number)))
        kept = b"".join(lines[number] for number in sorted(order[:count]))
        (given.out / name).parent.mkdir(parents=True, exist_ok=True)
        (given.out / name).write_bytes(gzip.compress(kept, mtime=0))
        print(f"{name}: {count:,} of {len(lines):,}")


if __name__ == "__main__":
    main()
