"""Damaged files of every kind: read all the same, or refused by a typed error that names them."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.conftest import WORKS, chance_of
from tests.attacks.targets import answer_targets, artefact_targets, damaged, table_targets, text_targets, untyped

#: Seconds that a small file may take, damaged or not.
SECONDS = 5.0


@pytest.fixture(scope="module")
def targets(zygote: Any, whole: Any) -> Any:
    whole("study")
    if not (zygote.folder / "fake" / "evaluation.json").exists():
        done = zygote.give(WORKS["evaluate"].command(Path("fake")))
        assert done["code"] == 0, done["text"]
    whole("influence")
    return [*text_targets(), *table_targets(), *answer_targets(), *artefact_targets(zygote.folder)]


@pytest.mark.cases(150, 18_000, 500)
def test_a_damaged_file_is_read_or_refused_by_name(targets: Any, tmp_path: Path, part: Any) -> None:
    chance = chance_of(part)
    faults = []
    for target in targets:
        assert untyped(target, target.data, tmp_path) is None
    for _ in range(part[1]):
        target = chance.choice(targets)
        data = damaged(target.data, chance)
        began = time.process_time()
        said = untyped(target, data, tmp_path)
        if said is None and time.process_time() - began > SECONDS:
            said = f"{target.name}: took longer than {SECONDS} s of computing"
        if said is not None:
            faults.append(said)
    assert faults == []


def load(directory: Path) -> None:
    """Load a model with its tokenizer, under an adapter where there is one beside it, and encode a text."""
    from calibudget.lm.loading import load_model

    adapter = directory.with_name("adapter")
    loaded = load_model(str(directory), device="cpu", adapter=adapter if adapter.exists() else None)
    loaded.encoder("chat")
    loaded.tokenizer("A text.")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["model", "adapter"])
@pytest.mark.cases(15, 1000, 50)
def test_a_damaged_model_loads_or_is_refused(zygote: Any, whole: Any, tmp_path: Path, kind: str, part: Any) -> None:
    """Models, tokenizers and adapters."""
    from calibudget.errors import CalibudgetError

    chance = chance_of(part)
    whole("train")
    faults = []
    for case in range(part[1]):
        place = tmp_path / str(case)
        shutil.copytree(zygote.folder / "tiny", place / "tiny")
        if kind == "adapter":
            shutil.copytree(zygote.folder / "whole-train" / "adapter", place / "adapter")
        if case == 0:  # what is only imported now isn't the file's time
            load(place / "tiny")
        folder = place / ("tiny" if kind == "model" else "adapter")
        path = chance.choice(sorted(one for one in folder.iterdir() if one.suffix != ".md"))
        path.write_bytes(damaged(path.read_bytes(), chance))
        began = time.process_time()
        try:
            load(place / "tiny")
        except CalibudgetError as error:
            faults += [str(error)] if error.exit_code != 2 else []
        except Exception as error:
            faults.append(f"{path.name}: {type(error).__name__}: {error}")
        if time.process_time() - began > SECONDS:
            faults.append(f"{path.name}: took longer than {SECONDS} s of computing")
        shutil.rmtree(place)
    assert faults == []
