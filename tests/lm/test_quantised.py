"""Quantised models say nearly what their floats say, name their method, and are refused by name where they can't be."""

from __future__ import annotations

import json
import os
import shutil
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import DependencyError, ScoringError, TrainingError
from calibudget.lm.loading import check_loadable, load_model, twin
from calibudget.lm.placement import weight_bytes
from calibudget.lm.quantised import quantised
from calibudget.scoring.local import LocalScorer
from calibudget.scoring.scorer import CalibrationItem, ScorerSettings
from calibudget.sources.spec import SourceSpec
from calibudget.sources.split import Parting
from calibudget.sources.whole_source import open_source
from calibudget.training.target_layers import target_modules
from tests.conftest import record_of

needs_bitsandbytes = pytest.mark.skipif(
    find_spec("bitsandbytes") is None, reason="bitsandbytes isn't installed: pip install 'calibudget[quantized]'"
)
BLOCK = 128


def real_items(count: int) -> list[CalibrationItem]:
    spec = SourceSpec(label="arc_easy", path="commonsense/arc_easy.train.jsonl.gz", preset="arc_easy")
    source = open_source(spec, Path(os.environ["CALIBUDGET_DATA"]), selection_seed=42)
    split = Parting(source).draw(split_seed=42, calibration_size=count).split()
    return [CalibrationItem(record=record, answer=spec.answers) for record in split.calibration]


@needs_bitsandbytes
@pytest.mark.slow
@pytest.mark.model
@pytest.mark.data
@pytest.mark.parametrize(("kind", "near"), [("int8", 0.15), ("nf4", 0.6)])
def test_the_real_model_in_few_bits_says_nearly_what_its_floats_say(kind: Any, near: float) -> None:
    items = real_items(16)
    expected = LocalScorer(load_model("embedded", device="cpu"), ScorerSettings(max_new_tokens=1)).measure(items)
    scorer = LocalScorer(load_model("embedded", device="cpu", dtype=kind), ScorerSettings(max_new_tokens=1))
    found = scorer.measure(items)
    apart = [abs(one.nll - other.nll) for one, other in zip(found, expected, strict=True)]
    print(f"{kind}: mean {sum(apart) / len(apart):.4f}, most {max(apart):.4f}")
    assert 0.0 < sum(apart) / len(apart) < near
    model: Any = scorer.describe()["model"]
    assert (model["quantised"]["method"], model["dtype"], model["parameters"]) == ("bitsandbytes", "float32", 134515008)
    assert scorer.describe()["forward"] == ("packed" if kind == "nf4" else "plain")


@needs_bitsandbytes
def test_a_saved_quantised_model_is_the_one_that_was_saved(tiny_directory: Path, tmp_path: Path) -> None:
    import torch

    made = load_model(str(tiny_directory), device="cpu", dtype="nf4")
    made.model.save_pretrained(tmp_path / "saved")
    made.tokenizer.save_pretrained(tmp_path / "saved")
    read = load_model(str(tmp_path / "saved"), device="cpu")
    ids = torch.arange(3, 40)[None]
    with torch.inference_mode():
        expected = made.model(ids).logits
        assert torch.equal(read.model(ids).logits, expected)
        assert torch.equal(twin(made).model(ids).logits, expected)
    assert read.identity["quantised"]["method"] == "bitsandbytes"  # type: ignore[index]
    with pytest.raises(ScoringError, match="quantised already"):
        check_loadable(str(tmp_path / "saved"), device="cpu", dtype="nf4")


@needs_bitsandbytes
@pytest.mark.slow
@pytest.mark.model
@pytest.mark.parametrize("kind", ["int8", "nf4"])
def test_the_room_that_is_asked_for_is_the_room_that_is_taken(kind: Any) -> None:
    plain, packed = (load_model("embedded", device="cpu", dtype=one) for one in ("float32", kind))
    taken = packed.model.get_memory_footprint()
    directory = Path(plain.model.name_or_path)
    assert weight_bytes(directory, 4, kind) == pytest.approx(taken, rel=0.03)
    assert weight_bytes(directory, 4) == pytest.approx(plain.model.get_memory_footprint(), rel=0.03)


