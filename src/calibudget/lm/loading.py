"""Loading a model, its tokenizer and an adapter on top, and saying exactly which ones they were."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from calibudget.errors import DependencyError, ScoringError, requires
from calibudget.hardware import Device, Dtype
from calibudget.lm.encoding import Encoder, Template
from calibudget.lm.gguf import CONVERTER_VERSION, GgufDtype, converted, quiet
from calibudget.lm.model_digest import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    bound_files,
    check_adapter_configuration,
    check_configuration,
    directory_digest,
    folder_of,
    told,
)
from calibudget.lm.model_files import ModelSource, fetch_hub, resolve_model
from calibudget.lm.placement import cards_of, hand_on, memory_for, parts_of, weight_bytes
from calibudget.lm.quantised import ON_LOADING, Quantised, count_numbers, keep_plain, quantised
from calibudget.store.canonical import read_object, sha256_hex
from calibudget.store.checksums import file_digest


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageModel:
    """A loaded causal language model.

    Attributes:
        model: a transformers `...ForCausalLM`, in evaluation mode, adapters included.
        tokenizer: its tokenizer.
        identity: JSON object that says which model this is: name, kind, sha256, revision, parameters, dtype,
            device ("cpu" or "cuda", say), adapter, of a quantised model `quantised`, the method and its settings, and
            of a split one `parts`, blocks by device. Nothing else in it depends on the machine: of a file or a
            directory the name is its last part.
        context_length: positions the model has, None where its configuration doesn't say.
        stop_ids: token ids that the model's own generation configuration ends a text with. Nothing else of that is
            kept, so that greedy decoding is the model's first choice: no beams, penalties, bans or forced tokens.
        directory: where its files lie (a GGUF file's conversion, a hub model's cache).
    """

    model: Any
    tokenizer: Any
    identity: Mapping[str, object]
    context_length: int | None
    stop_ids: frozenset[int] = frozenset()
    directory: Path = Path()

    def encoder(self, template: Template, *, max_length: int | None = None) -> Encoder:
        """The encoding of this model's tokenizer, bounded by its context and its embedding."""
        return Encoder(
            template,
            self.tokenizer,
            max_length,
            context_length=self.context_length,
            embedding_size=self.embedding_size,
        )

    @property
    def embedding_size(self) -> int:
        """How many token ids the model embeds, from 0 on."""
        return int(self.model.get_input_embeddings().num_embeddings)


def load_model(
    model: str | ModelSource,
    *,
    device: Device = "auto",
    dtype: Dtype = "auto",
    adapter: Path | None = None,
    gpus: int = 1,
) -> LanguageModel:
    """Load a model, by a name for `resolve_model` or what that returned, for scoring or generation.

    A model that one GPU doesn't hold is split over as many as do, `gpus` at least; where all of them don't, the rest
    waits in the machine's memory (`OffloadWarning`). The device "auto" is a GPU where there is one, the dtype "auto"
    float32 on CPU (bfloat16 moves single NLLs by up to 0.3 there) and bfloat16 on a GPU, which "int8" and "nf4" compute
    in too. An adapter's directory (LoRA, safetensors) is put on top.

    Raises:
        DependencyError: torch, transformers, (for an adapter) peft or what quantised weights need is missing.
        ScoringError: the model can't be found, read or safely loaded, or memory lacks for it.
    """
    torch, transformers = _libraries()
    source = resolve_model(model) if isinstance(model, str) else model
    where, kind = placement(device, dtype)
    directory, identity = _materialise(source, where, kind)
    packing = quantised(source.name, directory, kind, where)
    memory = _memory(source, directory, where, kind, packing, gpus)
    is_placed = memory is not None or (packing is not None and packing.is_packed)
    placed = {"device_map": "auto" if memory else {"": where}, "max_memory": memory} if is_placed else {}
    numbers = getattr(torch, arithmetic(where, kind))
    loaded = _weights(transformers, source, directory, numbers, {} if packing is None else packing.loading, placed)
    stop_ids = _mend(transformers, loaded, directory)
    if adapter is not None:
        loaded, identity["adapter"] = attach(loaded, adapter).get_base_model(), directory_digest(adapter)
    (loaded if is_placed else loaded.to(where)).eval()
    computes_in = str(loaded.dtype).removeprefix("torch.")  # AWQ's loader puts float16 for bfloat16
    identity |= {"parameters": count_numbers(loaded), "dtype": computes_in, "device": where}
    if packing is not None:
        keep_plain(loaded)
        identity["quantised"] = dict(packing.settings)
    if (parts := parts_of(loaded)) is not None:
        identity["parts"] = parts
        if len(parts) == cards_of(loaded):
            hand_on(loaded, loaded.hf_device_map)
    return LanguageModel(
        model=loaded,
        tokenizer=_tokenizer(transformers, source, directory),
        identity=identity,
        context_length=_context(loaded.config),
        stop_ids=stop_ids,
        directory=directory,
    )


