"""`warm-ups.parquet` and `curves.json`: written, read back bit for bit, and refused with the place of the fault."""

import json
from dataclasses import asdict, replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibudget.errors import ArtefactError
from calibudget.records import Curve, CurveFit
from calibudget.store import (
    CurveReport,
    SourceCurve,
    WarmUpFile,
    WarmUpNll,
    WarmUpRun,
    curves_to_json,
    read_curves,
    read_warm_ups,
    read_warm_ups_file,
    write_curves,
    write_warm_ups,
)


def nll(source, warm_up, exposure, record_id, value=0.1):
    return WarmUpNll(source=source, warm_up=warm_up, exposure=exposure, record_id=record_id, nll=value)


def run_of(number):
    return WarmUpRun(
        examples=10 * number,
        steps=number,
        seconds=1.5,
        selected_sha256="a" * 64,
        adapter_sha256="b" * 64,
        training={"rank": 4, "target_modules": None},
    )


WARM_UPS = WarmUpFile(
    nlls=(
        nll("a", 1, 5, "x", 0.1 + 0.2),
        nll("a", 1, 5, "y", 1e-300),
        nll("a", 2, 10, "x"),
        nll("a", 2, 10, "y"),
        nll("b", 1, 3, "z"),
        nll("b", 2, 6, "z"),
    ),
    unit="examples",
    model={"name": "m", "sha256": "c" * 64},
    runs=(run_of(1), run_of(2)),
)


def test_warm_ups_come_back(tmp_path):
    path = tmp_path / "warm-ups.parquet"
    write_warm_ups(path, replace(WARM_UPS, nlls=tuple(reversed(WARM_UPS.nlls))))
    assert read_warm_ups(path) == WARM_UPS
    assert read_warm_ups_file(path) == WARM_UPS
    first = path.read_bytes()
    write_warm_ups(path, WARM_UPS)
    assert path.read_bytes() == first
    assert WARM_UPS.of("a") == {1: {"x": 0.1 + 0.2, "y": 1e-300}, 2: {"x": 0.1, "y": 0.1}}
    assert WARM_UPS.exposures("a") == {1: 5, 2: 10}
    assert WARM_UPS.labels == ["a", "b"]


