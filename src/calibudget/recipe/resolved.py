"""The resolved recipe: every effective value written out, the same bytes for the same recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from calibudget.recipe.schema import Recipe
from calibudget.sources import SourceSpec

_HEADER = "# Every value that this run used, defaults included.\n"


def resolved_fields(recipe: Recipe) -> dict[str, Any]:
    """The recipe as plain JSON values, with the answers and rules that presets and defaults imply.

    An absolute `data_dir` is left out: it says where data lies on one machine, and evidence must be the same on all.
    Nor does it say where reading and scoring ran, which changes no byte: `engine` reads "local" for "ray", and
    `workers`, `address` and `cache` read as by default. Of an absolute path to an adapter, an earlier round or a
    selector's file only the last name stays; their digests are in the evidence.
    """
    by_default = {"engine": recipe.scorer, "workers": 1, "address": None, "cache": True}
    fields = recipe.model_dump(mode="json") | by_default
    if Path(recipe.data_dir).is_absolute():
        del fields["data_dir"]
    if recipe.calibration != "none" and recipe.calibration.adapter is not None:
        fields["calibration"]["adapter"] = _portable(recipe.calibration.adapter)
    if recipe.rounds is not None:
        fields["rounds"]["previous"] = [_portable(path) for path in recipe.rounds.previous]
    for name, path in (("scores", "file"), ("influence", "file"), ("quality", "perplexities")):
        part = fields["selector"].get(name) if isinstance(fields["selector"], dict) else None
        if part is not None and part[path] is not None:
            part[path] = _portable(part[path])
    specs = {spec.label: spec for spec in recipe.source_specs()}
    fields["sources"] = {label: _implied(fields["sources"][label], spec) for label, spec in specs.items()}
    companion = recipe.companion_spec()
    if companion is not None:
        fields["companion"] = _implied(fields["companion"], companion)
    return fields


def _portable(path: str) -> str:
    return Path(path).name if Path(path).is_absolute() else path


def _implied(source: dict[str, Any], spec: SourceSpec) -> dict[str, Any]:
    answer = {name: getattr(spec.answers, name) for name in ("kind", "labels", "pattern", "field")}
    answer["labels"] = list(spec.answers.labels)
    return source | {"answer": answer, "duplicates": spec.duplicates, "on_error": spec.on_error}


def resolved_yaml(recipe: Recipe) -> bytes:
    """`recipe.resolved.yaml`: reading it back gives an equal recipe."""
    body = yaml.safe_dump(resolved_fields(recipe), sort_keys=False, allow_unicode=True, width=1_000_000)
    return (_HEADER + body).encode("utf-8")
