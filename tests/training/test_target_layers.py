from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from calibudget.errors import TrainingError
from calibudget.training.config import TrainingConfig
from calibudget.training.layers import FactorLinear, use_factor_layers
from calibudget.training.target_layers import (
    PROJECTIONS,
    add_adapter,
    frozen_experts,
    linear_names,
    save_adapter,
    target_modules,
)
from tests.conftest import model_of

CONFIG = TrainingConfig(rank=4, scaling=8.0)


def factors_of(model: Any) -> Any:
    return {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}


def test_the_update_is_scaled_by_s_over_r() -> None:
    """Paper 2.4: delta W = s/r B A; with the defaults it is B A itself."""
    assert TrainingConfig().scaling / TrainingConfig().rank == 1.0
    model = add_adapter(model_of(), CONFIG, "tiny")
    layer = model.get_base_model().model.layers[0].mlp.up_proj
    assert layer.scaling["default"] == 2.0
    layer.lora_B["default"].weight.data.normal_()
    x = torch.randn(3, 64)
    delta = 2.0 * layer.lora_B["default"].weight @ layer.lora_A["default"].weight
    torch.testing.assert_close(layer(x), x @ (layer.base_layer.weight + delta).T)


def test_factors_start_from_the_seed_alone() -> None:
    torch.manual_seed(1)
    one = factors_of(add_adapter(model_of(), CONFIG, "tiny"))
    torch.manual_seed(2)
    again = factors_of(add_adapter(model_of(), CONFIG, "tiny"))
    other = factors_of(add_adapter(model_of(), TrainingConfig(rank=4, scaling=8.0, seed=43), "tiny"))
    assert all(torch.equal(one[name], again[name]) for name in one)
    for name, value in one.items():
        if ".lora_B." in name:
            assert not value.any()
        else:
            assert not torch.equal(value, other[name])
            assert value.abs().max() <= 1 / value.shape[1] ** 0.5
            assert value.std() == pytest.approx((1 / value.shape[1] / 3) ** 0.5, rel=0.2)
    starts = [value for name, value in one.items() if ".lora_A." in name and value.shape == (4, 64)]
    assert all(not torch.equal(starts[0], start) for start in starts[1:])


@pytest.mark.parametrize("family", ["llama", "qwen2"])  # without and with biases
@pytest.mark.parametrize("share", [False, True])
def test_layers_compute_as_pefts_own(family: str, share: bool) -> None:
    own = add_adapter(model_of(family, num_key_value_heads=2), CONFIG, "tiny")
    for parameter in factors_of(own):
        own.get_parameter(parameter).data.normal_(std=0.1, generator=torch.Generator().manual_seed(3))
    ids = torch.arange(20)[None]
    before = own(input_ids=ids).logits
    use_factor_layers(own, share=share)
    assert sum(isinstance(module, FactorLinear) for module in own.modules()) == 14
    assert any(module.shared for module in own.modules() if isinstance(module, FactorLinear)) is share
    for _ in range(2):
        torch.testing.assert_close(own(input_ids=ids).logits, before)
    with own.disable_adapter():
        plain = own(input_ids=ids).logits
    torch.testing.assert_close(plain, model_of(family, num_key_value_heads=2)(input_ids=ids).logits)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft's own