def _weights(
    transformers: Any,
    source: ModelSource,
    directory: Path,
    numbers: Any,
    packing: Mapping[str, Any],
    placed: Mapping[str, Any],
) -> Any:
    """A model with all of its weights, from its bound files alone."""
    with quiet(), told(_unloadable(source)), folder_of(bound_files(directory)) as folder:
        check_configuration(directory)
        loaded, found = transformers.AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=numbers,
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
            **packing,
            **placed,
        )
        if missing := sorted(found["missing_keys"]):
            raise ScoringError(f"model {source.name!r}: its weights lack {missing[0]} ({len(missing)} tensors in all)")
    return loaded


def _mend(transformers: Any, loaded: Any, directory: Path) -> frozenset[int]:
    """Have a model compute and decode by its weights alone; the ids that its own configuration ends a text with."""
    if getattr(loaded.config, "attn_logit_softcapping", None) is not None:
        loaded.set_attn_implementation("eager")  # the default of transformers 5.6 leaves this cap of Gemma 2 out
    loaded.name_or_path = loaded.config._name_or_path = str(
        directory
    )  # where peft looks; the folder it came from is gone
    ids = getattr(loaded.generation_config, "eos_token_id", None)
    loaded.generation_config = transformers.GenerationConfig()
    return frozenset([ids] if isinstance(ids, int) else ids or ())


def twin(language_model: LanguageModel) -> LanguageModel:
    """The same model with modules and configuration of its own; the weights are shared and must not be written to.

    Training puts factors on a model's layers and other functions in their places; on a twin that leaves the first
    model as it was loaded, at no cost in memory but what the change itself takes.
    """
    from torch import nn

    model = language_model.model
    shared = {
        # a quantised weight is a class of its own, with its scales, and is never trained
        id(weight): nn.Parameter(weight.data, requires_grad=False) if type(weight) is nn.Parameter else weight
        for weight in model.parameters()
    }
    return replace(language_model, model=copy.deepcopy(model, dict(shared)))


def check_adapter(adapter: Path) -> None:
    """Refuse a directory that is no adapter, before a model is loaded for it."""
    if find_spec("peft") is None:
        raise DependencyError("an adapter needs peft; install: pip install 'calibudget[train]'")
    check_adapter_files(adapter)
    check_adapter_configuration(adapter)


def check_adapter_files(adapter: Path) -> None:
    """Refuse a directory that lacks an adapter's files; nothing is read, so no library is needed."""
    if missing := [name for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS) if not (adapter / name).is_file()]:
        raise ScoringError(f"adapter {adapter}: needs {' and '.join(missing)}")


