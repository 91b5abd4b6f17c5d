"""A run whose sources lie in a store: the selection of their local copies, and a clear end when the store is gone."""

from __future__ import annotations

import json
import socket
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import DataError
from calibudget.pipeline.run import run
from calibudget.pipeline.verify import verify
from calibudget.recipe.load import load_recipe


def urls(recipe: Path, bucket: Any) -> Any:
    """The recipe with its files put into the bucket and named by URL."""
    for name in ("boolq", "piqa", "math"):
        bucket.put_file(str(recipe.parent / "data" / f"{name}.jsonl"), f"rows/{name}.jsonl")
    path = recipe.with_name("remote.yaml")
    path.write_text(recipe.read_text().replace("{path: ", "{path: s3://rows/"))
    return path


@pytest.mark.slow
def test_a_run_from_a_store_selects_what_the_local_run_selects(
    tmp_path: Path, make_recipe: Any, s3_bucket: Any
) -> None:
    recipe = make_recipe()
    local = run(load_recipe(recipe), tmp_path / "local")
    remote = run(load_recipe(urls(recipe, s3_bucket)), tmp_path / "remote")
    for name in ("splits.parquet", "scores.parquet", "allocation.json", "selection.json", "train.jsonl"):
        assert (local.directory / name).read_bytes() == (remote.directory / name).read_bytes()
    evidence = [json.loads((found.directory / "manifest.json").read_text())["sources"] for found in (local, remote)]
    for label, row in evidence[1].items():
        bound = [dict(file) for file in evidence[0][label]["files"]]
        assert row["files"] == [{**file, "name": f"s3://rows/{file['name']}"} for file in bound]
    assert verify(remote.directory, data_dir=tmp_path).differences == ()
    for path in remote.directory.rglob("*"):
        assert path.is_dir() or b"a-secret" not in path.read_bytes()


@pytest.mark.slow
def test_a_store_that_is_gone_ends_the_run_with_code_2_and_nothing_written(
    tmp_path: Path, make_recipe: Any, s3_bucket: Any, s3_endpoint: Any
) -> None:
    recipe = load_recipe(urls(make_recipe(), s3_bucket))
    with closing(socket.create_server(("127.0.0.1", 0))) as unused:
        port = unused.getsockname()[1]
    s3_endpoint(f"http://127.0.0.1:{port}", config_kwargs={"retries": {"total_max_attempts": 1}})
    with pytest.raises(DataError, match=r"^source 'boolq': s3://rows/boolq\.jsonl: can't be read: Could not") as caught:
        run(recipe, tmp_path / "run")
    assert caught.value.exit_code == 2
    assert [path.name for path in (tmp_path / "run").glob("*") if not path.name.startswith(".")] == []
