"""One loaded model on which many trainings follow each other: factors put back, everything compiled and captured kept.

A training here is that of `calibudget train` without its files: the same learner, order, schedule and loss. What comes
after it is measured by the scorer that calibrates.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from calibudget.errors import TrainingError
from calibudget.lm.loading import LanguageModel
from calibudget.records import Record, Score
from calibudget.scoring.local import LocalScorer
from calibudget.scoring.scorer import CalibrationItem, ScorerSettings, to_scores
from calibudget.tasks.answers import AnswerSpec
from calibudget.training.config import Execution, TrainingConfig
from calibudget.training.data import Role, TrainingExample, encode_examples
from calibudget.training.example_order import Step, plan_steps, rate_factor, warmup_steps
from calibudget.training.layers import FactorLinear
from calibudget.training.optimizer_step import Learner
from calibudget.training.target_layers import start_factors
from testbed.data import FamilyData

_UNCHECKED: Final = AnswerSpec(kind="none")

#: The trained factors A and B of all layers, each flat.
Expert = Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What a training took.

    Attributes:
        examples: in the train set, companion included.
        steps: optimizer steps.
        tokens: that went through the model, over all epochs.
        final_loss: of the last step's response tokens, nats.
        seconds: from the first batch to the last step's end.
    """

    examples: int
    steps: int
    tokens: int
    final_loss: float
    seconds: float


class LastingLearner(Learner):
    """A learner of which one training follows the other; everything compiled and captured stays."""

    def __init__(self, model: Any, name: str, config: TrainingConfig, execution: Execution) -> None:
        self._own_attention: str = model.config._attn_implementation
        super().__init__(model, name, config, execution)

    def restart(self, seed: int) -> None:
        """Put the factors and the optimizer back to where training starts, with another seed."""
        start_factors(self.model, seed)
        for factor in self.factors:
            for moment in self._moments(factor.values).values():
                moment.zero_()

    @contextmanager
    def as_loaded(self) -> Iterator[None]:
        """While the block runs, the model's layers and attention are its own again, as scoring wants them."""
        model = self.model.get_base_model()
        attention_used = model.config._attn_implementation
        prepared = {module: vars(module).pop("forward") for module in model.modules() if "forward" in vars(module)}
        model.set_attn_implementation(self._own_attention)
        try:
            yield
        finally:
            for module, forward in prepared.items():
                module.forward = forward
            model.set_attn_implementation(attention_used)


