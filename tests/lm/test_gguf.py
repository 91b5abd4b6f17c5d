from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import ScoringError
from calibudget.lm import gguf
from calibudget.lm.loading import load_model, load_tokenizer
from calibudget.lm.model_files import resolve_model
from calibudget.store.checksums import file_digest
from tests.conftest import tokenizer_with


@pytest.fixture
def conversions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The cache below tmp_path, and a conversion that only writes a file and is counted."""
    made = []

    def convert(path: Any, directory: Path, _: str) -> None:
        made.append(path.name)
        (directory / "config.json").write_text("{}")
        if path.name == "broken.gguf":
            raise ScoringError("broken")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(gguf, "_convert", convert)
    return made


@pytest.mark.slow
def test_a_file_is_converted_once(conversions: Any) -> None:
    first = gguf.converted(Path("m.gguf"), "a" * 64)
    assert gguf.converted(Path("m.gguf"), "a" * 64) == first
    assert first.name == f"{'a' * 64}-{gguf.CONVERTER_VERSION}-{version('transformers')}"
    assert conversions == ["m.gguf"]


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["changed", "extra", "marker"])
def test_a_torn_cache_is_made_anew(conversions: Any, fault: str) -> None:
    directory = gguf.converted(Path("m.gguf"), "a" * 64)
    whole = {path.name: path.read_bytes() for path in directory.iterdir()}
    if fault == "changed":
        (directory / "config.json").write_text("[]")
    elif fault == "extra":
        (directory / "more.json").write_text("{}")
    else:
        (directory / "complete.json").write_text('{"schema":')
    gguf.converted(Path("m.gguf"), "a" * 64)
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == whole
    assert len(conversions) == 2


def test_a_cache_that_cannot_be_written_says_so(
    conversions: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(ScoringError, match="XDG_CACHE_HOME"):
        gguf.converted(Path("m.gguf"), "a" * 64)


@pytest.mark.slow  # loads torch
def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUFnot really")
    with pytest.raises(ScoringError, match="not a GGUF file"):
        load_model(str(path), device="cpu")


@pytest.mark.parametrize(("pre", "digits_apart"), [("smollm", True), ("gpt-2", False), (None, False)])
def test_the_pre_tokenizer_is_mended_only_where_it_applies(pre: str | None, digits_apart: bool) -> None:
    tokenizer = tokenizer_with()
    metadata = {"model": "gpt2", "pre": pre, "eos_token_id": 2, "bos_token_id": 1}
    gguf._mend_tokenizer(tokenizer, metadata, Path("m.gguf"))
    pieces = [piece for piece, _ in tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str("a 12")]
    assert pieces == (["a", "Ġ", "1", "2"] if digits_apart else ["a", "Ġ12"])


def test_a_pre_tokenizer_nobody_knows_is_refused() -> None:
    metadata = {"model": "gpt2", "pre": "novel", "eos_token_id": 2, "bos_token_id": 1}
    with pytest.raises(ScoringError, match="'novel'"):
        gguf._mend_tokenizer(tokenizer_with(), metadata, Path("m.gguf"))


@pytest.mark.model
def test_the_embedded_model_splits_digits_off_before_white_space() -> None:
    """llama.cpp's rule for this model; plain GPT-2 splitting would part the line feed from the space before the 4."""
    tokenizer = load_tokenizer("embedded")
    assert tokenizer.eos_token_id == 2
    assert tokenizer.bos_token_id == 1
    assert tokenizer("x 12 3\n 4").input_ids == [104, 216, 33, 34, 216, 35, 3805, 36]


@pytest.mark.model
def test_the_embedded_model_is_converted_into_the_cache() -> None:
    path = resolve_model("embedded").path
    directory = gguf.cache_root() / f"{file_digest(path).sha256}-{gguf.CONVERTER_VERSION}-{version('transformers')}"  # type: ignore[arg-type]
    assert gguf.converted(path, file_digest(path).sha256) == directory  # type: ignore[arg-type]
    assert {"complete.json", "config.json", "model.safetensors", "tokenizer.json"} <= {
        f.name for f in directory.iterdir()
    }


@pytest.mark.model
@pytest.mark.full  # converts the whole model
def test_the_neighbours_of_a_gguf_file_are_not_read(tmp_path: Path) -> None:
    """A configuration, a chat template or an adapter beside the file isn't bound by its digest."""
    path = resolve_model("embedded").path
    (tmp_path / "m.gguf").symlink_to(path)  # type: ignore[arg-type]
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 7}')
    (tmp_path / "chat_template.jinja").write_text("another template")
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA", "base_model_name_or_path": "elsewhere"}')
    (tmp_path / "converted").mkdir()
    gguf._convert(tmp_path / "m.gguf", tmp_path / "converted", "float32")
    kept = gguf.converted(path, file_digest(path).sha256)  # type: ignore[arg-type]
    names = {file.name for file in kept.iterdir()} - {"complete.json"}
    assert {file.name: file_digest(file).sha256 for file in (tmp_path / "converted").iterdir()} == {
        name: file_digest(kept / name).sha256 for name in names
    }
