"""`protocol.yaml`: what a study compares, what it will claim, and when it stops, said before anything is run.

The paper's protocol (3.1) is one such file; `docs/study.md` goes through its fields.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from calibudget.errors import InputError, RecipeError, StudyError
from calibudget.evaluation.aggregates import PANELS, task_weights
from calibudget.evaluation.benchmarks import HELD_OUT, TASKS, check_likelihood, expand_tasks, has_choices
from calibudget.evaluation.generation import SUFFIX
from calibudget.recipe.load import explained, refuse_secrets
from calibudget.recipe.yaml import parse_document
from calibudget.values import Count, check_labels

Status = Literal["confirmatory", "exploratory"]
Measure = Literal["accuracy", "nll", "answer_nll", "answer_probability"]


def _to_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_to_tuple)]
Seeds = Annotated[tuple[Count, ...], BeforeValidator(_to_tuple), Field(min_length=1)]
#: Fields of another file or command, checked where they are used.
Fields = dict[str, Any]


class _Part(BaseModel):
    """A mapping of the protocol: strict types, no unknown keys, frozen."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Backbone(_Part):
    """A model: its name, fields of the recipe and options of training that are its own, and its size for estimates."""

    model: str
    recipe: Fields = {}
    training: Fields = {}
    parameters: Annotated[int, Field(ge=1)] | None = None


class Policy(_Part):
    """Fields of the recipe and options of training that make a policy; without any, the policy of that name."""

    recipe: Fields = {}
    training: Fields = {}


class EvaluationFields(_Part):
    """One evaluation of every cell; see `calibudget evaluate`.

    `strict` makes cells fail whose training set holds a prompt of a task, or whose run an item calibrated; without it
    both are counted. With `defer_code` code tasks are asked on a machine without a sandbox, and have no accuracy.
    """

    tasks: Names = ("paper",)
    data_dir: str | None = None
    limit: Annotated[int, Field(ge=1)] | None = None
    max_new_tokens: Annotated[int, Field(ge=1)] | None = None
    likelihood: bool = False
    batch_tokens: Annotated[int, Field(ge=1)] | None = None
    strict: bool = False
    defer_code: bool = False


class Endpoint(_Part):
    """What is compared: a panel or a task, by one measure.

    `accuracy` is the share of right answers and `answer_probability` that of whole reference answers (S): higher is
    better. `nll` is the mean NLL a token and `answer_nll` that of whole answers, nats: lower is better.
    """

    panel: str
    measure: Measure = "accuracy"

    @property
    def direction(self) -> Literal["higher", "lower"]:
        """Which way it is better."""
        return "higher" if self.measure in ("accuracy", "answer_probability") else "lower"

    @property
    def sign(self) -> int:
        """Of a difference that is better."""
        return 1 if self.direction == "higher" else -1


class Retention(_Part):
    """How much an endpoint may get worse before a gain elsewhere doesn't count, in the endpoint's unit."""

    endpoint: str
    may_fall: Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Continuation(_Part):
    """What the first seeds of a point must reach, or its other seeds aren't run (paper 3.4, floor sensitivity).

    The mean of a policy's endpoint over the first `after` seeds must be no worse than `bound`, or than the mean of
    `of_policy` at `of_point` over the same seeds, by more than `margin`.
    """

    after: Annotated[int, Field(ge=1)] = 1
    policy: str
    endpoint: str
    bound: Annotated[float, Field(allow_inf_nan=False)] | None = None
    of_point: str | None = None
    of_policy: str | None = None
    margin: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0

    @model_validator(mode="after")
    def _has_one_bound(self) -> Self:
        if (self.bound is None) == (self.of_point is None):
            raise ValueError("name either `bound` or `of_point`, and not both")
        if self.of_policy is not None and self.of_point is None:
            raise ValueError("`of_policy` belongs to `of_point`")
        return self


class Transfer(_Part):
    """Quotas made for one seed (and backbone), used for all seeds of a point (paper 3.4, fixed-allocation audit).

    `picks: fixed` keeps the selected examples too, `fresh` draws them with each cell's own seed.
    """

    seed: Count
    backbone: str | None = None
    picks: Literal["fixed", "fresh"] = "fresh"


