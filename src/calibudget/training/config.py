"""What is trained and how it is run: the paper's configuration as the default (paper 3.1), apart from the machine."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from dataclasses import fields as options_of
from difflib import get_close_matches
from functools import cache
from typing import Any, ClassVar, Final, Literal, TypeVar, cast, get_args

from calibudget.errors import TrainingError
from calibudget.hardware import Device
from calibudget.messages import fault

Schedule = Literal["cosine", "linear", "constant"]
Loss = Literal["token_mean", "sum_per_example"]
TooLong = Literal["refuse", "cut"]
Dtype = Literal["auto", "float32", "bfloat16", "int8", "nf4"]

#: Trackers of accelerate that `report_to` may name, and the line that installs each.
TRACKERS: Final = {
    "trackio": "pip install trackio",
    "wandb": "pip install wandb",
    "mlflow": "pip install mlflow",
    "tensorboard": "pip install tensorboard",
}

_Options = TypeVar("_Options")


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

    rank: int = 128
    scaling: float = 128.0
    dropout: float = 0.0
    target_modules: tuple[str, ...] | None = None
    learning_rate: float = 2e-5
    learning_rate_ratio: float = 8.0
    weight_decay: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    loss: Loss = "token_mean"
    max_grad_norm: float | None = 1.0
    schedule: Schedule = "cosine"
    warmup_fraction: float = 0.03
    epochs: int = 3
    batch_size: int = 32
    max_length: int = 1024
    too_long: TooLong = "refuse"
    recovery_steps: int = 0
    recovery_learning_rate: float | None = None
    seed: int = 42

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        for name in ("rank", "epochs", "batch_size", "max_length"):
            _check_integer(name, getattr(self, name), minimum=1)
        _check_integer("recovery_steps", self.recovery_steps, minimum=0)
        _check_integer("seed", self.seed, minimum=0)
        for name in ("scaling", "learning_rate", "learning_rate_ratio", "epsilon"):
            _check_number(name, getattr(self, name), above=0.0)
        for name in ("max_grad_norm", "recovery_learning_rate"):
            if getattr(self, name) is not None:
                _check_number(name, getattr(self, name), above=0.0)
        for name in ("dropout", "beta1", "beta2", "warmup_fraction"):
            _check_number(name, getattr(self, name), minimum=0.0, below=1.0)
        _check_number("weight_decay", self.weight_decay, minimum=0.0)
        _check_choice("schedule", self.schedule, "cosine", "linear", "constant")
        _check_choice("loss", self.loss, "token_mean", "sum_per_example")
        _check_choice("too_long", self.too_long, "refuse", "cut")
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
        shard: part the frozen model among the processes, for models larger than one device; without `fuse`,
            `compile` and `graphs`. None does so under `accelerate launch --use_fsdp`.
        deterministic: same bits on every run of the same device, and on resuming; slower.
        checkpoint_every: optimizer steps between checkpoints; None writes one every ten minutes.
        report_to: trackers to report to beside `training.jsonl`.
    """

    device: Device = "auto"
    dtype: Dtype = "auto"
    batch_tokens: int = 10_240
    pack: bool | None = None
    fuse: bool | None = None
    compile: bool | None = None
    graphs: bool | None = None
    gradient_checkpointing: bool = False
    shard: bool | None = None
    deterministic: bool = False
    checkpoint_every: int | None = None
    report_to: tuple[str, ...] = ()

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        _check_integer("batch_tokens", self.batch_tokens, minimum=1)
        if self.checkpoint_every is not None:
            _check_integer("checkpoint_every", self.checkpoint_every, minimum=1)
        _check_choice("device", self.device, *get_args(Device))
        _check_choice("dtype", self.dtype, *get_args(Dtype))
        for name in self.report_to:
            _check_choice("report_to", name, *TRACKERS)


def parse_options(kind: type[_Options], fields: Mapping[str, object], *, elsewhere: Collection[str] = ()) -> _Options:
    """A `TrainingConfig` or an `Execution` from a mapping of plain values, strictly.

    Args:
        kind: which of the two.
        fields: the values, by field.
        elsewhere: fields that may be given beside those of this kind, to name what an unknown one may have meant.

    Raises:
        TrainingError: an unknown field, or a value of the wrong type or out of range; the field is named.
    """
    from pydantic import ValidationError

    try:
        found: _Options = _adapter(cast("Hashable", kind)).validate_json(json.dumps(dict(fields)), strict=True)
        return found
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        message = fault(first["type"], first.get("ctx", {})) or first["msg"].removeprefix("Value error, ")
        if first["type"] == "unexpected_keyword_argument":
            message = _unknown(field, {*(option.name for option in options_of(cast("Any", kind))), *elsewhere})
        raise TrainingError(f"{field}: {message}" if field else message) from error
    except (TypeError, ValueError) as error:
        raise TrainingError(f"training options: {error}") from error


def _unknown(field: str, known: Collection[str]) -> str:
    nearest = get_close_matches(field, known, n=1, cutoff=0.7)
    proposed = f"did you mean {nearest[0]}?" if nearest else f"there are {', '.join(sorted(known))}"
    return f"no option of training; {proposed}"


@cache
def _adapter(kind: Hashable) -> Any:
    from pydantic import TypeAdapter

    options: Any = kind
    return TypeAdapter(options)


def _check_integer(name: str, value: object, *, minimum: int | None) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TrainingError(f"{name}: must be an integer, not {value!r}")
    if minimum is not None and value < minimum:
        raise TrainingError(f"{name}: must be at least {minimum}, not {value}")


def _check_number(
    name: str, value: object, *, above: float | None = None, minimum: float | None = None, below: float | None = None
) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TrainingError(f"{name}: must be a finite number, not {value!r}")
    if above is not None and value <= above:
        raise TrainingError(f"{name}: must be above {above:g}, not {value}")
    if minimum is not None and value < minimum:
        raise TrainingError(f"{name}: must be at least {minimum:g}, not {value}")
    if below is not None and value >= below:
        raise TrainingError(f"{name}: must be below {below:g}, not {value}")


def _check_choice(name: str, value: object, *choices: str) -> None:
    if value not in choices:
        raise TrainingError(f"{name}: {value!r} isn't one of {', '.join(choices)}")
