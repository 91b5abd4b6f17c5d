"""Where a model's weights lie: on one device, over several cards, or, as the last way, partly in the machine's memory.

transformers and accelerate split a model at its layers and move what passes between them. Which cards take part is
decided here, before anything is loaded: as few as hold the weights, so that the others are free for other work.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping
from functools import partial
from itertools import accumulate
from math import prod
from pathlib import Path
from typing import Any, Final

from calibudget.errors import ScoringError
from calibudget.lm.model_digest import tensor_heads
from calibudget.lm.quantised import BYTES

#: Share of a card's free memory that weights may take; the rest is for what a batch needs.
_SHARE: Final = 0.85
#: Share of the machine's free memory that offloaded weights may take.
_OFFLOADED_SHARE: Final = 0.7
#: Marks of the matrices that aren't quantised on loading.
_KEPT: Final = ("embed", "lm_head", "wte", "wpe")
#: Bytes of the integers that quantised weights are packed in.
_INTEGERS: Final = {"U8": 1, "I8": 1, "I16": 2, "U16": 2, "I32": 4, "U32": 4, "I64": 8}


class OffloadWarning(UserWarning):
    """Some of a model's layers lie in the machine's memory and are copied to a card each time that they are used."""


def weight_bytes(directory: Path, itemsize: int, kind: str = "") -> int:
    """Bytes that a model's weights take when each number has `itemsize` bytes, from the heads of its files.

    Packed integers stay as they are. Under a kind of `quantised.ON_LOADING` matrices become that, but for embeddings
    and head.
    """
    total = 0.0
    for name, (dtype, shape) in tensor_heads(directory).items():
        is_linear = len(shape) == 2 and not any(mark in name for mark in _KEPT)
        own = BYTES.get(kind, itemsize) if is_linear else itemsize
        total += prod(shape) * _INTEGERS.get(dtype, own)
    return int(total)


def memory_for(name: str, needed: int, *, gpus: int = 1, offloads: bool = True) -> dict[int | str, int] | None:
    """Bytes of each card's memory, and of the machine's, that weights may take; None where all go to the first card.

    At least `gpus` cards take part, even if fewer hold the weights. Without `offloads`, as for quantised weights, none
    wait in the machine's memory.

    Raises:
        ScoringError: fewer cards than that, or cards and machine together lack memory.
    """
    import psutil  # type: ignore[import-untyped]
    import torch

    if gpus > 1 and gpus > torch.cuda.device_count():
        raise ScoringError(f"gpus: {gpus} for each worker, and a worker sees {torch.cuda.device_count()}")
    cards = [int(_SHARE * torch.cuda.mem_get_info(0)[0])]
    if gpus == 1 and needed <= cards[0]:
        return None
    cards += [int(_SHARE * torch.cuda.mem_get_info(card)[0]) for card in range(1, torch.cuda.device_count())]
    machine = int(_OFFLOADED_SHARE * psutil.virtual_memory().available) if offloads else 0
    return split_memory(name, needed, cards, machine, least=gpus)


def split_memory(name: str, needed: int, cards: list[int], machine: int, *, least: int = 1) -> dict[int | str, int]:
    """The fewest cards that hold the weights, at least `least`, or all of them and the machine's memory; all in bytes.

    Raises:
        ScoringError: all together lack memory.
    """
    told = f"model {name!r}: its weights take {_gb(needed)}, and there is room for {' + '.join(map(_gb, cards))} on "
    told += f"{len(cards)} GPU(s)"
    for count, room in enumerate(accumulate(cards), start=1):
        # layers aren't divided, so the cards can't be filled to the last byte
        if count >= least and needed <= 0.97 * room:
            return {**dict(enumerate(cards[:count])), "cpu": 0}
    if needed > sum(cards) + machine:
        raise ScoringError(
            f"{told} and {_gb(machine)} in the machine's memory; take more or larger GPUs, a quantised model, a server "
            "(engine: openai) or a smaller model"
        )
    warnings.warn(
        f"{told}: the rest lies in the machine's memory and is copied to a GPU for every batch and every token, which "
        "is slower by 10 to 100 times; more GPUs or a quantised model would be faster",
        OffloadWarning,
        stacklevel=2,
    )
    return {**dict(enumerate(cards)), "cpu": machine}


def parts_of(model: Any) -> Mapping[str, int] | None:
    """How many blocks of a split model lie on each device; None for a model on one."""
    placed = getattr(model, "hf_device_map", None) or {}
    names = Counter(f"cuda:{device}" if isinstance(device, int) else str(device) for device in placed.values())
    return dict(sorted(names.items())) if len(names) > 1 else None


def hand_on(model: Any, placed: Mapping[str, Any]) -> None:
    """Have the blocks of a model, placed on devices by name, bring what they are given to their own.

    This takes the place of accelerate's hooks where no weights wait elsewhere. Those copy positions and masks anew for
    every layer and logits back to the first card, and each copy between two cards makes either wait for all that the
    other was told before: only one would ever be at work. Here a layer's input crosses once for each change of device,
    what all layers are given crosses once a forward, and logits stay where they are made.
    """
    import torch
    from accelerate.hooks import remove_hook_from_module  # type: ignore[import-untyped]

    remove_hook_from_module(model, recurse=True)
    model.hf_device_map = dict(placed)
    shared: dict[tuple[int, Any], tuple[Any, Any]] = {}

    def bring(device: Any, _: Any, values: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, Any]:
        return _moved(values, device, {}), _moved(named, device, shared)

    for name, place in placed.items():
        device = torch.device("cuda", place) if isinstance(place, int) else torch.device(place)
        model.get_submodule(name).register_forward_pre_hook(partial(bring, device), with_kwargs=True)
    model.base_model.register_forward_pre_hook(lambda *_: shared.clear())
    model.base_model.register_forward_hook(lambda *_: shared.clear())


def _moved(value: Any, device: Any, copies: dict[tuple[int, Any], tuple[Any, Any]]) -> Any:
    """A value with its tensors on a device; each is copied there once, as `copies` (tensor and copy) tell."""
    import torch

    if isinstance(value, torch.Tensor):
        if value.device == device:
            return value
        if (id(value), device) not in copies:
            copies[id(value), device] = (value, value.to(device))
        return copies[id(value), device][1]
    if isinstance(value, dict):
        return {name: _moved(own, device, copies) for name, own in value.items()}
    if type(value) in (tuple, list):
        return type(value)(_moved(own, device, copies) for own in value)
    return value


def cards_of(model: Any) -> int:
    """Devices that a model's layers are worked on, at least 1; weights that wait elsewhere count for none."""
    return max(sum(name.startswith("cuda") for name in parts_of(model) or ()), 1)


def last_device(model: Any) -> Any:
    """The device on which the last of a model's layers ends, before its head."""
    device = list(model.base_model.parameters())[-1].device
    return model.device if device.type == "meta" else device


def keep_where_they_are(model: Any, name: str) -> None:
    """Have a split model leave one argument on the device on which it comes."""
    hook = getattr(model, "_hf_hook", None)
    if hook is not None:
        hook.skip_keys = sorted(
            {*([hook.skip_keys] if isinstance(hook.skip_keys, str) else hook.skip_keys or ()), name}
        )


def _gb(count: int) -> str:
    return f"{count / 1e9:.1f} GB"
