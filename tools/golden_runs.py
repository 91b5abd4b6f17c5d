"""Golden runs: one small run of every kind, through the public API and the command line, as one digest a file.

    python tools/golden_runs.py --check tests/golden/runs.tsv     what differs from the committed digests
    python tools/golden_runs.py --write tests/golden/runs.tsv     write them anew, after a change of bytes that is meant
    python tools/golden_runs.py --check FILE --keep DIR           keep all files, to compare two builds with diff -r

All inputs are made here. Kinds that begin with `model` compute with a tiny random model, whose numbers are those of one
processor: on another only the names of their files are compared, and stderr says so.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import hashlib
import io
import json
import os
import platform
import random
import re
import runpy
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))  # this tree's package, wherever another is installed

#: What legitimately differs between builds, machines or moments, by file name: fields, or whole stretches of a text.
FIELD = r'"(%s)":\s*(\{[^{}]*\}|"[^"]*"|[-+0-9.eE]+|null)'
MASKED = {
    "manifest.json": FIELD % r"versions|manifest_sha256|rounds\.json",  # of Python and libraries; digests over them
    "rounds.json": FIELD % "manifest_sha256",
    "evaluation.json": FIELD % "versions",
    "frozen.json": FIELD % "frozen_sha256|code",  # digests of the source and over it
    "cell.json": FIELD % "cell_sha256|code|environment|seconds",  # its own digest, with times in it
    "stdout.json": FIELD % "manifest_sha256|code|seconds_expected",
    "README.md": r"(?<=manifest_sha256 \| )\w+|## Versions.*",  # an adapter's card
    "report.md": r"\| splits \| tiny +\|.*?\n",  # seconds a cell, here and in the table of its own
    "cells.csv": r"splits,tiny.*",
    "cells.md": r"\| splits \| tiny.*",
    "cells.tex": r"splits & tiny.*",
}
#: A folder whose name ends in a digest over the source.
MASKED_FOLDER = re.compile(r"(?<=calibration/)(tiny-\d+)-\w+")
LABELS = ["true", "false"]
#: Recipes, a protocol, and the tables of kinds.
KINDS = Path(__file__).resolve().parents[1] / "tests" / "golden" / "kinds"
#: What lies in the working directory by itself, by the kind that makes it.
FILES = {"proxy": "merged.jsonl", "init": "init.yaml"}


def _table(name: str) -> dict[str, list[str]]:
    lines = (KINDS / name).read_text().splitlines()
    return {words[0]: words[1:] for words in map(shlex.split, lines[1:])}


def _rows(name: str, count: int) -> list[dict[str, object]]:
    """Rows of one source: long and short, with and without input, with integers beyond 2^53."""
    luck = random.Random(name)  # noqa: S311 - reproducible rows, no secret
    words = ["apple", "river", "seven", "stone", "cloud", "green", "paper", "table", "window", "garden"]
    rows: list[dict[str, object]] = [
        {
            "own_id": f"{name}-{number}",
            "instruction": f"{name} {number}: is the {' '.join(luck.choices(words, k=luck.randint(2, 12)))} so?",
            "input": None if number % 3 else "A line of input.",
            "output": f"{'Since it was seen, ' * (number % 4)}the correct answer is {luck.choice(LABELS)}",
            "rating": luck.randint(0, 50),
            "meta": {"n": 2**60 + number, "f": 0.1 * number},
        }
        for number in range(count)
    ]
    return rows


def _write_lines(path: str, rows: list[dict[str, object]], more: str = "") -> None:
    text = "".join(json.dumps(row) + "\n" for row in rows) + more
    if path.endswith(".gz"):
        with gzip.GzipFile(path, "wb", 0, mtime=0) as file:  # the same bytes under every zlib
            file.write(text.encode())
    else:
        Path(path).write_text(text)


def write_inputs() -> None:
    """Data files, recipes and a protocol, in the working directory."""
    Path("data").mkdir()
    boolq, piqa, siqa = (_rows(name, count) for name, count in (("boolq", 40), ("piqa", 50), ("siqa", 35)))
    near = [row | {"instruction": str(row["instruction"]) + " Or not?", "own_id": "near"} for row in piqa[:3]]
    _write_lines("data/boolq.jsonl", boolq)
    _write_lines("data/piqa.jsonl", piqa + piqa[:3] + boolq[20:22] + near)
    _write_lines("data/siqa.jsonl.gz", siqa)
    _write_lines("data/math.jsonl", [{"prompt": f"{n} + 1?", "completion": str(n + 1)} for n in (1, 2, 3, 3)])
    _write_lines("data/torn.jsonl", _rows("torn", 20), '{"instruction": "no answer"}\n{"torn\n')
    _write_lines("data/exam.jsonl", [{"prompt": row["instruction"], "completion": "x"} for row in boolq[1:7]])
    chat: list[dict[str, object]] = [
        {
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": f"Hello {n}"},
                {"role": "assistant", "content": f"Hello to {n}."},
                {"role": "user", "content": f"And {n}?"},
                {"role": "assistant", "content": f"That is {n * n}."},
            ]
        }
        for n in range(30)
    ]
    _write_lines("data/chat.jsonl", chat)
    lines = [f"{'abc'[n % 3]},Is {n} so?,the correct answer is {LABELS[n % 2]}" for n in range(60)]
    Path("data/part.csv").write_text("kind,prompt,completion\n" + "\n".join(lines) + "\n")
    tasks = [{"goal": f"Goal {n}.", "sol1": "Twist.", "sol2": "Sing.", "label": n % 2} for n in range(6)]
    _write_lines("data/piqa.test.jsonl", tasks)
    for recipe in KINDS.glob("*.yaml"):
        shutil.copy(recipe, recipe.name)


def _write_scores_of_candidates() -> None:
    """What a user's own tools would make of a pool: scores and proxy scores of its candidates."""
    import pyarrow.parquet as pq

    table = pq.read_table("calibudget/splits.parquet", columns=["source", "record_id", "role"]).to_pylist()
    pool = sorted((row["source"], row["record_id"]) for row in table if row["role"] == "candidate")
    luck = random.Random(1)  # noqa: S311 - reproducible scores, no secret
    named = [{"source": source, "record_id": record_id} for source, record_id in pool]
    _write_lines("scores.jsonl", [row | {"score": luck.randint(0, 20) / 8} for row in named])
    bound = hashlib.sha256(json.dumps(pool, separators=(",", ":")).encode()).hexdigest()
    header = {"schema": "calibudget.proxy/1", "pool_size": len(pool), "pool_sha256": bound, "shards": 2}
    header |= {"subgroups": ["boolq", "piqa", "siqa"], "provenance": {"made": "by hand"}}
    lines = []
    for place, row in enumerate(named):
        means = [luck.uniform(-1, 1) for _ in range(3)]
        lines.append(
            {"position": place} | row | {"subgroups": header["subgroups"], "subgroup_means": means, "score": max(means)}
        )
    for shard in (0, 1):
        _write_lines(f"proxy-{shard}.jsonl", [header | {"shard": shard}, *lines[shard::2]])
    lines.sort(key=lambda line: (-line["score"], line["record_id"], line["source"]))
    _write_lines("proxy.jsonl", [header | {"shard": None}, *lines])


