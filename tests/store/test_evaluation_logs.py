"""Logs of exported records as lm-eval 0.4.13 (a tiny random model) and inspect_ai 0.3.285 (a mock model) wrote them."""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import ArtefactError
from calibudget.store.evaluation_logs import inspect_rows, lm_eval_rows
from calibudget.store.scores import read_scores_file
from tests.conftest import write_rows

LOGS = Path(__file__).parent / "logs"
NLL, GENERATED, CHOICES = (next(LOGS.glob(f"samples_{task}_*")) for task in ("calib_nll", "calib_gen", "arc_mc"))
INSPECT = next(LOGS.glob("*.eval"))


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_summed_log_probability_becomes_the_mean_over_the_exported_tokens() -> None:
    found = read_scores_file(NLL)
    assert found.error == "nll"  # that greedy decoding gives the response to the letter isn't a verdict
    expected = {
        (row["doc"]["source"], row["doc"]["record_id"]): -float(row["resps"][0][0][0]) / row["doc"]["response_tokens"]
        for row in rows(NLL)
    }
    assert {(score.source, score.record_id): score.nll for score in found.scores} == expected
    assert {score.source for score in found.scores} == {"arc", "boolq"}


def test_files_that_say_different_things_are_joined_by_record() -> None:
    found = read_scores_file(NLL, INSPECT)
    assert found.error == "nll+wrong"
    right = {str(row["record_id"]): bool(row["correct"]) for _, row in inspect_rows(INSPECT, None)}
    assert {score.record_id: score.correct for score in found.scores} == right
    assert sorted(right.values()) != [False] * 4
    assert found == read_scores_file(INSPECT, NLL)
    judged = read_scores_file(NLL, INSPECT, judge=lambda source, _, text: (text.endswith("answer4"), source))
    assert {score.prediction for score in judged.scores} == {"arc", "boolq"}
    named = read_scores_file(NLL, INSPECT, verdict="includes", judge=lambda *_: (None, "never"))
    assert named.scores == found.scores


def test_a_filter_of_several_is_to_be_named() -> None:
    with pytest.raises(ArtefactError, match="the filters first, plain; say which with --verdict METRIC,FILTER"):
        read_scores_file(NLL, GENERATED)
    with pytest.raises(ArtefactError, match="the filters first, plain"):
        read_scores_file(GENERATED, verdict="exact_match,last")
    with pytest.raises(ArtefactError, match="has no verdict 'acc'"):
        read_scores_file(GENERATED, verdict="acc,plain")
    with pytest.raises(ArtefactError, match="acc, acc_norm may say what is right"):
        read_scores_file(CHOICES)


def test_a_log_that_tells_no_tokens_is_refused_with_the_way_out() -> None:
    with pytest.raises(ArtefactError, match=r"response_tokens: is missing .* `calibudget score --export`"):
        read_scores_file(CHOICES, verdict="acc")


def test_the_gold_choice_is_the_response(tmp_path: Path) -> None:
    lines = [row | {"doc": row["doc"] | {"response_tokens": 2}} for row in rows(CHOICES)]
    found = read_scores_file(write_rows(tmp_path / CHOICES.name, lines), verdict="acc")
    assert [(score.source, score.record_id, score.correct) for score in found.scores] == [
        ("arc_mc", "0", False),
        ("arc_mc", "1", False),
    ]
    assert [score.nll for score in found.scores] == [24.075393676757812 / 2, 28.799560546875 / 2]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"resps": [[["nan", "False"]]], "filtered_resps": [["nan", "False"]]}, "a finite log-probability, not 'nan'"),
        ({"filtered_resps": [["x", "False"]]}, "a finite log-probability, not 'x'"),
    ],
)
def test_faults_of_lm_eval_name_their_line(tmp_path: Path, change: Any, said: str) -> None:
    lines = rows(NLL)
    lines[2] |= change
    with pytest.raises(ArtefactError, match=r"^samples_x\.jsonl:3: ") as caught:
        read_scores_file(write_rows(tmp_path / "samples_x.jsonl", lines))
    assert said in str(caught.value)


