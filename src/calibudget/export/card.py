"""The README of an exported folder, which is the card of a data set on the hub."""

from __future__ import annotations

import re
from collections.abc import Mapping

from calibudget.export.trainers import Trainer
from calibudget.store.manifest import Manifest


def summary(manifest: Manifest) -> str:
    """One sentence on how the examples were chosen."""
    selection = manifest.selection
    beside = f" and {selection.companion_count} of a companion set" if selection.companion_count else ""
    return (
        f"{selection.count} examples of {len(manifest.sources)} sources{beside}, budgeted by the policy "
        f"{manifest.allocation.policy} of CaliBudget."
    )


def card(
    name: str, trainer: Trainer, manifest: Manifest, left_out: Mapping[str, str], *, has_place: bool = False
) -> str:
    """What the folder holds, how it is used, and what of the training isn't carried over.

    `has_place` is whether the configuration names a directory of this machine.
    """
    front = ["---", "task_categories: [text-generation]", "tags: [calibudget, sft]", "---", ""]
    lines = front if name == "huggingface" else []
    lines += [f"# A train set for {trainer.title}", "", summary(manifest), ""]
    if trainer.start is not None:
        lines += ["Train in this folder:", "", f"    {trainer.start}", ""]
        if has_place:
            lines += ["The configuration names the model where it lies here. Elsewhere, write its place there.", ""]
    if trainer.rows in ("parquet", "dataset", "messages"):
        lines += [
            "The rows are token ids under the template that was scored. The response and the token that ends it are "
            "taught, the prompt isn't. Row by row they stand in the order of the run's train set.",
            "",
        ]
    lines += [f"| source | {manifest.allocation.unit} |", "|---|---:|"]
    lines += [f"| {_escaped(label)} | {source.quota} |" for label, source in sorted(manifest.sources.items())]
    lines += ["", f"Digest of the selected ids: `{manifest.selection.selected_sha256}`"]
    if left_out:
        lines += ["", f"{trainer.title} can't be told:", ""]
        lines += [f"- `{field}`: {instead}" for field, instead in left_out.items()]
    return "\n".join(lines) + "\n"


def _escaped(label: str) -> str:
    """A label as Markdown shows it; the marks that it would read stand behind a backslash."""
    return re.sub(r"([\\`*_\[\]<>|#~&])", r"\\\1", label)