def write_model(folder: str) -> None:
    """A random Llama of 40 thousand parameters with a tokenizer of single bytes."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    names = special + sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={name: place for place, name in enumerate(names)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=special[1], eos_token=special[2], pad_token=special[2]
    )
    fast.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(names),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )
    LlamaForCausalLM(config).save_pretrained(folder)


def _call(kind: str, arguments: list[str]) -> None:
    """Give one command in this process; what it prints as JSON becomes the kind's stdout.json."""
    printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    before, sys.argv = sys.argv, ["calibudget", *arguments]
    code: object = None
    try:
        with contextlib.redirect_stdout(printed):
            runpy.run_module("calibudget", run_name="__main__")
    except SystemExit as leaving:
        code = leaving.code
    finally:
        sys.argv = before
    if code:
        raise SystemExit(f"golden run {kind}: `calibudget {shlex.join(arguments)}` ended with {code}")
    printed.flush()
    data = printed.buffer.getvalue()
    if data.startswith(b"{"):
        folder = Path("stdout") / kind  # beside the run directories, which hold no file of others
        folder.mkdir(parents=True)
        (folder / "stdout.json").write_bytes(data)


def _call_api() -> None:
    """The public functions that no command shows as they are."""
    import calibudget

    sources = json.loads(Path("calibudget/statistics.json").read_text())["sources"]
    utilities = calibudget.utilities(sources, 4, need_exponent=1.5, need_transform="rank")
    sizes = {label: row["pool_size"] for label, row in sources.items()}
    given = calibudget.allocate(sizes, utilities, 24, floor=4, caps={"piqa": 9})
    primitive = calibudget.apportion(
        {"a": 1, "b": 0.3, "c": 0}, 12, lower={"a": 2, "b": 0, "c": 0}, upper={"a": 9, "b": 3, "c": 1}
    )
    result = calibudget.run(calibudget.load_recipe("recipe.yaml", ["seed=3"]), "api/run")
    body = {
        "utilities": utilities,
        "allocate": {"quotas": given.quotas, "shares": given.shares, "floor_quotas": given.floor_quotas},
        "apportion": {"quotas": primitive.quotas, "shares": primitive.shares},
        "indices": calibudget.canonical_selected_indices_sha256([3, 1, 2]),
        "run": {"quotas": result.plan.quotas, "selected_sha256": result.selected_sha256},
        "differences": [str(one) for one in calibudget.verify("api/run").differences],
    }
    Path("stdout/api").mkdir()
    Path("stdout/api/stdout.json").write_text(json.dumps(body, sort_keys=True))


