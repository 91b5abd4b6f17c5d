"""`calibudget export`: exit codes, and that a refusal leaves nothing behind."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest


def test_a_hand_over_tells_what_is_taught_and_what_starts_it(two_fruits: Path, tmp_path: Path, calibudget: Any) -> None:
    done = calibudget("export", two_fruits, "--for", "axolotl", "--output-dir", tmp_path / "out", "rank=4")
    assert done.code == 0, done.err
    fields = json.loads((tmp_path / "out" / "export.json").read_bytes())
    assert f"15 rows, {fields['taught_tokens']:,} of {fields['tokens']:,} tokens taught" in done.out
    assert f"cd {tmp_path / 'out'} && axolotl train config.yaml" in done.out


@pytest.mark.parametrize(
    ("trainer", "more", "said"),
    [
        ("axolotI", [], "did you mean 'axolotl'?"),
        ("trl", ["--push", "me/rows"], "--push belongs to --for huggingface"),
        ("huggingface", ["--push", "me/rows"], "no token is set"),
        ("trl", ["--check", "--python", "nowhere/python"], "nowhere/python: can't be run"),
        ("trl", ["rank=0"], "rank"),
        ("torchtune", ["schedule=linear"], "has no schedule 'linear'"),
    ],
)
def test_what_cannot_be_handed_over_is_refused_by_name(
    two_fruits: Path,
    tmp_path: Path,
    calibudget: Any,
    monkeypatch: pytest.MonkeyPatch,
    trainer: str,
    more: list[str],
    said: str,
) -> None:
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    refused = calibudget("export", two_fruits, "--for", trainer, "--output-dir", tmp_path / "new" / "out", *more)
    assert (refused.code, refused.out) == (2, "")
    assert said in refused.err
    assert not list(tmp_path.iterdir())


def test_a_run_that_was_changed_is_not_handed_over(two_fruits: Path, tmp_path: Path, calibudget: Any) -> None:
    run_dir = shutil.copytree(two_fruits, tmp_path / "run")
    rows = (run_dir / "train.jsonl").read_bytes()
    (run_dir / "train.jsonl").write_bytes(rows.replace(b"apples", b"apricots", 1))
    for trainer in ("trl", "huggingface", "croissant", "megatron"):
        refused = calibudget("export", run_dir, "--for", trainer, "--output-dir", tmp_path / "out")
        assert refused.code == 2
        assert "train.jsonl" in refused.err
        assert [path.name for path in tmp_path.iterdir()] == ["run"]
