"""Changes and forgeries of finished runs, evaluations and studies: found, or taken as given where docs say so."""

from __future__ import annotations

import copy
import json
import random
import shutil
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from calibudget.pipeline.run import run
from calibudget.pipeline.verify import verify
from calibudget.recipe.load import load_recipe
from calibudget.store.canonical import canonical_json, read_object, sealed
from calibudget.store.checksums import SUMS_NAME, file_digest, read_sums, write_sums
from tests.attacks.conftest import WORKS, chance_of

#: What docs/threat-model.md takes as given where no data is at hand, by file and by names on the way to a field.
GIVEN = {
    "manifest.json": {"versions", "tokenizer_sha256", "parser", "files", "columns_not_used"},
    "hygiene.json": {
        *("records", "answers", "majority", "repeats", "repeated_prompts", "prompts", "checks", "evaluation"),
    },
    "evaluation.json": {"files", "subset", "left_out", "scorer", "versions", "model", "settings"},
}


@pytest.fixture(scope="module")
def made(zygote: Any) -> Path:
    """A run with an evaluation, by the fake scorer."""
    directory = Path(zygote.folder) / "fake"
    if not (directory / "evaluation.json").exists():
        done = zygote.give(WORKS["evaluate"].command(directory))
        assert done["code"] == 0, done["text"]
    return directory


def change(directory: Path, chance: random.Random) -> str:
    """Change a byte, a field, a line or a row of a file, or the files; says what."""
    names = [*sorted(read_sums(directory)), SUMS_NAME]
    path = directory / chance.choice(names)
    data = path.read_bytes()
    match chance.randrange(8):
        case 0:
            path.unlink()
            return f"{path.name} removed"
        case 1:
            (directory / chance.choice(["other.json", "train.parquet", ".hidden", "a/b"])).parent.mkdir(exist_ok=True)
            (directory / chance.choice(["other.json", ".hidden"])).write_bytes(b"{}")
            return "a file added"
        case 2:
            other = directory / chance.choice([name for name in names if name != path.name])
            path.write_bytes(other.read_bytes())
            return f"{path.name} is {other.name}"
        case 3 if len(lines := data.splitlines(keepends=True)) > 1:
            at = chance.randrange(len(lines))
            path.write_bytes(b"".join(chance.choice([lines[:at] + lines[at + 1 :], [*lines, lines[at]]])))
            return f"{path.name}: line {at}"
        case 4 if path.suffix == ".json":
            value = read_object(path)
            places = list(leaves(value))
            at = chance.choice(places)
            replace(value, at, chance)
            path.write_bytes(canonical_json(value))
            return f"{path.name}: {at}" if path.read_bytes() != data else change(directory, chance)
        case 5:
            kept = path.with_name("kept")
            path.rename(kept)
            path.symlink_to(kept)
            return f"{path.name} a link"
        case _:
            at = chance.randrange(len(data))
            path.write_bytes(data[:at] + bytes([data[at] ^ chance.randrange(1, 256)]) + data[at + 1 :])
            return f"{path.name}: byte {at}"


@pytest.mark.cases(40, 4000, 100)
def test_whatever_is_changed_in_a_run_or_an_evaluation_is_found(made: Path, tmp_path: Path, part: Any) -> None:
    chance = chance_of(part)
    missed = []
    for case in range(part[1]):
        directory = shutil.copytree(made, tmp_path / str(case))
        what = change(directory, chance)
        if not verify(directory).differences:
            missed.append(what)
        shutil.rmtree(directory)
    assert missed == []
    assert verify(made).differences == ()


@pytest.mark.cases(4, 1000, 10)
def test_whatever_is_changed_in_a_study_is_told(zygote: Any, whole: Any, tmp_path: Path, part: Any) -> None:
    chance = chance_of(part)
    whole("study")
    made = Path(zygote.folder) / "whole-study"
    missed = []
    for case in range(part[1]):
        directory = shutil.copytree(made, tmp_path / str(case))
        files = sorted(path for path in directory.rglob("*") if path.is_file() and path.suffix != ".lock")
        path = chance.choice([one for one in files if "calibration" not in one.parts])
        data = path.read_bytes()
        at = chance.randrange(len(data))
        path.write_bytes(data[:at] + bytes([data[at] ^ chance.randrange(1, 256)]) + data[at + 1 :])
        report = zygote.give(["study", "report", directory, "--output-dir", tmp_path / "report"])
        runs = [one.parent for one in directory.rglob(SUMS_NAME)]
        if report["code"] == 0 and not any(verify(one).differences for one in runs):
            missed.append(path.relative_to(directory).as_posix())
        assert "Traceback" not in report["text"], (path, report["text"])
        shutil.rmtree(directory)
        shutil.rmtree(tmp_path / "report", ignore_errors=True)
    assert missed == []


