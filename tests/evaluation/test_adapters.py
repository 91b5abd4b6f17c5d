from __future__ import annotations

from pathlib import Path

import pytest

from calibudget.errors import ScoringError
from calibudget.lm.loading import adapted, load_model
from tests.conftest import adapter_of

torch = pytest.importorskip("torch")
pytest.importorskip("peft")
pytestmark = pytest.mark.slow
from safetensors.torch import load_file, save_file  # noqa: E402 - only where torch is

LAYERS = ("q_proj", "down_proj")


def logits(model: object) -> torch.Tensor:  # type: ignore[name-defined]
    with torch.inference_mode():
        return model.model(torch.tensor([[5, 6, 7, 8]])).logits  # type: ignore[attr-defined]


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft's own
def test_adapters_follow_each_other_over_one_untouched_base(tiny_directory: Path, tmp_path: Path) -> None:
    base = load_model(str(tiny_directory), device="cpu")
    one, two = (
        adapter_of(base.model, tmp_path / name, seed=seed, layers=LAYERS) for seed, name in enumerate(("one", "two"))
    )
    before = logits(base)
    outcomes = []
    for adapter in (one, two, one):
        with adapted(base, adapter) as model:
            outcomes.append(logits(model))
            assert model.identity["adapter"] != base.identity["adapter"] if "adapter" in base.identity else True
            assert torch.equal(outcomes[-1], logits(load_model(str(tiny_directory), device="cpu", adapter=adapter)))
            assert model.identity == load_model(str(tiny_directory), device="cpu", adapter=adapter).identity
        assert torch.equal(logits(base), before)
    assert torch.equal(outcomes[0], outcomes[2])
    assert not torch.equal(outcomes[0], outcomes[1])
    assert not torch.equal(outcomes[0], before)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft's own
def test_what_is_no_adapter_is_refused(tiny_directory: Path, tmp_path: Path) -> None:
    base = load_model(str(tiny_directory), device="cpu")
    with pytest.raises(ScoringError, match="adapter_config"), adapted(base, tmp_path):
        pass
    before = logits(base)
    partial = adapter_of(base.model, tmp_path / "partial", layers=LAYERS)
    weights = load_file(str(partial / "adapter_model.safetensors"))
    weights.pop(sorted(weights)[0])
    save_file(weights, str(partial / "adapter_model.safetensors"))
    with pytest.raises(ScoringError, match="lack 1 of"), adapted(base, partial):
        pass
    with pytest.raises(ScoringError, match="lack 1 of"):
        load_model(str(tiny_directory), device="cpu", adapter=partial)
    adapter = adapter_of(base.model, tmp_path / "a", layers=LAYERS)
    (adapter / "adapter_model.safetensors").write_bytes(b"no safetensors")
    with pytest.raises(ScoringError, match="can't be read"), adapted(base, adapter):
        pass
    narrow = {name: tensor[:, :1].contiguous() for name, tensor in weights.items()}
    save_file(narrow, str(adapter / "adapter_model.safetensors"))
    with pytest.raises(ScoringError, match="doesn't fit"), adapted(base, adapter):
        pass
    assert torch.equal(logits(base), before)
