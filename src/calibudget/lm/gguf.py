"""GGUF files, turned once into a safetensors directory in the cache.

transformers reads GGUF, with gaps that matter here: it knows no pre-tokenizer called "smollm" (digits split one by
one) and falls back to GPT-2's, which tokenises wrongly where white space precedes a digit; and some versions give
the wrong end-of-text token. The conversion mends the first, checks the second, and refuses a pre-tokenizer that
nobody knows, since wrong tokens would pass unnoticed.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from importlib.metadata import version
from io import StringIO
from pathlib import Path
from typing import Any, Final, Literal

from filelock import FileLock

from calibudget.errors import DependencyError, ScoringError, refuse_as
from calibudget.lm.model_digest import folder_of
from calibudget.store.canonical import canonical_json, read_object
from calibudget.store.checksums import file_digest

#: Precision of converted files.
GgufDtype = Literal["float32", "bfloat16"]
#: Raised whenever the converted files would differ; part of the cache's name.
CONVERTER_VERSION: Final = 2

_COMPLETE: Final = "complete.json"
_SCHEMA: Final = "calibudget.converted-model/1"
#: Pre-tokenizers whose rule is plain GPT-2's, which is what transformers makes of an unknown one.
_PLAIN_GPT2: Final = frozenset({None, "default", "gpt-2", "gpt2"})


def cache_root() -> Path:
    """Where converted models are kept: XDG_CACHE_HOME (or ~/.cache), then calibudget/models.

    Raises:
        ScoringError: neither is known.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "calibudget" / "models"
    except RuntimeError as error:
        raise ScoringError("no home folder is known to keep models in; set XDG_CACHE_HOME") from error


def converted(gguf: Path, sha256: str, *, dtype: GgufDtype = "float32") -> Path:
    """The safetensors directory of a GGUF file, made on first use and checked on every other.

    Several processes may ask at once: one converts, the others wait. A cache that was torn or changed is made anew. The
    file's digest names it, with the versions of the converter and of transformers, which writes the tokenizer. Numbers
    are float32 for a CPU, bfloat16 for a GPU that computes in it, in half of the room.

    Raises:
        DependencyError: the `gguf` package is missing.
        ScoringError: the file can't be read as a model, or the cache can't be written.
    """
    suffix = "" if dtype == "float32" else f"-{dtype}"
    target = cache_root() / f"{sha256}-{CONVERTER_VERSION}-{version('transformers')}{suffix}"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(target.with_name(f"{target.name}.lock")):
            if not _is_complete(target):
                _replace_by_conversion(gguf, target, dtype)
    except OSError as error:
        raise ScoringError(
            f"the model cache {target} can't be written: {error.strerror or error}; "
            "set XDG_CACHE_HOME to a directory that can"
        ) from error
    return target


@contextmanager
def quiet() -> Iterator[None]:
    """Nothing of what libraries print while the block runs, and no progress bars of transformers' own."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        with redirect_stdout(StringIO()):
            yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _replace_by_conversion(gguf: Path, target: Path, dtype: str) -> None:
    temporary = Path(tempfile.mkdtemp(prefix=".converting-", dir=target.parent))
    try:
        with quiet():
            _convert(gguf, temporary, dtype)
        digests = {path.name: file_digest(path) for path in sorted(temporary.iterdir())}
        files = {name: {"bytes": digest.bytes, "sha256": digest.sha256} for name, digest in digests.items()}
        (temporary / _COMPLETE).write_bytes(canonical_json({"schema": _SCHEMA, "files": files}))
        if target.exists():
            shutil.rmtree(target)
        temporary.rename(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _is_complete(directory: Path) -> bool:
    """Whether every file is what the marker says; anything unreadable counts as torn."""
    try:
        files = read_object(directory / _COMPLETE)["files"]
        names = {path.name for path in directory.iterdir()} - {_COMPLETE}
        if not isinstance(files, dict) or names != set(files):
            return False
        digests = {name: file_digest(directory / name) for name in files}
    except (ScoringError, ValueError, KeyError, OSError):
        return False
    return all(files[name] == {"bytes": found.bytes, "sha256": found.sha256} for name, found in digests.items())


def _convert(gguf: Path, directory: Path, dtype: str) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, modeling_gguf_pytorch_utils

    metadata = _read_metadata(gguf)
    try:
        from transformers import GgufConfig

        as_floats = {"quantization_config": GgufConfig(dequantize=True)}
    except ImportError:  # earlier versions know nothing else
        as_floats = {}
    from unittest.mock import patch  # which imports asyncio

    # The GGUF reader draws a bar of tqdm's own, which transformers' switch doesn't reach.
    bare = patch.object(modeling_gguf_pytorch_utils, "tqdm", lambda tensors, **_: tensors, create=True)
    unreadable = f"model {gguf}: transformers can't read this GGUF file"
    # a hostile file can make the reader raise anything
    with refuse_as(ScoringError, unreadable, Exception), bare, folder_of([gguf]) as folder:
        tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=gguf.name)
        model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=gguf.name, dtype=torch.float16, **as_floats)
    _mend_tokenizer(tokenizer, metadata, gguf)
    model.config._name_or_path = ""
    # In float32 the file is mapped as it is: a CPU worker needs no copy of its own, and several share one.
    model.to(getattr(torch, dtype)).save_pretrained(directory)
    tokenizer.save_pretrained(directory)


def _read_metadata(gguf: Path) -> dict[str, Any]:
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise DependencyError("reading a GGUF model needs the gguf package; install: pip install gguf") from error
    told = f"model {gguf}: not a GGUF file, or a torn one"
    with refuse_as(ScoringError, told, OSError, ValueError, KeyError, IndexError):
        fields = GGUFReader(str(gguf)).fields
    wanted = ("model", "pre", "eos_token_id", "bos_token_id")
    found = {name: fields.get(f"tokenizer.ggml.{name}") for name in wanted}
    return {name: None if field is None else field.contents() for name, field in found.items()}


def _mend_tokenizer(tokenizer: Any, metadata: dict[str, Any], gguf: Path) -> None:
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

    backend = tokenizer.backend_tokenizer
    is_plain = metadata["model"] == "gpt2" and isinstance(backend.pre_tokenizer, ByteLevel)
    if is_plain and metadata["pre"] == "smollm":
        backend.pre_tokenizer = Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)])
    elif is_plain and metadata["pre"] not in _PLAIN_GPT2:
        raise ScoringError(
            f"model {gguf}: this transformers doesn't know the pre-tokenizer {metadata['pre']!r} and would tokenise "
            "wrongly; use the model's safetensors directory instead"
        )
    for role in ("eos", "bos"):
        expected = metadata[f"{role}_token_id"]
        if expected is not None and getattr(tokenizer, f"{role}_token_id") != expected:
            setattr(tokenizer, f"{role}_token", tokenizer.convert_ids_to_tokens(int(expected)))
