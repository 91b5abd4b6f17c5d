"""The processes that train together, one a device, as `accelerate launch` or torchrun started them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from calibudget.errors import TrainingError
from calibudget.training.config import Device


class Devices:
    """This process among all of them.

    Make it before any model is loaded: it joins the process group and chooses the process's own GPU.

    Attributes:
        device: where this process computes.
        rank: which of the processes this is, from 0.
        count: how many there are.
    """

    def __init__(self, device: Device = "auto") -> None:
        from accelerate import PartialState  # type: ignore[import-untyped]

        if device == "cuda" and not torch.cuda.is_available():
            raise TrainingError("device: cuda was asked for and torch sees no GPU; say cpu or auto")
        on_cpu = device == "cpu" or not torch.cuda.is_available()
        self._state: Any = PartialState(cpu=on_cpu)
        self.device = torch.device("cpu") if on_cpu else torch.device(self._state.device)
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
