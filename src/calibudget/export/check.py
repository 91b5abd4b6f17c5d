"""Token for token: what a trainer's own loader makes of an exported folder, beside what our own training teaches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from itertools import zip_longest
from pathlib import Path

from calibudget.errors import DependencyError, InputError, TrainingError
from calibudget.export.handover import Exported
from calibudget.export.trainer_rows import labels_of
from calibudget.export.trainers import trainer_named

#: Ids and labels of one row.
_Row = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What a trainer teaches beside what we do.

    Attributes:
        loaded: rows that the trainer's loader gave.
        equal: rows whose ids and labels are the same in both, whatever their order.
        differences: the first few others, in words.
    """

    rows: int
    loaded: int
    equal: int
    differences: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether nothing differs."""
        return self.rows == self.loaded == self.equal


def check(exported: Exported, *, python: str | None = None) -> Comparison:
    """Load an exported folder with its trainer's own code, and compare ids and labels with ours.

    The interpreter `python` has the trainer, this one by default.

    Raises:
        InputError: the trainer has no loader that could be run without training.
        DependencyError: the trainer isn't installed there.
        TrainingError: its loader failed; its last line is told.
    """
    interpreter = check_installed(exported.trainer, python=python)
    trainer = trainer_named(exported.trainer)
    script = files(__package__).joinpath("loaders", "loaded_rows.py")
    with as_file(script) as path, tempfile.TemporaryDirectory() as scratch:
        output = Path(scratch) / "rows.jsonl"
        command = [interpreter, str(path), str(trainer.loader), str(exported.folder.resolve()), str(output)]
        done = subprocess.run(  # noqa: S603 - the interpreter that the user named, a script of ours
            command, cwd=exported.folder, capture_output=True, text=True, errors="replace", check=False
        )
        if done.returncode:
            last = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()[-1]
            raise TrainingError(f"{trainer.title}'s loader failed on {exported.folder}: {last}")
        with output.open(encoding="utf-8") as lines:
            theirs = [(tuple(ids), tuple(labels)) for ids, labels in map(json.loads, lines)]
    return compare(exported, theirs)


def check_installed(name: str, *, python: str | None = None) -> str:
    """Refuse a check that can't be made, before anything is written; the interpreter for it is returned."""
    trainer = trainer_named(name)
    if trainer.loader is None or trainer.package is None:
        raise InputError(f"--check: {trainer.title} has no loader that could be run without training")
    interpreter = python or sys.executable
    if os.sep in interpreter:
        interpreter = str(Path(interpreter).absolute())  # the check runs in the exported folder
    question = f"import importlib.util; print(importlib.util.find_spec({trainer.package!r}) is not None)"
    try:
        found = subprocess.run([interpreter, "-c", question], capture_output=True, check=False)  # noqa: S603 - as above
    except OSError as error:
        raise DependencyError(f"--python {interpreter}: can't be run: {error.strerror or error}") from error
    if found.stdout.strip() not in (b"True", b"False"):
        raise DependencyError(f"--python {interpreter}: is no Python that runs; name the interpreter itself")
    if found.stdout.strip() == b"False":
        raise DependencyError(
            f"--check: {trainer.title} isn't installed for {interpreter}; install it there, or name the interpreter "
            "that has it with --python"
        )
    return interpreter


def compare(exported: Exported, theirs: Sequence[_Row], shown: int = 3) -> Comparison:
    """Compare two multisets of rows; `shown` says how many differences are put in words."""
    ours = [(tuple(example.ids.tolist()), tuple(labels_of(example))) for example in exported.examples]
    left = Counter(theirs)
    missing = []
    for place, row in enumerate(ours):
        if left[row]:
            left[row] -= 1
        else:
            missing.append(place)
    others = [row for row, count in left.items() for _ in range(count)]
    differences = [
        f"{exported.examples[place].name}: {_difference(ours[place], other)}"
        for place, other in zip(missing[:shown], others, strict=False)
    ]
    differences += [f"{exported.examples[place].name}: isn't there" for place in missing[len(others) :][:shown]]
    return Comparison(
        rows=len(ours), loaded=len(theirs), equal=len(ours) - len(missing), differences=tuple(differences[:shown])
    )


def _difference(ours: _Row, theirs: _Row) -> str:
    """Where two rows part first."""
    for what, mine, other in (("id", ours[0], theirs[0]), ("label", ours[1], theirs[1])):
        for place, (one, two) in enumerate(zip_longest(mine, other)):
            if one != two:
                return f"{what} {place} is {two} and not {one}, of {len(other)} and not {len(mine)}"
    return "is there once too often"
