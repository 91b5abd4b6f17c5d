"""The recipe: a YAML file, validated by line, that says everything a run depends on."""

from calibudget.recipe.loading import load_recipe
from calibudget.recipe.resolved import resolved_fields, resolved_yaml
from calibudget.recipe.schema import COMPANION, FLOOR_POLICY, UNSCORED_POLICIES, Recipe

__all__ = [
    "COMPANION",
    "FLOOR_POLICY",
    "UNSCORED_POLICIES",
    "Recipe",
    "load_recipe",
    "resolved_fields",
    "resolved_yaml",
]
