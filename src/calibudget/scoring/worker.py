"""A scoring worker: one process with one scorer, which reads requests and writes replies, a JSON object a line.

Started by `calibudget.scoring.pool` as `python -m calibudget.scoring.worker`. It ends when its input ends, so it
never outlives the process that started it, however that one dies; what libraries print goes to standard error.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any, BinaryIO

from calibudget.errors import CalibudgetError, DependencyError
from calibudget.scoring.items import Scorer
from calibudget.scoring.settings import ScorerSettings, make_scorer
from calibudget.scoring.wire import item_from_json, measurement_to_json


def main() -> None:
    """Serve requests until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interruption is the parent's to handle
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    scorer: Scorer | None = None
    for line in sys.stdin.buffer:
        request = json.loads(line)
        try:
            if "settings" in request:
                scorer = make_scorer(ScorerSettings.from_json(request["settings"]))
                _reply(replies, {"describe": dict(scorer.describe())})
            elif scorer is not None:
                _reply(replies, _answer(scorer, request))
        except CalibudgetError as error:
            kind = "dependency" if isinstance(error, DependencyError) else "scoring"
            _reply(replies, {"error": str(error), "kind": kind})


def _answer(scorer: Scorer, request: Mapping[str, Any]) -> dict[str, object]:
    items = [item_from_json(item) for item in request["items"]]
    match request["do"]:
        case "batches":
            return {"batches": scorer.batches(items)}
        case "lengths":
            return {"lengths": scorer.lengths(items)}
        case _:
            return {"measurements": [measurement_to_json(one) for one in scorer.measure(items)]}


def _reply(replies: BinaryIO, value: Mapping[str, object]) -> None:
    replies.write(json.dumps(value).encode("ascii") + b"\n")


if __name__ == "__main__":
    main()
