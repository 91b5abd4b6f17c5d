"""The model card of an adapter: what it was trained on, how, and the digests that bind it to its train set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Final

from calibudget.training.config import TrainingConfig
from calibudget.training.examples import TrainingExample
from calibudget.wording import counted

CARD_NAME: Final = "README.md"


def model_card(
    *,
    model: Mapping[str, object],
    examples: Sequence[TrainingExample],
    config: TrainingConfig,
    target_modules: Collection[str],
    frozen_experts: Collection[str],
    evidence: Mapping[str, object],
    final_loss: float,
    versions: Mapping[str, str],
) -> str:
    """The text of `README.md`; it holds no time, path or host name.

    Args:
        model: identity of the base model.
        examples: what was trained on.
        config: how.
        target_modules: the layers that have factors.
        frozen_experts: the modules whose experts have none.
        evidence: digests that say where the train set comes from, by name.
        final_loss: mean loss of the last optimizer step, nats a token.
        versions: versions of the libraries, by name.
    """
    factor_rates = config.factor_rates(config.learning_rate)
    settings = asdict(config) | {"target_modules": sorted(target_modules)}
    settings |= {"rate of A": factor_rates[0], "rate of B": factor_rates[1]}
    settings |= {"frozen experts": sorted(frozen_experts)} if frozen_experts else {}
    counts = Counter(example.source for example in examples)
    on_a_hub = [f"base_model: {model['name']}"] if model.get("kind") == "hub" else []  # where hubs link it
    front = ["---", *on_a_hub, "library_name: peft", "pipeline_tag: text-generation"]
    front += ["tags:", "- lora", "- calibudget", "---"]
    words = [
        f"# LoRA+ adapter for {model.get('name')}",
        f"Trained on {counted(len(examples), 'example')} whose quotas were set by calibudget{_elsewhere(evidence)}. "
        f"The last optimizer step had a mean loss of {final_loss:.4f} nats a response token.",
    ]
    parts = [
        "\n".join(front),
        *words,
        _table("Base model", {key: value for key, value in model.items() if value is not None}),
        _table("Evidence", evidence),
        _table("Examples by source", dict(sorted(counts.items()))),
        _table("Configuration", settings),
        _table("Versions", versions),
    ]
    return "\n\n".join(parts) + "\n"


def _elsewhere(evidence: Mapping[str, object]) -> str:
    other = evidence.get("calibrated_on")
    return "" if other is None else f", calibrated on another model ({other})"


def _table(title: str, rows: Mapping[str, object]) -> str:
    lines = [f"## {title}", "", "| | |", "|---|---|"]
    return "\n".join([*lines, *(f"| {_cell(key)} | {_cell(value)} |" for key, value in rows.items())])


def _cell(value: object) -> str:
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value))
    return f"{value:.10g}" if isinstance(value, float) else str(value).replace("|", "\\|")
