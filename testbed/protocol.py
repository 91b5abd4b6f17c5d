"""What the testbed runs, all of it, in one file that is frozen before it runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from calibudget.errors import RecipeError
from calibudget.messages import fault
from calibudget.recipe.yaml import parse_document
from calibudget.store.canonical import canonical_json, read_bytes, sha256_hex
from calibudget.training.config import TrainingConfig, parse_options
from testbed.families import Half

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]

#: Fields that came after the first protocol was frozen, with what they are where nothing is said.
_LATER: Final[Mapping[str, object]] = {
    "claims": {}, "endpoint": "nll", "rotate_pools": False, "with_equal": 0.0, "weight": 1.0, "evaluations": 24,
}  # fmt: skip


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class PolicyRule(_Strict):
    """How a policy of the testbed comes to its quotas.

    Attributes:
        rule: a policy of `calibudget allocate`, one of the testbed's own (`answers`, `merging`), or one that was
            refuted (`policies.REFUTED`), to which `form`, `shrink`, `round_share` and `among` belong.
        signal: for `val-error-floor`.
        exponents: of the utility's factors, for the ablations.
        warm_up: examples of each source that the model is trained on before calibration; 0 calibrates the base model.
        exposures: examples of each source in each warm-up, ascending.
        checkpoints: whether the exposures are checkpoints of one warm-up that sees each example once.
        charged: whether what the warm-ups trained on is taken off the budget.
        floor: the policy's own floor in place of the point's, None for that.
        with_equal: for `answers`: share of the quotas that is equal ones.
        weight: for `answers`: of right answers against nats, from 0 to 1.
        evaluations: for `merging`: mixtures of the merged model that are tried.
    """

    rule: str
    signal: Literal["error_rate", "z"] = "error_rate"
    exponents: Mapping[str, float] = Field(default_factory=dict)
    warm_up: Count = 0
    exposures: tuple[Positive, ...] = ()
    checkpoints: bool = False
    form: Literal["log-linear", "power"] = "log-linear"
    shrink: bool = True
    round_share: Annotated[float, Field(gt=0, lt=1)] = 0.5
    charged: bool = False
    among: tuple[str, ...] = ()
    floor: Count | None = None
    with_equal: Annotated[float, Field(ge=0, le=1)] = 0.0
    weight: Annotated[float, Field(ge=0, le=1)] = 1.0
    evaluations: Positive = 24


class Point(_Strict):
    """Cells that are compared: some policies, each at every seed.

    Attributes:
        name: its name.
        half: the families.
        status: declared before it runs.
        budget: B.
        floor: f.
        seeds: of the calibration split, the draw and the training.
        policies: names of `Protocol.policies`.
        rotate_pools: whether the pool sizes go round the families from seed to seed, a Latin square; otherwise each
            family has its own at every seed.
    """

    name: str
    half: Half
    status: Literal["confirmatory", "exploratory", "choosing"]
    budget: Positive
    floor: Count
    seeds: tuple[int, ...]
    policies: tuple[str, ...]
    rotate_pools: bool = False


class Calibration(_Strict):
    """How calibration is done."""

    per_source: Positive
    resamples: Positive
    max_new_tokens: Positive


class Protocol(_Strict):
    """A frozen protocol.

    Attributes:
        name: its name.
        model_sha256: digest of the model's file; None for any model.
        data_sha256: digest of the data's manifest; None for any data.
        training: options of `TrainingConfig`.
        calibration: how calibration is done.
        companion: companion examples that join every cell's train set.
        test_items: most held-out records of each family that are measured.
        decoded: how many of these are decoded too.
        choosing: name of the point whose cells `chosen` looks at.
        policies: by name.
        points: in the order in which they run.
        claims: by name of a comparison's first point, by policy: the policies than which it has a lower macro NLL, or
            a higher accuracy.
        endpoint: of the claims. Of those about accuracy the first is tested alone, and the others, by Holm, only if it
            holds.
    """

    name: str
    model_sha256: str | None
    data_sha256: str | None
    training: Mapping[str, Any]
    calibration: Calibration
    companion: Count
    test_items: Positive
    decoded: Count
    choosing: str | None = None
    policies: Mapping[str, PolicyRule]
    points: tuple[Point, ...]
    claims: Mapping[str, Mapping[str, tuple[str, ...]]] = Field(default_factory=dict)
    endpoint: Literal["nll", "accuracy"] = "nll"

    @property
    def halves(self) -> tuple[Half, ...]:
        """The groups of families that its points are about."""
        return tuple(dict.fromkeys(point.half for point in self.points))

    @property
    def config(self) -> TrainingConfig:
        """What is trained; the seed is each cell's own."""
        return parse_options(TrainingConfig, self.training)

    @property
    def sha256(self) -> str:
        """Digest of all its values; a field that came after the first protocol counts only where it is set."""
        values = self.model_dump(mode="json")
        parts = [values, *values["policies"].values(), *values["points"]]
        for part in parts:
            for name in [name for name, unset in _LATER.items() if name in part and part[name] == unset]:
                del part[name]
        return sha256_hex(canonical_json(values))

    def same_setting(self, point: Point) -> list[Point]:
        """The points that are one comparison with a point, itself among them, in the protocol's order."""
        wanted = (point.half, point.budget, point.floor)
        return [other for other in self.points if (other.half, other.budget, other.floor) == wanted]

    def point(self, name: str) -> Point:
        """The point of that name."""
        return next(point for point in self.points if point.name == name)


def read_protocol(path: Path) -> Protocol:
    """Read and check a protocol.

    Raises:
        RecipeError: a field that is unknown, missing or out of range; or a name that nothing has.
        TrainingError: training options.
    """
    document = parse_document(read_bytes(path).decode("utf-8"), path.name)
    try:
        protocol = Protocol.model_validate_json(canonical_json(document.value))
    except ValidationError as error:
        first = error.errors()[0]
        words = fault(first["type"], first.get("ctx", {})) or first["msg"]
        raise RecipeError(f"{document.where(tuple(first['loc']))}: {words}") from error
    _check_names(protocol, path.name)
    protocol.config.factor_rates(1.0)
    return protocol


def _check_names(protocol: Protocol, file: str) -> None:
    names = [point.name for point in protocol.points]
    if len(set(names)) != len(names):
        raise RecipeError(f"{file}: points: two have the same name")
    used = {policy: point.name for point in protocol.points for policy in point.policies}
    used |= {policy: name for name, rule in protocol.policies.items() for policy in rule.among}
    for policy, where in used.items():
        if policy not in protocol.policies:
            raise RecipeError(f"{file}: {where}: there is no policy {policy!r}")
    if protocol.choosing is not None and protocol.choosing not in names:
        raise RecipeError(f"{file}: choosing: there is no point {protocol.choosing!r}")
    for name, claims in protocol.claims.items():
        firsts = [point.name for point in protocol.points if protocol.same_setting(point)[0] is point]
        if name not in firsts:
            raise RecipeError(f"{file}: claims: there is no comparison whose first point is {name!r}")
        compared = {policy for point in protocol.same_setting(protocol.point(name)) for policy in point.policies}
        for policy, others in claims.items():
            missing = sorted({policy, *others} - compared)
            if missing:
                raise RecipeError(f"{file}: claims: {name}: no cell of {missing[0]!r} is in that comparison")
    for point in protocol.points:
        if len(set(point.seeds)) != len(point.seeds) or len(set(point.policies)) != len(point.policies):
            raise RecipeError(f"{file}: {point.name}: a seed or a policy stands twice")