class Point(_Part):
    """One part of the grid: every policy with every seed on every backbone, at one budget and floor."""

    status: Status = "exploratory"
    budget: Count
    floor: Count
    unit: Literal["examples", "tokens"] = "examples"
    seeds: Seeds
    policies: Names = ()
    backbones: Names = ()
    recipe: Fields = {}
    training: Fields = {}
    transfer: Transfer | None = None
    train: bool = True
    continue_if: Continuation | None = None
    comparator: str | None = None

    @model_validator(mode="after")
    def _is_sound(self) -> Self:
        for name in ("seeds", "policies", "backbones"):
            given = getattr(self, name)
            twice = [one for one in given if given.count(one) > 1]
            if twice:
                raise ValueError(f"`{name}` names {twice[0]!r} twice, so its cells would be duplicates")
        if self.status == "confirmatory" and len(self.seeds) < 2:
            raise ValueError("a confirmatory point needs at least two seeds: one says nothing of spread")
        if self.continue_if is not None and (not self.train or self.continue_if.after >= len(self.seeds)):
            raise ValueError("`continue_if` needs training, and more seeds than `after`")
        return self


class Analysis(_Part):
    """Numbers of the analyses: resamples and level of intervals, level and power of tests, and their seed."""

    seed: Count = 42
    resamples: Annotated[int, Field(ge=100, le=1_000_000)] = 10_000
    level: Annotated[float, Field(gt=0, lt=1)] = 0.95
    alpha: Annotated[float, Field(gt=0, lt=0.5)] = 0.05
    power: Annotated[float, Field(ge=0.5, lt=1)] = 0.8


class Estimates(_Part):
    """Sizes for `--dry-run` where the data isn't at hand; nothing else goes by them."""

    tokens_per_example: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 233.0
    companion_examples: Count = 0
    items: Count = 0


class Protocol(_Part):
    """Everything that a study does and will claim."""

    name: str
    question: str = ""
    recipe: str
    backbones: Annotated[dict[str, Backbone], Field(min_length=1)]
    policies: Annotated[dict[str, Policy], Field(min_length=1)]
    focus: str
    comparator: str
    endpoints: Annotated[dict[str, Endpoint], Field(min_length=1)]
    primary: Annotated[Names, Field(min_length=1)]
    retention: Retention | None = None
    panels: dict[str, Names] = {}
    training: Fields = {}
    evaluation: Annotated[tuple[EvaluationFields, ...], BeforeValidator(_to_tuple)] = (EvaluationFields(),)
    points: Annotated[dict[str, Point], Field(min_length=1)]
    analysis: Analysis = Analysis()
    estimates: Estimates = Estimates()
    keep_adapters: bool = False

    _base_dir: Path = PrivateAttr(default_factory=Path)

    @model_validator(mode="after")
    def _names_are_known(self) -> Self:
        _check_named("focus", self.focus, self.policies, "policy")
        _check_named("comparator", self.comparator, self.policies, "policy")
        if self.focus == self.comparator:
            raise ValueError("`focus` and `comparator` are the same policy")
        _check_named("primary", self.primary, self.endpoints, "endpoint")
        if self.retention is not None:
            _check_named("retention.endpoint", self.retention.endpoint, self.endpoints, "endpoint")
        try:
            for names in (self.backbones, self.policies, self.points):
                check_labels(names)
        except ValueError as error:
            raise ValueError(str(error).replace("source label", "name")) from error
        self._check_endpoints()
        for name, point in self.points.items():
            self._check_point(name, point)
        return self

    def _check_endpoints(self) -> None:
        panels = self.all_panels
        try:
            asked = {task for one in self.evaluation for task in asked_tasks(one)}
            for panel in panels:
                task_weights(panel, panels)
        except InputError as error:
            raise ValueError(str(error)) from error
        for name, endpoint in self.endpoints.items():
            known = endpoint.panel.removesuffix(SUFFIX) in TASKS or _is_asked(endpoint.panel, asked)
            if endpoint.panel not in panels and not known:
                raise ValueError(f"the endpoint {name!r} is of {endpoint.panel!r}, which is neither a panel nor a task")
            missing = sorted(task for task in self.weights(name) if not _is_asked(task, asked))
            if missing:
                raise ValueError(f"the endpoint {name!r} needs the task {missing[0]!r}, which `evaluation` doesn't ask")

    def _check_point(self, name: str, point: Point) -> None:
        where, own = f"points.{name}", self.policies_of(point)
        _check_named(f"{where}.policies", point.policies, self.policies, "policy")
        _check_named(f"{where}.backbones", point.backbones, self.backbones, "backbone")
        _check_named(f"{where}.comparator", point.comparator, own, "policy of the point")
        if point.status == "confirmatory":
            for field, policy in (("policies", self.focus), ("comparator", self.comparator_of(point))):
                _check_named(f"{where}.{field}", policy, own, "policy of the point, which is confirmatory")
        if point.transfer is not None:
            _check_named(f"{where}.transfer.backbone", point.transfer.backbone, self.backbones, "backbone")
        rule = point.continue_if
        if rule is None:
            return
        where += ".continue_if"
        _check_named(f"{where}.policy", rule.policy, own, "policy")
        _check_named(f"{where}.endpoint", rule.endpoint, self.endpoints, "endpoint")
        if rule.of_point is not None:
            before = dict(list(self.points.items())[: list(self.points).index(name)])
            _check_named(f"{where}.of_point", rule.of_point, before, "earlier point")
            other = before[rule.of_point]
            _check_named(f"{where}.of_policy", rule.of_policy or rule.policy, self.policies_of(other), "policy")
            if other.seeds[: rule.after] != point.seeds[: rule.after]:
                raise ValueError(f"`{where}`: the point {rule.of_point!r} doesn't begin with the same seeds")

    @property
    def all_panels(self) -> dict[str, tuple[str, ...]]:
        """The paper's panels and the protocol's own."""
        return {**PANELS, **self.panels}

    def weights(self, endpoint: str) -> dict[str, float]:
        """What each task weighs in an endpoint."""
        panel = self.endpoints[endpoint].panel
        if panel not in self.all_panels:
            return {panel: 1.0}
        return {task: float(weight) for task, weight in task_weights(panel, self.all_panels).items()}

    def policies_of(self, point: Point) -> tuple[str, ...]:
        """A point's policies in the protocol's order; all, where it names none."""
        return tuple(name for name in self.policies if not point.policies or name in point.policies)

    def backbones_of(self, point: Point) -> tuple[str, ...]:
        """A point's backbones in the protocol's order; all, where it names none."""
        return tuple(name for name in self.backbones if not point.backbones or name in point.backbones)

    def comparator_of(self, point: Point) -> str:
        """What a point's policies are compared with."""
        return point.comparator or self.comparator

    @property
    def base_dir(self) -> Path:
        """Where relative paths start."""
        return self._base_dir

    def to_json(self) -> dict[str, Any]:
        """Every field with its value, as plain JSON values; comments and layout of the file play no role.

        `order` holds the names whose order counts, since JSON objects have none.
        """
        fields = self.model_dump(mode="json")
        return {**fields, "order": {name: list(fields[name]) for name in _ORDERED}}


