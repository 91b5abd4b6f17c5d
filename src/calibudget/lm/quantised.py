"""Weights in 8 or 4 bits: which kinds are read, what each needs, and what stands in a model's identity.

A model is quantised while it is loaded (`int8`, `nf4`, by bitsandbytes), or its files hold quantised weights. Those
are read by transformers' own loaders, as far as no other code than installed packages runs: FP8 weights become numbers
of the model's precision, since the kernels that multiply them as they are would be fetched from the hub.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any, Final

from calibudget.errors import DependencyError, ScoringError, refuse_as

#: What `dtype` may ask for beside a precision, as bitsandbytes has it.
ON_LOADING: Final[Mapping[str, Mapping[str, object]]] = {
    "int8": {"load_in_8bit": True},
    "nf4": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True},
}
#: Bytes that a weight takes in each, scales included.
BYTES: Final = {"int8": 1.0, "nf4": 0.53}
#: The packages that each kind of quantised weights needs.
_NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "awq": ("gptqmodel",),
    "bitsandbytes": ("bitsandbytes",),
    "fp8": (),
    "gptq": ("gptqmodel", "optimum"),
}
#: The first version of transformers that turns FP8 weights of any shape into numbers on a CPU.
_FP8_SINCE: Final = (5, 19)
#: Devices on which a package's kernels run.
_DEVICES: Final = ("cpu", "cuda", "xpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantised:
    """How a model's weights are quantised.

    Attributes:
        settings: the method, its version and its settings, for the model's identity.
        loading: what transformers' `from_pretrained` is given for it.
        is_packed: whether the loaded weights are in 8 or 4 bits; FP8 files give numbers of the model's precision.
    """

    settings: Mapping[str, object]
    loading: Mapping[str, Any]
    is_packed: bool


def quantised(name: str, directory: Path, kind: str, where: str) -> Quantised | None:
    """How a model is quantised, from its configuration and what is asked for; None where its weights are plain numbers.

    The kind is a precision, or one of `ON_LOADING`.

    Raises:
        ScoringError: a kind of weights that isn't read, on this device; or a quantised model that is to be quantised.
        DependencyError: its package isn't installed.
    """
    with refuse_as(ScoringError, f"model {name!r}: config.json can't be read", ValueError, AttributeError):
        stated = json.loads((directory / "config.json").read_bytes()).get("quantization_config")
    if kind not in ON_LOADING and not stated:
        return None
    if stated and not isinstance(stated, Mapping):
        raise ScoringError(f"model {name!r}: config.json: quantization_config must be an object")
    method = str((stated or {}).get("quant_method", "bitsandbytes"))
    if stated and kind in ON_LOADING:
        raise ScoringError(f"model {name!r}: its weights are quantised already ({method}); leave dtype: {kind} out")
    if method not in _NEEDS:
        raise ScoringError(
            f"model {name!r}: {method} weights aren't read here, {' and '.join(sorted(_NEEDS))} are; take the model "
            "unquantised with dtype: nf4, or have a server hold it (engine: openai)"
        )
    for package in _NEEDS[method]:
        _check_package(name, package, where)
    if method == "fp8":
        return _fp8(name, stated or {})
    return _bitsandbytes(kind, stated or {}) if method == "bitsandbytes" else _gptqmodel(method, stated)


def count_numbers(model: Any) -> int:
    """How many weights a model has; those that gptqmodel packs are no parameters any more."""
    packed = (module for module in model.modules() if _is_gptqmodels(module))
    return int(model.num_parameters() + sum(module.in_features * module.out_features for module in packed))


def keep_plain(model: Any) -> None:
    """Leave out what bitsandbytes and gptqmodel do to their layers behind a model's back.

    On CPUs with bfloat16 units bitsandbytes would lay 4-bit weights out anew at the first product without a gradient,
    compute in bfloat16 from then on, and give later backward passes no gradient of their inputs. gptqmodel would
    compile each layer's own unpacking, which takes a compiler of C++ on a CPU.
    """
    for module in model.modules():
        if _is_gptqmodels(module):
            vars(module).pop("dequantize_weight", None)
        if getattr(module, "support_avx512bf16_for_cpu", False):
            module.support_avx512bf16_for_cpu = False


def _is_gptqmodels(module: Any) -> bool:
    return type(module).__module__.startswith("gptqmodel.")


def _check_package(name: str, package: str, where: str) -> None:
    if find_spec(package) is None:
        extra = "quantized" if package == "bitsandbytes" else "gptq"
        raise DependencyError(f"model {name!r}: its weights need {package}; pip install 'calibudget[{extra}]'")
    logging.getLogger(package).setLevel(logging.ERROR)  # it would tell of a cast to float16 at every product
    kernels = sys.modules.get("kernels", sys)
    sys.modules["kernels"] = None  # type: ignore[assignment]  # with it, it would fetch code of the hub's on some CPUs
    try:
        with redirect_stdout(StringIO()):  # gptqmodel greets
            import_module(package)
    finally:
        del sys.modules["kernels"]
        if kernels is not sys:
            sys.modules["kernels"] = kernels
    if where not in _DEVICES:
        raise ScoringError(f"device: {where}: {package} has no operations there; say cpu, or take another dtype")


def _bitsandbytes(kind: str, stated: Mapping[str, object]) -> Quantised:
    from transformers import BitsAndBytesConfig

    loading = {"quantization_config": BitsAndBytesConfig(**ON_LOADING[kind])} if kind in ON_LOADING else {}
    settings = {"method": "bitsandbytes", "version": version("bitsandbytes"), **(ON_LOADING.get(kind) or stated)}
    return Quantised(settings=settings, loading=loading, is_packed=True)


def _gptqmodel(method: str, stated: Mapping[str, Any]) -> Quantised:
    """The kernel is the one in torch's own operations: the same arithmetic on every device, nothing to compile."""
    from transformers import AwqConfig, GPTQConfig

    kernel = f"{method}_torch"
    chosen = GPTQConfig(bits=stated["bits"], backend=kernel) if method == "gptq" else AwqConfig(backend="torch_awq")
    own = {name: value for name, value in stated.items() if name not in ("meta", "quant_method")}
    settings = {"method": method, "gptqmodel": version("gptqmodel"), "kernel": kernel, **own}
    return Quantised(settings=settings, loading={"quantization_config": chosen}, is_packed=True)


def _fp8(name: str, stated: Mapping[str, object]) -> Quantised:
    from transformers import FineGrainedFP8Config

    found = version("transformers")
    if tuple(map(int, found.split(".")[:2])) < _FP8_SINCE:
        since = ".".join(map(str, _FP8_SINCE))
        raise DependencyError(
            f"model {name!r}: its FP8 weights need transformers {since} or later, and here is {found}"
        )
    loading = {"quantization_config": FineGrainedFP8Config(dequantize=True)}
    return Quantised(settings={"method": "fp8", **stated, "dequantize": True}, loading=loading, is_packed=False)