def test_a_record_twice_is_refused_by_name(tmp_path: Path) -> None:
    twice = write_rows(tmp_path / "twice.jsonl", [*rows(NLL), rows(NLL)[0]])
    with pytest.raises(ArtefactError, match=r":5: record_id: .* was scored at .*:1 already"):
        read_scores_file(twice)
    with pytest.raises(ArtefactError, match=r":1: record_id: .* its logprob stands in samples_calib_nll"):
        read_scores_file(NLL, twice)
    with pytest.raises(ArtefactError, match=r":5: record_id: .* stands there twice"):
        read_scores_file(INSPECT, twice)


@pytest.fixture
def log() -> dict[str, Any]:
    """The log as Inspect writes it with `--log-format json`, without what isn't read."""
    samples = [
        {
            "id": row["record_id"],
            "epoch": 1,
            "metadata": {"source": row["source"]},
            "output": {"completion": row["text"]},
            "scores": {"includes": {"value": "C" if row["correct"] else "I"}},
        }
        for _, row in inspect_rows(INSPECT, None)
    ]
    return {"version": 2, "status": "success", "eval": {"task": "calib"}, "samples": samples}


def test_the_json_form_says_the_same(tmp_path: Path, log: dict[str, Any]) -> None:
    (tmp_path / "log.json").write_text(json.dumps(log))
    assert [row for _, row in inspect_rows(tmp_path / "log.json", None)] == [
        row for _, row in inspect_rows(INSPECT, None)
    ]