def test_the_saved_adapter_is_pefts(tmp_path: Path) -> None:
    from peft import PeftModel

    model = add_adapter(model_of(), CONFIG, "tiny")
    for name in factors_of(model):
        model.get_parameter(name).data.normal_(std=0.1)
    save_adapter(model, tmp_path)
    loaded = PeftModel.from_pretrained(model_of(), str(tmp_path))
    ids = torch.arange(20)[None]
    torch.testing.assert_close(loaded(input_ids=ids).logits, model(input_ids=ids).logits)
    settings = json.loads((tmp_path / "adapter_config.json").read_text())
    assert settings["target_modules"] == sorted(PROJECTIONS["llama"])
    assert (settings["r"], settings["lora_alpha"], settings["base_model_name_or_path"]) == (4, 8, "tiny")
    assert len({path.stat().st_mode for path in tmp_path.iterdir()}) == 1
    first = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    save_adapter(model, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == first


def test_the_saved_adapter_has_what_vllm_and_llama_cpp_read(tmp_path: Path) -> None:
    """Names end in lora_A.weight and lora_B.weight after base_model.model. and the layer's own; no other tensor.

    vLLM: vllm/lora/utils.py and peft_helper.py; llama.cpp: convert_lora_to_gguf.py.
    """
    from safetensors.torch import load_file

    base = model_of(num_key_value_heads=2)
    layers = {name: tuple(m.weight.shape) for name, m in base.named_modules() if name.endswith(PROJECTIONS["llama"])}
    save_adapter(add_adapter(base, CONFIG, "owner/model"), tmp_path)
    tensors = load_file(tmp_path / "adapter_model.safetensors")
    shapes = {name: tuple(value.shape) for name, value in tensors.items()}
    expected = {f"base_model.model.{name}.lora_A.weight": (4, inputs) for name, (_, inputs) in layers.items()}
    expected |= {f"base_model.model.{name}.lora_B.weight": (outputs, 4) for name, (outputs, _) in layers.items()}
    assert len(layers) == 14
    assert shapes == expected
    assert {value.dtype for value in tensors.values()} == {torch.float32}
    settings = json.loads((tmp_path / "adapter_config.json").read_text())
    wanted = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 4, "lora_alpha": 8, "bias": "none"}
    wanted |= {"use_rslora": False, "use_dora": False, "modules_to_save": None, "fan_in_fan_out": False}
    wanted |= {"rank_pattern": {}, "alpha_pattern": {}, "base_model_name_or_path": "owner/model"}
    assert {name: settings[name] for name in wanted} == wanted
    assert settings["target_modules"] == sorted(PROJECTIONS["llama"])


def test_unknown_layers_and_families_are_refused() -> None:
    with pytest.raises(TrainingError, match=r"no linear layer 'q_porj'; it has down_proj, gate_proj"):
        target_modules(model_of(), ("q_porj",))
    with pytest.raises(TrainingError, match="'lm_head' is the output head"):
        target_modules(model_of(), ("lm_head",))
    model = model_of()
    model.config.model_type = "novel"
    with pytest.raises(TrainingError, match="family 'novel'"):
        target_modules(model)
    assert target_modules(model, ("q_proj", "v_proj", "q_proj")) == ("q_proj", "v_proj")


def vision_model() -> Any:
    """A tiny random Gemma 3 with a vision tower, whose attention layers are named as the language model's."""
    from transformers import AutoConfig, AutoModelForCausalLM

    text = {"vocab_size": 320, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "head_dim": 16}
    vision = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "image_size": 28, "patch_size": 14}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    config = AutoConfig.for_model(
        "gemma3",
        text_config=text | heads | {"max_position_embeddings": 512},
        vision_config=vision | {"num_attention_heads": 2},
        mm_tokens_per_image=1,
    )
    return AutoModelForCausalLM.from_config(config).eval()


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft's own
def test_a_vision_tower_gets_no_factors(tmp_path: Path) -> None:
    model = add_adapter(vision_model(), CONFIG, "tiny")
    trained = factors_of(model)
    assert len(trained) == 2 * 2 * 7  # A and B of seven projections in two layers
    assert all(".language_model." in name for name in trained)
    assert "vision_tower" in "".join(name for name, _ in model.named_parameters())  # there is one
    assert linear_names(vision_model()) == tuple(sorted(PROJECTIONS["gemma3_text"]))
    save_adapter(model, tmp_path)
    from peft import PeftModel

    loaded = PeftModel.from_pretrained(vision_model(), str(tmp_path), is_trainable=True)
    assert factors_of(loaded).keys() == trained.keys()


def test_experts_that_take_no_factors_are_named() -> None:
    settings: dict[str, Any] = {"num_key_value_heads": 2, "num_local_experts": 4}
    model = model_of("mixtral", **settings)
    assert frozen_experts(model) == ("model.layers.0.mlp.experts", "model.layers.1.mlp.experts")
    adapted = add_adapter(model, TrainingConfig(rank=4, target_modules=("q_proj", "v_proj")), "tiny")
    assert not any("expert" in name for name in factors_of(adapted))
    assert frozen_experts(model_of()) == ()