def _make_all() -> list[str]:
    """Every kind, in the working directory, a kind's files in the folder of its name; the kinds."""
    write_inputs()
    write_model("tiny")
    runs, commands = _table("runs.txt"), _table("commands.txt")
    for kind, changes in runs.items():
        _call(kind, ["run", "recipe.yaml", *changes, "--output-dir", kind, "--json"])
        if kind == "calibudget":
            _write_scores_of_candidates()
    for kind, arguments in commands.items():
        _call(kind, arguments)
    _call_api()
    return [*runs, *commands, "api", "study"]


def _masked(path: Path) -> bytes:
    """A file's bytes without what legitimately differs (see MASKED)."""
    data = path.read_bytes()
    if path.name == "SHA256SUMS.tsv":  # what is masked has no size and digest of its own either
        lines = [line.split(b"\t") for line in data.splitlines()]
        return b"\n".join(line[0] if Path(line[0].decode()).name in MASKED else b"\t".join(line) for line in lines)
    return re.sub(MASKED[path.name].encode(), b"", data, flags=re.DOTALL) if path.name in MASKED else data


def _digests(kinds: list[str]) -> Iterator[tuple[str, str, str]]:
    for kind in sorted(kinds):
        made = [(path, path.relative_to(kind).as_posix()) for path in Path(kind).rglob("*")]
        made += [(Path(name), name) for name in (FILES.get(kind),) if name]
        made += [(path, path.name) for path in Path("stdout", kind).rglob("*")]
        for path, name in sorted(made):
            if path.is_file() and not path.name.startswith("."):
                yield kind, MASKED_FOLDER.sub(r"\1", name), hashlib.sha256(_masked(path)).hexdigest()


def _environment() -> list[str]:
    """Two lines: the libraries whose versions show in files, and the processor that a model's numbers depend on."""
    names = ("matplotlib", "numpy", "pyarrow", "torch", "transformers")
    info = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*:\s*(.*)", info.read_text()) if info.exists() else None
    return [
        "# " + ", ".join(f"{name} {version(name)}" for name in names),
        f"# {found[1] if found else platform.processor() or platform.machine()}",
    ]


def _differences(then: list[str], now: list[str]) -> list[str]:
    """The files that differ, are new or are missing, a line each."""
    same_processor = then[1] == now[1]
    if not same_processor:
        sys.stderr.write(f"made on {then[1][2:]}: of the kinds `model…` only the names of files are compared\n")
    tables = []
    for lines in (then, now):
        rows = [line.split("\t") for line in lines[2:]]
        numbers_count = [same_processor or not kind.startswith("model") for kind, _, _ in rows]
        tables.append(
            {f"{row[0]}/{row[1]}": row[2] if counts else "" for row, counts in zip(rows, numbers_count, strict=True)}
        )
    old, new = tables
    told = {name: "is new" if name not in old else "is missing" if name not in new else "differs" for name in old | new}
    return [f"{name} {told[name]}" for name in sorted(told) if old.get(name) != new.get(name)]


def main() -> int:
    """Make all kinds; 0 if nothing differs, 1 if something does, 2 where other libraries make other bytes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--check", type=Path, metavar="FILE")
    what.add_argument("--write", type=Path, metavar="FILE")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="an empty or new folder for all files")
    options = parser.parse_args()
    environment = _environment()
    then = options.check.read_text().splitlines() if options.check else []
    if then and then[0] != environment[0]:
        sys.stderr.write(f"{options.check} was made with {then[0][2:]}; here are {environment[0][2:]}\n")
        return 2
    home = Path.cwd()
    with contextlib.ExitStack() as stack:
        root = home / options.keep if options.keep else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        root.mkdir(parents=True, exist_ok=True)
        stack.enter_context(contextlib.chdir(root))
        with Path("stderr.log").open("w") as log, contextlib.redirect_stderr(log):
            kinds = _make_all()
        now = environment + ["\t".join(row) for row in _digests(kinds)]
    if options.write:
        options.write.write_text("".join(line + "\n" for line in now))
        return 0
    differences = _differences(then, now)
    sys.stdout.write("".join(line + "\n" for line in differences))
    return int(bool(differences))


if __name__ == "__main__":
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}  # before any library
    sys.exit(main())
