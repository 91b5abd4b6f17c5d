"""Prompts that two roles share, of 2 million: the pass, the tables and the overlap, beside orjson and a set.

    python benchmarks/overlap.py [--records 2000000] [--folder DIR] [--runs 5]

Half of the records are a source, half an evaluation set, in JSON lines; 1,000 prompts are planted in both, half of them
in another case and spacing. Each job is a process of its own and must find them all; imports count. The peer parses
with orjson, normalises as we do (NFC, white space, case folding) and keeps the SHA-256 digests of one role in a set.
Ours makes the pass that a run makes anyway (ids, keys, digests of the files) and then looks for shared prompts in its
tables; what that takes by itself stands apart, and so does a second run, which finds its identities kept. Alternating
order, medians.
"""

import argparse
import platform
import random
import statistics
from pathlib import Path

from measuring import in_process

PLANTED = 1000
PEER = """
import hashlib, unicodedata
import orjson
def prompts(path):
    with open(path, "rb") as handle:
        for line in handle:
            text = orjson.loads(line)["instruction"]
            if not text.isascii():
                text = unicodedata.normalize("NFC", text)
            yield hashlib.sha256(" ".join(text.split()).casefold().encode()).digest()
held = set(prompts({exam!r}))
shared = sum(prompt in held for prompt in prompts({source!r}))
assert shared == {planted}, shared
"""
OURS = """
from pathlib import Path
from calibudget.sources.hygiene.checks import shared_prompts
from calibudget.sources.reading_workers import Readers, Reading
from calibudget.sources.whole_source import open_source
from calibudget.sources.spec import SourceSpec
with Readers(Reading(cache={cache})) as readers:
    def opened(name):
        return open_source(SourceSpec(label=name, path=name), Path({folder!r}), selection_seed=1, readers=readers)
    source, exam = opened({source_name!r}), opened({exam_name!r})
import time
before = time.process_time()
matched, _ = shared_prompts({{"source": source.parts()}}, {{"exam": exam.parts()}})
assert len(matched["source"]["evaluation exam"].digests) == {planted}
step = time.process_time() - before
"""


def make(folder: Path, records: int) -> tuple[Path, Path]:
    draw = random.Random(0)
    vocabulary = [f"{first}{second}" for first in "bcdfglmnprst" for second in ("a", "e", "io", "ou", "ar", "en")]
    sentences = [" ".join(draw.choices(vocabulary, k=18)) for _ in range(5000)]
    paths = folder / f"overlap-source-{records}.jsonl", folder / f"overlap-exam-{records}.jsonl"
    if all(path.exists() for path in paths):
        return paths
    for role, path in enumerate(paths):
        with path.open("w") as handle:
            for number in range(records // 2):
                planted = number < PLANTED
                name = f"shared {number}" if planted else f"{role} {number}"
                prompt = f"{sentences[number % 5000]} {sentences[number * 7 % 5000]} {name}?"
                if planted and role and number % 2:
                    prompt = prompt.upper().replace(" ", "  ")
                handle.write(
                    f'{{"instruction": "{prompt}", "input": "", "output": "{sentences[number * 3 % 5000]}"}}\n'
                )
    return paths


def measure(code: str) -> tuple[float, ...]:
    found = in_process(code)
    if isinstance(found, str):
        raise SystemExit(found)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--folder", type=Path, default=Path("build/data"))
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    source, exam = make(given.folder, given.records)
    known = {"source": str(source), "exam": str(exam), "planted": PLANTED, "folder": str(given.folder.absolute())}
    known |= {"source_name": source.name, "exam_name": exam.name}
    cache = f"Path({str(given.folder.absolute() / 'kept')!r})"
    jobs = {
        "calibudget": OURS.format(**known, cache=None),
        "calibudget, identities kept": OURS.format(**known, cache=cache),
        "orjson + set": PEER.format(**known),
    }
    measure(jobs["calibudget, identities kept"])  # fills what is kept
    took: dict[str, list[tuple[float, ...]]] = {name: [] for name in jobs}
    for run in range(given.runs):
        for name in list(jobs) if run % 2 else reversed(jobs):
            took[name].append(measure(jobs[name]))
    print(f"{given.records:,} records, {given.runs} runs, Python {platform.python_version()}, {platform.machine()}\n")
    print("| job | wall s | CPU s | of which overlap | peak MB |\n|---|---:|---:|---:|---:|")
    for name, runs in took.items():
        wall, cpu, step, memory = (statistics.median(column) for column in zip(*runs, strict=True))
        print(f"| {name} | {wall:.1f} | {cpu:.1f} | {step:.1f} | {memory:.0f} |")


if __name__ == "__main__":
    main()
