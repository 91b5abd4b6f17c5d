"""The recipe's fields, their types and defaults, and the rules that tie them together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PrivateAttr,
    model_validator,
)

from calibudget.allocation import (
    POLICIES,
    REFUTED,
    Amount,
    Group,
    Portion,
    parse_amount,
    parse_groups,
    policy_named,
)
from calibudget.errors import AllocationError, InputError, InputTypeError
from calibudget.keys import MAX_SAFE_INTEGER
from calibudget.recipe.parts import (
    Contamination,
    ContaminationPart,
    LocalFolder,
    NearDuplicates,
    Selector,
    SelectorPart,
)
from calibudget.records import ErrorRule, Exponents, Unit
from calibudget.sources import LIMITS, HygieneRules, Limits, Reading, SourceSpec, cache_folder, check_path
from calibudget.store import expanded
from calibudget.tasks import PRESETS, AnswerSpec
from calibudget.values import check_labels

#: Policies whose quotas depend on no score; a recipe with one of them may say `calibration: none`.
_UNSCORED: Final = tuple(sorted(name for name, policy in POLICIES.items() if not policy.needs_scores))
#: Fields of earlier versions; an older resolved recipe holds them as null.
_REMOVED: Final = ("importance", "warm_up")
#: Label of the companion set in files and messages; no source may bear it.
COMPANION = "companion"


def _to_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _one_or_more(value: object) -> object:
    return (value,) if isinstance(value, str) else _to_tuple(value)


def _source_path(value: str) -> str:
    check_path(value)
    return expanded(value)


def _answer_shorthand(value: object) -> object:
    return {"kind": value} if isinstance(value, str) else value


def _no_nulls(value: object) -> object:
    for name, wanted in value.items() if isinstance(value, dict) else ():
        if wanted is None or (isinstance(wanted, list) and None in wanted):
            raise ValueError(f"{name!r} asks for null, which equals nothing; name the values whose rows you want")
    return value


def _known_policy(value: str) -> str:
    try:
        policy_named(value)
    except AllocationError as error:
        raise ValueError(str(error)) from error
    return value


def _says_yes_or_no(value: object) -> object:
    if isinstance(value, str) and value.casefold() in {"", "yes", "no", "on", "off", "y", "n"}:
        raise ValueError(f"say true or false instead of {value!r}; a folder of that name is './{value}'")
    return value


def _amount(value: object) -> object:
    try:
        return parse_amount(value, "the amount")
    except (InputError, InputTypeError) as error:
        raise ValueError(str(error)) from error


def _as_written(value: Amount) -> int | str | None:
    return value.text if isinstance(value, Portion) else value


#: Far beyond any use; with more, even factors that are nearly alike have powers that leave the doubles.
Exponent = Annotated[float, Field(ge=-1000.0, le=1000.0)]
Count = Annotated[int, Field(ge=0, le=MAX_SAFE_INTEGER)]
Positive = Annotated[int, Field(ge=1, le=MAX_SAFE_INTEGER)]
#: A floor or a cap: a count, or a text such as "10% of budget" or "50% of pool".
Bound = Annotated[
    Count | Portion,
    BeforeValidator(_amount, json_schema_input_type=Count | str),
    PlainSerializer(_as_written, when_used="json"),
]
Strings = Annotated[tuple[str, ...], BeforeValidator(_to_tuple)]
_Texts = str | Annotated[tuple[str, ...], Field(min_length=1)]
Folders = Annotated[
    tuple[LocalFolder, ...], BeforeValidator(_one_or_more, json_schema_input_type=_Texts), Field(min_length=1)
]
SourcePaths = Annotated[
    tuple[Annotated[str, AfterValidator(_source_path)], ...],
    BeforeValidator(_one_or_more, json_schema_input_type=_Texts),
    Field(min_length=1),
]
Scalar = str | int | float | bool
Duplicates = Literal["drop", "keep", "refuse"]
OnError = Literal["refuse", "skip"]


class _Part(BaseModel):
    """A mapping of the recipe: strict types, no unknown keys, frozen."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class TokenBudget(_Part):
    """A budget counted in tokens instead of examples."""

    tokens: Positive


class Calibration(_Part):
    """How the calibration split is drawn and scored."""

    adapter: LocalFolder | None = None
    per_source: Annotated[int, Field(ge=2, le=MAX_SAFE_INTEGER)] = 100
    resamples: Annotated[int, Field(ge=2, le=1_000_000)] = 200
    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    batch_tokens: Positive | None = None
    max_length: Positive | None = None
    max_new_tokens: Positive | None = None


