"""The texts of a train set under the recipe's template: what was scored, for trainers that apply none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from calibudget.errors import DependencyError, ScoringError
from calibudget.pipeline.training_tokens import encoder_of
from calibudget.recipe.schema import Recipe
from calibudget.records import Record
from calibudget.selection.train_rows import Texts
from calibudget.store.manifest import Manifest

if TYPE_CHECKING:
    from calibudget.lm.encoding import Template


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """How rows are rendered.

    Attributes:
        texts: a record's prompt and completion, the end included; None where the rows aren't rendered.
        end: the text that ends a response, None where no model says which.
    """

    texts: Texts | None = None
    end: str | None = None


def rendering(recipe: Recipe) -> Rendering:
    """How a recipe's rows are rendered.

    Without a model to be scored the alpaca template needs none: its texts have no end, which trainers add.

    Raises:
        ScoringError, DependencyError: a chat template without its tokenizer.
    """
    if recipe.output.layout != "rendered":
        return Rendering()
    is_scored = recipe.calibration != "none" or recipe.unit == "tokens"
    if recipe.has_tokenizer and (recipe.template == "chat" or is_scored):
        try:
            return _of_model(str(recipe.model), recipe.template)
        except (ScoringError, DependencyError) as error:
            if recipe.template == "chat":
                raise type(error)(f"output.layout: rendered: {error}; or say output.layout=turns") from error
    return bare_alpaca("")


def bare_alpaca(end: str) -> Rendering:
    """The alpaca template with a given end, which needs no tokenizer."""
    from calibudget.lm.encoding import alpaca_text

    def texts(record: Record) -> tuple[str, str]:
        return alpaca_text(record), record.completion + end

    return Rendering(texts=texts, end=end or None)


def rendering_again(recipe: Recipe, manifest: Manifest | None) -> Rendering | None:
    """How the rows of a finished run were rendered; None where that needs a tokenizer which isn't here."""
    if recipe.output.layout != "rendered" or is_earlier(manifest):
        return Rendering()
    if recipe.template == "alpaca":
        end = None if manifest is None or manifest.train_set is None else manifest.train_set.get("end")
        return bare_alpaca(str(end or ""))
    try:
        return _of_model(str(recipe.model), recipe.template)
    except (ScoringError, DependencyError):
        return None


def is_earlier(manifest: Manifest | None) -> bool:
    """Whether a run is from before manifests told the layout; its rows are bare texts or lists of turns."""
    return manifest is not None and manifest.train_set is None


def taught(recipe: Recipe, end: str | None) -> Mapping[str, object]:
    """What the manifest says of a train set: its layout, the field that is taught, and the text that ends it."""
    layout = recipe.output.layout
    return {"layout": layout, "taught": "messages[-1]" if layout == "messages" else "completion", "end": end}


@cache
def _of_model(model: str, template: Template) -> Rendering:
    encoder = encoder_of(model, template)
    return Rendering(texts=lambda record: encoder.rendered([record])[0], end=encoder.end)
