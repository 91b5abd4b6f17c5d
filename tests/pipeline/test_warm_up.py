"""A warm-up round from end to end: floors, a really trained adapter, measured again with it, and the residual."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from calibudget.lm.encoding import Encoder
from calibudget.pipeline.rounds import ledger_of
from calibudget.pipeline.run import run
from calibudget.pipeline.train import train
from calibudget.pipeline.verify import verify
from calibudget.recipe.load import load_recipe
from calibudget.sources.whole_source import read_source
from calibudget.store.artefacts import STATISTICS
from calibudget.store.manifest import MANIFEST
from calibudget.store.scores import read_scores
from calibudget.store.splits import read_splits
from tests.conftest import fruit_recipe
from tests.pipeline.conftest import picks

TRAINING = ("rank=8", "scaling=16", "batch_size=4", "epochs=12", "learning_rate=3e-3", "max_length=256", "device=cpu")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")  # of peft's own calls
def test_the_residual_follows_the_need_of_the_trained_model(tmp_path: Path, tiny_directory: Path) -> None:
    torch, peft = pytest.importorskip("torch"), pytest.importorskip("peft")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(1)
    calibration = {"per_source": 8, "resamples": 8, "max_new_tokens": 12}
    fields: dict[str, Any] = {"model": str(tiny_directory), "budget": 60, "floor": 16, "calibration": calibration}
    recipe = fruit_recipe(tmp_path, count=70, checked=True, **fields)
    apples = tmp_path / "apples.jsonl"  # answered alike, so a little training teaches them; pears need the prompt
    apples.write_text(apples.read_text().replace("answer1", "answer0"))
    warm_up, rest = tmp_path / "warm-up", tmp_path / "rest"

    first = run(load_recipe(recipe, ["budget=32"]), warm_up)
    assert first.plan.quotas == {"apples": 16, "pears": 16}
    assert train(warm_up, TRAINING).steps == 96
    assert verify(warm_up, data_dir=tmp_path).differences == ()

    overrides = ["budget=28", f"rounds.previous={warm_up}", f"calibration.adapter={warm_up / 'adapter'}"]
    second = run(load_recipe(recipe, overrides), rest)
    before, after = (STATISTICS.read(directory / "statistics.json") for directory in (warm_up, rest))
    assert "adapter" not in before.model
    assert len(str(after.model["adapter"])) == 64
    for label in ("apples", "pears"):
        assert after.sources[label].mean_nll < before.sources[label].mean_nll / 2
        held_out = [
            read_splits(directory / "splits.parquet").sources[label].calibration for directory in (warm_up, rest)
        ]
        assert set(held_out[0]) == set(held_out[1])
    # Before, neither source is ever answered; after, the one that is taught needs less.
    assert after.sources["apples"].error_rate < before.sources["apples"].error_rate  # type: ignore[operator]
    assert second.plan.sources["apples"].need < second.plan.sources["pears"].need  # type: ignore[operator]
    assert second.plan.residual_budget == 28 == sum(second.plan.quotas.values())
    assert second.plan.quotas["apples"] < second.plan.quotas["pears"]
    assert not picks(warm_up) & picks(rest)
    assert len(picks(warm_up) | picks(rest)) == 60

    encode = Encoder("alpaca", AutoTokenizer.from_pretrained(tiny_directory)).encode
    model = AutoModelForCausalLM.from_pretrained(tiny_directory)
    tuned = peft.PeftModel.from_pretrained(model, warm_up / "adapter").eval()
    read = [read_source(spec, tmp_path) for spec in load_recipe(recipe).specs.values()]
    records = {(one.source, one.record_id): one for own in read for one in own.records}
    for scored in read_scores(rest / "scores.parquet").scores:  # by peft's own model
        encoded = encode(records[scored.source, scored.record_id])
        start, response = len(encoded.prompt_ids), encoded.response_ids
        with torch.no_grad():
            logits = tuned(input_ids=torch.tensor([[*encoded.prompt_ids, *response]])).logits[0].log_softmax(-1)
        own_nll = -sum(logits[start + at - 1, token].item() for at, token in enumerate(response)) / len(response)
        assert scored.nll == pytest.approx(own_nll, abs=2e-4)

    found = verify(rest, data_dir=tmp_path, previous=ledger_of([warm_up]))
    assert found.differences == ()
    assert "rounds: the ledger, from the directories of the earlier rounds" in found.checked
    assert MANIFEST.read(rest / "manifest.json").scorer["model"]["adapter"] == after.model["adapter"]  # type: ignore[index]
    assert train(rest, (*TRAINING[:3], "epochs=1", "max_length=256", "device=cpu"), also=[warm_up]).steps == 15
    assert verify(rest).differences == ()