class Lab:
    """A model, its learner and its scorer.

    Args:
        language_model: loaded, on its device; it is changed in place and belongs to the lab from then on.
        config: what is trained; its seed is set anew for each training.
        execution: how it is run.
        score_tokens: most tokens of one forward while measuring; None is the scorer's own choice.
        max_new_tokens: most tokens decoded an answer.
    """

    def __init__(
        self,
        language_model: LanguageModel,
        config: TrainingConfig,
        execution: Execution,
        *,
        score_tokens: int | None,
        max_new_tokens: int,
    ) -> None:
        self.language_model = language_model
        self._config = config
        self._encoder = language_model.encoder("alpaca", max_length=None)
        self._learner = LastingLearner(
            language_model.model, str(language_model.identity.get("name", "model")), config, execution
        )
        with self._learner.as_loaded():
            self._scorer = LocalScorer(
                language_model,
                ScorerSettings(batch_tokens=score_tokens, max_new_tokens=max_new_tokens),
                early_end=False,
            )
        self._examples: dict[tuple[str, str], TrainingExample] = {}
        self.is_blank = False

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        device: torch.device = self.language_model.model.device
        return device

    def blank(self) -> None:
        """Make the model the base model again: factors that add nothing."""
        self._learner.restart(0)
        self.is_blank = True

    def train(
        self, records: Mapping[str, Sequence[Record]], companion: Sequence[Record], *, seed: int, epochs: int
    ) -> Trained:
        """Train new factors on records.

        Args:
            records: by source label, what is trained on.
            companion: records that join them unchanged.
            seed: decides the factors' start and the order of the examples.
            epochs: passes over all of them.

        Raises:
            TrainingError: a loss that isn't finite, or nothing to train on.
        """
        self._learner.restart(seed)
        return self._pass(records, companion, replace(self._config, seed=seed, epochs=epochs))

    def train_in_stages(self, stages: Sequence[Mapping[str, Sequence[Record]]], *, seed: int) -> Iterator[Trained]:
        """Train new factors on one stage after the other, each once and at a constant rate, pausing after each.

        The pauses are checkpoints of one training: what was learned stays, and each stage adds to it.
        """
        self._learner.restart(seed)
        constant = replace(self._config, seed=seed, epochs=1, schedule="constant")
        for number, records in enumerate(stages):
            yield self._pass(records, (), replace(constant, warmup_fraction=constant.warmup_fraction * (not number)))

    def _pass(
        self, records: Mapping[str, Sequence[Record]], companion: Sequence[Record], config: TrainingConfig
    ) -> Trained:
        """Go on training from where the factors stand."""
        chosen = [record for label in sorted(records) for record in records[label]]
        examples = [*self._encoded(chosen, "source"), *self._encoded(companion, "companion")]
        if not examples:
            raise TrainingError("there is nothing to train on")
        self.is_blank = False
        start = time.perf_counter()
        steps = plan_steps(examples, config)
        losses = torch.stack([self._step(examples, step, config) for step in steps]).tolist()
        if not all(map(math.isfinite, losses)):
            raise TrainingError(f"seed {config.seed}: a loss isn't finite; the learning rate may be too high")
        return Trained(
            examples=len(examples),
            steps=len(steps),
            tokens=config.epochs * sum(example.length for example in examples),
            final_loss=losses[-1],
            seconds=time.perf_counter() - start,
        )

    def plan(self, data: Mapping[str, FamilyData], records: Mapping[str, Sequence[Record]], *, decode: bool) -> Plan:
        """The batches in which records are measured; made once for records that are measured often."""
        items = [
            CalibrationItem(record=record, answer=data[label].family.answer if decode else _UNCHECKED)
            for label in sorted(records)
            for record in records[label]
        ]
        return Plan(items=items, batches=self._scorer.batches(items), is_decoded=decode)

    def measure(self, plan: Plan) -> tuple[Score, ...]:
        """The NLL of each record and, where they are decoded, whether its answer is right; in the plan's order."""
        found = []
        with self._learner.as_loaded():
            for batch in plan.batches:
                found.extend(self._scorer.measure([plan.items[index] for index in batch]))
        return to_scores(plan.items, found, "nll+wrong" if plan.is_decoded else "nll")

    def expert(self, records: Mapping[str, Sequence[Record]], *, seed: int, epochs: int) -> Expert:
        """Train new factors on records and keep a copy of them."""
        self.train(records, (), seed=seed, epochs=epochs)
        return {factor.factor: factor.values.detach().clone() for factor in self._learner.factors}

    def measure_merged(self, plan: Plan, experts: Sequence[Expert], weights: Sequence[float]) -> tuple[Score, ...]:
        """`measure` of the model whose update is the weighted sum of the experts' updates, exactly.

        The factors are laid side by side, those of B times their weight: a sum of products of low rank is one product
        of the ranks together.
        """
        layers = [module for module in self._learner.model.modules() if isinstance(module, FactorLinear)]
        parameters = dict(self._learner.model.named_parameters())
        before = [(layer, layer.shared) for layer in layers]
        kept = {}
        try:
            for layer in layers:
                layer.shared = None
            for factor in self._learner.factors:
                for name, offset in factor.offsets.items():
                    own = parameters[name]
                    kept[name] = own.data
                    parts = [one[factor.factor][offset : offset + own.numel()].view(own.shape) for one in experts]
                    if factor.factor == "A":
                        own.data = torch.cat(parts)
                    else:
                        scaled = [weight * part for weight, part in zip(weights, parts, strict=True)]
                        own.data = torch.cat(scaled, dim=1)
            return self.measure(plan)
        finally:
            for name, data in kept.items():
                parameters[name].data = data
            for layer, shared in before:
                layer.shared = shared

    def _encoded(self, records: Sequence[Record], role: Role) -> list[TrainingExample]:
        """The records as examples; each is encoded once, however often it is trained on."""
        missing = [record for record in records if (record.source, record.record_id) not in self._examples]
        if missing:
            rows = [
                {
                    "source": record.source,
                    "record_id": record.record_id,
                    "role": role,
                    "prompt": record.prompt[0].content,
                    "completion": record.completion,
                }
                for record in missing
            ]
            made = encode_examples(rows, self._encoder, max_length=self._config.max_length, too_long="refuse")
            self._examples |= {(example.source, example.record_id): example for example in made}
        return [self._examples[record.source, record.record_id] for record in records]

    def _step(self, examples: Sequence[TrainingExample], step: Step, config: TrainingConfig) -> torch.Tensor:
        """One optimizer step; its loss, still on the device."""
        tokens = sum(examples[index].response_length for index in step.members)
        loss = self._learner.gradients(self._learner.batches(examples, step.members), tokens)
        warmup = warmup_steps(step.total, config.warmup_fraction)
        rate = config.learning_rate * rate_factor(step.index, step.total, warmup, config.schedule)
        self._learner.update(config.factor_rates(rate))
        return loss


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Records to be measured, and the batches in which they are."""

    items: Sequence[CalibrationItem]
    batches: Sequence[tuple[int, ...]]
    is_decoded: bool
