"""What one training is made of, and where it writes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from calibudget.errors import ArtefactError
from calibudget.store.canonical import canonical_json, sha256_hex
from calibudget.store.files import refuse_links
from calibudget.training.config import Execution, TrainingConfig
from calibudget.training.report import LOG_NAME

if TYPE_CHECKING:
    from calibudget.lm.loading import LanguageModel
    from calibudget.training.data import TrainingExample

ADAPTER_NAME: Final = "adapter"
#: Checkpoints of an unfinished training; gone when the adapter is whole.
CHECKPOINTS_NAME: Final = ".training"
#: Parts of a model's identity that results don't depend on but by rounding.
_CIRCUMSTANCES: Final = frozenset({"dtype", "device"})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainingJob:
    """Everything that one training is made of.

    Attributes:
        language_model: the base model, on its device; factors are put on it in place.
        output_dir: where `adapter/` and `training.jsonl` go; made if it isn't there.
        evidence: digests that bind the adapter to its train set, for its card and for resuming.
    """

    language_model: LanguageModel
    examples: Sequence[TrainingExample]
    config: TrainingConfig
    execution: Execution
    output_dir: Path
    evidence: Mapping[str, object]

    @property
    def checkpoints(self) -> Path:
        """Directory of the checkpoints."""
        return self.output_dir / CHECKPOINTS_NAME

    @property
    def adapter(self) -> Path:
        """Directory of the finished adapter."""
        return self.output_dir / ADAPTER_NAME

    def identity(self) -> str:
        """SHA-256 of what the result depends on but by rounding; only the same training is resumed."""
        model = {key: value for key, value in self.language_model.identity.items() if key not in _CIRCUMSTANCES}
        ids = hashlib.sha256()
        for example in self.examples:
            ids.update(f"{example.name}\0{example.role}\0{example.prompt_length}\0{example.length}\0".encode())
            ids.update(example.ids.astype("<i4").tobytes())
        parts = {
            "model": model,
            "config": asdict(self.config),
            "evidence": dict(self.evidence),
            "examples": ids.hexdigest(),
        }
        return sha256_hex(canonical_json(parts))


def check_usable(output_dir: Path, *, resume: bool) -> None:
    """Refuse a directory that training can't write to, before anything is loaded."""
    checkpoints, adapter, log = (output_dir / name for name in (CHECKPOINTS_NAME, ADAPTER_NAME, LOG_NAME))
    refuse_links(checkpoints)
    if checkpoints.exists():
        if not resume:
            raise ArtefactError(
                f"{output_dir}: holds an unfinished training; go on with --resume, name another directory, "
                f"or remove {checkpoints} and {log.name} in it"
            )
        return
    if resume and adapter.is_dir() and log.is_file():
        return  # finished; whether it is of the same job is known once that is made
    for path in (adapter, log):
        if path.exists():
            raise ArtefactError(f"{path}: of a finished training is there already; name another directory")