def test_a_scorer_may_measure_the_loss_as_well(tmp_path: Path, log: dict[str, Any]) -> None:
    for number, sample in enumerate(log["samples"]):
        sample["scores"]["loss"] = {"value": {"nll": number + 0.5, "response_tokens": 3}}
    (tmp_path / "log.json").write_text(json.dumps(log))
    assert sorted(score.nll for score in read_scores_file(tmp_path / "log.json").scores) == [0.5, 1.5, 2.5, 3.5]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda log: log.update(status="error"), "the evaluation must have ended well, not 'error'"),
        (lambda log: log["samples"][1].update(error={"message": "x"}), "sample 2: the sample failed"),
        (lambda log: log["samples"][1].update(epoch=2), "sample 2: epoch 2"),
        (lambda log: log["samples"][0]["scores"].update(match={"value": 1.0}), "includes, match may say what is right"),
        (lambda log: log["samples"][0]["scores"]["includes"].update(value="P"), "must be right or wrong"),
        (lambda log: log.update(samples=None), "isn't a log of Inspect with samples"),
        (lambda log: log, "nll: is missing"),
    ],
)
def test_faults_of_inspect_are_named(
    tmp_path: Path, log: dict[str, Any], change: Callable[[dict[str, Any]], object], said: str
) -> None:
    change(log)
    (tmp_path / "log.json").write_text(json.dumps(log))
    with pytest.raises(ArtefactError, match=r"^log\.json[:,]") as caught:
        read_scores_file(tmp_path / "log.json")
    assert said in str(caught.value)


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    data = bytearray(INSPECT.read_bytes())
    with zipfile.ZipFile(INSPECT) as archive:
        member = next(one for one in archive.infolist() if one.filename.startswith("samples/"))
    data[member.header_offset + member.compress_size // 2] ^= 1
    for name, broken in (("flipped.eval", bytes(data)), ("torn.eval", bytes(data[:3000])), ("text.eval", b"{}")):
        (tmp_path / name).write_bytes(broken)
        with pytest.raises(ArtefactError, match=rf"^{name}: isn't a whole log of Inspect: [^N]"):
            read_scores_file(tmp_path / name)


def test_a_scorers_own_lines_may_carry_the_export_back(tmp_path: Path) -> None:
    exported = rows(NLL)[0]["doc"]
    line = exported | {"logprob": -6.0, "text": "the correct answer is answer4"}
    found = read_scores_file(write_rows(tmp_path / "back.jsonl", [line]), judge=lambda *_: (True, "answer4"))
    (score,) = found.scores
    assert (score.nll, score.correct, score.prediction) == (6.0 / exported["response_tokens"], True, "answer4")
    assert math.isclose(score.error, score.nll)
    with pytest.raises(ArtefactError, match="stand instead of `nll`"):
        read_scores_file(write_rows(tmp_path / "both.jsonl", [line | {"nll": 1.0}]))


def changed(value: Any, junk: Any) -> Iterator[Any]:
    """Copies of a row, each with junk in place of one part of it."""
    yield junk
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        for part in changed(value[key], junk):
            copy = value.copy()
            copy[key] = part
            yield copy


@pytest.mark.parametrize("junk", [None, 5, "", [], {}, [[]], True, 10**400], ids=lambda junk: f"{junk!r:.9}")
def test_junk_anywhere_in_a_log_is_refused_or_harmless(tmp_path: Path, log: dict[str, Any], junk: Any) -> None:
    logs = [(path.name, one) for path in (CHOICES, GENERATED, NLL) for one in changed(rows(path)[0], junk)]
    whole = log | {"samples": log["samples"][:1]}
    logs += [("log.json", one) for one in changed(whole, junk)]
    assert len(logs) > 100
    for name, one in logs:
        (tmp_path / name).write_text(json.dumps(one))
        with suppress(ArtefactError):
            read_scores_file(tmp_path / name)


def test_a_sample_that_says_less_is_read_with_what_the_log_says(tmp_path: Path, log: dict[str, Any]) -> None:
    first, second = log["samples"][:2]
    del first["metadata"], first["epoch"], first["scores"]
    second["scores"] = {"match": {"value": 1}, "includes": {"value": "I"}}
    log["samples"] = [first, second]
    (tmp_path / "log.json").write_text(json.dumps(log))
    with pytest.raises(ArtefactError, match="has no verdict 'match'"):
        list(inspect_rows(tmp_path / "log.json", "match"))
    first["scores"] = {"match": {"value": 0.0}}
    (tmp_path / "log.json").write_text(json.dumps(log))
    read = [row for _, row in inspect_rows(tmp_path / "log.json", "match")]
    assert [row["correct"] for row in read] == [False, True]
    assert read[0]["source"] == "calib"
    del first["scores"]
    (tmp_path / "log.json").write_text(json.dumps(log | {"samples": [first]}))
    ((_, row),) = inspect_rows(tmp_path / "log.json", None)
    assert set(row) == {"source", "record_id", "text"}


def test_a_sum_of_nats_in_a_scorers_value_is_divided(tmp_path: Path, log: dict[str, Any]) -> None:
    for sample in log["samples"]:
        sample["scores"]["loss"] = {"value": {"logprob": -6.0, "response_tokens": 1}}
    (tmp_path / "log.json").write_text(json.dumps(log))
    found = read_scores_file(tmp_path / "log.json", verdict="includes")
    assert {score.nll for score in found.scores} == {6.0}


def test_generated_texts_are_those_of_the_filter(tmp_path: Path) -> None:
    lines = [row for row in rows(GENERATED) if row["filter"] == "plain"]
    asked: list[tuple[str, str, str]] = []

    def judge(*named: str) -> tuple[bool, str]:
        asked.append(named)  # type: ignore[arg-type]
        return True, "it"

    losses = write_rows(tmp_path / "losses.jsonl", [_loss(row) for row in lines])
    found = read_scores_file(losses, GENERATED, verdict="exact_match,plain", judge=None)
    right = {row["doc"]["record_id"]: bool(row["exact_match"]) for row in lines}
    assert {score.record_id: score.correct for score in found.scores} == right
    plain = write_rows(tmp_path / GENERATED.name, lines)
    read_scores_file(losses, plain, judge=judge)
    texts = {(row["doc"]["source"], row["doc"]["record_id"], row["resps"][0][0]) for row in lines}
    assert set(asked) == texts


def _loss(row: dict[str, Any]) -> dict[str, Any]:
    return {"source": row["doc"]["source"], "record_id": row["doc"]["record_id"], "nll": 1.0}


@pytest.mark.parametrize("target", ["-1", "99", "x", None])
def test_a_choice_that_isnt_there_is_refused_by_line(tmp_path: Path, target: Any) -> None:
    lines = rows(CHOICES)
    lines[1] |= {"target": target}
    with pytest.raises(ArtefactError, match=r"^samples_y\.jsonl:2: target: must be the number of a choice"):
        read_scores_file(write_rows(tmp_path / "samples_y.jsonl", lines), verdict="acc")
    lines[1] |= {"target": len(lines[1]["resps"])}
    with pytest.raises(ArtefactError, match=":2: target"):
        read_scores_file(write_rows(tmp_path / "samples_y.jsonl", lines), verdict="acc")


def test_what_isnt_built_as_its_writer_builds_it_names_writer_and_place(tmp_path: Path, log: dict[str, Any]) -> None:
    lines = rows(NLL)
    lines[1] |= {"metrics": 5}
    with pytest.raises(ArtefactError, match=r"^samples_z\.jsonl:2: can't be read as lm-eval writes it: TypeError"):
        read_scores_file(write_rows(tmp_path / "samples_z.jsonl", lines))
    log["samples"][1]["scores"] = 5
    (tmp_path / "log.json").write_text(json.dumps(log))
    with pytest.raises(ArtefactError, match=r"^log\.json, sample 2: can't be read as Inspect writes it: Attribute"):
        read_scores_file(tmp_path / "log.json")
    (tmp_path / "log.json").write_text("{")
    with pytest.raises(ArtefactError, match=r"^log\.json: not valid JSON"):
        read_scores_file(tmp_path / "log.json")
    row = {"source": "a", "record_id": "1", "response_tokens": 2}
    for logprob, said in (
        (10**400, "a scorer writes it: OverflowError"),
        (True, "must be a number"),
        ("1", "a number"),
    ):
        with pytest.raises(ArtefactError, match=r"^own\.jsonl:1: logprob: ") as caught:
            read_scores_file(write_rows(tmp_path / "own.jsonl", [row | {"logprob": logprob}]))
        assert said in str(caught.value)


def test_the_same_id_of_two_sources_is_two_records(tmp_path: Path) -> None:
    one = write_rows(
        tmp_path / "one.jsonl", [{"source": s, "record_id": "1", "nll": n} for s, n in (("a", 1.0), ("b", 2.0))]
    )
    two = write_rows(tmp_path / "two.jsonl", [{"source": s, "record_id": "1", "correct": True} for s in "ab"])
    assert [score.nll for score in read_scores_file(one, two).scores] == [1.0, 2.0]
    with pytest.raises(ArtefactError, match=r"^one\.jsonl:1: record_id: '1' of 'a': its nll stands in one\.jsonl"):
        read_scores_file(one, one)


#: By name: what differs from a row whose model wrote "ab", the verdict asked for, and what the row comes to.
LINES: dict[str, tuple[dict[str, Any], str | None, dict[str, Any]]] = {
    "no filter": ({"filtered_resps": None}, None, {"text": "ab"}),
    "no list of texts": ({"resps": ["ab"]}, None, {"text": "ab"}),
    "no metrics": ({"metrics": ["acc"], "acc": 1.0}, None, {"text": "ab", "correct": True}),
    "one of them a verdict": ({"metrics": ["f1", "em"], "f1": 0.3, "em": 0}, None, {"text": "ab", "correct": False}),
    "named": ({"metrics": ["f1", "em"], "f1": 1, "em": 0}, "f1", {"text": "ab", "correct": True}),
}


@pytest.mark.parametrize("name", LINES)
def test_what_a_line_of_lm_eval_comes_to(name: str) -> None:
    change, verdict, facts = LINES[name]
    line = {"doc_id": 7, "doc": {}, "resps": [["ab"]], "filtered_resps": ["ab"]} | change
    ((place, found),) = lm_eval_rows([("own.jsonl:1", line)], "own.jsonl", verdict)
    assert (place, found) == ("own.jsonl:1", {"source": "own", "record_id": "7"} | facts)


def test_verdicts_and_choices_of_lm_eval_that_cannot_be_are_refused_by_line() -> None:
    line: dict[str, Any] = {
        "doc_id": 7,
        "doc": {},
        "resps": [["ab"]],
        "filtered_resps": ["ab"],
        "metrics": ["f1", "em"],
    }
    pairs = [["-1", "False"], ["x", "False"]]
    cases: list[tuple[dict[str, Any], str | None, str]] = [
        ({"f1": 0.3, "em": 0}, "f1", "f1: must be right or wrong .* not 0.3"),
        ({"f1": 1, "em": 0}, None, "em, f1 may say what is right"),
        ({"target": 1, "resps": pairs, "filtered_resps": pairs}, None, "resps: must be a finite log-prob.* not 'x'"),
    ]
    for change, verdict, said in cases:
        with pytest.raises(ArtefactError, match=rf"^own\.jsonl:3: {said}"):
            list(lm_eval_rows([("own.jsonl:3", line | change)], "own.jsonl", verdict))


def test_a_line_without_more_than_it_needs_is_one_of_lm_eval(tmp_path: Path) -> None:
    line = {"doc_id": 7, "doc": {"response_tokens": 2}, "resps": [["-3", "False"]]}
    (score,) = read_scores_file(write_rows(tmp_path / "own.jsonl", [line])).scores
    assert (score.source, score.record_id, score.nll) == ("own", "7", 1.5)


def test_of_several_filters_the_named_one_is_read() -> None:
    lines = [(f"a:{k}", row) for k, row in enumerate(rows(GENERATED), start=1)]
    for name in ("first", "plain"):
        found = [place for place, _ in lm_eval_rows(lines, GENERATED.name, f"exact_match,{name}")]
        assert found == [place for place, row in lines if row["filter"] == name]


def test_a_log_in_the_zip_of_other_tools_says_the_same_and_its_faults_name_the_member(tmp_path: Path) -> None:
    rewritten = tmp_path / "log.eval"
    found = list(inspect_rows(INSPECT, None))
    header: dict[str, Any] = {"status": "success", "eval": {"task": "t"}}
    samples: dict[str, Any] = {
        place.partition(", ")[2]: {
            "id": row["record_id"],
            "metadata": {"source": row["source"]},
            "output": {"completion": row["text"]},
            "scores": {"one": {"value": "C" if row["correct"] else "I"}, "two": {"value": "C"}},
        }
        for place, row in found
    }

    def log(members: dict[str, Any]) -> Path:
        with zipfile.ZipFile(rewritten, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, value in members.items():
                archive.writestr(name, json.dumps(value))
        return rewritten

    assert [row for _, row in inspect_rows(log({"header.json": header} | samples), "one")] == [row for _, row in found]
    tokens = [{"source": row["source"], "record_id": row["record_id"], "nll": 1.0} for _, row in found]
    judged = read_scores_file(write_rows(tmp_path / "nll.jsonl", tokens), rewritten, verdict="two")
    assert {score.correct for score in judged.scores} == {True}
    first = next(iter(samples))
    for name, members in (("header.json", {"header.json": 5}), (first, {"header.json": header, first: 5})):
        with pytest.raises(ArtefactError, match=rf"^log\.eval, {name}: the root must be an object"):
            list(inspect_rows(log(members), "one"))
