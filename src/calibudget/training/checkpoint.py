"""Checkpoints: directories that are whole or absent, safetensors and JSON only."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from torch import Tensor

from calibudget.errors import ArtefactError
from calibudget.store.canonical import canonical_json, read_object
from calibudget.store.checksums import file_digest
from calibudget.store.files import clean_stale, flush, make_directory, remove_directory, stale_name

_STATE_NAME: Final = "state.json"
_TENSORS_NAME: Final = "tensors.safetensors"
_SCHEMA: Final = "calibudget.checkpoint/1"


@contextmanager
def atomic_directory(target: Path) -> Iterator[Path]:
    """An empty directory to fill, that becomes `target` when the block ends and vanishes when it raises.

    Raises:
        ArtefactError: the disk is full or can't be written, or the target exists; nothing of it is left behind.
    """
    temporary = target.with_name(stale_name())
    try:
        make_directory(target.parent)
        temporary.mkdir()
        yield temporary
        for path in sorted(temporary.iterdir()):
            flush(path)
        flush(temporary)
        if target.exists():
            raise ArtefactError(f"{target}: exists already")
        temporary.rename(target)
        flush(target.parent)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        # safetensors hides the system's error in one of its own
        if isinstance(error, OSError) or (type(error).__name__ == "SafetensorError" and "I/O" in str(error)):
            raise ArtefactError(
                f"{target}: can't be written: {error}; what was written before is whole, make room and resume"
            ) from error
        raise


def save_checkpoint(root: Path, *, step: int, tensors: Mapping[str, Tensor], identity: str) -> None:
    """Write the checkpoint of a step unless it is there, then remove the older ones and what killed writers left.

    Only a run of the same identity goes on from it.

    Raises:
        ArtefactError: the disk is full or can't be written; older checkpoints are still there.
    """
    from safetensors.torch import save_file

    target = root / f"step-{step:08d}"
    if target.exists():
        return
    with atomic_directory(target) as directory:
        # cloned, since safetensors writes whole storages and moments may share theirs
        save_file({name: value.detach().cpu().clone() for name, value in tensors.items()}, directory / _TENSORS_NAME)
        digest = file_digest(directory / _TENSORS_NAME)
        state = {"schema": _SCHEMA, "step": step, "identity": identity, "bytes": digest.bytes, "sha256": digest.sha256}
        (directory / _STATE_NAME).write_bytes(canonical_json(state))
    for older in _checkpoints(root):
        if older != target:
            remove_directory(older)
    clean_stale(root)


def load_checkpoint(root: Path, identity: str, *, is_finished: bool = False) -> tuple[int, dict[str, Tensor]] | None:
    """Step and tensors of the latest checkpoint of a run; None where there is none yet.

    Raises:
        ArtefactError: it belongs to another run, or was damaged; `is_finished` words it as a training's end.
    """
    from safetensors.torch import load_file

    found = _checkpoints(root)
    if not found:
        return None
    state = read_object(found[-1] / _STATE_NAME)
    if state.get("schema") != _SCHEMA or not isinstance(step := state.get("step"), int):
        raise ArtefactError(f"{found[-1]}: isn't a checkpoint that this version reads")
    if state.get("identity") != identity:
        others = "another model, train set or configuration; give the same ones"
        if is_finished:
            raise ArtefactError(
                f"{root.parent}: its training is finished, and had {others} to use it, or name another output directory"
            )
        raise ArtefactError(f"{root.parent}: its unfinished training has {others}, or name another directory")
    digest = file_digest(found[-1] / _TENSORS_NAME)
    if (digest.bytes, digest.sha256) != (state.get("bytes"), state.get("sha256")):
        raise ArtefactError(
            f"{found[-1] / _TENSORS_NAME}: was changed or damaged; remove the directory and start again"
        )
    return step, load_file(found[-1] / _TENSORS_NAME)


def _checkpoints(root: Path) -> list[Path]:
    return sorted(path for path in root.glob("step-*") if path.is_dir())
