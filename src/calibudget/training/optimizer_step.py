"""A model with factors on it, and what one optimizer step does to it; and CUDA graphs of whole passes.

A small model's kernels are shorter than the time it takes to launch them. So a pass (forward, loss and backward,
gradients added to where they are) is captured once for each shape of batch and replayed from then on with the batch's
numbers copied in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from calibudget.errors import TrainingError
from calibudget.lm.attention import has_kernel
from calibudget.lm.forward import positions_depend_on_batch
from calibudget.lm.placement import parts_of
from calibudget.training import layers
from calibudget.training.config import Execution, TrainingConfig
from calibudget.training.data import Batch, TrainingExample, fixed_sequences, packed_batch, padded_batch, without_labels
from calibudget.training.example_order import packs, rows
from calibudget.training.layers import flatten_factors, use_factor_layers
from calibudget.training.loss import chunk_gradient, find_head, response_loss
from calibudget.training.target_layers import add_adapter, frozen_experts

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


#: Parameters up to which a model's kernels are so short that launching them is what takes the time.
_SMALL_MODEL: Final = 1_500_000_000
#: Relative error of hidden states that rounding explains; sequences that see each other are far above.
_PROBE_TOLERANCE: Final = {torch.float32: 1e-3, torch.bfloat16: 0.1}


def make_optimizer(factors: Sequence[layers.FlatFactor], config: TrainingConfig) -> torch.optim.AdamW:
    """AdamW with one group a factor, in the order given, both carrying the weight decay; rates are set at each step."""
    groups = [{"params": [factor.values], "lr": 0.0, "weight_decay": config.weight_decay} for factor in factors]
    fused = groups[0]["params"][0].is_cuda  # type: ignore[index]
    return torch.optim.AdamW(groups, betas=(config.beta1, config.beta2), eps=config.epsilon, fused=fused)


class Learner:
    """A frozen model, its trainable factors and their optimizer.

    Attributes:
        model: the model with its factors, a `PeftModel`.
        factors: the factors A and B of all layers, flat.
        packs_sequences: whether sequences are laid end to end; they are padded otherwise.
    """

    def __init__(self, model: Any, name: str, config: TrainingConfig, execution: Execution) -> None:
        """Put factors on a model that is on its device; it is changed in place.

        Raises:
            TrainingError: unknown target modules, a head that can't be trained through, or options that this
                device or model doesn't take.
        """
        if execution.batch_tokens < config.max_length:
            raise TrainingError(f"batch_tokens: {execution.batch_tokens} is less than max_length {config.max_length}")
        self._config, self._execution = config, execution
        self._device: torch.device = model.device
        # compiled code and captured graphs know neither hooks between cards nor bitsandbytes' own products
        self._is_special = parts_of(model) is not None or getattr(model, "is_quantized", False)
        self.head = find_head(model.eval())
        self.packs_sequences = self._choose_packing(model)
        self.frozen_experts = frozen_experts(model)
        self.model = add_adapter(model, config, name)
        use_factor_layers(self.model, share=self._on_gpu if execution.fuse is None else execution.fuse)
        self.factors = flatten_factors(self.model)
        self._optimizer = make_optimizer(self.factors, config)
        self._decoder = model.get_decoder()
        if self.packs_sequences:
            model.set_attn_implementation(layers.register(kernel=self._kernel_fits(model)))
        self._chunk_gradient = chunk_gradient
        if self._compiles:
            self._chunk_gradient = torch.compile(chunk_gradient, dynamic=True)
        self._prepare_layers(model)
        self._pass: Pass = self._direct_pass
        self._sequences: int | None = None
        if self._graphs(model):
            self._sequences = fixed_sequences(config.batch_size, execution.batch_tokens, config.max_length)
            gradients = tuple(factor.gradient for factor in self.factors)
            self._pass = GraphedPass(self._resident_pass, gradients, self._device)

    def batch(self, examples: Sequence[TrainingExample]) -> Batch:
        """Examples, on the CPU, as they go through the model together."""
        if not self.packs_sequences:
            return padded_batch(examples)
        return packed_batch(examples, longest=self._config.max_length, sequences=self._sequences)

    def batches(self, examples: Sequence[TrainingExample], members: Sequence[int]) -> list[Batch]:
        """The batches, on the CPU, that this device's share of a step is run in."""
        return [self.batch([examples[index] for index in part]) for part in self._parts(examples, members)]

    def even_batches(
        self, examples: Sequence[TrainingExample], shares: Sequence[Sequence[int]], rank: int
    ) -> list[Batch]:
        """`batches` of one device's share, with empty passes added until every device makes as many.

        Devices that hold a model together gather its blocks in every pass, so none may make a pass alone.
        """
        count = max(len(self._parts(examples, members)) for members in shares)
        own = self.batches(examples, shares[rank])
        first = next(members for members in shares if members)
        spare = without_labels(self.batches(examples, first[:1])[0])
        return own + [spare] * (count - len(own))

    def _parts(self, examples: Sequence[TrainingExample], members: Sequence[int]) -> list[list[int]]:
        """Members of each pass."""
        part = packs if self.packs_sequences else rows
        lengths = {index: examples[index].length for index in members}
        return part(members, lengths, self._execution.batch_tokens)

    def gradients(self, batches: Sequence[Batch], units: int) -> Tensor:
        """Set the factors' gradients to those of a step's summed loss over its units; this device's part of the loss.

        The batches are this device's share of the step and may be none, the units those of the whole step over all
        devices (`TrainingConfig.loss_unit`).
        """
        for factor in self.factors:
            factor.gradient.zero_()
        scale = torch.tensor(1.0 / units)
        total = torch.zeros((), device=self._device)
        for batch in batches:
            total += self._pass(batch, scale)
        return total

    def update(self, rates: Sequence[float]) -> Tensor:
        """Take one optimizer step with the gradients that are there; their common norm before any clipping."""
        norms = [torch.linalg.vector_norm(factor.gradient) for factor in self.factors]
        norm: Tensor = torch.linalg.vector_norm(torch.stack(norms))
        if self._config.max_grad_norm is not None:
            shrink = (self._config.max_grad_norm / (norm + 1e-6)).clamp(max=1.0)
            for factor in self.factors:
                factor.gradient.mul_(shrink)
        for group, rate in zip(self._optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        self._optimizer.step()
        return norm

    def tensors(self) -> dict[str, Tensor]:
        """Everything that training goes on from, by name: the factors and the optimizer's moments."""
        found: dict[str, Tensor] = {}
        for factor in self.factors:
            found[f"{factor.factor}.values"] = factor.values.data
            for moment in ("exp_avg", "exp_avg_sq"):
                found[f"{factor.factor}.{moment}"] = self._moments(factor.values)[moment]
        return found

    def load(self, tensors: Mapping[str, Tensor], steps: int) -> None:
        """Go on from what `tensors` returned after a number of optimizer steps.

        Raises:
            TrainingError: a tensor is missing or has another shape.
        """
        for name, own in self.tensors().items():
            if name not in tensors or tensors[name].shape != own.shape:
                raise TrainingError(f"the checkpoint's {name} doesn't fit this model and configuration")
            own.copy_(tensors[name])
        for factor in self.factors:
            self._moments(factor.values)["step"].fill_(float(steps))

    def _moments(self, values: Tensor) -> dict[str, Tensor]:
        state: dict[str, Tensor] = self._optimizer.state[values]
        if not state:
            on_device = values.device if values.is_cuda else None
            state["step"] = torch.zeros((), dtype=torch.float32, device=on_device)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(values.data), torch.zeros_like(values.data)
        return state

    def _direct_pass(self, batch: Batch, scale: Tensor) -> Tensor:
        return self._resident_pass(batch.to(self._device), scale.to(self._device, non_blocking=True))

    def _resident_pass(self, batch: Batch, scale: Tensor) -> Tensor:
        loss = self.loss(batch, scale, self._chunk_gradient)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach().to(self._device)

    def loss(self, batch: Batch, scale: Tensor, chunk: Any = chunk_gradient) -> Tensor:
        """The scaled loss of a batch on the device, a scalar on the card where the output head lies."""
        hidden = self.hidden(batch).flatten(0, 1).to(self.head.weight.device)
        rows, labels = batch.label_rows.to(hidden.device), batch.labels.to(hidden.device)
        return response_loss(hidden, rows, self.head, labels, scale.to(hidden.device), chunk)

    def hidden(self, batch: Batch) -> Tensor:
        """Last hidden states of a batch on the device, shape (R, T, H)."""
        layout: dict[str, Any] = {"attention_mask": batch.attention_mask}
        if batch.starts is not None:
            layout = layers.packed_layout(batch.starts, self._config.max_length)
        output = self._decoder(input_ids=batch.input_ids, position_ids=batch.position_ids, use_cache=False, **layout)
        hidden: Tensor = output.last_hidden_state
        return hidden

    @property
    def _on_gpu(self) -> bool:
        return self._device.type == "cuda"

    @property
    def _compiles(self) -> bool:
        asked = self._execution.compile
        return self._on_gpu and not self._is_special if asked is None else asked

    def _choose_packing(self, model: Any) -> bool:
        asked = self._execution.pack
        if asked is False or (asked is None and not self._kernel_fits(model)):
            return False
        if agrees_packed(model, kernel=self._kernel_fits(model)):
            return True
        if asked:
            family = model.config.model_type
            raise TrainingError(f"pack: a {family} model gives other results when sequences are laid end to end")
        return False

    def _kernel_fits(self, model: Any) -> bool:
        config = model.config.get_text_config()
        head_size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return model.dtype == torch.bfloat16 and has_kernel(self._device, model.dtype, head_size)

    def _graphs(self, model: Any) -> bool:
        asked = self._execution.graphs
        redraws = self._execution.gradient_checkpointing and self._config.dropout
        possible = (
            self._on_gpu and self.packs_sequences and not positions_depend_on_batch(model.config.get_text_config())
        )
        possible = possible and not redraws and not self._is_special
        if asked and not possible:
            raise TrainingError(
                "graphs: need a model on one GPU, not quantised, packed sequences, positions that don't depend on the "
                "batch, and no dropout under gradient_checkpointing"
            )
        small = sum(parameter.numel() for parameter in model.parameters()) <= _SMALL_MODEL
        return possible and (small if asked is None else asked)

    def _prepare_layers(self, model: Any) -> None:
        """Switch on the factors' dropout, and compile and checkpoint the model's repeated blocks."""
        for name, module in self.model.named_modules():
            if ".lora_dropout." in name:
                module.train()
        names = set(model._no_split_modules or ())
        # sharding puts a class of its own in front of a block's
        kinds = ((module, {kind.__name__ for kind in type(module).__mro__}) for module in model.modules())
        for layer in [module for module, found in kinds if found & names]:
            # one code for all lengths and layers: `dynamic` keeps shapes symbolic from the first compilation on
            forward = torch.compile(layer.forward, dynamic=True) if self._compiles else layer.forward
            if self._execution.gradient_checkpointing:
                redraws = bool(self._config.dropout)
                forward = partial(checkpoint, forward, use_reentrant=False, preserve_rng_state=redraws)
            layer.forward = forward


@torch.no_grad()
def agrees_packed(model: Any, *, kernel: bool) -> bool:
    """Whether a model gives the same hidden states for sequences laid end to end as for each alone."""
    vocabulary = model.get_input_embeddings().num_embeddings
    lengths = (5, 12, 9)
    ids = torch.tensor([(7 * i * i + 11 * i + 3) % vocabulary for i in range(sum(lengths))], device=model.device)
    decoder = model.get_decoder()
    alone = [
        decoder(input_ids=part[None], use_cache=False).last_hidden_state for part in torch.split(ids, list(lengths))
    ]
    starts = torch.tensor([0, *torch.tensor(lengths).cumsum(0)], dtype=torch.int32, device=model.device)
    places = torch.cat([torch.arange(length, device=model.device) for length in lengths])
    before = model.config._attn_implementation
    try:
        model.set_attn_implementation(layers.register(kernel=kernel))
        layout = layers.packed_layout(starts, max(lengths))
        together = decoder(input_ids=ids[None], position_ids=places[None], use_cache=False, **layout).last_hidden_state
    except (TypeError, ValueError, AttributeError, RuntimeError, NotImplementedError):
        return False
    finally:
        model.set_attn_implementation(before)
    expected = torch.cat(alone, dim=1).float()
    error = (together.float() - expected).norm() / expected.norm()
    return bool(error <= _PROBE_TOLERANCE.get(model.dtype, 0.1))