def test_lines_made_elsewhere_are_put_in_order(tmp_path):
    path = tmp_path / "w.jsonl"
    lines = [
        {"source": n.source, "exposure": n.exposure, "record_id": n.record_id, "nll": n.nll} for n in WARM_UPS.nlls
    ]
    path.write_text("\n\n".join(json.dumps(line) for line in reversed(lines)))
    assert read_warm_ups_file(path) == WarmUpFile(nlls=WARM_UPS.nlls)
    pq.write_table(pa.Table.from_pylist(lines), tmp_path / "w.parquet")
    assert read_warm_ups_file(tmp_path / "w.parquet") == WarmUpFile(nlls=WARM_UPS.nlls)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"exposure": 0}, r"w\.jsonl: line 1: exposure"),
        ({"exposure": 1.5}, r"line 1: exposure"),
        ({"nll": float("nan")}, "line 1"),
        ({"nll": -0.5}, "line 1: nll"),
        ({"record_id": None}, "line 1: record_id"),
        ({"source": "../x"}, "source"),
        ({"warm_up": 2}, "line 1: warm_up: 2 isn't the place of its exposure"),
        ({"correct": True}, "line 1"),
    ],
)
def test_a_line_that_isnt_one_is_named(tmp_path, line, message):
    row = {"source": "a", "exposure": 5, "record_id": "x", "nll": 0.5} | line
    (tmp_path / "w.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(ArtefactError, match=message):
        read_warm_ups_file(tmp_path / "w.jsonl")


def test_a_record_given_twice_and_an_empty_file_are_refused(tmp_path):
    row = json.dumps({"source": "a", "exposure": 5, "record_id": "x", "nll": 0.5})
    (tmp_path / "w.jsonl").write_text(f"{row}\n{row}\n")
    with pytest.raises(ArtefactError, match="line 2: record_id: 'x' of 'a' after 5 was given at line 1 already"):
        read_warm_ups_file(tmp_path / "w.jsonl")
    (tmp_path / "w.jsonl").write_text("\n")
    with pytest.raises(ArtefactError, match="holds no NLLs"):
        read_warm_ups_file(tmp_path / "w.jsonl")


def test_runs_and_rows_must_agree(tmp_path):
    write_warm_ups(tmp_path / "warm-ups.parquet", replace(WARM_UPS, runs=(run_of(1),)))
    with pytest.raises(ArtefactError, match=r"holds warm-ups \[1, 2\], but describes 1 of them"):
        read_warm_ups(tmp_path / "warm-ups.parquet")


MIXTURES = WarmUpFile(
    nlls=tuple(
        nll(source, number, exposure, record)
        for source, exposures, records in (("a", (5, 10, 5), "xy"), ("b", (3, 3, 6), "z"))
        for number, exposure in enumerate(exposures, start=1)
        for record in records
    ),
    mixtures=True,
)


def test_mixtures_come_back(tmp_path):
    path = tmp_path / "warm-ups.parquet"
    write_warm_ups(path, MIXTURES)
    assert read_warm_ups(path) == read_warm_ups_file(path) == MIXTURES
    assert MIXTURES.exposures("a") == {1: 5, 2: 10, 3: 5}
    lines = [asdict(one) for one in reversed(MIXTURES.nlls)]
    (tmp_path / "w.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert read_warm_ups_file(tmp_path / "w.jsonl", mixtures=True) == MIXTURES
    with pytest.raises(ArtefactError, match="was given at"):
        read_warm_ups_file(tmp_path / "w.jsonl")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"warm_up": None}, "line 9: warm_up: is missing"),
        ({"warm_up": 1}, "line 9: record_id: 'z' of 'b' after warm-up 1 was given at line 7 already"),
        ({"record_id": "v", "warm_up": 2}, "line 9: exposure: 6 of 'b' in warm-up 2, which has 3 of it"),
    ],
)
def test_mixtures_name_their_warm_up(tmp_path, change, message):
    rows = [asdict(one) for one in MIXTURES.nlls]
    rows[-1] |= change
    (tmp_path / "w.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(ArtefactError, match=message):
        read_warm_ups_file(tmp_path / "w.jsonl", mixtures=True)


REPORT = CurveReport(
    form="power",
    shrink=True,
    run_sd=0.01,
    resamples=20,
    bootstrap_seed=7,
    prior=(0.1, 0.02),
    importance={"a": 1.0, "b": 0.5},
    sources={
        label: SourceCurve(
            exposures=(5, 10),
            fit=CurveFit(
                curve=Curve(exposure=10, level=0.7, slope=0.1, exponent=0.5),
                raw_slope=-0.1,
                slope_sd=0.2,
                interval=(-0.5, 0.3),
                verdict="flat",
                records_needed=None,
            ),
            quota_interval=(10, 20),
            predicted_nll=0.5,
        )
        for label in ("a", "b")
    },
    predicted_nll=0.5,
    prediction_interval=(0.4, 0.6),
)


def test_curves_come_back(tmp_path):
    bare = replace(REPORT, prior=None, importance=None, predicted_nll=None, prediction_interval=None)
    transfer = {"a": {"a": 0.1, "b": -0.02}, "b": {"a": 0.0, "b": 0.3}}
    for report in (REPORT, bare, replace(REPORT, transfer=transfer)):
        write_curves(tmp_path / "curves.json", report)
        assert read_curves(tmp_path / "curves.json") == report
    assert REPORT.curves["a"] == Curve(exposure=10, level=0.7, slope=0.1, exponent=0.5)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("form",), "cubic"),
        (("sources",), {}),
        (("sources", "a", "slope"), -0.1),
        (("sources", "a", "exposures"), []),
        (("sources", "a", "exposures"), [0, 1]),
        (("sources", "a", "verdict"), "steep"),
        (("sources", "a", "quota_interval"), [1]),
        (("sources", "a", "extra"), 1),
        (("prior", "variance"), -1),
        (("importance", "a"), -1),
        (("prediction_interval",), [1, 2, 3]),
        (("extra",), 1),
    ],
)
def test_a_field_that_isnt_one_is_named(tmp_path, place, value):
    body = json.loads(json.dumps(curves_to_json(REPORT)))
    target = body
    for name in place[:-1]:
        target = target[name]
    target[place[-1]] = value
    (tmp_path / "curves.json").write_text(json.dumps(body))
    with pytest.raises(ArtefactError, match=place[-1]):
        read_curves(tmp_path / "curves.json")
