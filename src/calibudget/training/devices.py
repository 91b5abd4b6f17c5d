"""The processes that train together, one a device, and a frozen model that is parted among them.

`accelerate launch` or torchrun started them. A parted model may be larger than one device: each repeated block lies
in equal parts on all devices and is gathered while it computes (torch's `fully_shard`, which is what accelerate's
FSDP plugin drives). Only frozen weights are parted. The factors, their gradients and the optimizer stay whole
everywhere, as without sharding, so the update, checkpoints and the adapter are made by the same code; and the
embedding and the output head stay whole because the loss multiplies by the head's weight itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from importlib.metadata import version
from typing import Any, Final

import torch
from torch import Tensor

from calibudget.errors import DependencyError, TrainingError
from calibudget.hardware import Device
from calibudget.training.config import Execution


class Devices:
    """This process among all of them.

    Make it before any model is loaded: it joins the process group and chooses the process's own GPU.
    """

    def __init__(self, device: Device = "auto") -> None:
        from accelerate import PartialState  # type: ignore[import-untyped]

        where = device if device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
        if where != "cpu" and not getattr(torch, where).is_available():
            raise TrainingError(f"device: {where} was asked for and torch sees no such GPU; say cpu or auto")
        self._state: Any = PartialState(cpu=where == "cpu")
        own: torch.device = self._state.device
        self.device = own if own.type == where else torch.device(where)
        self.rank: int = self._state.process_index
        self.count: int = self._state.num_processes

    @property
    def is_main(self) -> bool:
        """Whether this process writes the files."""
        return self.rank == 0

    def shards(self, asked: bool | None) -> bool:
        """Whether the model is parted among the processes: as asked, or as `accelerate launch` was told."""
        from accelerate.utils import parse_flag_from_env  # type: ignore[import-untyped]

        return bool(parse_flag_from_env("ACCELERATE_USE_FSDP")) if asked is None else asked

    def add_up(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by its sum over all processes."""
        if self.count > 1:
            for tensor in tensors:
                torch.distributed.all_reduce(tensor)

    def wait(self) -> None:
        """Go on when every process has come here."""
        if self.count > 1:
            self._state.wait_for_everyone()


_NEEDS_WHOLE: Final = ("fuse", "graphs")


def plain_execution(execution: Execution) -> Execution:
    """The same without what needs every weight in one place for the whole training."""
    for name in _NEEDS_WHOLE:
        if getattr(execution, name):
            raise TrainingError(f"{name}: a model parted by `shard` is trained without it; leave it out")
    return replace(execution, fuse=False, graphs=False)


def shard_model(model: Any, devices: Devices) -> None:
    """Freeze a model, part its blocks among the processes, and move all of it to their devices; in place.

    Called by every process, before factors are put on; a model that is larger than one device comes on a CPU.

    Raises:
        TrainingError: there is one process only, or the model's blocks aren't known.
        DependencyError: an older peft, which gives factors the size of one part.
    """
    from accelerate.utils import FullyShardedDataParallelPlugin
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    if devices.count == 1:
        raise TrainingError("shard: one process has nobody to part the model with; start several with torchrun")
    if tuple(map(int, (found := version("peft")).split(".")[:2])) < (0, 21):
        raise DependencyError(f"shard: needs peft 0.21 or later, not {found}; install: pip install 'peft>=0.21'")
    names = set(model._no_split_modules or ())
    blocks = [module for module in model.modules() if type(module).__name__ in names]
    if not blocks:
        raise TrainingError(f"shard: the blocks of a {model.config.model_type} model aren't known")
    model.requires_grad_(False)
    ends = [model.get_input_embeddings(), model.get_output_embeddings()]
    for end in ends:
        end.to(devices.device)
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2)
    mesh = init_device_mesh(devices.device.type, (devices.count,))
    for block in blocks:
        fully_shard(block, mesh=mesh, reshard_after_forward=plugin.reshard_after_forward)
    whole = {parameter for end in ends for parameter in end.parameters()}
    fully_shard(model.get_decoder(), mesh=mesh, ignored_params=whole)
