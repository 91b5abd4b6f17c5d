"""The frozen records that pass between stages.

They hold values and no behaviour beyond what is derived from them; reading and writing them is the store's
work, making them the stages'.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field

from calibudget.messages import shown
from calibudget.values import CHECKED, ByLabel, Count, Digest, Integer, Number, Positive, Rate, Size, Sources

#: Which quantity a calibration record's error z is: NLL + 1{wrong} (paper 2.2), the NLL alone, or the whole answer's.
ErrorRule = Literal["nll+wrong", "nll", "nll_per_answer"]
#: Most nats that an answer counts under `nll_per_answer`, so that no source's need is made by a few long answers.
ANSWER_CAP: Final = 100.0
#: What a budget counts.
Unit = Literal["examples", "tokens"]
#: A mean NLL may lie below zero by rounding, never by more than this, nats.
NLL_ROUNDING: Final = 1e-6
Nats = Annotated[Number, Field(ge=-NLL_ROUNDING)]
#: What a record is for, within a source or beside it.
SplitRole = Literal["calibration", "evaluation", "candidate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn of a conversation.

    Attributes:
        role: "system", "user", "assistant" or "tool".
        content: its text as it stands with the ends stripped; empty only where an assistant calls tools.
        more: what else a turn of tool use says, as it stands: `tool_calls`, or `tool_call_id` and `name`.
    """

    role: str
    content: str
    more: Mapping[str, object] = field(default_factory=dict, hash=False)

    @property
    def fields(self) -> dict[str, object]:
        """The turn as trainers and chat templates take it."""
        return {"role": self.role, "content": self.content, **self.more}

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Self:
        """The turn that has these fields."""
        more = {name: value for name, value in fields.items() if name not in ("role", "content")}
        return cls(role=fields["role"], content=fields["content"], more=more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One training example of one source.

    Attributes:
        record_id: SHA-256 hex of the normal form, or the record's own id where the recipe names its field.
        prompt_hash: SHA-256 hex of the instruction's normal form under full case folding.
        prompt: the turns before the response, never empty; a plain instruction is one user turn, a system
            message is the first turn.
        completion: the response that training teaches, ends stripped. Never empty.
        answer: the gold answer as text, None where the source has no checkable answer.
        original: the record's fields as the source has them.
        tools: descriptions of the tools that the conversation may call, as they stand.
    """

    source: str
    record_id: str
    prompt_hash: str
    prompt: tuple[Message, ...]
    completion: str
    answer: str | None
    original: Mapping[str, object]
    tools: tuple[Mapping[str, object], ...] = ()

    @property
    def name(self) -> str:
        """The record as messages name it."""
        return f"source {self.source!r}, record {self.record_id}"

    @property
    def is_plain(self) -> bool:
        """Whether a single user turn comes before the response, and no tools."""
        return len(self.prompt) == 1 and self.prompt[0].role == "user" and not self.tools

    @property
    def uses_tools(self) -> bool:
        """Whether there are tools to call, or a turn calls one or answers for one."""
        return bool(self.tools) or any(turn.more or turn.role == "tool" for turn in self.prompt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """One source parted into its calibration split and its candidate pool, both in key order.

    Attributes:
        calibration: records held out for calibration, ascending under the "calibration" key.
        candidates: records that may be selected, ascending under the "selection" key; its length is pool_size. A pool
            on disk reads them again when they are asked for.
        read: records that the recipe's `where` lets through, before anything was removed.
        duplicates: records removed because an equal one stays (or kept and renamed, under `keep`).
        skipped: records that `on_error: skip` left out.
        barred: records that left because an evaluation set asks their prompt, or another source holds them too.
        shared_prompts: candidates that left the pool because a calibration record has the same prompt hash.
        spent: records that earlier rounds used up, as picks or (where this round calibrates anew) for calibration.
        evaluation: records held out for evaluation, ascending under the "evaluation" key.
        evaluation_twins: candidates that left the pool because they are like a record that some source evaluates.
    """

    source: str
    calibration: tuple[Record, ...]
    candidates: Sequence[Record]
    read: int
    duplicates: int
    skipped: int
    shared_prompts: int
    spent: int = 0
    barred: int = 0
    evaluation: tuple[Record, ...] = ()
    evaluation_twins: int = 0

    @property
    def pool_size(self) -> int:
        """N_k of the paper: the candidates that remain."""
        return len(self.candidates)

    @property
    def candidate_ids(self) -> Sequence[str]:
        """The candidates' ids in key order; a pool that knows them without its records gives them as they are."""
        ids = getattr(self.candidates, "ids", None)
        return ids if isinstance(ids, Sequence) else tuple(record.record_id for record in self.candidates)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """One file that a source was read from.

    Attributes:
        name: relative to the data directory with "/", or as the hub names it; never absolute.
    """

    name: str
    bytes: Count
    sha256: Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What the model said of one calibration record.

    Attributes:
        response_tokens: number of response tokens scored, EOS included; at least 1.
        nll: mean negative log-likelihood over them, nats, finite and >= 0 up to rounding.
        correct: whether the parsed greedy answer is right; None where the source has no checkable answer.
        prediction: the parsed answer, None where nothing could be parsed or nothing is checked.
        error: z of the paper, see `error_of`.
    """

    source: str
    record_id: str
    response_tokens: int
    nll: float
    correct: bool | None
    prediction: str | None
    error: float


def error_of(rule: ErrorRule, *, nll: float, response_tokens: int, correct: bool | None) -> float:
    """A calibration record's error z.

    Under `nll+wrong` nats a token plus 0 or 1 (paper 2.2), under `nll` nats a token, and under `nll_per_answer` nats of
    the whole answer, end token included, `ANSWER_CAP` at most.
    """
    if rule == "nll_per_answer":
        return min(nll * response_tokens, ANSWER_CAP)
    return nll + float(rule == "nll+wrong" and not correct)


def _no_slope(slope: object) -> None:
    if slope is not None:
        raise ValueError(f"must be null, since the policies that read learning curves were removed, not {shown(slope)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStatistics:
    """The calibration statistics of one source (paper 2.2).

    Attributes:
        pool_size: N_k, candidates after the calibration split.
        calibration_size: C, calibration records scored.
        mean_nll: mean NLL, nats.
        error_rate: mean of 1{wrong}; None where nothing is checked.
        mean_error: m_k, the mean of z.
        bootstrap_sd: sigma_k, standard deviation (ddof 0) of the bootstrap means.
        bootstrap_means: the R replicate means in replicate order, or None when not kept.
        slope: always None; files have it from a policy of an earlier version.
    """

    pool_size: Count
    calibration_size: Annotated[Count, Field(ge=2)]
    mean_nll: Nats
    error_rate: Rate | None
    mean_error: Nats
    bootstrap_sd: Size
    bootstrap_means: tuple[Number, ...] | None = None
    slope: Annotated[None, BeforeValidator(_no_slope)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bootstrap:
    """What the replicate means were made with."""

    resamples: Positive
    seed: Integer


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """All sources' statistics and what they were measured with; `statistics.json`."""

    model: Mapping[str, object]
    error: ErrorRule
    bootstrap: Bootstrap
    sources: Sources[SourceStatistics]


def _low_first(interval: tuple[int, int]) -> tuple[int, int]:
    if interval[0] > interval[1]:
        raise ValueError("must be [lowest, highest]")
    return interval


#: Lowest and highest quota.
Interval = Annotated[tuple[Count, Count], AfterValidator(_low_first)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceAllocation:
    """One source's row of an allocation; factors that the policy doesn't use are None."""

    pool_size: Count
    floor_quota: Count
    residual_capacity: Count
    need: Size | None
    availability: Size | None
    reliability: Rate | None
    utility: Size
    share: Size
    residual_quota: Count
    quota: Count
    interval: Interval | None = None


#: Far beyond any use; with more, even factors that are nearly alike have powers that leave the doubles.
Exponent = Annotated[Number, Field(ge=-1000.0, le=1000.0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exponents:
    """Exponents of need, availability and reliability in the utility (alpha, beta, gamma of paper 2.2)."""

    __pydantic_config__ = CHECKED

    need: Exponent = 1.0
    availability: Exponent = 0.5
    reliability: Exponent = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationPlan:
    """A policy's allocation with everything it was made from; `allocation.json`."""

    policy: str
    unit: Unit
    budget: Count
    floor: Count
    floors: ByLabel[Count] | None
    caps: ByLabel[Count] | None
    groups: Mapping[str, Any] | None
    exponents: Exponents
    need_transform: str | None
    epsilon: Size
    statistics_sha256: Digest | None
    residual_budget: Count
    sources: Sources[SourceAllocation]

    @property
    def quotas(self) -> dict[str, int]:
        """The final integer quota of each source."""
        return {label: row.quota for label, row in self.sources.items()}

    @property
    def all_groups(self) -> dict[tuple[str, ...], Mapping[str, Any]]:
        """Every group by the names that lead to it, each before those within it."""
        found: dict[tuple[str, ...], Mapping[str, Any]] = {}

        def walk(groups: Mapping[str, Any], above: tuple[str, ...]) -> None:
            for name, group in groups.items():
                found[*above, name] = group
                walk(group["groups"], (*above, name))

        walk(self.groups or {}, ())
        return found

    def bound_of(self, label: str) -> Literal["pool", "cap"] | None:
        """What kept a source's quota from being larger, where its pool or its cap did."""
        row = self.sources[label]
        if row.quota and row.quota == row.pool_size:
            return "pool"
        return "cap" if row.quota == (self.caps or {}).get(label) else None

    def to_frame(self) -> Any:
        """A pandas data frame, one row a source, indexed by label; polars reads it with `polars.from_pandas`."""
        from pandas import DataFrame

        index = list(self.sources)
        return DataFrame([asdict(row) for row in self.sources.values()], index=index).rename_axis("source")

    def _repr_html_(self) -> str:
        """The quotas as a table with bars, for notebooks; grey is the floor, blue what lies above it."""
        most = max(self.quotas.values(), default=0) or 1
        head = "".join(f"<th>{name}</th>" for name in ("source", "", "quota", "floor", "need", "reliability", "pool"))
        body = ""
        for label, row in self.sources.items():
            floor, end = (f"{150 * part / most:.0f}px" for part in (row.floor_quota, row.quota))
            bar = f"linear-gradient(to right, #9aa7b8 {floor}, #3f7ae0 0 {end}, transparent 0)"
            factors = ["" if value is None else f"{value:.4g}" for value in (row.need, row.reliability)]
            cells = [f"<b>{row.quota:,}</b>", f"{row.floor_quota:,}", *factors, f"{row.pool_size:,}"]
            body += f'<tr><th>{escape(label)}</th><td style="min-width:150px;background:{bar}"></td>'
            body += "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
        said = f"{self.policy}: {self.budget:,} {self.unit}, floor {self.floor:,}, residual {self.residual_budget:,}"
        return f"<table><caption>{escape(said)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUse:
    """What a source's picks use of a token budget; the two differ by less than one example."""

    quota: int
    taken: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The picks of every source in key order.

    Attributes:
        selector: name of the rule that chose among the candidates ("uniform").
        picks: record ids per source, key order.
        details: what the selector says of itself, a JSON object; None for the uniform draw.
        companion_count: companion records joined unchanged.
        tokens: by source, what the picks use of a token budget; None where the budget counts examples.
    """

    seed: int
    selector: str
    picks: Mapping[str, tuple[str, ...]]
    companion_count: int = 0
    tokens: Mapping[str, TokenUse] | None = None
    details: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectorScores:
    """What one selector knows of the candidates.

    Attributes:
        scores: by source and record id; finite, higher is better, any unit. A candidate that isn't there is never
            taken.
        parameters: what the scores were made from, a JSON object.
    """

    scores: Mapping[str, Mapping[str, float]]
    parameters: Mapping[str, object] = field(default_factory=dict)
