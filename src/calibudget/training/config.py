"""What is trained and how it is run: the paper's configuration as the default (paper 3.1), apart from the machine."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from dataclasses import fields as options_of
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Literal, TypeVar, cast, get_type_hints

from pydantic import Field, TypeAdapter, ValidationError

from calibudget.errors import TrainingError
from calibudget.hardware import Device, FrozenDtype
from calibudget.messages import fault, meant
from calibudget.values import Count, Flag, Integer, Number, Positive, Size

Schedule = Literal["cosine", "linear", "constant"]
Loss = Literal["token_mean", "sum_per_example"]
TooLong = Literal["refuse", "cut"]

#: Trackers of accelerate that `report_to` may name, and the line that installs each.
TRACKERS: Final = {
    "trackio": "pip install trackio",
    "wandb": "pip install wandb",
    "mlflow": "pip install mlflow",
    "tensorboard": "pip install tensorboard",
}

_Options = TypeVar("_Options")
_AboveZero = Annotated[Number, Field(gt=0)]
_Share = Annotated[Number, Field(ge=0, lt=1)]
_Seed = Annotated[Integer, Field(ge=0)]
#: Pydantic's names of what is wrong with a number out of range.
_RANGES: Final = frozenset({"greater_than", "greater_than_equal", "less_than", "less_than_equal"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingConfig:
    """Everything that the trained adapter depends on, beside the model and the train set.

    Attributes:
        rank: r, rank of the factors.
        scaling: s; the update of a weight is s/r times B A (paper 2.4). It is peft's `lora_alpha`.
        dropout: dropout in front of A.
        target_modules: names of the linear layers that get factors; None takes the attention and MLP projections
            of the model's family.
        learning_rate: geometric mean of the two factors' rates.
        learning_rate_ratio: rate of B over rate of A (LoRA+).
        weight_decay: decoupled decay of both factors.
        beta1: decay of AdamW's first moment.
        beta2: decay of AdamW's second moment.
        epsilon: AdamW's epsilon.
        loss: what a step's gradient is of: the mean over all response tokens of its examples, as trainers have it, or
            the mean over its examples of the sum over their tokens, as the paper's equation has it (2.4).
        max_grad_norm: gradients whose common norm is larger are scaled down to it; None leaves them. The paper
            doesn't say; 1.0 is the default of the trainers that it stands on.
        schedule: how the rates fall after the warm-up.
        warmup_fraction: share of the steps over which the rates rise from 0.
        epochs: passes over the train set.
        batch_size: examples of one optimizer step, over all devices and micro-batches.
        max_length: most tokens of an example, prompt and response together.
        too_long: what becomes of a longer one: the run is refused, or its prompt's middle is cut out.
        recovery_steps: optimizer steps on the companion set alone after the last epoch (the paper's diagnostic),
            under a schedule of their own.
        recovery_learning_rate: their geometric-mean rate; None is `learning_rate`.
        seed: decides the factors' start and the order of the examples.
    """

    rank: Positive = 128
    scaling: _AboveZero = 128.0
    dropout: _Share = 0.0
    target_modules: tuple[str, ...] | None = None
    learning_rate: _AboveZero = 2e-5
    learning_rate_ratio: _AboveZero = 8.0
    weight_decay: Size = 0.0
    beta1: _Share = 0.9
    beta2: _Share = 0.999
    epsilon: _AboveZero = 1e-8
    loss: Loss = "token_mean"
    max_grad_norm: _AboveZero | None = 1.0
    schedule: Schedule = "cosine"
    warmup_fraction: _Share = 0.03
    epochs: Positive = 3
    batch_size: Positive = 32
    max_length: Positive = 1024
    too_long: TooLong = "refuse"
    recovery_steps: Count = 0
    recovery_learning_rate: _AboveZero | None = None
    seed: _Seed = 42

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}

    def __post_init__(self) -> None:
        _check(self)
        if self.target_modules is not None and not self.target_modules:
            raise TrainingError("target_modules: names at least one layer, or is left out")

    def loss_unit(self, examples: int, response_tokens: int) -> int:
        """What the summed losses of a step are divided by, of its examples and response tokens over all devices."""
        return response_tokens if self.loss == "token_mean" else examples

    def factor_rates(self, learning_rate: float) -> tuple[float, float]:
        """Peak rates of A and B whose geometric mean is the given rate and whose ratio is the configured one."""
        root = math.sqrt(self.learning_rate_ratio)
        return learning_rate / root, learning_rate * root


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """How training is run; it moves results by rounding at most.

    Attributes:
        device: "auto" takes a GPU where there is one.
        dtype: precision of the frozen model and of the arithmetic; "auto" is bfloat16 on a GPU and float32 on CPU.
            The factors, their gradients and the optimizer's states are float32 always.
        batch_tokens: most tokens, padding included, that go through the model at once on one device.
        pack: lay sequences end to end instead of padding them; None does so on a GPU where the model allows it.
        fuse: compute projections that read the same input together; None does so on a GPU.
        compile: compile the model's layers; None does so on a GPU.
        graphs: replay captured CUDA graphs; None does so for small models, which launches would hold up.
        gradient_checkpointing: recompute activations in the backward pass, for small cards.
        shard: part the frozen model among the processes, for models larger than one device; without `fuse` and
            `graphs`. None does so under `accelerate launch --use_fsdp`.
        deterministic: same bits on every run of the same device, and on resuming; slower.
        checkpoint_every: optimizer steps between checkpoints; None writes one every ten minutes.
        report_to: trackers to report to beside `training.jsonl`.
    """

    device: Device = "auto"
    dtype: FrozenDtype = "auto"
    batch_tokens: Positive = 10_240
    pack: Flag | None = None
    fuse: Flag | None = None
    compile: Flag | None = None
    graphs: Flag | None = None
    gradient_checkpointing: Flag = False
    shard: Flag | None = None
    deterministic: Flag = False
    checkpoint_every: Positive | None = None
    report_to: tuple[Literal["trackio", "wandb", "mlflow", "tensorboard"], ...] = ()

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}

    def __post_init__(self) -> None:
        _check(self)


def parse_options(kind: type[_Options], fields: Mapping[str, object], *, elsewhere: Collection[str] = ()) -> _Options:
    """A `TrainingConfig` or an `Execution` from a mapping of plain values, strictly.

    Fields that may stand elsewhere are named too where an unknown one may have meant them.

    Raises:
        TrainingError: an unknown field, or a value of the wrong type or out of range; the field is named.
    """
    known = {option.name for option in options_of(cast("Any", kind))}
    for field in fields:
        if field not in known:
            raise TrainingError(f"{field}: no option of training; {meant(field, {*known, *elsewhere}, most=100)}")
    return kind(**fields)


def _check(options: TrainingConfig | Execution) -> None:
    """Hold every field to its type, however the options were made; a list becomes the tuple that it stands for."""
    for name, adapter in _field_adapters(cast("Hashable", type(options))).items():
        try:
            object.__setattr__(options, name, adapter.validate_python(getattr(options, name)))
        except ValidationError as error:
            raise TrainingError(f"{name}: {_words(error)}") from error


def _words(error: ValidationError) -> str:
    """What is wrong with the first field that is; of a number out of range also which it is."""
    first = error.errors()[0]
    message = fault(first["type"], first.get("ctx", {})) or first["msg"].removeprefix("Value error, ")
    return f"{message}, not {first['input']}" if first["type"] in _RANGES else message


@cache
def _field_adapters(kind: Hashable) -> dict[str, TypeAdapter[Any]]:
    hints = get_type_hints(kind, include_extras=True)
    return {option.name: TypeAdapter(hints[option.name]) for option in options_of(cast("Any", kind))}
