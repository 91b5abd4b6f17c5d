"""Everything that is read from a file: a whole one of each kind, and what reads it.

python tests/attacks/targets.py FOLDER NAME --seconds 600     fuzzing guided by coverage (needs atheris)
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
import tempfile
from collections.abc import Callable
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHOICE = ("true", "false")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A kind of file.

    Attributes:
        name: the file's name, which a refusal has to hold.
        data: a whole one.
        read: what reads it, in the folder that holds it.
    """

    name: str
    data: bytes
    read: Callable[[Path], object]


def text_targets() -> list[Target]:
    """Kinds whose whole files are made here."""
    import pyarrow as pa

    rows: list[dict[str, Any]] = [
        {"instruction": f"é {i}?", "output": f"the answer is {CHOICE[i % 2]}"} for i in range(30)
    ]
    turns = [
        {"messages": [{"role": "user", "content": f"é {i}"}, {"role": "assistant", "content": "x"}]} for i in range(9)
    ]
    lines = _lines(rows)
    made = {
        "rows.jsonl": lines,
        "turns.jsonl": _lines([{"messages": one} for one in turns]),
        "rows.jsonl.gz": gzip.compress(lines, mtime=0),
        "rows.jsonl.zst": pa.compress(lines, codec="zstd", asbytes=True),
        "rows.json": json.dumps(rows).encode(),
        "rows.csv": b"instruction,output\n" + b'"a ""b""\nc",true\n' * 30,
        "rows.tsv": b"instruction\toutput\n" + b"a\ttrue\n" * 30,
    }
    return [Target(name=name, data=data, read=read_source) for name, data in made.items()]


def table_targets() -> list[Target]:
    """Rows in Arrow's formats."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pylist(
        [{"instruction": f"é {i}?", "output": CHOICE[i % 2], "meta": {"n": [i]}} for i in range(40)]
    )
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        pq.write_table(table, "rows.parquet")
        with pa.OSFile("rows.arrow", "wb") as sink, pa.ipc.new_stream(sink, table.schema) as out:
            out.write_table(table)
        return [
            Target(name=name, data=Path(name).read_bytes(), read=read_source) for name in ("rows.parquet", "rows.arrow")
        ]


def artefact_targets(folder: Path) -> list[Target]:
    """Recipes, protocols and what runs, evaluations and studies leave, of the runs in a folder."""
    from calibudget.evaluation.results import EVALUATION, read_predictions
    from calibudget.recipe.load import load_recipe
    from calibudget.selection.proxy import parse_proxy_lines
    from calibudget.sources.hygiene.artefact import HYGIENE
    from calibudget.store.artefacts import ALLOCATION, SELECTION, STATISTICS
    from calibudget.store.checksums import read_sums
    from calibudget.store.manifest import MANIFEST
    from calibudget.store.scores import read_scores
    from calibudget.store.splits import read_splits
    from calibudget.store.train_set import read_train
    from calibudget.study.cell_records import read_cell, read_items
    from calibudget.study.freeze import read_frozen
    from calibudget.study.protocol import load_protocol

    readers: dict[str, Callable[[Path], object]] = {
        "recipe.yaml": load_recipe,
        "protocol.yaml": load_protocol,
        "fake/recipe.resolved.yaml": load_recipe,
        "fake/manifest.json": MANIFEST.read,
        "fake/hygiene.json": HYGIENE.read,
        "fake/statistics.json": STATISTICS.read,
        "fake/allocation.json": ALLOCATION.read,
        "fake/selection.json": SELECTION.read,
        "fake/splits.parquet": read_splits,
        "fake/scores.parquet": read_scores,
        "fake/SHA256SUMS.tsv": lambda path: read_sums(path.parent),
        "fake/train.jsonl": lambda path: list(read_train(path)),
        "fake/evaluation.json": EVALUATION.read,
        "fake/predictions.parquet": read_predictions,
        "frozen/frozen.json": lambda path: read_frozen(path.parent),
        "whole-influence/influence.jsonl": lambda path: parse_proxy_lines(path.read_bytes().splitlines(), path.name),
    }
    cell = next((folder / "whole-study" / "cells").rglob("cell.json")).parent.relative_to(folder).as_posix()
    readers |= {f"{cell}/cell.json": read_cell, f"{cell}/items.parquet": read_items}
    paths = {name: folder / name for name in readers if (folder / name).exists()}
    return [Target(name=path.name, data=path.read_bytes(), read=readers[name]) for name, path in paths.items()]


def answer_targets() -> list[Target]:
    """Texts that a model wrote, under every rule that reads answers."""
    from calibudget.tasks.answers import AnswerSpec, answers_equal, parse_answer

    def read(path: Path) -> None:
        text = path.read_bytes().decode(errors="replace")
        for spec in (
            AnswerSpec(kind="choice", labels=CHOICE),
            AnswerSpec(kind="choice", labels=("A", "B", "C", "D")),
            AnswerSpec(kind="number"),
        ):
            answers_equal(spec, (spec.labels or ("7",))[0], parse_answer(spec, text))

    texts = [
        "The correct answer is **true**, not false.",
        "Die Antwort ist (B).",
        "So 1,234.5 kg, i.e. #### -7/3 = \\boxed{2}",
    ]
    return [Target(name="answer.txt", data="\n".join(texts).encode(), read=read)]


def read_source(path: Path) -> None:
    """Read and parse a source of one file, as a run does."""
    from calibudget.sources.spec import SourceSpec
    from calibudget.sources.whole_source import read_source

    read_source(SourceSpec(label="one", path=(path.name,)), path.parent)


def _lines(rows: list[Any]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Bytes that were cut, flipped, doubled, blanked, or joined with others of their own."""
    at, other = chance.randrange(len(data)), chance.randrange(len(data))
    match chance.randrange(6):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + bytes([data[at] ^ chance.randrange(1, 256)]) + data[at + 1 :]
        case 2:
            return data + data[at:]
        case 3:
            return data[:at] + bytes(16) + data[at + 16 :]
        case 4:
            return data[:at] + data[other : other + 40] + data[at:]
        case _:
            return data[: min(at, other)] + data[max(at, other) :]


def untyped(target: Target, data: bytes, folder: Path) -> str | None:
    """What a reader said that it mustn't; None if it read the file, or refused it in words that name it."""
    from calibudget.errors import CalibudgetError

    path = folder / target.name
    path.write_bytes(data)
    try:
        target.read(path)
    except CalibudgetError as error:
        if error.exit_code != 2 or (path.name not in str(error) and str(folder) not in str(error)):
            return f"{type(error).__name__}: {error}"
    except Exception as error:
        return f"{target.name}: {type(error).__name__}: {error}"
    return None


def main() -> None:
    """Fuzz one kind, guided by coverage."""
    import atheris  # type: ignore[import-untyped]

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="with the runs that artefacts are taken from; see tests/attacks")
    parser.add_argument("name")
    parser.add_argument("--seconds", type=int, default=600)
    arguments = parser.parse_args()
    with atheris.instrument_imports(include=["calibudget"]):
        targets = [*text_targets(), *table_targets(), *artefact_targets(arguments.folder), *answer_targets()]
    target = next(one for one in targets if one.name == arguments.name)
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus"
        corpus.mkdir()
        (corpus / "whole").write_bytes(target.data)
        place = Path(folder) / "place"
        place.mkdir()

        def one(data: bytes) -> None:
            said = untyped(target, data, place)
            if said is not None:
                raise AssertionError(said)

        atheris.Setup([sys.argv[0], str(corpus), f"-max_total_time={arguments.seconds}", "-max_len=20000"], one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
