"""A credential in a recipe, a protocol or an option is refused before anything is written, and never repeated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from calibudget.messages import redacted

PRIVATE = "Zq7xK2mV9tRb4LwNs8Yd"
TEXTS = {
    "user": f"https://me:{PRIVATE}@host/x",
    "token alone": f"https://{PRIVATE}@host/x",
    "signed": f"s3://bucket/rows.jsonl?X-Amz-Credential=a&X-Amz-Signature={PRIVATE}",
    "query": f"hf://datasets/a/b.jsonl?token={PRIVATE}",
    "hub": f"hf_{PRIVATE}",
    "key": "AKIAABCDEFGHIJKLMNOP",
    "private key": "-----BEGIN RSA PRIVATE KEY-----",
}
FIELDS = {
    "model": ("model", None),
    "address": ("address", None),
    "path": ("sources", "path"),
    "hub": ("sources", "hub"),
    "data_dir": ("data_dir", None),
    "adapter": ("calibration", "adapter"),
    "policy": ("policy", None),
    "unknown": ("unheard", None),
}


def secret_of(text: Any) -> Any:
    return PRIVATE if PRIVATE in text else text


def test_every_form_is_found_and_plain_texts_stay() -> None:
    for text in TEXTS.values():
        assert secret_of(text) not in redacted(f"model {text!r}: no such thing")
    for plain in (
        "s3://bucket/a@b/rows.jsonl",
        "me@host",
        "sk-learn",
        "HuggingFaceTB/SmolLM2-135M-Instruct",
        "monkey=1",
        "a?b",
        "hf://datasets/owner/name@main/x.jsonl",
        "/data/token=1/rows",
        "ray://head:10001",
        "file:///data/@x",
    ):
        assert redacted(plain) == plain


@pytest.mark.slow
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_no_field_takes_one_and_nothing_is_written(tmp_path: Path, calibudget: Any, text: Any) -> None:
    (tmp_path / "rows.jsonl").write_text('{"instruction": "a", "output": "b"}\n' * 3)
    for field, (outer, inner) in FIELDS.items():
        recipe = {"engine": "fake", "model": "m", "budget": 1, "error": "nll", "sources": {"a": {"answer": "none"}}}
        if outer == "sources":
            recipe["sources"]["a"][inner] = text  # type: ignore[index]
        else:
            recipe["sources"]["a"]["path"] = "rows.jsonl"  # type: ignore[index]
            recipe[outer] = {inner: text} if inner else text
        path = tmp_path / "recipe.yaml"
        path.write_text(json.dumps(recipe))
        told = calibudget("run", path, "--output-dir", tmp_path / "out")
        said = told.out + told.err
        assert (field, told.code) == (field, 2), said
        assert "credential" in said
        assert secret_of(text) not in said
        assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize("text", [TEXTS["user"], TEXTS["hub"]])
def test_no_option_or_override_repeats_one(tmp_path: Path, calibudget: Any, text: Any) -> None:
    (tmp_path / "rows.jsonl").write_text('{"instruction": "a", "output": "b"}\n' * 3)
    recipe = {"engine": "fake", "model": "m", "budget": 1, "error": "nll"}
    recipe["sources"] = {"a": {"path": "rows.jsonl", "answer": "none"}}
    path = tmp_path / "recipe.yaml"
    path.write_text(json.dumps(recipe))
    for arguments in (
        ("run", path, f"model={text}"),
        ("run", path, f"nonesuch={text}"),
        ("evaluate", text, "--tasks", "boolq", "--output-dir", tmp_path / "e"),
        ("verify", text),
    ):
        told = calibudget(*arguments)
        assert told.code == 2, told.err
        assert secret_of(text) not in told.out + told.err
