"""Which files a model or an adapter is: a digest binds them, and loading reads no others.

A configuration can name more than lies beside it: weights in other folders, pickles, kernels of the hub, modules to
import. What a library could be led to is refused by name, and it is shown a folder that holds the bound files alone.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Final

from calibudget.errors import CalibudgetError, ScoringError, refuse_as
from calibudget.store.canonical import canonical_json, read_bytes, read_object, sha256_hex
from calibudget.store.checksums import file_digest

ADAPTER_CONFIG: Final = "adapter_config.json"
ADAPTER_WEIGHTS: Final = "adapter_model.safetensors"

#: Files that decide what a model says; the rest of a directory (read-me, pictures) doesn't count for its identity.
_BOUND: Final = ("*.safetensors", "*.json", "*.model", "*.jinja", "merges.txt", "vocab.txt")
#: Attention and experts of torch's own; another name has transformers fetch a kernel or import a package.
_OWN_IMPLEMENTATIONS: Final = frozenset({"eager", "sdpa", "flex_attention", "batched_mm", "grouped_mm"})
_KERNEL_FIELDS: Final = frozenset({"use_kernels", "kernel_config"})
_LAYERS: Final = frozenset({"num_hidden_layers", "num_layers", "n_layer", "n_layers"})
_HEADS: Final = frozenset({"num_attention_heads", "num_key_value_heads", "n_head", "n_heads", "head_dim"})
_WIDTHS: Final = frozenset({"hidden_size", "intermediate_size", "vocab_size", "n_embd", "d_model", "n_positions"})
#: Weights that one stored number may hold at most (packed quantisation).
_PACKING: Final = 16
#: Fields of an adapter that have peft import a module, read other files, or copy layers of the base.
_ADAPTER_LEADS: Final = ("megatron_config", "corda_config", "lora_ga_config", "arrow_config", "layer_replication")
#: Starts of factors that leave the base's own weights alone.
_ADAPTER_STARTS: Final = (None, True, False, "gaussian", "orthogonal", "eva")


def bound_files(directory: Path) -> list[Path]:
    """The files of a directory that decide what a model says, sorted by name."""
    return sorted({path for pattern in _BOUND for path in directory.glob(pattern) if path.is_file()})


def directory_digest(directory: Path) -> str:
    """SHA-256 over the names and digests of the bound files (links are followed)."""
    files = [[path.name, file_digest(path.resolve()).sha256] for path in bound_files(directory)]
    return sha256_hex(canonical_json(files))


@contextmanager
def told(fault: str) -> Iterator[None]:
    """Turn whatever a model's files make a library raise into one error, a panic of the Rust tokenizers too."""
    try:
        yield
    except (CalibudgetError, MemoryError):
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ScoringError(f"{fault}: {type(error).__name__}: {error}") from error


@contextmanager
def folder_of(files: Sequence[Path]) -> Iterator[Path]:
    """A folder that holds these files and nothing else, while the block runs."""
    with tempfile.TemporaryDirectory(prefix="calibudget-model-") as name:
        for path in files:
            target = Path(name) / path.name
            try:
                target.symlink_to(path.resolve())
            except OSError:  # Windows lets few people make links
                shutil.copyfile(path, target)
        yield Path(name)


def check_shards(directory: Path) -> None:
    """Refuse weights that lie elsewhere, aren't safetensors or are missing, by the names in the directory's indices."""
    for index in sorted(directory.glob("*.index.json")):
        shards = read_object(index).get("weight_map")
        if not isinstance(shards, Mapping):
            raise ScoringError(f"{index}: has no weight_map")
        for name in sorted({str(name) for name in shards.values()}):
            if not name.endswith(".safetensors") or re.search(r"[/\\:\0]", name):
                raise ScoringError(
                    f"{index}: names the weights {name!r}; only safetensors files of the same directory are read"
                )
            if not (directory / name).is_file():
                raise ScoringError(f"{index}: names {name}, which is missing")