def _is_asked(task: str, asked: Collection[str]) -> bool:
    """Whether a task is among those asked; the tasks of a run's own records are known by its recipe."""
    return task in set(asked) - {HELD_OUT} or (HELD_OUT in asked and task.startswith(f"{HELD_OUT}."))


#: Mappings of a protocol whose order counts: cells are run and tables are read by it.
_ORDERED: Final = ("backbones", "policies", "endpoints", "points")


def asked_tasks(asked: EvaluationFields) -> tuple[str, ...]:
    """Names of the tasks that one evaluation gives scores for.

    Raises:
        InputError: an unknown task or group, or likelihood where no task is multiple choice.
    """
    tasks = tuple(expand_tasks(asked.tasks))
    if not asked.likelihood:
        return tasks
    check_likelihood(tasks)
    return (*tasks, *(task + SUFFIX for task in tasks if has_choices(task)))


def load_protocol(path: str | Path) -> Protocol:
    """Read and validate a protocol.

    Raises:
        StudyError: the file can't be read, isn't a protocol, or a field of it isn't right; file, line and field are
            named.
    """
    path = Path(path)
    try:
        document = parse_document(path.read_text(encoding="utf-8"), str(path))
        refuse_secrets(document.value, document)
    except FileNotFoundError as error:
        raise StudyError(
            f"{path}: no such protocol; examples/study and examples/paper hold some to start from"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise StudyError(f"{path}: can't be read as UTF-8 text: {error}") from error
    except RecipeError as error:
        raise StudyError(str(error)) from error
    try:
        protocol = Protocol.model_validate(document.value)
    except ValidationError as error:
        raise StudyError("\n".join(explained(error, document, Protocol.model_fields))) from error
    protocol._base_dir = path.parent
    return protocol


def protocol_from_json(value: Mapping[str, object], base_dir: Path) -> Protocol:
    """The protocol that `to_json` gave."""
    fields = dict(value)
    order = fields.pop("order", {})
    for name in _ORDERED:
        own, names = fields.get(name), order.get(name, []) if isinstance(order, Mapping) else []
        if isinstance(own, Mapping) and sorted(own) == sorted(names):
            fields[name] = {one: own[one] for one in names}
    try:
        protocol = Protocol.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        raise StudyError(f"the frozen protocol: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    protocol._base_dir = base_dir
    return protocol


def _check_named(field: str, named: str | tuple[str, ...] | None, known: Collection[str], what: str) -> None:
    places = {field: named} if isinstance(named, str) else {f"{field}[{i}]": one for i, one in enumerate(named or ())}
    for place, name in places.items():
        if name not in known:
            raise ValueError(f"`{place}` names {name!r}, which is no {what}; known are {', '.join(known)}")
