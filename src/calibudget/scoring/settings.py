"""A scorer made of plain values, so that another process, or another machine, can make the same one.

With several workers batches are planned once and dealt out; who scores one changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibudget.errors import ScoringError, requires
from calibudget.messages import counted
from calibudget.scoring.fake import FakeScorer
from calibudget.scoring.scorer import (
    CalibrationItem,
    Measurement,
    Scorer,
    ScorerSettings,
    item_from_json,
    item_to_json,
    measurement_from_json,
)
from calibudget.workers import PATIENCE, EndedError, Engine, Pool, Reply

if TYPE_CHECKING:
    from calibudget.lm.loading import LanguageModel


def make_scorer(settings: ScorerSettings, language_model: LanguageModel | None = None) -> Scorer:
    """Make a scorer in this process."""
    if settings.kind == "fake":
        return FakeScorer(seconds=settings.seconds)
    if settings.kind == "openai":
        with requires("engine: openai", "lm"):
            from calibudget.scoring.server import ServerScorer
        return ServerScorer(settings)
    from calibudget.lm.loading import load_model

    if language_model is None:
        language_model = load_model(
            settings.model,
            device=settings.device,
            dtype=settings.dtype,
            adapter=Path(settings.adapter) if settings.adapter else None,
            gpus=settings.gpus,
        )
    from calibudget.scoring.local import LocalScorer  # needs torch, whose absence load_model explains

    return LocalScorer(language_model, settings)


class ScoringHandler:
    """Answers with the scorer that the first request asks for; the first reply is what that says of itself."""

    def __init__(self) -> None:
        self._scorer: Scorer | None = None

    def reply(self, request: Mapping[str, Any]) -> dict[str, object]:
        """The reply to one request: `batches`, `lengths` or `measurements` of items, under the same name."""
        if self._scorer is None:
            self._scorer = make_scorer(ScorerSettings(**request["settings"]))
            return {"describe": dict(self._scorer.describe())}
        items = [item_from_json(item) for item in request["items"]]
        match request["do"]:
            case "batches":
                return {"batches": self._scorer.batches(items)}
            case "lengths":
                return {"lengths": self._scorer.lengths(items)}
            case _:
                return {"measurements": [asdict(one) for one in self._scorer.measure(items)]}


def _request(what: str, items: Sequence[CalibrationItem]) -> dict[str, object]:
    return {"do": what, "items": [item_to_json(item) for item in items]}


class ScorerPool(Pool):
    """A scorer made of several workers; use it as a context manager.

    Each worker makes its scorer of the settings, on as many GPUs as they say or on a share of the CPU; the rest is as
    `Pool` has it.

    Raises:
        DependencyError: ray isn't installed.
        ScoringError: fewer than one worker, or no cluster at the address.
    """

    def __init__(
        self,
        settings: ScorerSettings,
        *,
        workers: int,
        engine: Engine = "local",
        address: str | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self._described: Mapping[str, object] = {}
        super().__init__(
            ScoringHandler,
            workers=workers,
            first=lambda device: {"settings": asdict(replace(settings, device=device or settings.device))},
            on_first_reply=self._compare,
            engine=engine,
            address=address,
            device=settings.device,
            gpus=settings.gpus,
            refusal=ScoringError,
            patience=patience,
        )

    def describe(self) -> Mapping[str, object]:
        """See `Scorer`: what one worker's scorer says, since who the workers are changes nothing."""
        if not self._described:
            self.submit(None).result()
        return self._described

    def lengths(self, items: Sequence[CalibrationItem]) -> list[int]:
        """See `Scorer`."""
        return list(self._ask("lengths", items))

    def batches(self, items: Sequence[CalibrationItem]) -> list[tuple[int, ...]]:
        """See `Scorer`."""
        return [tuple(batch) for batch in self._ask("batches", items)]

    def measure(self, items: Sequence[CalibrationItem]) -> list[Measurement]:
        """See `Scorer`; one batch by itself."""
        return next(self.measure_batches({0: items}))[1]

    def measure_batches(
        self, batches: Mapping[int, Sequence[CalibrationItem]]
    ) -> Iterator[tuple[int, list[Measurement]]]:
        """Score many batches at once; each is given back with its number as soon as it is done.

        Raises:
            ScoringError: an item that can't be scored, or a batch that ended several workers.
        """
        requests = {number: partial(_request, "measurements", items) for number, items in batches.items()}
        with closing(self.results(requests)) as done:
            for number, reply in done:
                try:
                    rows = reply.result()["measurements"]
                except EndedError as ended:
                    items = batches[number]
                    raise ScoringError(f"{items[0].name}: scoring its batch of {len(items)} ended {ended}") from ended
                yield number, [measurement_from_json(row) for row in rows]

    def _ask(self, what: str, items: Sequence[CalibrationItem]) -> Any:
        """One worker's answer to a question that all answer alike."""
        try:
            return self.submit(partial(_request, what, items)).result()[what]
        except EndedError as ended:
            raise ScoringError(f"asking for {what} of {counted(len(items), 'record')} ended {ended}") from ended

    def _compare(self, first_reply: Reply) -> None:
        """Hold a worker to what the first one said of its scorer."""
        self._described = self._described or first_reply["describe"]
        if first_reply["describe"] != self._described:
            raise ScoringError(
                "the workers' scorers differ (one has no GPU of its own, say), so their scores would too: "
                f"{self._described} and {first_reply['describe']}"
            )


@contextmanager
def open_scorer(
    settings: ScorerSettings, *, engine: Engine = "local", workers: int = 1, address: str | None = None
) -> Iterator[Scorer]:
    """A scorer for as long as the block runs; its workers end with it.

    `workers` is how many batches are scored at once; 1 with "local" is this process. With "ray" they are actors of the
    cluster at the address, see `Pool`. The measurements depend on the settings alone.

    Raises:
        ScoringError, DependencyError: the model or the cluster can't be used, or ray is missing.
    """
    if engine == "local" and (workers == 1 or settings.kind == "openai"):  # a server has workers of its own
        yield make_scorer(settings)
    else:
        with ScorerPool(settings, workers=workers, engine=engine, address=address) as pool:
            yield pool
