"""Reading, naming and drawing at scale: seconds, CPU seconds and memory of whole processes.

    python benchmarks/data.py [--records 2000000] [--folder DIR] [--runs 3] [--peers] [--only WORD ...]

Makes JSON lines of the given number of records once, then times each job in a process of its own, all jobs in turn, as
often as --runs says, and prints medians: naming alone (parse, normalise, identify), the pass, the pass with the
split, and all that with 10,000 records drawn, without a cache and with one that is filled; --only picks jobs by words
of their names. With --peers, HF datasets
(cold and warm), polars and DuckDB sample 10,000 rows of the same file at random, which needs no identity of any record;
orjson alone names records as plainly as can be; and prompts are counted that two halves of the file share.
"""

import argparse
import platform
import random
import statistics
import sys
from pathlib import Path

from measuring import in_process

TEXT = (
    "the of and to in a is that it was for on are as with his they at be this have from or one had by word but "
    "not what all were we when your can said there use an each which she do how their if will up other about "
    "out many then them"
)
WORDS = TEXT.split()

PASS = """
from pathlib import Path
from calibudget.sources.reading_workers import Readers, Reading
from calibudget.sources.whole_source import open_source
from calibudget.sources.spec import SourceSpec
with Readers(Reading({reading})) as readers:
    spec = SourceSpec(label="s", path={name!r})
    source = open_source(spec, Path({folder!r}), selection_seed=1, readers=readers)
assert source.count == {records}, source.count
"""
SPLIT = (
    PASS
    + """
from calibudget.sources.split import Parting
split = Parting(source).draw(split_seed=1, calibration_size=100).split()
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
NAMING = """
from pathlib import Path
from calibudget.sources.identity_index import Tally, name_rows
from calibudget.sources.inputs import inputs_of
from calibudget.sources.spec import SourceSpec
spec = SourceSpec(label="s", path={name!r})
(given,), _ = inputs_of(spec, Path({folder!r}))
assert sum(map(len, name_rows(spec, given, Tally()))) == {records}
"""
OVERLAP = """
from pathlib import Path
from calibudget.sources.hygiene.report import inspect_sources
from calibudget.sources.whole_source import open_source
from calibudget.sources.spec import SourceSpec
from calibudget.sources.split import Parting
specs = [SourceSpec(label=label, path=f"{name}.{{label}}") for label in ("one.jsonl", "two.jsonl")]
sources = [open_source(spec, Path({folder!r}), selection_seed=1) for spec in specs]
splits = [Parting(source).draw(split_seed=1, calibration_size=0).split() for source in sources]
found = inspect_sources(splits, specs).sources["two.jsonl"].prompts.candidates["one.jsonl"]
assert found == {shared}, found
"""
JOBS = {
    "naming: parse, normalise, sha256 (twice)": NAMING,
    "the pass": PASS,
    "the pass and the split": SPLIT,
    "the pass, the split and 10,000 records": SELECT,
    "the pass, identities kept": PASS,
    "all that, identities kept": SELECT,
    "prompts shared by two halves": OVERLAP,
}
PEERS = {
    "orjson: parse, normalise plainly, sha256 (once)": """
import hashlib
import unicodedata
import orjson
with open({path!r}, "rb") as handle:
    for line in handle:
        row = orjson.loads(line)
        one = " ".join(unicodedata.normalize("NFC", row["instruction"]).split())
        two = unicodedata.normalize("NFC", row["output"]).strip()
        hashlib.sha256(orjson.dumps([one, two])).digest()
""",
    "HF datasets, cold": """
import datasets, tempfile
with tempfile.TemporaryDirectory() as cache:
    rows = datasets.load_dataset("json", data_files={path!r}, split="train", cache_dir=cache)
    assert len(rows.shuffle(seed=1).select(range(10_000))[:]["output"]) == 10_000
""",
    "HF datasets, warm": """
import datasets
rows = datasets.load_dataset("json", data_files={path!r}, split="train", cache_dir={folder!r} + "/hf")
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
    "orjson and a set: prompts shared by two halves": """
import hashlib
import unicodedata
import orjson
def prompts(path):
    with open(path, "rb") as handle:
        for line in handle:
            row = orjson.loads(line)
            text = " ".join(unicodedata.normalize("NFC", row["instruction"]).split()).casefold()
            yield hashlib.sha256(text.encode()).digest()
seen = set(prompts({path!r} + ".one.jsonl"))
assert sum(one in seen for one in prompts({path!r} + ".two.jsonl")) == {shared}
""",
}


def make(path: Path, records: int) -> None:
    """Distinct records of about 320 bytes each."""
    draw = random.Random(0)
    sentences = [" ".join(draw.choices(WORDS, k=20)) for _ in range(5000)]
    with path.open("w") as handle:
        for number in range(records):
            one, two, three = (sentences[draw.randrange(5000)] for _ in range(3))
            handle.write(
                f'{{"instruction": "{one} {two} {number}?", "input": "", "output": "{three}", "meta": {number}}}\n'
            )


def part(path: Path, records: int) -> int:
    """The file as two halves, the second with some records of the first; how many."""
    half, shared = records // 2, records // 1000
    names = [path.with_name(f"{path.name}.{label}.jsonl") for label in ("one", "two")]
    if not all(name.exists() for name in names):
        with path.open("rb") as handle, names[0].open("wb") as one, names[1].open("wb") as two:
            for number, line in enumerate(handle):
                (one if number < half else two).write(line)
                if number < shared:
                    two.write(line)
    return shared


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--folder", type=Path, default=Path("build/data"))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--only", nargs="*", default=[""])
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    folder = given.folder.absolute()
    path = folder / f"rows-{given.records}.jsonl"
    if not path.exists():
        make(path, given.records)
    known: dict[str, object] = {"path": str(path), "name": path.name, "folder": str(folder), "records": given.records}
    asked = {
        name: code
        for name, code in (JOBS | (PEERS if given.peers else {})).items()
        if any(word in name for word in given.only)
    }
    halves = any("{shared}" in code for code in asked.values())
    known |= {"shared": part(path, given.records) if halves else 0, "reading": ""}
    kept = known | {"reading": f"cache=Path({str(folder / 'kept')!r})"}
    jobs = {name: code.format(**(kept if "kept" in name else known)) for name, code in asked.items()}
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in jobs}
    for name in jobs:
        if "kept" in name or "warm" in name:
            in_process(jobs[name])  # fills what is kept
    for _ in range(given.runs):
        for name in jobs:
            result = in_process(jobs[name])
            print(f"{name}: {result}", file=sys.stderr)
            if not isinstance(result, str):
                found[name].append(result)
    print(f"{given.records:,} records, medians of {given.runs}, Python {platform.python_version()}\n")
    print("| job | wall s | CPU s | M records per CPU s | peak MB |\n|---|---:|---:|---:|---:|")
    for name, results in found.items():
        if results:
            wall, cpu, _, memory = map(statistics.median, zip(*results, strict=True))
            print(f"| {name} | {wall:.1f} | {cpu:.1f} | {given.records / cpu / 1e6:.3f} | {memory:.0f} |")


if __name__ == "__main__":
    main()
