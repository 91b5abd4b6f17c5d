"""The recipe: a YAML file, validated by line, that says everything a run depends on."""

from calibudget.recipe.load import load_recipe, read_mapping, resolved_fields, resolved_yaml
from calibudget.recipe.schema import COMPANION, Recipe
from calibudget.recipe.weights import read_weights

__all__ = [
    "COMPANION",
    "Recipe",
    "load_recipe",
    "read_mapping",
    "read_weights",
    "resolved_fields",
    "resolved_yaml",
]
