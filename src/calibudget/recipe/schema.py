"""The recipe's fields, their types and defaults, and the rules that tie them together."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    model_validator,
)

from calibudget.allocation.bounds import Amount, Bound, Group, parse_groups
from calibudget.allocation.policies import POLICIES, REFUTED, policy_named
from calibudget.messages import meant
from calibudget.recipe import parts
from calibudget.records import ErrorRule, Exponents, Unit
from calibudget.sources.cache_files import cache_folder
from calibudget.sources.limits import LIMITS, Limits
from calibudget.sources.reading_workers import Reading
from calibudget.sources.spec import Duplicates, HygieneRules, OnError, Source, SourceSpec
from calibudget.sources.split_names import DEFAULT
from calibudget.values import Count, check_labels

#: Policies whose quotas depend on no score; a recipe with one of them may say `calibration: none`.
_UNSCORED: Final = tuple(sorted(name for name, policy in POLICIES.items() if not policy.needs_scores))
#: Fields of earlier versions; an older resolved recipe holds them as null.
_REMOVED: Final = ("importance", "warm_up")
#: Bytes of a file that is worth starting a process for, where nobody said how many workers there are.
_WORTH_A_WORKER: Final = 32 << 20
#: Label of the companion set in files and messages; no source may bear it.
COMPANION = "companion"


def _known_policy(value: str) -> str:
    policy_named(value)
    return value


def _says_yes_or_no(value: object) -> object:
    if isinstance(value, str) and value.casefold() in {"", "yes", "no", "on", "off", "y", "n"}:
        raise ValueError(f"say true or false instead of {value!r}; a folder of that name is './{value}'")
    return value


class Recipe(parts.Part):
    """Everything that a run depends on; `recipe.resolved.yaml` writes it out with every default.

    Relative paths are taken from `data_dir`, and a relative `data_dir` from the folder where the recipe lies. A path
    that begins with `~` starts at a home folder.
    """

    model: str | None = None
    template: Literal["alpaca", "chat"] = "alpaca"
    engine: Literal["local", "ray", "openai", "fake"] = "local"
    base_url: str | None = None
    server: parts.Server = parts.Server()
    workers: Literal["auto"] | Annotated[int, Field(ge=1, le=10_000)] = "auto"
    address: str | None = None
    cache: Annotated[bool | parts.LocalFolder, BeforeValidator(_says_yes_or_no)] = True
    budget: Count | parts.TokenBudget
    floor: Bound | dict[str, Bound] = 0
    caps: dict[str, Bound] | None = None
    groups: dict[str, Group] | None = None
    max_repeats: Annotated[int, Field(ge=1, le=1000)] = 1
    rounds: parts.Rounds | None = None
    policy: Annotated[str, AfterValidator(_known_policy)] = "calibudget"
    weights: parts.Weights | None = None
    signal: Literal["error_rate", "z"] = "error_rate"
    exponents: Exponents = Exponents()
    need_transform: Literal["rank", "log1p"] | None = None
    selector: parts.Selector = parts.SelectorPart()
    seed: Count = 42
    split_seed: Count = 42
    bootstrap_seed: Count = 42
    selection_seed: Count = 42
    training_seed: Count = 42
    error: ErrorRule = "nll+wrong"
    calibration: parts.Calibration | Literal["none"] = parts.Calibration()
    evaluation: parts.Evaluation | Literal["none"] = "none"
    data_dir: parts.LocalFolder = "."
    duplicates: Duplicates = "drop"
    on_error: OnError = "refuse"
    sources: Annotated[dict[str, Source], Field(min_length=1)]
    companion: Source | None = None
    output: parts.Output = parts.Output()
    limits: Limits = LIMITS
    hygiene: HygieneRules = HygieneRules()

    _base_dir: Path = PrivateAttr(default_factory=Path)

    @model_validator(mode="before")
    @classmethod
    def _with_what_follows(cls, fields: object) -> object:
        """Seeds follow `seed`, and rows of a chat template without its model keep turns; removed fields are refused."""
        if not isinstance(fields, dict):
            return fields
        asked = next((name for name in _REMOVED if fields.get(name) is not None), None)
        if asked is not None:
            raise ValueError(f"`{asked}` was removed with the policies that read learning curves: {REFUTED}")
        said = {name: value for name, value in fields.items() if name not in _REMOVED}
        for name in ("split_seed", "bootstrap_seed", "selection_seed", "training_seed"):
            if said.get(name) is None:
                said[name] = said.get("seed", 42)
        output = said.get("output")
        untold = output is None or (isinstance(output, dict) and "layout" not in output)
        has_model = said.get("model") is not None and said.get("engine") != "fake"
        if said.get("template") == "chat" and untold and not has_model:
            said["output"] = {**(output or {}), "layout": "turns"}
        return said

    @model_validator(mode="after")
    def _fields_agree(self) -> Self:
        if self.output.layout == "rendered" and self.template == "chat" and not self.has_tokenizer:
            raise ValueError("`output.layout: rendered` needs the `model` whose chat template renders; say turns")
        self._check_labels()
        if self.address is not None and self.engine != "ray":
            raise ValueError("`address` is that of a Ray cluster: say `engine: ray` with it")
        self._check_server()
        if self.rounds is not None and self.evaluation != "none":
            raise ValueError(
                "`evaluation` holds out records that an earlier round may have trained on, so it can't go with "
                "`rounds`; give the records a file of their own and name it under `hygiene.evaluation`"
            )
        self._check_policy()
        self._check_answers()
        self._check_selector()
        return self

    def _check_server(self) -> None:
        if self.engine != "openai":
            if self.base_url is not None or self.server != parts.Server():
                raise ValueError(
                    "`base_url` and `server` are those of a model's server: say `engine: openai` with them"
                )
        elif self.calibration != "none":
            part = self.calibration
            local = {"adapter": None, "device": "auto", "dtype": "auto", "gpus": 1, "batch_tokens": None}
            if named := [name for name, default in local.items() if getattr(part, name) != default]:
                raise ValueError(f"`calibration.{named[0]}` belongs to a model loaded here; a server has its own")

    def _check_labels(self) -> None:
        check_labels(self.sources)
        check_labels(self.hygiene.evaluation)
        taken = next((label for label in self.sources if label.casefold() == COMPANION), None)
        if taken is not None:  # with or without a companion set: rows of a train set are told apart by it
            raise ValueError(f"the source label {taken!r} is kept for the companion set; rename the source")
        if "default" in self.sources:
            raise ValueError("the source label 'default' stands for all other sources under `floor`; rename the source")
        named = {"floor": self.floor, "caps": self.caps, "weights": self.weights}
        for field, mapping in named.items():
            if isinstance(mapping, dict):
                allowed = {*self.sources, "default"} if field == "floor" else set(self.sources)
                unknown = sorted(set(mapping) - allowed)
                if unknown:
                    raise ValueError(
                        f"`{field}` names {unknown[0]!r}, which is not a source; {meant(unknown[0], allowed)}"
                    )
        if self.groups is not None:
            parse_groups(self.groups, sorted(self.sources))

    def _check_policy(self) -> None:
        if (self.policy == "weights") != (self.weights is not None):
            raise ValueError("`weights` and `policy: weights` go together: give both or neither")
        if self.weights is not None and set(self.weights) != set(self.sources):
            missing = sorted(set(self.sources) - set(self.weights))
            raise ValueError(f"`weights` lacks the source {missing[0]!r}; 0 leaves a source out")
        if self.calibration == "none" and self.policy not in _UNSCORED:
            raise ValueError(f"policy {self.policy!r} needs scores, so `calibration: none` can't go with it")
        if self.calibration != "none" and self.model is None and self.engine != "fake":
            raise ValueError(
                "`model` is missing: a hub id, a directory, a .gguf file, or `embedded` (or say `calibration: none` "
                f"with one of the policies {', '.join(_UNSCORED)})"
            )
        if self.unit == "tokens" and self.model is None and self.engine != "fake":
            raise ValueError("a budget of tokens needs a `model`, whose tokenizer counts them")

    def _check_answers(self) -> None:
        if self.calibration == "none":
            return
        if self.skips_beyond is not None and not self.has_tokenizer:
            raise ValueError("`calibration.too_long: skip` needs a `model`, whose tokenizer counts tokens")
        if self.calibration.too_long == "skip" and self.max_length is None:
            raise ValueError("`calibration.too_long: skip` leaves out what is longer than `max_length`: name that too")
        if self.error != "nll+wrong":
            if self.policy == "val-error-floor" and self.signal == "error_rate":
                raise ValueError(
                    f"under `error: {self.error}` no answer is generated, so the policy val-error-floor knows no error "
                    "rate; say `signal: z`, or `error: nll+wrong`"
                )
            return
        for label, source in self.sources.items():
            if self._spec(label, source).answers.kind == "none":
                raise ValueError(
                    f"the source {label!r} has no checkable answer (`answer: none`), so its error could not hold the "
                    "unit penalty that others get; say `error: nll` for all sources, or give it an `answer`"
                )

    def _check_selector(self) -> None:
        if self.max_repeats > 1 and self.selector != parts.SelectorPart():
            raise ValueError("`max_repeats` repeats the uniform draw; a `selector` can't go with it")
        if self.unit == "tokens" and self.selector.mix is not None:
            raise ValueError("a `mix` of selectors parts a number of examples; a budget of tokens takes one selector")
        counts_tokens = self.selector.quality is not None and self.selector.quality.unit == "tokens"
        if counts_tokens and self.model is None and self.engine != "fake":
            raise ValueError("`selector.quality.unit: tokens` needs a `model`, whose tokenizer counts them")

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A recipe with other fields; what follows from them is made anew."""
        copy = super().model_copy(update=update, deep=deep)
        for name in ("specs", "companion_spec"):
            copy.__dict__.pop(name, None)
        return copy

    def beside(self, path: str) -> Path:
        """A path of the recipe that starts where the recipe lies."""
        return self._base_dir / path

    @property
    def data_root(self) -> Path:
        """Where relative paths of sources start."""
        return self._base_dir / self.data_dir

    @property
    def reading(self) -> Reading:
        """Who reads the sources, and where what they find is kept; `workers: auto` is a process a core."""
        cache = cache_folder() if self.cache is True else self.beside(self.cache) if self.cache else None
        if self.engine == "ray":
            return Reading(engine="ray", workers=self.scorers, address=self.address, cache=cache)
        if self.workers == "auto":
            return Reading(workers=os.cpu_count() or 1, smallest=_WORTH_A_WORKER, cache=cache)
        return Reading(workers=self.workers, cache=cache)

    @property
    def scorers(self) -> int:
        """How many batches are scored at once; `workers: auto` is one process, or one actor of a cluster."""
        return 1 if self.workers == "auto" else self.workers

    @property
    def previous_rounds(self) -> tuple[Path, ...]:
        """Run directories of the rounds before this one."""
        return () if self.rounds is None else tuple(map(self.beside, self.rounds.previous))

    @property
    def adapter(self) -> Path | None:
        """Directory of the adapter that scoring puts on the model, or None."""
        adapter = None if self.calibration == "none" else self.calibration.adapter
        return None if adapter is None else self.beside(adapter)

    @property
    def scorer(self) -> Literal["local", "openai", "fake"]:
        """What scores, wherever it runs; evidence has this, since Ray changes no byte."""
        return "local" if self.engine == "ray" else self.engine

    @property
    def has_tokenizer(self) -> bool:
        """Whether the recipe names a model whose tokenizer counts, scores and renders."""
        return self.model is not None and self.engine != "fake"

    @property
    def calibration_size(self) -> int:
        """Records of each source that calibrate."""
        return 0 if self.calibration == "none" else self.calibration.per_source

    @property
    def evaluation_size(self) -> int:
        """Records of each source that are held out for evaluation."""
        return 0 if self.evaluation == "none" else self.evaluation.per_source

    @property
    def unit(self) -> Unit:
        """What the budget counts."""
        return "tokens" if isinstance(self.budget, parts.TokenBudget) else "examples"

    @property
    def budget_total(self) -> int:
        """The budget as a number of its unit."""
        return self.budget.tokens if isinstance(self.budget, parts.TokenBudget) else self.budget

    @property
    def max_length(self) -> int | None:
        """Tokens that a record is cut to when it is encoded, or None."""
        return None if self.calibration == "none" else self.calibration.max_length

    @property
    def skips_beyond(self) -> int | None:
        """Tokens beyond which a record leaves before anything is drawn; None where it is cut or refused."""
        return None if self.calibration == "none" or self.calibration.too_long == "cut" else self.max_length

    @property
    def default_floor(self) -> Amount:
        """The floor of sources that name none of their own."""
        return self.floor.get("default", 0) if isinstance(self.floor, dict) else self.floor

    @property
    def own_floors(self) -> dict[str, Amount] | None:
        """Floors that sources name for themselves, or None."""
        if not isinstance(self.floor, dict):
            return None
        return {label: floor for label, floor in sorted(self.floor.items()) if label != "default"} or None

    @cached_property
    def specs(self) -> dict[str, SourceSpec]:
        """The sources as the readers take them, by label in code-point order."""
        column = None if self.selector.scores is None else self.selector.scores.column
        used = () if column is None else (column,)
        sources = sorted(self.sources.items())
        return {label: replace(self._spec(label, source), also_used=used) for label, source in sources}

    @property
    def all_specs(self) -> dict[str, SourceSpec]:
        """The sources as the readers take them, and the companion set last, if there is one."""
        return self.specs | ({} if self.companion_spec is None else {COMPANION: self.companion_spec})

    def evaluation_specs(self) -> tuple[SourceSpec, ...]:
        """The evaluation sets that the hygiene names as the readers take them, in code-point order."""
        sets = self.hygiene.evaluation
        return tuple(
            replace(
                self._spec(name, sets[name]),
                duplicates="keep",
                kind="evaluation set",
                prompts_suffice=True,
                one_exchange=False,
                only_split=sets[name].split is None,
            )
            for name in sorted(sets)
        )

    @cached_property
    def companion_spec(self) -> SourceSpec | None:
        """The companion set as the readers take it, or None."""
        if self.companion is None:
            return None
        return replace(self._spec(COMPANION, self.companion), kind="companion set")

    def _spec(self, label: str, source: Source) -> SourceSpec:
        said: dict[str, Any] = {each.name: getattr(source, each.name) for each in fields(source)}
        said["duplicates"] = source.duplicates or ("keep" if label == COMPANION else self.duplicates)
        said["on_error"] = source.on_error or self.on_error
        said["split"] = source.split or DEFAULT
        return SourceSpec(label=label, limits=self.limits, one_exchange=self.output.layout == "completion", **said)
