"""Reading, naming and drawing at scale: seconds, CPU seconds and memory of whole processes.

    python benchmarks/data.py [--records 2000000] [--folder DIR] [--peers]

Makes JSON lines of the given number of records once, then times each job in a process of its own: the kernel alone
(parse, normalise, identify), the pass, the pass with the split, and all that with 10,000 records drawn. With --peers,
HF datasets, polars and DuckDB sample 10,000 rows of the same file at random, which needs no identity of any record.
"""

import argparse
import platform
import random
import subprocess
import sys
import time
from pathlib import Path

WORDS = [
    "the",
    "of",
    "and",
    "to",
    "in",
    "a",
    "is",
    "that",
    "it",
    "was",
    "for",
    "on",
    "are",
    "as",
    "with",
    "his",
    "they",
    "at",
    "be",
    "this",
    "have",
    "from",
    "or",
    "one",
    "had",
    "by",
    "word",
    "but",
    "not",
    "what",
    "all",
    "were",
    "we",
    "when",
    "your",
    "can",
    "said",
    "there",
    "use",
    "an",
    "each",
    "which",
    "she",
    "do",
    "how",
    "their",
    "if",
    "will",
    "up",
    "other",
    "about",
    "out",
    "many",
    "then",
    "them",
]

PASS = """
from pathlib import Path
from calibudget.sources import SourceSpec, open_source
source = open_source(SourceSpec(label="s", path={name!r}), Path({folder!r}), selection_seed=1)
assert source.count == {records}, source.count
"""
SPLIT = (
    PASS
    + """
from calibudget.sources import part_source
split = part_source(source, split_seed=1, calibration_size=100)
assert split.pool_size == {records} - 100
"""
)
SELECT = (
    SPLIT
    + """
picked = split.candidates[:10_000]
assert len(picked) == 10_000
"""
)
KERNEL = """
import hashlib
import orjson
from calibudget.sources.identity import digests
from calibudget.sources.parsing import parse_row
count = 0
with open({path!r}, "rb") as handle:
    for line in handle:
        row = parse_row(line, 100)
        digests(row["instruction"], row["output"])
        count += 1
assert count == {records}
"""
PEERS = {
    "HF datasets, cold cache": """
import datasets, tempfile
with tempfile.TemporaryDirectory() as cache:
    rows = datasets.load_dataset("json", data_files={path!r}, split="train", cache_dir=cache)
    assert len(rows.shuffle(seed=1).select(range(10_000))[:]["output"]) == 10_000
""",
    "polars": """
import polars
assert polars.read_ndjson({path!r}).sample(10_000, seed=1).height == 10_000
""",
    "DuckDB": """
import duckdb
rows = duckdb.sql("SELECT * FROM read_json('{path}', format='newline_delimited') USING SAMPLE reservoir(10000 ROWS)")
assert len(rows.fetchall()) == 10_000
""",
}
MEASURED = """
import resource, time
start = time.perf_counter()
{code}
use = resource.getrusage(resource.RUSAGE_SELF)
print(time.perf_counter() - start, use.ru_utime + use.ru_stime, use.ru_maxrss / 1024)
"""


def make(path: Path, records: int) -> None:
    """Distinct records of about 370 bytes each."""
    draw = random.Random(0)
    sentences = [" ".join(draw.choices(WORDS, k=20)) for _ in range(5000)]
    with path.open("w") as handle:
        for number in range(records):
            one, two, three = (sentences[draw.randrange(5000)] for _ in range(3))
            handle.write(
                f'{{"instruction": "{one} {two} {number}?", "input": "", "output": "{three}", "meta": {number}}}\n'
            )


def measure(name: str, code: str, records: int) -> None:
    text = MEASURED.format(code=code)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    if done.returncode:
        print(f"| {name} | failed: {done.stderr.strip().splitlines()[-1]:.60} | | | |", flush=True)
        return
    wall, cpu, memory = map(float, done.stdout.split())
    rate = records / cpu / 1e6
    print(f"| {name} | {wall:.1f} | {cpu:.1f} | {rate:.3f} | {memory:.0f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--folder", type=Path, default=Path("build/data"))
    parser.add_argument("--peers", action="store_true")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    path = given.folder / f"rows-{given.records}.jsonl"
    if not path.exists():
        start = time.perf_counter()
        make(path, given.records)
        print(f"made {path.stat().st_size / 1e6:.0f} MB in {time.perf_counter() - start:.0f} s")
    known = {"path": str(path), "name": path.name, "folder": str(path.parent.absolute()), "records": given.records}
    print(f"{given.records:,} records, Python {platform.python_version()}, {platform.machine()}\n")
    print("| job | wall s | CPU s | M records per CPU s | peak MB |\n|---|---:|---:|---:|---:|")
    jobs = {
        "parse, normalise, sha256": KERNEL,
        "the pass": PASS,
        "the pass and the split": SPLIT,
        "the pass, the split and 10,000 records": SELECT,
    }
    for name, code in (jobs | (PEERS if given.peers else {})).items():
        measure(name, code.format(**known), given.records)


if __name__ == "__main__":
    main()
