"""The testbed's command; a whole run of it is in tests/study/testbed."""

import gzip
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from calibudget.cli import testbed
from calibudget.errors import ArtefactError, InputError, RecipeError

ROOT = Path(__file__).parents[2]
PROTOCOL = ROOT / "examples" / "testbed" / "protocol.yaml"


@pytest.fixture
def invoke():
    app = typer.Typer()
    app.command()(testbed.command)
    return lambda *arguments: CliRunner().invoke(app, [str(part) for part in arguments])


@pytest.mark.full
def test_tables_of_the_committed_results_are_printed(invoke, tmp_path):
    packed = ROOT / "benchmarks" / "results" / "testbed" / "results.jsonl.gz"
    (tmp_path / "results.jsonl").write_bytes(gzip.decompress(packed.read_bytes()))
    result = invoke(PROTOCOL, "--output-dir", tmp_path, "--tables")
    assert result.exit_code == 0, result.output
    assert "| calibudget | 10 | 0.6993 (0.0068) |" in result.output


def test_results_that_are_not_there_are_named(invoke, tmp_path):
    error = invoke(PROTOCOL, "--output-dir", tmp_path / "none", "--tables").exception
    assert isinstance(error, ArtefactError)
    assert "holds no results of this protocol" in str(error)


def test_a_protocol_that_cannot_be_read_is_named(invoke, tmp_path):
    (tmp_path / "bad.yaml").write_text("name: x\nname: y\n", encoding="utf-8")
    error = invoke(tmp_path / "bad.yaml", "--output-dir", tmp_path, "--tables").exception
    assert isinstance(error, RecipeError)
    assert "bad.yaml:2" in str(error)


def test_gpus_are_numbers():
    assert testbed._gpus("0,1") == [0, 1]
    assert testbed._gpus("") == []
    with pytest.raises(InputError, match="--gpus 'all'"):
        testbed._gpus("all")