class Server(_Part):
    """How a model's server is asked; its address is `base_url`."""

    model: str | None = None
    requests: Annotated[int, Field(ge=1, le=1024)] = 16
    timeout: Annotated[float, Field(gt=0.0, le=86_400.0)] = 300.0


class Evaluation(_Part):
    """How many records of each source are held out to evaluate what is trained on the run."""

    per_source: Positive


class GroupPart(_Part):
    """Sources and groups with a floor and a cap of their own; budgets go to groups first."""

    sources: Strings = ()
    groups: dict[str, GroupPart] = {}
    floor: Bound = 0
    cap: Bound | None = None

    def group(self) -> Group:
        """The frozen form that the allocator takes."""
        inner = {name: part.group() for name, part in self.groups.items()}
        return Group(sources=self.sources, groups=inner, floor=self.floor, cap=self.cap)


class Rounds(_Part):
    """Which rounds came before this one; their picks are spent.

    Relative paths start at the folder where the recipe lies.
    """

    previous: Folders
    calibration: Literal["reuse", "fresh"] = "reuse"


class ExponentsPart(_Part):
    """Exponents of need, availability and reliability in the utility (paper 2.2: 1, 0.5, 1)."""

    need: Exponent = 1.0
    availability: Exponent = 0.5
    reliability: Exponent = 1.0


class Output(_Part):
    """What the train set looks like."""

    format: Literal["jsonl", "parquet", "dataset"] = "jsonl"
    layout: Literal["rendered", "turns", "messages", "completion"] = "rendered"
    order: Literal["shuffled", "source"] = "shuffled"

    @property
    def train_name(self) -> str:
        """The train set's name in the run directory."""
        return f"train.{self.format}"


class LimitsPart(_Part):
    """What one data file may ask of the machine; see `sources.Limits`."""

    line_bytes: Annotated[int, Field(ge=1, le=2**31 - 2)] = LIMITS.line_bytes
    array_bytes: Positive = LIMITS.array_bytes
    nesting: Annotated[int, Field(ge=1, le=200)] = LIMITS.nesting
    expansion: Positive = LIMITS.expansion
    free_bytes: Count = LIMITS.free_bytes
    expanded_bytes: Count = LIMITS.expanded_bytes


Kind = Literal["choice", "true_false", "number", "math", "exact", "regex", "none"]


class Answer(_Part):
    """How a source's answers are parsed and compared."""

    kind: Kind
    labels: Strings = ()
    pattern: str | None = None
    field: str | None = None

    @model_validator(mode="after")
    def _spec_is_sound(self) -> Self:
        self.spec()
        return self

    def spec(self) -> AnswerSpec:
        """The frozen form that the stages take."""
        return AnswerSpec(kind=self.kind, labels=self.labels, pattern=self.pattern, field=self.field)


class Source(_Part):
    """One source of training examples: files below `data_dir` or by URL, or a data set of the hub."""

    path: SourcePaths | None = None
    hub: str | None = None
    subset: str | None = None
    split: str = "train"
    revision: str | None = None
    streaming: bool = False
    format: Literal["alpaca", "prompt-completion", "messages", "sharegpt"] | None = None
    rows: str | None = None
    columns: dict[str, str | Annotated[tuple[str, ...], BeforeValidator(_to_tuple), Field(min_length=1)] | None] = {}
    where: Annotated[
        dict[str, Scalar | Annotated[tuple[Scalar, ...], BeforeValidator(_to_tuple)]], BeforeValidator(_no_nulls)
    ] = {}
    preset: str | None = None
    answer: Annotated[Answer, BeforeValidator(_answer_shorthand, json_schema_input_type=Answer | Kind)] | None = None
    id_field: str | None = None
    duplicates: Duplicates | None = None
    on_error: OnError | None = None

    @model_validator(mode="after")
    def _comes_from_somewhere(self) -> Self:
        if (self.path is None) == (self.hub is None):
            raise ValueError("name either `path` (files) or `hub` (a data set id), and not both")
        if self.hub is None and (self.subset or self.revision or self.streaming):
            raise ValueError("`subset`, `revision` and `streaming` belong to a `hub` source")
        if self.preset is not None and self.format is not None:
            raise ValueError("a `preset` says how rows are read, so `format` has no place beside it")
        if self.preset is not None and self.preset not in PRESETS:
            raise ValueError(f"unknown preset {self.preset!r}; known are {', '.join(sorted(PRESETS))}")
        return self


