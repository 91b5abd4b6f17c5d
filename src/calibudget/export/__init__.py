"""From a finished run to a trainer: its rows, the configuration that trains them, and a check of every token."""

from calibudget.export.check import Comparison, check, check_installed
from calibudget.export.handover import Exported, check_push, export, push
from calibudget.export.trainers import TRAINERS, Trainer

__all__ = ["TRAINERS", "Comparison", "Exported", "Trainer", "check", "check_installed", "check_push", "export", "push"]