def tensor_heads(directory: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Type ("F32", "BF16", "U8") and shape of every tensor in a directory's safetensors files, from their heads.

    Raises:
        ScoringError: a file that is torn or no safetensors.
    """
    from safetensors import SafetensorError, safe_open

    heads: dict[str, tuple[str, tuple[int, ...]]] = {}
    for path in sorted(directory.glob("*.safetensors")):
        unreadable = refuse_as(ScoringError, f"{path}: can't be read", OSError, ValueError, SafetensorError)
        with unreadable, safe_open(path, framework="np") as weights:
            for name in weights.keys():  # noqa: SIM118
                own = weights.get_slice(name)
                heads[name] = (own.get_dtype(), tuple(own.get_shape()))
    return heads


def check_configuration(directory: Path) -> None:
    """Refuse a model whose configuration names kernels, or sizes that its weights don't have."""
    path = directory / "config.json"
    shapes = [shape for _, shape in tensor_heads(directory).values()]
    room = _PACKING * sum(map(prod, shapes))
    for part in _objects(_configuration(path)):
        for field, value in part.items():
            if field in _KERNEL_FIELDS and value:
                raise ScoringError(f"{path}: {field} would fetch code, which is never run; remove that entry")
            if field.lstrip("_").startswith(("attn_implementation", "experts_implementation")):
                names = value.values() if isinstance(value, Mapping) else [value]
                if other := [name for name in names if name is not None and name not in _OWN_IMPLEMENTATIONS]:
                    raise ScoringError(f"{path}: {field} {other[0]!r} is code from elsewhere; remove that entry")
            limit = len(shapes) if field in _LAYERS else room if field in _HEADS | _WIDTHS else None
            if limit is not None and isinstance(value, int) and not 0 < value <= limit:
                raise ScoringError(f"{path}: {field} is {value}, which the weights beside it don't have")
        sizes = sorted(value for field, value in part.items() if field in _WIDTHS and isinstance(value, int))
        if len(sizes) > 1 and sizes[-1] * sizes[-2] > room:
            raise ScoringError(f"{path}: sizes of {sizes[-1]} and {sizes[-2]}, which the weights beside it don't have")


def check_adapter_configuration(adapter: Path) -> None:
    """Refuse an adapter that is no LoRA, would import or read more than its files, or change the base's weights."""
    path = adapter / ADAPTER_CONFIG
    fields = _configuration(path)
    if fields.get("peft_type") != "LORA":
        raise ScoringError(f"{path}: peft_type is {fields.get('peft_type')!r}; only LORA adapters are read")
    for name in _ADAPTER_LEADS:
        if fields.get(name):
            raise ScoringError(f"{path}: {name} would change the base or read code or files beyond the adapter's own")
    start = fields.get("init_lora_weights")
    if start not in _ADAPTER_STARTS:
        raise ScoringError(
            f"{path}: init_lora_weights {start!r} changes the base's own weights; have peft convert the adapter to a "
            "plain LoRA (path_initial_model_for_weight_conversion)"
        )
    pattern = fields.get("rank_pattern")
    ranks = [fields.get("r"), *(pattern.values() if isinstance(pattern, Mapping) else [])]
    widest = max((size for _, shape in tensor_heads(adapter).values() for size in shape), default=0)
    if wrong := [rank for rank in ranks if not isinstance(rank, int) or not 0 < rank <= widest]:
        raise ScoringError(f"{path}: a rank of {wrong[0]!r}, which its weights don't have")


def _configuration(path: Path) -> Mapping[str, object]:
    """A configuration's fields; some models' hold infinities, which strict JSON doesn't know."""
    with refuse_as(ScoringError, f"{path}: no valid JSON", ValueError, RecursionError):
        value = json.loads(read_bytes(path))
    if not isinstance(value, dict):
        raise ScoringError(f"{path}: the root must be an object")
    return value


def _objects(value: object) -> Iterator[Mapping[str, object]]:
    """An object and all objects inside it."""
    if isinstance(value, Mapping):
        yield value
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    for item in inner:
        yield from _objects(item)
