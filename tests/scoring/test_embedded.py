"""The local scorer on a real model and real data, against plain one-by-one forward and `generate`, in float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from calibudget.allocation.bootstrap import summarise
from calibudget.allocation.plan import AllocationRequest, plan
from calibudget.scoring.batches import measure_all
from calibudget.scoring.local import LocalScorer
from calibudget.scoring.scorer import CalibrationItem, ScorerSettings, to_scores
from calibudget.sources.spec import SourceSpec
from calibudget.sources.split import Parting
from calibudget.sources.whole_source import open_source
from calibudget.tasks.answers import parse_answer

SOURCES = {
    "arc_challenge": "commonsense/arc_challenge.train.jsonl.gz",
    "boolq": "commonsense/boolq.train.jsonl.gz",
    "openbookqa": "commonsense/openbookqa.train.jsonl.gz",
    "gsm8k": "math/gsm8k.train.jsonl.gz",
}

#: The eight sources of the paper's setting, and their pools once 30 records are held out.
POOLS = {"arc_challenge": 1089, "arc_easy": 2221, "boolq": 9397, "hellaswag": 7958, "openbookqa": 4927, "piqa": 16083}
POOLS |= {"social_i_qa": 33380, "winogrande": 63208}

pytestmark = [pytest.mark.model, pytest.mark.data]


@pytest.fixture(scope="module")
def language_model(embedded: Any) -> Any:
    return embedded


@pytest.fixture(scope="module")
def calibration(data_dir: Path) -> Any:
    """A function that gives some calibration records of a source."""

    def take(label: Any, count: Any) -> Any:
        name = {"hellaswag": "hellaswag_valsplit"}.get(label, label)
        path = SOURCES.get(label, f"commonsense/{name}.train.jsonl.gz")
        spec = SourceSpec(label=label, path=path, preset=label)
        source = open_source(spec, data_dir, selection_seed=42)
        split = Parting(source).draw(split_seed=42, calibration_size=count).split()
        return [CalibrationItem(record=record, answer=spec.answers) for record in split.calibration]

    return take


def plain(language_model: Any, example: Any, limit: Any) -> Any:
    import torch

    model = language_model.model
    ids = torch.tensor([example.prompt_ids + example.response_ids])
    prompt = ids[:, : len(example.prompt_ids)]
    with torch.no_grad():
        scores = model(ids, use_cache=False).logits[0, len(example.prompt_ids) - 1 : -1].double().log_softmax(-1)
        ends = {"eos_token_id": sorted(language_model.stop_ids), "pad_token_id": min(language_model.stop_ids)}
        mask = torch.ones_like(prompt)
        made = model.generate(prompt, attention_mask=mask, do_sample=False, max_new_tokens=limit, **ends)
    nll = -scores[range(len(scores)), list(example.response_ids)].mean().item()
    return nll, language_model.tokenizer.decode(made[0, prompt.shape[1] :], skip_special_tokens=True)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("label", "count"),
    [("arc_challenge", 1), *(pytest.param(label, 50, marks=pytest.mark.full) for label in SOURCES)],
)
def test_nll_and_parsed_answers_are_those_of_one_by_one(
    language_model: Any, calibration: Any, label: Any, count: int
) -> None:
    items = calibration(label, count)
    scorer = LocalScorer(language_model, ScorerSettings(max_new_tokens=32))
    encoder = language_model.encoder("alpaca")
    for item, found in zip(items, measure_all(scorer, items), strict=True):
        nll, text = plain(language_model, encoder.encode(item.record), 32)
        assert found.nll == pytest.approx(nll, abs=1e-5), item.name
        assert text.startswith(found.text.rstrip("\ufffd")), item.name  # type: ignore[union-attr]
        assert parse_answer(item.answer, found.text) == parse_answer(item.answer, text), item.name  # type: ignore[arg-type]


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_quotas_do_not_move_with_the_batch_size_on_the_real_sources(language_model: Any, calibration: Any) -> None:
    items = [item for label in POOLS for item in calibration(label, 30)]
    quotas, nlls = [], []
    for batch_tokens in (512, 4096):
        scores = to_scores(
            items,
            measure_all(LocalScorer(language_model, ScorerSettings(batch_tokens=batch_tokens)), items),
            "nll+wrong",
        )
        statistics = summarise(scores, POOLS, model={}, error="nll+wrong", bootstrap_seed=42)
        made = plan(
            AllocationRequest(policy="calibudget", pool_sizes=POOLS, statistics=statistics, budget=10_000, floor=1150)
        )
        quotas.append(made.quotas)
        nlls.append([score.nll for score in scores])
    assert nlls[0] == pytest.approx(nlls[1], abs=1e-5)
    assert quotas[0] == quotas[1]
    assert len(set(quotas[0].values())) > 4
