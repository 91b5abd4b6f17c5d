"""With the model and the data at hand: does it say again of some calibration records what the scores say of them?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from calibudget.errors import InputError
from calibudget.keys import order_key
from calibudget.pipeline.calibration import calibration_items, settings_of
from calibudget.pipeline.checks.findings import Findings
from calibudget.pipeline.ledger import ROUNDS, ROUNDS_NAME
from calibudget.pipeline.notes import COARSE, TOLERANCE
from calibudget.pipeline.prepare import prepare
from calibudget.pipeline.run_directory import RECIPE_NAME
from calibudget.recipe import load_recipe
from calibudget.scoring.measure import measure_all
from calibudget.scoring.scorer import to_scores
from calibudget.scoring.settings import make_scorer
from calibudget.store.scores import SCORES_NAME, read_scores

#: The batches are others than the run's: single NLLs may move this many times as far as was measured of them.
_ROOM = 10


def check_rescored(findings: Findings, directory: Path, data_dir: Path, model: str, sample: int) -> None:
    """Score a sample of the calibration records again and compare NLLs within a tolerance, and answers.

    The sample is the first so many records under a key of their own, over all sources. In another precision than
    float32 an answer may differ where two tokens nearly tie, so there only NLLs are compared; likewise where a server
    scored, whose weights have no digest.

    Raises:
        InputError: the sample isn't at least 1; the model can't be found, loaded or used.
    """
    if sample < 1:
        raise InputError(f"sample: at least one record, not {sample}")
    scored = findings.read(SCORES_NAME, read_scores)
    if scored is None:
        return
    overrides = [
        f"data_dir={json.dumps(str(data_dir.absolute()))}",
        "cache=false",
        "engine=local",
        "workers=1",
        "server={}",
    ]
    recipe = load_recipe(directory / RECIPE_NAME, [*overrides, f"model={json.dumps(model)}"])
    ledger = ROUNDS.read(directory / ROUNDS_NAME) if (directory / ROUNDS_NAME).exists() else None
    prepared = findings.derive(
        RECIPE_NAME, "sources that can be read", lambda: prepare(recipe, ledger, is_finished=True)
    )
    if prepared is None:
        return
    items = calibration_items(recipe, prepared.splits.values())
    items.sort(key=lambda item: order_key("rescoring", 0, item.record.source, item.record.record_id))
    stated = (scored.provenance or {}).get("model")
    ran = stated if isinstance(stated, Mapping) else {}
    is_plain = "quantised" not in ran  # else the recipe's own dtype, or the model's files, say how
    if recipe.calibration != "none" and is_plain and ran.get("dtype") in ("float32", "bfloat16", "float16"):
        calibration = recipe.calibration.model_copy(update={"dtype": ran["dtype"]})
        recipe = recipe.model_copy(update={"calibration": calibration})
    chosen = items[:sample]
    scorer = make_scorer(settings_of(recipe))
    found = scorer.describe().get("model")
    again = to_scores(chosen, measure_all(scorer, chosen), recipe.error)
    sha256 = found.get("sha256") if isinstance(found, Mapping) else None
    if ran.get("kind") != "server":
        findings.compare(SCORES_NAME, sha256, ran.get("sha256"), field="model.sha256")
    is_exact = ran.get("dtype") == "float32" and is_plain
    tolerance = _ROOM * (TOLERANCE.get(str(ran.get("dtype")), COARSE) if is_plain else COARSE)
    by_record = {(score.source, score.record_id): score for score in scored.scores}
    for score in again:
        place = f"{score.source}.{score.record_id}"
        own = by_record.get((score.source, score.record_id))
        if own is None:
            findings.add(SCORES_NAME, place, "a score of this calibration record", "none")
            continue
        if not abs(score.nll - own.nll) <= tolerance:
            findings.add(SCORES_NAME, f"{place}.nll", f"{score.nll:.9g} within {tolerance:g}", f"{own.nll:.9g}")
        if is_exact:
            expected, stored = ((one.response_tokens, one.correct, one.prediction) for one in (score, own))
            findings.compare(SCORES_NAME, list(expected), list(stored), field=f"{place}.answer")
    findings.checked.append(
        f"scores: {len(again)} calibration records scored again, NLLs within {tolerance:g} nats"
        + ("" if is_exact else "; their answers aren't compared in this precision")
    )