class HygienePart(_Part):
    """Evaluation sets to keep apart from the sources, and what to do with records that are where they shouldn't be."""

    evaluation: dict[str, Source] = {}
    evaluation_prompts: Duplicates = "drop"
    cross_source: Duplicates = "keep"
    contamination: Contamination | None = ContaminationPart()
    near_duplicates: NearDuplicates | None = None


class Recipe(_Part):
    """Everything that a run depends on; `recipe.resolved.yaml` writes it out with every default.

    Relative paths are taken from `data_dir`, and a relative `data_dir` from the folder where the recipe lies. A path
    that begins with `~` starts at a home folder.
    """

    model: str | None = None
    template: Literal["alpaca", "chat"] = "alpaca"
    engine: Literal["local", "ray", "openai", "fake"] = "local"
    base_url: str | None = None
    server: Server = Server()
    workers: Annotated[int, Field(ge=1, le=10_000)] = 1
    address: str | None = None
    cache: Annotated[bool | LocalFolder, BeforeValidator(_says_yes_or_no)] = True
    budget: Count | TokenBudget
    floor: Bound | dict[str, Bound] = 0
    caps: dict[str, Bound] | None = None
    groups: dict[str, GroupPart] | None = None
    max_repeats: Annotated[int, Field(ge=1, le=1000)] = 1
    rounds: Rounds | None = None
    policy: Annotated[str, AfterValidator(_known_policy)] = "calibudget"
    weights: dict[str, float] | None = None
    signal: Literal["error_rate", "z"] = "error_rate"
    exponents: ExponentsPart = ExponentsPart()
    need_transform: Literal["rank", "log1p"] | None = None
    selector: Selector = SelectorPart()
    seed: Count = 42
    split_seed: Count = 42
    bootstrap_seed: Count = 42
    selection_seed: Count = 42
    training_seed: Count = 42
    error: ErrorRule = "nll+wrong"
    calibration: Calibration | Literal["none"] = Calibration()
    evaluation: Evaluation | Literal["none"] = "none"
    data_dir: LocalFolder = "."
    duplicates: Duplicates = "drop"
    on_error: OnError = "refuse"
    sources: Annotated[dict[str, Source], Field(min_length=1)]
    companion: Source | None = None
    output: Output = Output()
    limits: LimitsPart = LimitsPart()
    hygiene: HygienePart = HygienePart()

    _base_dir: Path = PrivateAttr(default_factory=Path)

    @model_validator(mode="before")
    @classmethod
    def _seeds_follow_seed(cls, fields: object) -> object:
        if not isinstance(fields, dict):
            return fields
        seed = fields.get("seed", 42)
        names = ("split_seed", "bootstrap_seed", "selection_seed", "training_seed")
        return fields | {name: fields.get(name) if fields.get(name) is not None else seed for name in names}

    @model_validator(mode="before")
    @classmethod
    def _turns_without_a_template(cls, fields: object) -> object:
        """A chat template is a model's own; without a model the rows keep their turns."""
        if not isinstance(fields, dict) or fields.get("template") != "chat":
            return fields
        output = fields.get("output")
        untold = output is None or (isinstance(output, dict) and "layout" not in output)
        has_model = fields.get("model") is not None and fields.get("engine") != "fake"
        return fields | {"output": {**(output or {}), "layout": "turns"}} if untold and not has_model else fields

    @model_validator(mode="before")
    @classmethod
    def _names_what_was_removed(cls, fields: object) -> object:
        if not isinstance(fields, dict):
            return fields
        asked = next((name for name in _REMOVED if fields.get(name) is not None), None)
        if asked is not None:
            raise ValueError(f"`{asked}` was removed with the policies that read learning curves: {REFUTED}")
        return {name: value for name, value in fields.items() if name not in _REMOVED}

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
            if self.base_url is not None or self.server != Server():
                raise ValueError(
                    "`base_url` and `server` are those of a model's server: say `engine: openai` with them"
                )
        elif self.calibration != "none":
            part = self.calibration
            local = {"adapter": None, "device": "auto", "dtype": "auto", "batch_tokens": None}
            if named := [name for name, default in local.items() if getattr(part, name) != default]:
                raise ValueError(f"`calibration.{named[0]}` belongs to a model loaded here; a server has its own")

    def _check_labels(self) -> None:
        try:
            check_labels(self.sources)
            check_labels(self.hygiene.evaluation)
        except InputError as error:
            raise ValueError(str(error)) from error
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
                    raise ValueError(f"`{field}` names {unknown[0]!r}, which is not a source")
        if self.nested_groups is not None:
            try:
                parse_groups(self.nested_groups, sorted(self.sources))
            except (InputError, InputTypeError) as error:
                raise ValueError(str(error)) from error

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
        if self.max_repeats > 1 and not self.selector.is_uniform:
            raise ValueError("`max_repeats` repeats the uniform draw; a `selector` can't go with it")
        if self.unit == "tokens" and self.selector.mix is not None:
            raise ValueError("a `mix` of selectors parts a number of examples; a budget of tokens takes one selector")
        counts_tokens = self.selector.quality is not None and self.selector.quality.unit == "tokens"
        if counts_tokens and self.model is None and self.engine != "fake":
            raise ValueError("`selector.quality.unit: tokens` needs a `model`, whose tokenizer counts them")

    def beside(self, path: str) -> Path:
        """A path of the recipe that starts where the recipe lies."""
        return self._base_dir / path

    @property
    def data_root(self) -> Path:
        """Where relative paths of sources start."""
        return self._base_dir / self.data_dir

    @property
    def reading(self) -> Reading:
        """Who reads the sources, and where what they find is kept."""
        cache = cache_folder() if self.cache is True else self.beside(self.cache) if self.cache else None
        engine: Literal["local", "ray"] = "ray" if self.engine == "ray" else "local"
        return Reading(engine=engine, workers=self.workers, address=self.address, cache=cache)

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
    def evaluation_size(self) -> int:
        """Records of each source that are held out for evaluation."""
        return 0 if self.evaluation == "none" else self.evaluation.per_source

    @property
    def unit(self) -> Unit:
        """What the budget counts."""
        return "tokens" if isinstance(self.budget, TokenBudget) else "examples"

    @property
    def budget_total(self) -> int:
        """The budget as a number of its unit."""
        return self.budget.tokens if isinstance(self.budget, TokenBudget) else self.budget

    @property
    def max_length(self) -> int | None:
        """Tokens that a record is cut to when it is encoded, or None."""
        return None if self.calibration == "none" else self.calibration.max_length

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

    @property
    def nested_groups(self) -> dict[str, Group] | None:
        """The groups as the allocator takes them, or None."""
        return None if self.groups is None else {name: part.group() for name, part in self.groups.items()}

    @property
    def utility_exponents(self) -> Exponents:
        """The exponents as the allocator takes them."""
        return Exponents(**self.exponents.model_dump())

    def source_specs(self) -> tuple[SourceSpec, ...]:
        """The sources as the readers take them, in code-point order."""
        return tuple(self._spec(label, self.sources[label]) for label in sorted(self.sources))

    def evaluation_specs(self) -> tuple[SourceSpec, ...]:
        """The evaluation sets that the hygiene names as the readers take them, in code-point order."""
        sets = self.hygiene.evaluation
        return tuple(
            replace(self._spec(name, sets[name]), duplicates="keep", prompts_suffice=True) for name in sorted(sets)
        )

    @property
    def hygiene_rules(self) -> HygieneRules:
        """What the hygiene looks for, as the stages take it."""
        part = self.hygiene
        return HygieneRules(
            evaluation_prompts=part.evaluation_prompts,
            cross_source=part.cross_source,
            contamination=None if part.contamination is None else part.contamination.rule(),
            near_duplicates=None if part.near_duplicates is None else part.near_duplicates.rule(),
        )

    def companion_spec(self) -> SourceSpec | None:
        """The companion set as the readers take it, or None."""
        return None if self.companion is None else self._spec(COMPANION, self.companion)

    def _spec(self, label: str, source: Source) -> SourceSpec:
        fields = {name: getattr(source, name) for name in Source.model_fields}
        fields["path"] = source.path or ()
        fields["answer"] = None if source.answer is None else source.answer.spec()
        fields["duplicates"] = source.duplicates or ("keep" if label == COMPANION else self.duplicates)
        fields["on_error"] = source.on_error or self.on_error
        return SourceSpec(label=label, limits=Limits(**self.limits.model_dump()), **fields)
