"""Is the selector of the evidence the one that the recipe names, and does it know only the pool's candidates?"""

from __future__ import annotations

from calibudget.pipeline.checks.findings import Findings
from calibudget.pipeline.preparing import Prepared
from calibudget.pipeline.selectors import RecipeSelector, joined, read_parts, recipe_parameters, selector_parts
from calibudget.recipe import Recipe
from calibudget.selection import Scored, proxy_pool
from calibudget.store import SELECTOR_NAME, SplitIds


def derive_selector(findings: Findings, recipe: Recipe, splits: SplitIds) -> RecipeSelector | None:
    """The selector from recipe and `selector.parquet`, parameters and candidates compared; None where it can't be."""
    if not recipe.selector.given:
        return joined(recipe, {})
    parts = findings.read(SELECTOR_NAME, read_parts)
    if parts is None:
        return None
    if not findings.compare(SELECTOR_NAME, sorted(recipe.selector.given), sorted(parts), field="selectors"):
        return None
    for name, expected in recipe_parameters(recipe).items():
        own = {key: parts[name].parameters.get(key) for key in expected}
        findings.compare(SELECTOR_NAME, expected, own, field=f"{name}: parameters")
        _check_candidates(findings, parts[name], splits)
    if "influence" in parts:
        pool = proxy_pool({label: ids.candidates for label, ids in splits.sources.items()})
        found = parts["influence"].parameters.get("pool_sha256")
        findings.compare(SELECTOR_NAME, pool.sha256, found, field="influence: pool_sha256")
    findings.checked.append("selector: its parameters by the recipe, and that it scores candidates only")
    return joined(recipe, parts)


def check_selector_sources(findings: Findings, recipe: Recipe, prepared: Prepared) -> None:
    """Make again what a selector took from the data alone: a column, or a band of lengths."""
    quality, scores = recipe.selector.quality, recipe.selector.scores
    from_data = {
        "quality": quality is not None and quality.perplexities is None,
        "scores": scores is not None and scores.column is not None,
    }
    names = [name for name, derivable in from_data.items() if derivable]
    if not names:
        return
    stored = findings.read(SELECTOR_NAME, read_parts) or {}
    made = (
        findings.derive(SELECTOR_NAME, "data that can be selected by", lambda: selector_parts(recipe, prepared, names))
        or {}
    )
    for name in sorted({*made} & {*stored}):
        findings.compare(SELECTOR_NAME, made[name].scores, stored[name].scores, field=f"{name}: scores")
    findings.checked.append(f"selector: {' and '.join(names)}, from the sources again")


def _check_candidates(findings: Findings, part: Scored, splits: SplitIds) -> None:
    """Nothing but candidates of the pool is scored."""
    for source, scores in part.scores.items():
        known = set(splits.sources[source].candidates) if source in splits.sources else set()
        strays = sorted(set(scores) - known)
        if strays:
            findings.add(SELECTOR_NAME, f"{part.name}: {source}", "scores of candidates", f"{len(strays)}: {strays[0]}")
