"""`calibudget compare`: a study of a recipe under several policies, judged by the records that it holds out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from calibudget.allocation.policies import policy_named
from calibudget.errors import StudyError
from calibudget.evaluation.benchmarks import HELD_OUT
from calibudget.pipeline.dry_run import dry_run
from calibudget.pipeline.progress import Progress, silent
from calibudget.pipeline.user_tasks import held_out_task
from calibudget.recipe.load import load_recipe, parse_override
from calibudget.recipe.schema import Recipe
from calibudget.recipe.yaml import parse_assignment
from calibudget.study.expect import Expected, expect_study
from calibudget.study.freeze import FROZEN
from calibudget.study.protocol import Protocol

#: Name of the one point and of the one backbone.
POINT = BACKBONE = "recipe"
#: Fields of a recipe that the protocol takes from it by itself.
_TAKEN = ("model", "budget", "policy", "floor", "seed")
#: What training a token takes beside scoring it: a backward pass is about twice a forward.
_TRAINING = 3.0


def comparison(
    recipe_file: Path,
    policies: Sequence[str],
    seeds: int,
    *,
    overrides: Sequence[str] = (),
    training: Mapping[str, object] | None = None,
) -> Protocol:
    """The protocol that compares policies on a recipe's own held-out records.

    The first policy is the one that claims are of, and every policy gets so many seeds: the recipe's own and those that
    follow it. What is claimed is the share of right answers where every source's answers can be checked, else the NLL a
    token; NLL an answer and S are measured beside it.

    Raises:
        RecipeError, AllocationError: the recipe, or a policy that there isn't.
        StudyError: fewer than two policies, earlier rounds, or a recipe that holds no records out.
    """
    if len(set(policies)) < 2 or len(set(policies)) < len(policies):
        raise StudyError(f"policies: at least two to compare, each once, not {', '.join(policies)}")
    for name in policies:
        policy_named(name)
    recipe = load_recipe(recipe_file, overrides)
    if not recipe.evaluation_size:
        raise StudyError(
            f"{recipe_file}: holds no records out, by which policies could be judged; say `evaluation: "
            "{per_source: 200}` in it (or evaluation.per_source=200 here)"
        )
    protocol = Protocol.model_validate(_fields(recipe, recipe_file, policies, seeds, overrides, training or {}))
    protocol._base_dir = recipe_file.parent
    return protocol


def _fields(
    recipe: Recipe,
    recipe_file: Path,
    policies: Sequence[str],
    seeds: int,
    overrides: Sequence[str],
    training: Mapping[str, object],
) -> dict[str, Any]:
    measures = {"answer probability": "answer_probability", "NLL an answer": "answer_nll", "NLL a token": "nll"}
    if all(spec.answers.kind != "none" for spec in recipe.specs.values()):
        measures = {"right answers": "accuracy", **measures}
    own = {name: value for name, value in map(parse_override, overrides) if name.split(".")[0] not in _TAKEN}
    is_plain = isinstance(recipe.floor, int)
    without = {} if recipe.weights is None else {"weights": None}  # they go with the policy of that name alone
    own |= {} if is_plain else {"floor": recipe.model_dump(mode="json")["floor"]}
    return {
        "name": f"policies for {recipe_file.name}",
        "question": "Which policy gives the better model on the recipe's own held-out records?",
        "recipe": recipe_file.name,
        "backbones": {BACKBONE: {"model": recipe.model or ""}},
        "policies": {name: {"recipe": {} if name == "weights" else without} for name in policies},
        "focus": policies[0],
        "comparator": policies[1],
        "endpoints": {name: {"panel": HELD_OUT, "measure": measure} for name, measure in measures.items()},
        "primary": ["right answers" if "right answers" in measures else "NLL a token"],
        "panels": {HELD_OUT: list(map(held_out_task, recipe.specs))},
        "evaluation": [{"tasks": [HELD_OUT]}],
        "training": dict(training),
        "points": {
            POINT: {
                "status": "confirmatory" if seeds > 1 else "exploratory",
                "budget": recipe.budget_total,
                "floor": recipe.floor if is_plain else 0,
                "unit": recipe.unit,
                "seeds": [recipe.seed + n for n in range(seeds)],
                "recipe": own,
            }
        },
    }


def training_options(texts: Sequence[str]) -> dict[str, object]:
    """Options of training from `key=value` texts, whose values are YAML; each once."""
    found: dict[str, object] = {}
    for name, value in (parse_assignment(text, "--training") for text in texts):
        if name in found:
            raise StudyError(f"--training {name}: is given twice; say each option once")
        found[name] = value
    return found


def expect_comparison(
    protocol: Protocol, directory: Path, overrides: Sequence[str] = (), *, progress: Progress = silent
) -> Expected:
    """What a comparison will take, or what is left of one that is frozen in the directory; nothing is run or written.

    Before a cell is finished the hours go by one batch of scoring on this machine: a token trained is taken to cost
    three times one scored, and a held-out record what a calibration record costs.

    Raises:
        InputError: whatever the cells would refuse.
    """
    is_frozen = (directory / FROZEN.name).exists()
    (found,) = expect_study(protocol, directory if is_frozen else None, progress=progress).values()
    recipe = load_recipe(protocol.base_dir / protocol.recipe, overrides)
    if found.hours is not None or found.train_tokens is None or recipe.calibration == "none":
        return found
    dry = dry_run(recipe, progress=progress)
    scored = sum(row.calibration for row in dry.sources.values())
    tokens = sum(row.tokens or 0 for row in dry.sources.values())
    if dry.seconds_expected is None or not tokens:
        return found
    a_record = dry.seconds_expected / scored
    seconds = a_record * (found.scored + (found.items or 0))
    seconds += _TRAINING * dry.seconds_expected / tokens * found.train_tokens
    by = "one batch of scoring on this machine, a token trained taken as three scored: a rough figure"
    return replace(found, hours=seconds / 3600, by=by)
