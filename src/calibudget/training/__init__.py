"""LoRA+ training of an adapter on a train set (paper 2.4 and 3.1).

Names are loaded on first use, so importing this package imports neither torch nor transformers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from calibudget.facade import on_first_use

if TYPE_CHECKING:
    from calibudget.training.adapter import target_modules
    from calibudget.training.config import TRACKERS, Execution, TrainingConfig, parse_options
    from calibudget.training.data import TrainingExample, encode_examples, record_of
    from calibudget.training.devices import Devices
    from calibudget.training.job import ADAPTER_NAME, CHECKPOINTS_NAME, TrainingJob, check_usable
    from calibudget.training.loop import train
    from calibudget.training.order import warmup_steps
    from calibudget.training.report import LOG_NAME, Listener, StepReport, TrainingResult

_HOMES = {
    "TRACKERS": "config",
    "Execution": "config",
    "TrainingConfig": "config",
    "parse_options": "config",
    "Devices": "devices",
    "TrainingExample": "data",
    "encode_examples": "data",
    "record_of": "data",
    "target_modules": "adapter",
    "warmup_steps": "order",
    "ADAPTER_NAME": "job",
    "LOG_NAME": "report",
    "CHECKPOINTS_NAME": "job",
    "TrainingJob": "job",
    "check_usable": "job",
    "train": "loop",
    "Listener": "report",
    "StepReport": "report",
    "TrainingResult": "report",
}

__all__ = [
    "ADAPTER_NAME",
    "CHECKPOINTS_NAME",
    "LOG_NAME",
    "TRACKERS",
    "Devices",
    "Execution",
    "Listener",
    "StepReport",
    "TrainingConfig",
    "TrainingExample",
    "TrainingJob",
    "TrainingResult",
    "check_usable",
    "encode_examples",
    "parse_options",
    "record_of",
    "target_modules",
    "train",
    "warmup_steps",
]

__getattr__ = on_first_use(__name__, _HOMES)