def quantised_by(method: str, source: Path, target: Path) -> str:
    shutil.copytree(source, target)
    config = json.loads((target / "config.json").read_text())
    config["quantization_config"] = {"quant_method": method, "weight_block_size": [BLOCK, BLOCK]}
    (target / "config.json").write_text(json.dumps(config))
    return str(target)


def test_fp8_weights_become_the_numbers_that_they_stand_for(tiny_directory: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    weights = load_file(tiny_directory / "model.safetensors")
    packed, plain = dict(weights), dict(weights)
    for name, weight in weights.items():
        if "_proj." in name:
            scale = torch.rand(-(-weight.shape[0] // BLOCK), -(-weight.shape[1] // BLOCK)) / 4 + 0.1
            packed[name] = (weight / 0.2).to(torch.float8_e4m3fn)
            packed[f"{name}_scale_inv"] = scale
            whole = scale.repeat_interleave(BLOCK, 0)[: weight.shape[0]].repeat_interleave(BLOCK, 1)
            plain[name] = packed[name].float() * whole[:, : weight.shape[1]]
    name = quantised_by("fp8", tiny_directory, tmp_path / "fp8")
    save_file(packed, tmp_path / "fp8" / "model.safetensors", metadata={"format": "pt"})
    if tuple(map(int, version("transformers").split(".")[:2])) < (5, 19):
        with pytest.raises(DependencyError, match="need transformers"):
            load_model(name, device="cpu")
        return
    read = load_model(name, device="cpu")
    assert read.identity["quantised"]["method"] == "fp8"  # type: ignore[index]
    assert not torch.equal(plain["model.layers.0.mlp.up_proj.weight"], weights["model.layers.0.mlp.up_proj.weight"])
    for key, value in read.model.state_dict().items():
        if key in plain:
            torch.testing.assert_close(value, plain[key], rtol=1e-6, atol=1e-7)


def packed_by(method: str, source: Path, target: Path) -> tuple[str, dict[str, Any]]:
    """A checkpoint of random 4-bit weights in the method's own layout, and the numbers that these stand for.

    Layouts: GPTQ packs eight rows of inputs into an integer and stores zero points less one; AWQ packs eight outputs,
    the even ones first.
    """
    import torch
    from safetensors.torch import load_file, save_file

    group, generator = 32, torch.Generator().manual_seed(5)
    shifts = torch.arange(8) * 4
    order = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7]) if method == "awq" else torch.arange(8)

    def columns(values: Any) -> Any:
        """Eight columns an integer."""
        parts = values.view(len(values), -1, 8)[:, :, order].long() << shifts
        return parts.sum(-1).to(torch.int32)

    weights = load_file(source / "model.safetensors")
    packed, plain = dict(weights), dict(weights)
    for name, weight in weights.items():
        if "_proj." in name:
            outputs, inputs = weight.shape
            codes = torch.randint(0, 16, (inputs, outputs), generator=generator)
            zeros = torch.randint(1, 16, (inputs // group, outputs), generator=generator)
            scales = (torch.rand(inputs // group, outputs, generator=generator) / 100 + 0.001).half()
            stem = name.removesuffix("weight")
            del packed[name]
            of_rows = (codes.view(-1, 8, outputs).long() << shifts[:, None]).sum(1).to(torch.int32)
            packed[f"{stem}qweight"] = of_rows if method == "gptq" else columns(codes)
            packed[f"{stem}qzeros"] = columns(zeros - 1 if method == "gptq" else zeros)
            packed[f"{stem}scales"] = scales
            groups = torch.arange(inputs) // group
            if method == "gptq":
                packed[f"{stem}g_idx"] = groups.to(torch.int32)
            plain[name] = ((codes - zeros[groups]) * scales[groups].float()).T.contiguous()
    shutil.copytree(source, target)
    config = json.loads((target / "config.json").read_text())
    own: dict[str, object] = {"desc_act": False, "sym": False}
    if method == "awq":
        own = {"zero_point": True, "version": "gemm"}
    config["quantization_config"] = {"quant_method": method, "bits": 4, "group_size": group, **own}
    (target / "config.json").write_text(json.dumps(config))
    save_file(packed, target / "model.safetensors", metadata={"format": "pt"})
    return str(target), plain


@pytest.mark.skipif(
    find_spec("gptqmodel") is None or find_spec("optimum") is None,
    reason="gptqmodel and optimum aren't installed: pip install 'calibudget[gptq]'",
)
@pytest.mark.filterwarnings("default")  # the packages' own
@pytest.mark.parametrize("method", ["gptq", "awq"])
def test_packed_weights_compute_with_the_numbers_that_they_stand_for(
    tiny_directory: Path, tmp_path: Path, method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    name, plain = packed_by(method, tiny_directory, tmp_path / method)
    check_loadable(name, device="cpu")
    read, whole = load_model(name, device="cpu"), load_model(str(tiny_directory), device="cpu")
    whole.model.load_state_dict(plain, strict=False)
    ids = torch.arange(3, 40)[None]
    with torch.inference_mode():
        expected, found = whole.model(ids).logits, read.model(ids).logits
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    assert LocalScorer(read).describe()["forward"] == "packed"
    settings: Any = read.identity["quantised"]
    assert (settings["method"], settings["bits"], settings["group_size"]) == (method, 4, 32)
    assert settings["kernel"] == f"{method}_torch"
    assert read.identity["parameters"] == whole.identity["parameters"]
    assert capsys.readouterr().out == ""  # where a command's --json goes
    with pytest.raises(TrainingError, match=f"no factors go over {method} weights.*nf4"):
        target_modules(read.model)
    with pytest.raises(ScoringError, match="quantised already"):
        check_loadable(name, device="cpu", dtype="nf4")


@pytest.mark.parametrize("method", ["gptq", "awq"])
def test_packed_weights_name_the_extra_that_they_need(
    tiny_directory: Path, tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("calibudget.lm.quantised.find_spec", lambda _: None)
    name = quantised_by(method, tiny_directory, tmp_path / method)
    for refuse in (load_model, check_loadable):
        with pytest.raises(DependencyError, match=r"gptqmodel; pip install 'calibudget\[gptq\]'"):
            refuse(name, device="cpu")


@pytest.mark.parametrize("method", ["compressed-tensors"])
def test_other_methods_are_refused_by_name_with_ways_out(tiny_directory: Path, tmp_path: Path, method: str) -> None:
    name = quantised_by(method, tiny_directory, tmp_path / method)
    for refuse in (load_model, check_loadable):
        with pytest.raises(ScoringError, match=rf"{method} weights aren't read.*nf4.*engine: openai"):
            refuse(name, device="cpu")


def test_settings_that_are_no_object_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": "fp8"}))
    with pytest.raises(ScoringError, match="quantization_config must be an object"):
        quantised("here", tmp_path, "auto", "cpu")


def test_an_operation_that_a_device_lacks_is_named(tiny_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = LocalScorer(load_model(str(tiny_directory), device="cpu"))

    def lacks(*_: Any, **__: Any) -> None:
        raise NotImplementedError("The operator 'aten::new' is not implemented for this device.\nMore of it.")

    monkeypatch.setattr("torch.nn.functional.scaled_dot_product_attention", lacks)
    item = CalibrationItem(record=record_of(number=1), answer=SourceSpec(label="a", path="a").answers)
    with pytest.raises(ScoringError, match=r"device: cpu can't do.*'aten::new'.*; say cpu"):
        scorer.measure([item])
