"""The selector that a recipe names: made from files and data in a run, and again from the evidence alone.

What a selector knows is written to `selector.parquet`, so that the picks can be derived again without the files that
it came from; those are bound by their digests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from calibudget.errors import ArtefactError
from calibudget.pipeline.prepare import Prepared
from calibudget.pipeline.proxy_files import read_proxy_file
from calibudget.pipeline.training_encoding import token_counter
from calibudget.recipe.parts import UNIFORM as UNIFORM_NAME
from calibudget.recipe.parts import InfluencePart, QualityPart, ScoresPart
from calibudget.recipe.schema import Recipe
from calibudget.records import Record
from calibudget.selection.proxy import ProxyContract, proxy_pool
from calibudget.selection.selectors import (
    UNIFORM,
    Mix,
    Scored,
    Uniform,
    column_selector,
    influence_selector,
    quality_selector,
)
from calibudget.store.checksums import file_digest
from calibudget.store.selector_scores import SELECTOR_NAME, read_selector, read_values

#: What a recipe's selector may be.
RecipeSelector = Uniform | Scored | Mix
#: Selectors that files and data give, by name.
Parts = Mapping[str, Scored]
#: Every source's candidates.
Pools = Mapping[str, Sequence[Record]]


def selector_parts(recipe: Recipe, prepared: Prepared, names: Sequence[str] | None = None) -> dict[str, Scored]:
    """The recipe's selectors that know something of the candidates, made from its files and data.

    Raises:
        ArtefactError: a file that can't be read, is of another pool, or names records that aren't candidates.
        DataError: a value of the data that is no number to select by.
    """
    pools = {label: split.candidates for label, split in prepared.splits.items()}
    return {name: _made(recipe, name, pools) for name in names or recipe.selector.given}


def joined(recipe: Recipe, parts: Parts) -> RecipeSelector:
    """The selector of a recipe from its parts."""
    mix = recipe.selector.mix
    if mix is None:
        return next(iter(parts.values()), UNIFORM)
    return Mix(
        parts={name: UNIFORM if name == UNIFORM_NAME else parts[name] for name in mix},
        weights={str(name): weight for name, weight in mix.items()},
    )


def read_parts(path: Path) -> dict[str, Scored]:
    """The selectors that a `selector.parquet` holds."""
    return {
        name: Scored(name=name, scores=part.scores, parameters=part.parameters)
        for name, part in read_selector(path).items()
    }


def selector_of_run(recipe: Recipe, directory: Path) -> RecipeSelector:
    """The selector of a finished run, from its evidence.

    Raises:
        ArtefactError: `selector.parquet` is missing, or holds other selectors than the recipe names.
    """
    parts = read_parts(directory / SELECTOR_NAME) if recipe.selector.given else {}
    if set(parts) != set(recipe.selector.given):
        named = ", ".join(recipe.selector.given)
        raise ArtefactError(f"{SELECTOR_NAME}: holds {', '.join(parts) or 'nothing'}, but the recipe names {named}")
    return joined(recipe, parts)


def recipe_parameters(recipe: Recipe) -> dict[str, dict[str, Any]]:
    """The parameters of each selector that follow from the recipe alone."""
    return {name: _parameters(recipe, getattr(recipe.selector, name)) for name in recipe.selector.given}


def _parameters(recipe: Recipe, part: ScoresPart | QualityPart | InfluencePart) -> dict[str, Any]:
    if isinstance(part, QualityPart):
        return {"length": list(part.length), "unit": part.unit}
    if isinstance(part, InfluencePart):
        return {"subgroups": list(_subgroups(recipe, part)), "shards": part.shards}
    return {"order": part.order} | ({"others": part.others} if part.column is None else {"column": part.column})


def _made(recipe: Recipe, name: str, pools: Pools) -> Scored:
    part: ScoresPart | QualityPart | InfluencePart = getattr(recipe.selector, name)
    parameters = _parameters(recipe, part)
    if isinstance(part, QualityPart):
        made = quality_selector(pools, length=_length(recipe, part, pools), band=part.length)
    elif isinstance(part, InfluencePart):
        path = recipe.beside(part.file)
        pool = proxy_pool({label: [one.record_id for one in records] for label, records in pools.items()})
        contract = ProxyContract(subgroups=_subgroups(recipe, part), shards=part.shards)
        made = influence_selector(read_proxy_file(path), pool, contract=contract, name=path.name)
        parameters = {**made.parameters, "file": _file(path)}
    elif part.column is not None:
        made = column_selector(pools, part.column, descending=part.order == "descending")
    else:
        path = recipe.beside(part.file or "")
        values, others = _of_candidates(path, pools, strict=part.others == "refuse")
        sign = 1.0 if part.order == "descending" else -1.0
        scores = {source: {one: sign * value for one, value in rows.items()} for source, rows in values.items()}
        made = Scored(name=name, scores=scores)
        parameters |= {"file": _file(path), "others_found": others}
    return replace(made, parameters=parameters)


def _subgroups(recipe: Recipe, part: InfluencePart) -> tuple[str, ...]:
    """The frozen order: the recipe's own, or its sources in code-point order (the paper's, for the paper's eight)."""
    return tuple(sorted(recipe.sources)) if part.subgroups is None else part.subgroups


def _of_candidates(path: Path, pools: Pools, *, strict: bool) -> tuple[dict[str, dict[str, float]], int]:
    """The file's scores of the candidates by source, and how many rows are of other records."""
    candidates = {label: {one.record_id for one in records} for label, records in pools.items()}
    values: dict[str, dict[str, float]] = {label: {} for label in sorted(candidates)}
    others = []
    for place, row in read_values(path):
        if row.source not in candidates:
            raise ArtefactError(f"{place}: the recipe has no source {row.source!r}")
        if row.record_id in candidates[row.source]:
            values[row.source][row.record_id] = row.score
        else:
            others.append((place, row))
    if others and strict:
        place, first = others[0]
        more = f" (the first of {len(others):,} such rows)" if len(others) > 1 else ""
        raise ArtefactError(
            f"{place}: {first.record_id!r} is no candidate of {first.source}{more}; score this pool "
            "(splits.parquet lists it), or, if the file scores more than the pool on purpose, say `others: ignore`"
        )
    return values, len(others)


def _length(recipe: Recipe, part: QualityPart, pools: Pools) -> Callable[[Record], int]:
    """The length of a response in the unit asked for."""
    if part.unit == "words":
        return lambda record: len(record.completion.split())
    if part.unit == "characters":
        return lambda record: len(record.completion)
    counter = token_counter(recipe)
    counts = {
        (record.source, record.record_id): count.response
        for records in pools.values()
        for record, count in zip(records, counter.count(records), strict=True)
    }
    return lambda record: counts[record.source, record.record_id]


def _file(path: Path) -> dict[str, Any]:
    return {"name": path.name, **asdict(file_digest(path))}
