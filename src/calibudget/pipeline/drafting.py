"""`calibudget init`: a first recipe for the data files found in a folder."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from calibudget.errors import InputError
from calibudget.tasks import PRESETS

_SUFFIXES = (*(kind + end for kind in (".jsonl", ".json", ".csv") for end in ("", ".gz", ".zst")), ".parquet", ".arrow")
_SPLIT_WORDS = r"(?:train(?:ing)?|test|valid(?:ation)?|val|dev|eval)"
_HELD_OUT = re.compile(r"(?:^|[._-])(?:test|valid(?:ation)?|val|dev|eval)(?:[._-]|$)", re.IGNORECASE)
_ENDING = re.compile(r"(?:\.(?:jsonl?|csv|parquet|arrow|gz|zst))+$", re.IGNORECASE)

_HEADER = """\
# A recipe for the data in {folder}. Look it over, then: calibudget run {name}
model: embedded        # SmolLM2-135M, for a try; else a hub id, a directory with safetensors, or a .gguf file
template: alpaca       # or chat: the tokenizer's own chat template
budget: {budget}           # examples to select, exactly
floor: {floor}             # every source gets this much, or all it has
policy: calibudget     # `calibudget allocate STATISTICS --compare` shows the others
seed: 42
calibration: {{per_source: 100, resamples: 200}}
{error}data_dir: {data_dir}
sources:
"""
_NLL = "error: nll             # because a source here has no checkable answer; else `nll+wrong`, the paper's\n"


def draft_recipe(data_dir: str | Path, *, written_to: Path | None = None) -> str:
    """A commented recipe with one source for each training file below a folder.

    Args:
        data_dir: the folder to look through; held-out files (test, dev, ...) become evaluation sets where their name
            is a source's, and are left out elsewhere.
        written_to: where the recipe will lie, so that `data_dir` can be written relative to it.

    Raises:
        InputError: the folder is missing, or holds no data file.
    """
    folder = Path(data_dir)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name.lower().endswith(_SUFFIXES)]
    training = [path for path in files if not _HELD_OUT.search(path.name)]
    if not training:
        held_out = f" but {len(files)} held-out ones" if files else ""
        raise InputError(f"{folder}: no data files{held_out}; looked for {', '.join(_SUFFIXES)}")
    sources = dict(_labelled(folder, training))
    lines = [_source_line(label, path.relative_to(folder)) for label, path in sorted(sources.items())]
    where = os.path.relpath(folder, written_to.parent) if written_to and not folder.is_absolute() else str(folder)
    header = _HEADER.format(
        folder=folder,
        name=written_to or "recipe.yaml",
        data_dir=_quoted(Path(where).as_posix()),
        budget=1000 * len(sources),
        floor=100,
        error="" if all("answer: none" not in line for line in lines) else _NLL,
    )
    paired = [path for path in files if path not in training and _label(path.name) in sources]
    return header + "\n".join([*lines, *_hygiene_lines(folder, paired)]) + "\n"


def _hygiene_lines(folder: Path, held_out: Iterable[Path]) -> list[str]:
    """The recipe's `hygiene`, with an evaluation set for each held-out file; nothing without any."""
    sets = {re.sub(r"\W+", "_", _ENDING.sub("", path.name)): path.relative_to(folder) for path in held_out}
    lines = [_source_line(name, path, indent=4) for name, path in sorted(sets.items())]
    return (
        ["hygiene:", "  evaluation:          # records with a prompt of these leave the sources", *lines]
        if lines
        else []
    )


def _labelled(folder: Path, files: Iterable[Path]) -> Iterable[tuple[str, Path]]:
    """Labels from file names without their endings, with the folder in front where two would be equal."""
    stems = {path: _label(path.name) for path in files}
    for path, stem in stems.items():
        shared = [other for other in stems.values() if other.casefold() == stem.casefold()]
        yield (stem if len(shared) == 1 else _label("_".join(path.relative_to(folder).parts))), path


def _label(name: str) -> str:
    stem = _ENDING.sub("", name)
    stem = re.sub(rf"[._-]{_SPLIT_WORDS}(?:[._-]\d+.*)?$", "", stem, flags=re.IGNORECASE)
    return re.sub(r"[^\w-]+", "_", stem).strip("_") or "source"


def _source_line(label: str, path: Path, *, indent: int = 2) -> str:
    preset = next((name for name in PRESETS if label.casefold().replace("-", "_").startswith(name)), None)
    how = f"preset: {preset}" if preset else "answer: none"
    hint = "" if preset else "  # or {kind: choice, labels: [...]}, number, math, exact, regex"
    return f"{' ' * indent}{_quoted(label)}: {{path: {_quoted(path.as_posix())}, {how}}}{hint}"


def _quoted(text: str) -> str:
    return (
        text
        if re.fullmatch(r"[A-Za-z_./][\w./-]*", text) and text.lower() not in {"null", "true", "false"}
        else f'"{text}"'
    )
