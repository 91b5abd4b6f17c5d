"""The trainers that a run is handed to, and what each of them is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from calibudget.errors import InputError
from calibudget.messages import meant
from calibudget.training.config import TrainingConfig

#: How the rows are written: as token ids with labels (Parquet, a saved data set, or ms-swift's messages of token ids),
#: as token ids and rendered text by source, or as the run has them (a `DatasetDict`, or flat fields for Croissant).
Rows = Literal["parquet", "dataset", "messages", "blend", "hub", "croissant"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainer:
    """One target of `calibudget export`.

    Attributes:
        start: the command that starts it in the exported folder; None where nothing is trained from there.
        loader: function of `loaders/loaded_rows.py` that gives the rows as it loads them, None if there is none.
        package: the module whose presence says that the trainer is installed.
        without: what of the configuration it can't be told, field by field, and what it does instead.
        whole_batches: whether it leaves out an epoch's rows that fill no batch.
    """

    title: str
    rows: Rows
    start: str | None = None
    loader: str | None = None
    package: str | None = None
    without: Mapping[str, str] | None = None
    whole_batches: bool = False

    @property
    def trains(self) -> bool:
        """Whether a configuration goes with the rows."""
        return self.start is not None


_ONE_RATE: Final = "one rate for both factors, the geometric mean"

TRAINERS: Final[Mapping[str, Trainer]] = {
    "trl": Trainer(title="TRL", rows="parquet", start="python train.py", loader="trl", package="trl"),
    "llamafactory": Trainer(
        title="LLaMA-Factory",
        rows="dataset",
        start="llamafactory-cli train config.yaml",
        loader="llamafactory",
        package="llamafactory",
    ),
    "axolotl": Trainer(
        title="Axolotl",
        rows="parquet",
        start="axolotl train config.yaml",
        loader="axolotl",
        package="axolotl",
    ),
    "ms-swift": Trainer(
        title="ms-swift",
        rows="messages",
        start="swift sft config.yaml",
        loader="ms_swift",
        package="swift",
    ),
    "unsloth": Trainer(title="Unsloth", rows="parquet", start="python train.py", loader="trl", package="unsloth"),
    "open-instruct": Trainer(
        title="open-instruct",
        rows="parquet",
        start="accelerate launch YOUR_CLONE/open_instruct/finetune.py config.yaml",
        loader="open_instruct",
        package="open_instruct",
        without={
            "learning_rate_ratio": _ONE_RATE,
            "beta1": "AdamW's 0.9",
            "beta2": "AdamW's 0.999",
            "epsilon": "AdamW's 1e-8",
            "target_modules": "q, k, v, o, gate, up and down projections always",
        },
    ),
    "torchtune": Trainer(
        title="torchtune",
        rows="parquet",
        start="tune run lora_finetune_single_device --config config.yaml",
        loader="torchtune",
        package="torchtune",
        whole_batches=True,
    ),
    "megatron": Trainer(
        title="Megatron",
        rows="blend",
        without={
            "labels": "its indexed data sets hold none, so it teaches prompts too; NNN.jsonl keeps prompt and response "
            "apart for trainers of input and output"
        },
    ),
    "huggingface": Trainer(title="Hugging Face", rows="hub"),
    "croissant": Trainer(title="Croissant", rows="croissant"),
}


def trainer_named(name: str) -> Trainer:
    """The trainer of that name."""
    if name in TRAINERS:
        return TRAINERS[name]
    raise InputError(f"--for {name!r}: no such trainer; {meant(name, TRAINERS)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a configuration is made from.

    Attributes:
        model: the model as the trainer is to load it: a hub id or an absolute directory.
        model_files: its directory on this machine, now.
        model_directory: how that is named in the exported folder.
        targets: names of the linear layers that get factors.
    """

    model: str
    model_files: Path
    model_directory: str
    config: TrainingConfig
    targets: tuple[str, ...]
    examples: int
    warmup_steps: int

    @property
    def micro_batch(self) -> int:
        """Examples that go through a device at once: at most 8, so that their multiples give the batch size."""
        return max(size for size in range(1, 9) if self.batch_size % size == 0)

    @property
    def batch_size(self) -> int:
        """Examples of one optimizer step: never more than there are, since some trainers make none then."""
        return min(self.config.batch_size, self.examples)

    @property
    def accumulation(self) -> int:
        """Micro-batches of one optimizer step on one device."""
        return self.batch_size // self.micro_batch

    @property
    def rates(self) -> tuple[float, float]:
        """Peak rates of A and B."""
        return self.config.factor_rates(self.config.learning_rate)