def attach(model: Any, adapter: Path) -> Any:
    """The model in peft's hands with the weights of an adapter's directory; where that fails the model is as it was.

    Raises:
        DependencyError: peft isn't installed.
        ScoringError: the directory is no adapter, or it doesn't fit the model, or it lacks weights: peft would only
            warn of those, and what is then measured is more or less the base.
    """
    check_adapter(adapter)
    from peft import PeftConfig, PeftModelForCausalLM

    wrapped = None
    try:
        with warnings.catch_warnings(), folder_of(bound_files(adapter)) as folder:
            warnings.simplefilter("ignore", FutureWarning)  # peft's own use of a name that transformers renamed
            config = PeftConfig.from_pretrained(str(folder))
            config.inference_mode = True
            wrapped = PeftModelForCausalLM(model, config)
            loaded = wrapped.load_adapter(str(folder), "default", use_safetensors=True)
        if missing := [name for name in loaded.missing_keys if "lora_" in name]:
            raise ValueError(f"its weights lack {len(missing)} of the model's factors, {missing[0]} among them")
        return wrapped
    except Exception as error:  # its files can make peft raise anything
        if wrapped is not None:
            wrapped.unload()
        raise ScoringError(f"adapter {adapter}: doesn't fit this model: {error}") from error


@contextmanager
def adapted(base: LanguageModel, adapter: Path | None) -> Iterator[LanguageModel]:
    """The base with a LoRA adapter put on top while the block runs; its own weights are never touched."""
    if adapter is None:
        yield base
        return
    wrapped = attach(base.model, adapter)
    try:
        model = wrapped.get_base_model()
        if parts_of(model) is None and "quantised" not in base.identity:  # theirs were put beside their layers
            model.to(base.model.device)
        model.eval()
        identity = {**base.identity, "adapter": directory_digest(adapter), "parameters": count_numbers(model)}
        yield replace(base, model=model, identity=identity)
    finally:
        wrapped.unload()


def check_loadable(
    model: str, *, device: Device = "auto", dtype: Dtype = "auto", adapter: Path | None = None, gpus: int = 1
) -> None:
    """Refuse what `load_model` couldn't load, before long work is done for it; no weights are read, only their heads.

    A hub model is fetched and a GGUF file converted into the cache, as loading would.

    Raises:
        DependencyError: torch, transformers or (for an adapter) peft is missing.
        ScoringError: no such device, or too little memory for the weights; or model or adapter can't be found, read or
            safely loaded.
    """
    _, transformers = _libraries()
    where, kind = placement(device, dtype)
    source = resolve_model(model)
    directory = _materialise(source, where, kind)[0]
    with told(_unloadable(source)):
        check_configuration(directory)
    _memory(source, directory, where, kind, quantised(source.name, directory, kind, where), gpus)
    _configuration(transformers, source, directory)
    _tokenizer(transformers, source, directory)
    if adapter is not None:
        check_adapter(adapter)


def context_length(model: str) -> int | None:
    """Positions that a model has, from its configuration alone; None where that doesn't say."""
    _, transformers = _libraries()
    source = resolve_model(model, weights=False)
    return _context(_configuration(transformers, source, _directory(source)))


def load_tokenizer(model: str | ModelSource) -> Any:
    """A model's tokenizer alone, for counting tokens without loading weights."""
    _, transformers = _libraries()
    source = resolve_model(model, weights=False) if isinstance(model, str) else model
    return _tokenizer(transformers, source, _directory(source))


def outline_model(model: str) -> LanguageModel:
    """A model's tokenizer, layers and shapes, on torch's meta device, without reading its weights."""
    torch, transformers = _libraries()
    source = resolve_model(model)
    directory, identity = _materialise(source)
    with told(_unloadable(source)):
        check_configuration(directory)
    configuration = _configuration(transformers, source, directory)
    with told(_unloadable(source)), torch.device("meta"):
        outline = transformers.AutoModelForCausalLM.from_config(configuration, trust_remote_code=False)
    return LanguageModel(
        model=outline,
        tokenizer=_tokenizer(transformers, source, directory),
        identity=identity,
        context_length=_context(configuration),
        directory=directory,
    )


