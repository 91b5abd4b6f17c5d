"""Random damage and forgery, counted: what each attack came to is in docs/reliability.md.

Each attack draws its cases from a seed, a few in `make test` and the full count in `make test-full`.
"""

from __future__ import annotations

import copy
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import CalibudgetError
from calibudget.pipeline import run, verify
from calibudget.recipe import load_recipe
from calibudget.store import (
    SUMS_NAME,
    canonical_json,
    file_digest,
    read_object,
    read_sums,
    write_sums,
)
from calibudget.store.canonical import sealed

SEED = 20
#: What docs/threat-model.md takes as given where no data is at hand, by file and by names on the way to a field.
GIVEN = {
    "manifest.json": {"versions", "tokenizer_sha256", "parser", "files"},
    "hygiene.json": {
        "records",
        "answers",
        "majority",
        "repeats",
        "repeated_prompts",
        "prompts",
        "checks",
        "evaluation",
    },
}


def counts(few: int, full: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("count", [few, pytest.param(full, marks=pytest.mark.full)])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run of two sources, small enough to be verified in a moment."""
    folder = tmp_path_factory.mktemp("attacked")
    for label in ("one", "two"):
        rows = [{"instruction": f"{label} {i}?", "output": f"answer{i % 2 + 1}"} for i in range(70)]
        (folder / f"{label}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    answer = "answer: {kind: choice, labels: [answer1, answer2]}"
    sources = "".join(f"  {label}: {{path: {label}.jsonl, {answer}}}\n" for label in ("one", "two"))
    text = f"engine: fake\nmodel: embedded\nbudget: 20\nfloor: 3\ncalibration: {{per_source: 30}}\nsources:\n{sources}"
    (folder / "recipe.yaml").write_text(text)
    run(load_recipe(folder / "recipe.yaml"), folder / "run")
    return folder / "run"


@counts(40, 1000)
def test_one_byte_changed_in_any_file_of_a_run_is_found(made: Any, tmp_path: Path, count: Any) -> None:
    chance = random.Random(SEED)  # noqa: S311 - cases, no secrets
    directory = shutil.copytree(made, tmp_path / "run")
    names = [*sorted(read_sums(directory)), SUMS_NAME]
    for _ in range(count):
        path = directory / chance.choice(names)
        whole = path.read_bytes()
        at = chance.randrange(len(whole))
        path.write_bytes(whole[:at] + bytes([whole[at] ^ chance.randrange(1, 256)]) + whole[at + 1 :])
        assert verify(directory).differences, (path.name, at)
        path.write_bytes(whole)
    assert verify(directory).differences == ()


def leaves(value: Any, at: Any = ()) -> Iterator[Any]:
    """The places of all scalars of a JSON value."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, (*at, key))
    else:
        yield at


def other(value: Any, chance: Any) -> Any:
    """Another value of the same kind."""
    match value:
        case bool():
            return not value
        case int():
            return max(0, value + chance.choice([-1, 1, 7]))
        case float():
            return value * chance.choice([0.5, 1.0000001, 2]) or 0.5
        case str() if len(value) == 64:
            return "".join(chance.choices("0123456789abcdef", k=64))
        case str():
            return value + "x"
        case _:
            return 1


def forge(directory: Path, name: Any, value: Any) -> None:
    """Write a file and make every digest fit again: the manifest's bindings, its own digest, and the sums."""
    (directory / name).write_bytes(
        canonical_json(sealed(value, "manifest_sha256") if name == "manifest.json" else value)
    )
    manifest: dict[str, Any] = read_object(directory / "manifest.json")
    if name != "manifest.json":
        digest = file_digest(directory / name)
        manifest["artefacts"][name] = {"bytes": digest.bytes, "sha256": digest.sha256}
        (directory / "manifest.json").write_bytes(canonical_json(sealed(manifest, "manifest_sha256")))
    write_sums(directory, read_sums(directory))


@counts(60, 1000)
def test_a_forger_who_makes_every_digest_fit_is_found_or_changed_what_is_taken_as_given(
    made: Any, tmp_path: Path, count: Any
) -> None:
    chance = random.Random(SEED)  # noqa: S311 - cases, no secrets
    names = [name for name in sorted(read_sums(made)) if name.endswith(".json")]
    missed = []
    for case in range(count):
        directory = shutil.copytree(made, tmp_path / str(case))
        name = chance.choice(names)
        value: Any = read_object(directory / name)
        places = [at for at in leaves(value) if at[-1] != "manifest_sha256"]
        at = chance.choice(places)
        holder = forged = copy.deepcopy(value)
        for key in at[:-1]:
            holder = holder[key]
        holder[at[-1]] = other(holder[at[-1]], chance)
        if forged == value:
            continue
        forge(directory, name, forged)
        if not verify(directory).differences and GIVEN.get(name, set()).isdisjoint(map(str, at)):
            missed.append((name, at))
        shutil.rmtree(directory)
    assert sorted(set(missed)) == []


def damaged(data: Any, chance: Any) -> Any:
    """Bytes that were cut, flipped, doubled or filled up."""
    at = chance.randrange(len(data))
    match chance.randrange(4):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + bytes([data[at] ^ chance.randrange(1, 256)]) + data[at + 1 :]
        case 2:
            return data + data[at:]
        case _:
            return data[:at] + bytes(16) + data[at + 16 :]


@pytest.mark.slow
@counts(40, 500)
def test_a_damaged_model_loads_or_is_refused_by_a_typed_error(tiny_directory: Path, tmp_path: Path, count: Any) -> None:
    from calibudget.lm import Encoder, load_model

    chance = random.Random(SEED)  # noqa: S311 - cases, no secrets
    names = sorted(path.name for path in Path(tiny_directory).iterdir())
    untyped: list[str] = []
    for case in range(count):
        directory = shutil.copytree(tiny_directory, tmp_path / str(case))
        path = directory / chance.choice(names)
        path.write_bytes(damaged(path.read_bytes(), chance))
        try:
            loaded = load_model(str(directory), device="cpu")
            Encoder("chat", loaded.tokenizer)
        except CalibudgetError as error:
            untyped += [str(error)] if error.exit_code != 2 else []
        shutil.rmtree(directory)
    assert untyped == []


@counts(60, 3000)
def test_a_damaged_input_is_read_or_refused_by_a_typed_error(made: Any, tmp_path: Path, count: Any) -> None:
    import gzip

    import pyarrow as pa
    import pyarrow.parquet as pq

    from calibudget.sources.rows import read_rows

    chance = random.Random(SEED)  # noqa: S311 - cases, no secrets
    rows = [{"instruction": f"é {i}?", "output": f"answer{i % 2 + 1}"} for i in range(40)]
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    table = pa.Table.from_pylist(rows)
    pq.write_table(table, tmp_path / "rows.parquet")
    with pa.OSFile(str(tmp_path / "rows.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as out:
        out.write_table(table)
    files = {
        "rows.jsonl": lines,
        "rows.jsonl.gz": gzip.compress(lines),
        "rows.json": json.dumps(rows).encode(),
        "rows.csv": b"instruction,output\n" + b"a,b\n" * 40,
        "rows.parquet": (tmp_path / "rows.parquet").read_bytes(),
        "rows.arrow": (tmp_path / "rows.arrow").read_bytes(),
    }
    unnamed: list[str] = []
    for _ in range(count):
        name = chance.choice(sorted(files))
        (tmp_path / name).write_bytes(damaged(files[name], chance))
        try:
            for _ in read_rows(tmp_path / name, name):
                pass
        except CalibudgetError as error:
            unnamed += [str(error)] if name not in str(error) else []
    assert unnamed == []
