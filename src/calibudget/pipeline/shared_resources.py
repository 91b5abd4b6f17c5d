"""What several runs in one process have in common, so that it is read or loaded once."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from calibudget.evaluation.benchmarks import Benchmark, load_benchmark
from calibudget.pipeline.prepare import Prepared, prepare
from calibudget.pipeline.progress import Progress
from calibudget.pipeline.rounds import earlier_rounds
from calibudget.recipe.load import resolved_fields
from calibudget.recipe.schema import Recipe
from calibudget.store.canonical import canonical_json

if TYPE_CHECKING:
    from calibudget.hardware import Device, Dtype
    from calibudget.lm.loading import LanguageModel

#: Fields of a recipe that reading and parting its sources goes by, beside what their specs say.
_READ_BY = (
    "hygiene",
    "split_seed",
    "selection_seed",
    "calibration",
    "evaluation",
    "model",
    "template",
    "engine",
)


def read_sources(recipe: Recipe, shared: Shared | None, *, progress: Progress) -> Prepared:
    """The sources of a recipe, read and parted: those that are shared, where there are such and no earlier rounds."""
    if shared is None or recipe.rounds is not None:
        return prepare(recipe, earlier_rounds(recipe), progress=progress)
    return shared.prepared(recipe, progress=progress)


class Shared:
    """Keeps what was read and loaded last: sources, the base model, benchmarks.

    Runs that want to share go through it one after another, those of one seed and one model in a row. What it gives
    is never changed by who gets it.
    """

    def __init__(self) -> None:
        self._prepared: tuple[object, Prepared] | None = None
        self._model: tuple[tuple[str, str, str, int], LanguageModel] | None = None
        self._benchmark = lru_cache(maxsize=64)(load_benchmark)

    def prepared(self, recipe: Recipe, *, progress: Progress) -> Prepared:
        """The sources of a recipe's first round, read and parted; see `prepare`."""
        fields = resolved_fields(recipe)
        read_by = {name: fields.get(name) for name in _READ_BY}
        specs = repr((recipe.all_specs, recipe.evaluation_specs()))  # as text, since 1 == True and `where` parts them
        key = recipe.data_root.absolute(), canonical_json(read_by), specs
        if self._prepared is None or self._prepared[0] != key:
            self._prepared = None  # before others are read, so that both needn't be held at once
            self._prepared = (key, prepare(recipe, progress=progress))
        return self._prepared[1]

    def model(self, name: str, *, device: Device = "auto", dtype: Dtype = "auto", gpus: int = 1) -> LanguageModel:
        """A loaded model; see `load_model`."""
        from calibudget.lm.loading import load_model, placement

        key = (name, *placement(device, dtype), gpus)
        if self._model is None or self._model[0] != key:
            self._model = None
            self._model = (key, load_model(name, device=device, dtype=dtype, gpus=gpus))
        return self._model[1]

    def benchmark(self, name: str, data_dir: Path | None, *, path: str | None = None) -> Benchmark:
        """A benchmark's items; see `load_benchmark`."""
        return self._benchmark(name, data_dir, path=path)
