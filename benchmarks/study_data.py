"""A sixteenth of the real sources and of GSM8K, for a study that shall only prove its machinery.

    python benchmarks/study_data.py DATA OUT

Of each training file the first sixteenth in keyed order of its lines, of each test file the first 64 lines; names stay
as they are, so that recipes and tasks find them.
"""

from __future__ import annotations

import gzip
import sys
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
PART, TEST_ITEMS = 16, 64


def main(data: Path, out: Path) -> None:
    names = [f"commonsense/{name}.{part}.jsonl.gz" for name in SOURCES for part in ("train", "test")]
    for name in [*names, "math/gsm8k.train.jsonl.gz", "math/gsm8k.test.jsonl.gz"]:
        lines = gzip.decompress((data / name).read_bytes()).splitlines(keepends=True)
        count = TEST_ITEMS if ".test." in name else len(lines) // PART
        order = sorted(range(len(lines)), key=lambda number, name=name: order_key("reduced", 0, name, str(number)))
        kept = b"".join(lines[number] for number in sorted(order[:count]))
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_bytes(gzip.compress(kept, mtime=0))
        print(f"{name}: {count:,} of {len(lines):,}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