POLICIES = [
    "calibudget",
    "need",
    "need-availability",
    "need-reliability",
    "floor-sqrt",
    "equal",
    "proportional",
    "pooled",
]


@pytest.mark.cases(6, 1000, 25)
def test_clean_runs_raise_no_alarm(zygote: Any, tmp_path: Path, part: Any) -> None:
    chance = chance_of(part)
    for case in range(part[1]):
        changes = [
            f"policy={chance.choice(POLICIES)}",
            f"seed={chance.randrange(1 << 30)}",
            f"budget={chance.randrange(10, 60)}",
            f"floor={chance.randrange(3)}",
            f"error={chance.choice(['nll', 'nll+wrong'])}",
            f"output.format={chance.choice(['jsonl', 'parquet'])}",
            f"output.layout={chance.choice(['rendered', 'turns', 'messages', 'completion'])}",
            f"output.order={chance.choice(['source', 'shuffled'])}",
            f"duplicates={chance.choice(['drop', 'keep'])}",
        ]
        with chdir(zygote.folder):
            run(load_recipe("recipe.yaml", changes), tmp_path / str(case))
            data_dir = "data" if case % 5 == 0 else None
            found = verify(tmp_path / str(case), data_dir=data_dir)
        assert [str(one) for one in found.differences] == [], changes
        shutil.rmtree(tmp_path / str(case))


def leaves(value: Any, at: Any = ()) -> Iterator[Any]:
    """The places of all scalars of a JSON value."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, (*at, key))
    else:
        yield at


def replace(value: Any, at: Any, chance: Any) -> None:
    """Put another value of the same kind at a place."""
    for key in at[:-1]:
        value = value[key]
    match value[at[-1]]:
        case bool() as old:
            new: Any = not old
        case int() as old:
            new = max(0, old + chance.choice([-1, 1, 7]))
        case float() as old:
            new = old * chance.choice([0.5, 1.0000001, 2]) or 0.5
        case str() as old if len(old) == 64:
            new = "".join(chance.choices("0123456789abcdef", k=64))
        case str() as old:
            new = old + "x"
        case _:
            new = 1
    value[at[-1]] = new


def forge(directory: Path, name: Any, value: Any) -> None:
    """Write a file and make every digest fit again: the manifest's bindings, its own digest, and the sums."""
    (directory / name).write_bytes(
        canonical_json(sealed(value, "manifest_sha256") if name == "manifest.json" else value)
    )
    manifest: dict[str, Any] = read_object(directory / "manifest.json")
    if name in manifest["artefacts"]:
        digest = file_digest(directory / name)
        manifest["artefacts"][name] = {"bytes": digest.bytes, "sha256": digest.sha256}
        (directory / "manifest.json").write_bytes(canonical_json(sealed(manifest, "manifest_sha256")))
    write_sums(directory, read_sums(directory))


@pytest.mark.cases(60, 1000, 50)
def test_a_forger_who_makes_every_digest_fit_is_found_or_changed_what_is_taken_as_given(
    made: Any, tmp_path: Path, part: Any
) -> None:
    chance = chance_of(part)
    names = [name for name in sorted(read_sums(made)) if name.endswith(".json")]
    missed = set()
    for case in range(part[1]):
        directory = shutil.copytree(made, tmp_path / str(case))
        name = chance.choice(names)
        value: Any = read_object(directory / name)
        forged = copy.deepcopy(value)
        at = chance.choice([at for at in leaves(value) if at[-1] != "manifest_sha256"])
        replace(forged, at, chance)
        if json.dumps(forged) != json.dumps(value):
            forge(directory, name, forged)
            if not verify(directory).differences and GIVEN.get(name, set()).isdisjoint(map(str, at)):
                missed.add((name, at))
        shutil.rmtree(directory)
    assert sorted(missed) == []
