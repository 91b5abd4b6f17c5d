"""CUDA graphs of whole passes: a small model's kernels are shorter than the time it takes to launch them.

A pass (forward, loss and backward, gradients added to where they are) is captured once for each shape of batch and
replayed from then on with the batch's numbers copied in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from calibudget.training.batches import Batch

#: One pass over a batch on the device, with the scale of its loss: the loss, gradients being added to.
Pass = Callable[[Batch, Tensor], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Captured:
    graph: Any
    batch: Batch
    loss: Tensor


class GraphedPass:
    """A pass that captures itself for each new shape of batch, and replays."""

    def __init__(self, run: Pass, gradients: tuple[Tensor, ...], device: torch.device) -> None:
        self._run = run
        self._gradients = gradients
        self._device = device
        self._scale = torch.zeros((), device=device)
        self._pool: Any = None
        self._captured: dict[tuple[int, ...], _Captured] = {}

    def __call__(self, batch: Batch, scale: Tensor) -> Tensor:
        """Run the pass; the loss returned holds until the next call."""
        key = batch.shape_key
        if key not in self._captured:
            self._captured[key] = self._capture(batch)
        captured = self._captured[key]
        for field in fields(Batch):
            target, value = getattr(captured.batch, field.name), getattr(batch, field.name)
            if target is not None:
                target.copy_(value.pin_memory(), non_blocking=True)
        self._scale.copy_(scale, non_blocking=True)
        captured.graph.replay()
        return captured.loss

    def _capture(self, batch: Batch) -> _Captured:
        resident = batch.to(self._device)
        # a new shape may be compiled anew, which can't happen while a graph is captured
        self._warm_up(resident, passes=3 if self._pool is None else 1)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            loss = self._run(resident, self._scale)
        self._pool = graph.pool()
        return _Captured(graph=graph, batch=resident, loss=loss)

    def _warm_up(self, batch: Batch, *, passes: int) -> None:
        """Compile and choose kernels outside of any capture; the gradients are as before afterwards."""
        before = [gradient.clone() for gradient in self._gradients]
        stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(passes):
                self._run(batch, self._scale)
        torch.cuda.current_stream().wait_stream(stream)
        for gradient, saved in zip(self._gradients, before, strict=True):
            gradient.copy_(saved)
