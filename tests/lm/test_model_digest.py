"""A model's identity binds all that is loaded: what could lead elsewhere is refused, what isn't bound isn't read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import CalibudgetError
from calibudget.lm.chat import ChatTemplate
from calibudget.lm.encoding import Encoder
from calibudget.lm.loading import check_loadable, load_model, load_tokenizer
from tests.conftest import adapter_of, record_of, tokenizer_with

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.slow
from safetensors.torch import load_file, save_file  # noqa: E402 - only where torch is

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"


@pytest.fixture
def model(tiny_directory: Path, tmp_path: Path) -> Any:
    """A copy of the tiny model, one folder below `tmp_path`, to be led astray."""
    return shutil.copytree(tiny_directory, tmp_path / "inner" / "model")


def edit(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps((json.loads(path.read_text()) if path.exists() else {}) | fields))


def sharded(model: Path, name: Any, target: Any = None) -> None:
    """Move the weights to where an index names them."""
    weights = model / WEIGHTS
    names = list(load_file(weights))
    target = target or model / name
    target.parent.mkdir(exist_ok=True)
    if str(name).endswith(".bin"):
        torch.save(load_file(weights), target)
        weights.unlink()
    else:
        weights.rename(target)
    save_file({"other": torch.zeros(1)}, model / "other.safetensors")  # a directory with safetensors in it
    edit(model / INDEX, metadata={}, weight_map=dict.fromkeys(names, str(name)))


def logits(loaded: Any) -> Any:
    with torch.inference_mode():
        return loaded.model(torch.tensor([[5, 6, 7, 8]])).logits


@pytest.mark.parametrize("name", ["sub/w.safetensors", "../outside.safetensors", "w.bin", "/absolute"])
def test_weights_elsewhere_or_pickled_are_refused(model: Path, name: str) -> None:
    if name == "/absolute":
        target = model.parent / "w.safetensors"
        sharded(model, target, target)
    else:
        sharded(model, name)
    for use in (load_model, check_loadable):
        with pytest.raises(CalibudgetError, match="only safetensors files of the same directory"):
            use(str(model), device="cpu")


def test_a_sharded_model_loads_and_each_shard_counts(model: Path, tiny_directory: Path) -> None:
    weights = load_file(model / WEIGHTS)
    (model / WEIGHTS).unlink()
    names = {name: f"part-{number % 2}.safetensors" for number, name in enumerate(weights)}
    for part in set(names.values()):
        own = {name: tensor for name, tensor in weights.items() if names[name] == part}
        save_file(own, model / part, metadata={"format": "pt"})
    edit(model / INDEX, metadata={}, weight_map=names)
    loaded = load_model(str(model), device="cpu")
    assert torch.equal(logits(loaded), logits(load_model(str(tiny_directory), device="cpu")))
    first = load_file(model / "part-1.safetensors")
    save_file({name: tensor + 1 for name, tensor in first.items()}, model / "part-1.safetensors", {"format": "pt"})
    assert load_model(str(model), device="cpu").identity["sha256"] != loaded.identity["sha256"]


def test_what_is_not_bound_is_not_read(model: Path, tiny_directory: Path) -> None:
    templates = model / "additional_chat_templates"
    templates.mkdir()
    (templates / "default.jinja").write_text("another template")
    (model / "sub").mkdir()
    shutil.copy(model / WEIGHTS, model / "sub")
    (model / "pytorch_model.bin").write_bytes(b"\x80\x04never unpickled")
    (model / "modeling.py").write_text("raise SystemExit('ran')")
    before, after = (load_model(str(path), device="cpu") for path in (tiny_directory, model))
    assert after.identity["sha256"] == before.identity["sha256"]
    assert torch.equal(logits(after), logits(before))
    assert load_tokenizer(str(model)).chat_template == load_tokenizer(str(tiny_directory)).chat_template


def test_weights_that_a_configuration_names_elsewhere_are_not_read(model: Path) -> None:
    (model / "sub").mkdir()
    shutil.copy(model / WEIGHTS, model / "sub" / "w.safetensors")
    edit(model / "config.json", transformers_weights="sub/w.safetensors")
    with pytest.raises(CalibudgetError, match="can't be loaded"):
        load_model(str(model), device="cpu")


def test_a_tokenizer_configuration_names_no_other_files(model: Path, tmp_path: Path) -> None:
    other = tokenizer_with(adds_bos=True)
    other.save_pretrained(tmp_path / "other")
    before = load_tokenizer(str(model))("apple river").input_ids
    named = {key: str(tmp_path / "other" / "tokenizer.json") for key in ("tokenizer_file", "vocab_file")}
    edit(model / "tokenizer_config.json", **named)
    assert load_tokenizer(str(model))("apple river").input_ids == before


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("use_kernels", True),
        ("kernel_config", {"RMSNorm": "owner/kernel"}),
        ("attn_implementation", "owner/kernel"),
        ("_attn_implementation", "flash_attention_2"),
        ("experts_implementation", {"": "owner/kernel"}),
    ],
)
def test_kernels_named_in_a_configuration_are_refused(model: Path, field: str, value: Any) -> None:
    edit(model / "config.json", **{field: value})
    for use in (load_model, check_loadable):
        with pytest.raises(CalibudgetError, match=rf"config\.json: {field}.*remove"):
            use(str(model), device="cpu")


def test_a_missing_tensor_is_never_made_up(model: Any) -> None:
    weights = load_file(model / WEIGHTS)
    lost = "model.layers.1.mlp.down_proj.weight"
    weights.pop(lost)
    save_file(weights, model / WEIGHTS, metadata={"format": "pt"})
    with pytest.raises(CalibudgetError, match=rf"lack {lost}"):
        load_model(str(model), device="cpu")


@pytest.mark.parametrize(
    "fields",
    [
        {"num_attention_heads": 0},
        {"num_hidden_layers": 10**7},
        {"vocab_size": 10**12},
        {"hidden_size": 10**9},
        {"num_key_value_heads": 3},
        {"hidden_act": "nonesuch"},
        {"rope_parameters": {"rope_type": "nonesuch"}},
        {"model_type": ["llama"]},
    ],
)
def test_an_absurd_configuration_is_refused_before_anything_is_built(model: Path, fields: Any) -> None:
    edit(model / "config.json", **fields)
    with pytest.raises(CalibudgetError, match="model"):
        load_model(str(model), device="cpu")


@pytest.fixture
def adapter(tiny_directory: Path, tmp_path: Path) -> Any:
    pytest.importorskip("peft")
    return adapter_of(load_model(str(tiny_directory), device="cpu").model, tmp_path / "adapter")


def test_pickled_adapters_are_refused(adapter: Path, tiny_directory: Path) -> None:
    torch.save(load_file(adapter / "adapter_model.safetensors"), adapter / "adapter_model.bin")
    (adapter / "adapter_model.safetensors").rename(adapter / "other.safetensors")
    for use in (load_model, check_loadable):
        with pytest.raises(CalibudgetError, match=r"needs adapter_model\.safetensors"):
            use(str(tiny_directory), device="cpu", adapter=adapter)


@pytest.mark.parametrize(
    "fields",
    [
        {"peft_type": "XLORA", "adapters": {"0": "elsewhere"}},
        {"megatron_config": {"a": 1}, "megatron_core": "antigravity"},
        {"corda_config": {"cache_file": "x.pt"}},
        {"layer_replication": [[0, 10**9]]},
        {"init_lora_weights": "pissa"},
        {"r": 10**9},
        {"rank_pattern": {"q_proj": 10**9}},
        {"target_modules": "("},
    ],
)
def test_adapters_that_lead_elsewhere_or_are_absurd_are_refused(
    adapter: Path, tiny_directory: Path, fields: Any
) -> None:
    edit(adapter / "adapter_config.json", **fields)
    name = next(iter(fields))
    other = {"r": "a rank of", "rank_pattern": "a rank of", "target_modules": "adapter", "lora_alpha": "adapter"}
    with pytest.raises(CalibudgetError, match=other.get(name, rf"adapter_config\.json: {name}")):
        load_model(str(tiny_directory), device="cpu", adapter=adapter)


@pytest.mark.parametrize(
    "fields",
    [
        {"normalizer": {"type": "Prepend", "prepend": ""}},  # these two panic in Rust when a text is encoded
        {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},  # and this one when it is read
        {"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "[UNK]"}},
        {"added_tokens": [{"id": -1}]},
    ],
)
def test_a_tokenizer_that_fails_is_an_error_that_names_it(model: Path, fields: Any) -> None:
    edit(model / "tokenizer.json", **fields)
    with pytest.raises(CalibudgetError, match=r"tokenizer\.json|can't be loaded"):
        Encoder("alpaca", load_tokenizer(str(model))).encode(record_of())


@pytest.mark.parametrize("template", ["{{ 1/0 }}", "{{ messages[0].nonesuch() }}", "{% for"])
def test_a_chat_template_that_fails_is_an_error_that_names_it(model: Path, template: str) -> None:
    (model / "chat_template.jinja").write_text(template)
    with pytest.raises(CalibudgetError, match=r"chat_template\.jinja"):
        Encoder("chat", load_tokenizer(str(model)))


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% for a in range(99999) %}{{ 'x' * 9999999 }}{% endfor %}",
        "{{ 'x' * 99999999999 }}",
        "{% set ns = namespace(x='x') %}{% for a in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
    ],
    ids=["loops", "writes", "multiplies", "doubles"],
)
def test_a_chat_template_that_loops_or_writes_without_end_is_refused(model: Path, template: str) -> None:
    (model / "chat_template.jinja").write_text(template)
    with pytest.raises(CalibudgetError, match=r"chat_template\.jinja"):
        Encoder("chat", load_tokenizer(str(model)))


def test_a_bounded_rendering_is_the_library_s_own(model: Any) -> None:
    tokenizer = load_tokenizer(str(model))
    text = "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content | tojson }}{{ eos_token }}\n{% endfor %}"
    turns = [{"role": "user", "content": "é <x> 'q'"}, {"role": "assistant", "content": "ok"}]
    plain = tokenizer.apply_chat_template(turns, chat_template=text, tokenize=False)
    assert ChatTemplate(tokenizer, text)._render(turns) == plain
