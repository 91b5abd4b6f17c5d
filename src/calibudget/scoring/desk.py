"""A worker's own part: one scorer, and the replies to what it is asked, as JSON objects.

Every request has one reply. The first request is the settings, and its reply what the scorer says of itself; an error
that calibudget raises on purpose is a reply too, so that it reaches the person who started the work as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from calibudget.errors import CalibudgetError, DependencyError, ScoringError
from calibudget.scoring.scorer import CalibrationItem, Scorer, item_from_json, item_to_json, measurement_to_json
from calibudget.scoring.settings import ScorerSettings, make_scorer

_KINDS: dict[str, type[ScoringError | DependencyError]] = {"scoring": ScoringError, "dependency": DependencyError}


def settings_request(settings: ScorerSettings) -> dict[str, object]:
    """The request that makes a worker's scorer; the reply holds its description under `describe`."""
    return {"settings": settings.to_json()}


def work_request(what: str, items: Sequence[CalibrationItem]) -> dict[str, object]:
    """A request for `batches`, `lengths` or `measurements` of items; the reply holds them under the same name."""
    return {"do": what, "items": [item_to_json(item) for item in items]}


def checked(reply: Mapping[str, Any]) -> Mapping[str, Any]:
    """A reply that isn't an error.

    Raises:
        ScoringError, DependencyError: what the worker's scorer raised.
    """
    if "error" in reply:
        raise _KINDS[reply["kind"]](reply["error"])
    return reply


class Desk:
    """Answers requests with the scorer that the first of them asked for."""

    def __init__(self) -> None:
        self._scorer: Scorer | None = None

    def reply(self, request: Mapping[str, Any]) -> dict[str, object]:
        """The reply to one request."""
        try:
            if self._scorer is None:
                self._scorer = make_scorer(ScorerSettings.from_json(request["settings"]))
                return {"describe": dict(self._scorer.describe())}
            return _work(self._scorer, request)
        except CalibudgetError as error:
            return {"error": str(error), "kind": "dependency" if isinstance(error, DependencyError) else "scoring"}


def _work(scorer: Scorer, request: Mapping[str, Any]) -> dict[str, object]:
    items = [item_from_json(item) for item in request["items"]]
    match request["do"]:
        case "batches":
            return {"batches": scorer.batches(items)}
        case "lengths":
            return {"lengths": scorer.lengths(items)}
        case _:
            return {"measurements": [measurement_to_json(one) for one in scorer.measure(items)]}