def tokenizer_digest(tokenizer: Any) -> str | None:
    """SHA-256 of a tokenizer's serial form; None where it has none."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return None if backend is None else sha256_hex(backend.to_str().encode())


def _libraries() -> tuple[Any, Any]:
    with requires("scoring with a model", "lm"):
        import torch
        import transformers
    return torch, transformers


def placement(device: Device, dtype: Dtype) -> tuple[str, str]:
    """The device and the precision that `load_model` gives a model here.

    Raises:
        DependencyError: torch or transformers is missing.
        ScoringError: a device was asked for that torch doesn't see.
    """
    torch, _ = _libraries()
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device != "cpu" and not getattr(torch, device).is_available():
        raise ScoringError(f"device: {device} was asked for and torch sees no such GPU; say cpu or auto")
    return device, arithmetic(device, dtype) if dtype == "auto" else dtype


def arithmetic(where: str, kind: str) -> str:
    """The precision that a model computes in on a device: of one quantised on loading that of "auto"."""
    return ("float32" if where == "cpu" else "bfloat16") if kind in ("auto", *ON_LOADING) else kind


def _memory(
    source: ModelSource, directory: Path, where: str, kind: str, packing: Quantised | None, gpus: int
) -> dict[int | str, int] | None:
    """What of each device's memory the weights may take; None for a model on one device."""
    if where != "cuda":
        if gpus > 1:
            raise ScoringError(f"gpus: {gpus} for each worker, and the device is {where}")
        return None
    torch, _ = _libraries()
    needed = weight_bytes(directory, getattr(torch, arithmetic(where, kind)).itemsize, kind)
    return memory_for(source.name, needed, gpus=gpus, offloads=packing is None)


def _materialise(source: ModelSource, where: str = "", kind: str = "") -> tuple[Path, dict[str, object]]:
    """A model's safetensors directory and the start of its identity.

    A GGUF file's numbers are float32 there, or bfloat16 where a GPU takes them so; without a device as "auto" has it.
    """
    name = source.name if source.kind in ("hub", "embedded") or source.path is None else source.path.absolute().name
    identity: dict[str, object] = {"name": name, "kind": source.kind, "sha256": None, "revision": None}
    if source.path is None:
        directory = fetch_hub(source)
        return directory, identity | {"revision": directory.name, "sha256": directory_digest(directory)}
    if source.kind == "directory":
        return source.path, identity | {"sha256": directory_digest(source.path)}
    sha256 = file_digest(source.path.resolve()).sha256
    if not where:
        where, kind = placement("auto", "auto")
    dtype: GgufDtype = "bfloat16" if where != "cpu" and arithmetic(where, kind) == "bfloat16" else "float32"
    directory = converted(source.path, sha256, dtype=dtype)
    return directory, identity | {"sha256": sha256, "converter": CONVERTER_VERSION}


def _directory(source: ModelSource) -> Path:
    """Where a model's tokenizer and configuration lie; of the hub's files no weights are fetched for them."""
    if source.path is None:
        return fetch_hub(source, weights=False)
    return source.path if source.kind == "directory" else _materialise(source)[0]


def _configuration(transformers: Any, source: ModelSource, directory: Path) -> Any:
    with told(_unloadable(source)), folder_of(bound_files(directory)) as folder:
        return transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def _tokenizer(transformers: Any, source: ModelSource, directory: Path) -> Any:
    with quiet(), told(_unloadable(source)), folder_of(bound_files(directory)) as folder:
        settings = folder / "tokenizer_config.json"
        if settings.exists():  # transformers 5.6 reads the files that it names, wherever they lie
            fields = read_object(settings)
            settings.unlink()
            own = {name: value for name, value in fields.items() if not name.endswith("_file")}
            settings.write_text(json.dumps(own), encoding="utf-8")
        return transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def _context(config: Any) -> int | None:
    return getattr(config.get_text_config(), "max_position_embeddings", None)


def _unloadable(source: ModelSource) -> str:
    return f"model {source.name!r} can't be loaded"
