"""The committed results of the testbed say what the documents say."""

import gzip
from pathlib import Path

import pytest

from calibudget.study.statistics import effects
from calibudget.study.testbed.analysis import finished, t_interval
from calibudget.study.testbed.protocol import read_protocol
from calibudget.study.testbed.report import markdown
from calibudget.study.testbed.results import Results

COMMITTED = Path(__file__).parents[3] / "benchmarks" / "results" / "testbed"


@pytest.fixture(scope="module")
def protocol(protocol_path):
    return read_protocol(protocol_path)


@pytest.fixture(scope="module")
def results(tmp_path_factory, protocol):
    path = tmp_path_factory.mktemp("committed") / "results.jsonl"
    path.write_bytes(gzip.decompress((COMMITTED / "results.jsonl.gz").read_bytes()))
    return Results.read(path, protocol.sha256)


@pytest.mark.slow
def test_the_headline_differences_come_out_of_the_committed_lines(protocol, results):
    point = finished(protocol, results)["paper"]
    macro = {policy: point.macro(policy, "nll") for policy in point.policies}
    found = effects(macro["calibudget"], macro["val-error-floor"])
    assert found.seeds == 10
    assert (round(found.mean, 4), round(found.sd, 4)) == (-0.0355, 0.0118)
    assert t_interval(found) == pytest.approx((-0.0439, -0.0270), abs=1e-4)
    shared = macro["chosen"].keys() & macro["calibudget"].keys()
    chosen = effects(macro["chosen"], {seed: macro["calibudget"][seed] for seed in shared})
    assert (chosen.seeds, round(chosen.mean, 4)) == (8, -0.0840)
    # and without the family whose sentences repeat, the sign turns
    assert round(point.without("chosen", "calibudget", "caesar_cipher").mean, 4) == 0.0770
    assert round(point.without("calibudget", "val-error-floor", "caesar_cipher").mean, 4) == -0.0309


@pytest.mark.slow
def test_every_confirmatory_cell_is_of_the_frozen_protocol_and_one_code(protocol, results):
    cells = list(results.lines("cell"))
    assert len({cell["code"] for cell in cells}) == 1
    counts = {name: sum(cell["point"] == name for cell in cells) for name in ("paper", "choose", "curves", "mixing")}
    assert counts == {"paper": 60, "choose": 14, "curves": 39, "mixing": 0}
    for cell in cells:
        if cell["policy"] not in ("chosen-charged", "lc-25-50-charged", "lc-checkpoints-charged"):
            assert sum(cell["quotas"].values()) == protocol.point(cell["point"]).budget


@pytest.mark.full
def test_the_committed_tables_are_written_again_byte_for_byte(protocol, results):
    text = (COMMITTED / "tables.md").read_text(encoding="utf-8")
    assert text.endswith(markdown(protocol, results))
