"""What a recipe's hygiene does with prompts of evaluation sets and with records that two sources hold."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import DataError
from calibudget.pipeline.prepare import prepare
from calibudget.pipeline.run import run
from calibudget.pipeline.run_notes import noticed
from calibudget.pipeline.verify import verify
from calibudget.recipe.load import load_recipe
from calibudget.sources import cache_files
from calibudget.sources.inputs import FileInput


def manifest(directory: Path) -> Any:
    return json.loads((directory / "manifest.json").read_text())["sources"]


@pytest.fixture
def exam(tmp_path: Path, make_recipe: Any) -> Any:
    """A recipe, and an evaluation set with three prompts of boolq (in another case) and one of piqa."""
    path = make_recipe()
    prompts = [*(f"BOOLQ question {n}?" for n in (4, 9, 11)), "piqa  question 7?", "another?"]
    rows = [json.dumps({"instruction": prompt, "output": "true"}) + "\n" for prompt in prompts]
    (tmp_path / "data" / "exam.jsonl").write_text("".join(rows))
    return path


EXAM = "hygiene.evaluation={exam: {path: exam.jsonl, answer: none}}"


def test_prompts_of_an_evaluation_set_leave_the_sources_and_are_counted(exam: Any, tmp_path: Path) -> None:
    result = run(load_recipe(exam, [EXAM]), tmp_path / "run")
    rows = [json.loads(line) for line in (tmp_path / "run" / "train.jsonl").read_text().splitlines()]
    prompts = {row["prompt"] for row in rows}
    assert not prompts & {"boolq question 4?", "boolq question 9?", "boolq question 11?", "piqa question 7?"}
    sources = manifest(tmp_path / "run")
    assert (sources["boolq"]["barred"], sources["piqa"]["barred"]) == (3, 1)
    assert sources["boolq"]["pool_size"] == 30 - 5 - 3
    assert result.hygiene is not None
    found = "\n".join(one.line for one in noticed(result.hygiene))
    assert "boolq: 3 that repeat an earlier record, left out\nboolq: 3 with a prompt of the evaluation set" in found
    assert not verify(tmp_path / "run", data_dir=tmp_path / "data").differences


def test_they_may_be_kept_and_are_told_or_refused_by_their_line(exam: Any, tmp_path: Path) -> None:
    recipe = load_recipe(exam, [EXAM, "hygiene.evaluation_prompts=keep", "calibration.per_source=2"])
    result = run(recipe, tmp_path / "run")
    assert manifest(tmp_path / "run")["boolq"]["barred"] == 0
    assert result.hygiene.sources["boolq"].prompts.evaluation == {"exam": 3}  # type: ignore[union-attr]
    with pytest.raises(
        DataError, match=r"source 'boolq': boolq\.jsonl:5 has a prompt of the evaluation set 'exam', as 2 more do"
    ):
        run(load_recipe(exam, [EXAM, "hygiene.evaluation_prompts=refuse"]), tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_record_of_two_sources_stays_in_the_first_or_is_refused(make_recipe: Any, tmp_path: Path) -> None:
    recipe = make_recipe()
    twin = (tmp_path / "data" / "boolq.jsonl").read_text().splitlines()[8]
    with (tmp_path / "data" / "piqa.jsonl").open("a") as handle:
        handle.write(twin + "\n")
    run(load_recipe(recipe), tmp_path / "kept")
    assert manifest(tmp_path / "kept")["piqa"]["pool_size"] == 40 + 1 - 5
    run(load_recipe(recipe, ["hygiene.cross_source=drop"]), tmp_path / "dropped")
    dropped = manifest(tmp_path / "dropped")
    assert (dropped["boolq"]["barred"], dropped["piqa"]["barred"]) == (0, 1)
    assert not verify(tmp_path / "dropped", data_dir=tmp_path / "data").differences
    with pytest.raises(DataError, match=r"source 'piqa': piqa\.jsonl:44 stands as it is in the source 'boolq'; "):
        run(load_recipe(recipe, ["hygiene.cross_source=refuse"]), tmp_path / "refused")


def report(directory: Path) -> Any:
    return json.loads((directory / "hygiene.json").read_text())


LONG = "please tell me which of the two ways to cook rice without a pot takes less time in the end"


@pytest.fixture
def meeting(tmp_path: Path, make_recipe: Any) -> Any:
    """A recipe, and an evaluation set of which boolq's twelfth record and the companion's last hold a long run."""
    path = make_recipe()
    for name in ("boolq", "math"):
        file = tmp_path / "data" / f"{name}.jsonl"
        rows = file.read_text().splitlines()
        at = 11 if name == "boolq" else -1
        rows[at] = json.dumps({"instruction": f"{name}: {LONG.upper()}!", "output": "the correct answer is true"})
        file.write_text("".join(row + "\n" for row in rows))
    (tmp_path / "data" / "exam.jsonl").write_text(json.dumps({"instruction": f"{LONG}?", "output": "true"}) + "\n")
    return path


@pytest.mark.slow
def test_shared_runs_of_words_are_kept_dropped_or_refused(meeting: Any, tmp_path: Path) -> None:
    run(load_recipe(meeting, [EXAM]), tmp_path / "kept")
    found = report(tmp_path / "kept")["sources"]["boolq"]["checks"]["contamination"]["evaluation exam"]
    assert (found["records"], found["others"], len(found["record_ids"])) == (1, 1, 1)
    assert report(tmp_path / "kept")["companion"]["checks"]["contamination"]["evaluation exam"]["records"] == 1
    assert manifest(tmp_path / "kept")["boolq"]["barred"] == 0
    run(load_recipe(meeting, [EXAM, "hygiene.contamination=drop"]), tmp_path / "dropped")
    assert manifest(tmp_path / "dropped")["boolq"]["barred"] == 1
    assert found["record_ids"][0] not in (tmp_path / "dropped" / "train.jsonl").read_text()
    for directory in ("kept", "dropped"):
        assert not verify(tmp_path / directory, data_dir=tmp_path / "data").differences
    with pytest.raises(DataError, match=r"source 'boolq': boolq\.jsonl:12 shares a run of words with the"):
        run(load_recipe(meeting, [EXAM, "hygiene.contamination=refuse"]), tmp_path / "refused")
    assert not (tmp_path / "refused").exists()
    longer = ["hygiene.contamination={ngram: 40, action: refuse}"]
    run(load_recipe(meeting, [EXAM, *longer]), tmp_path / "longer")
    run(load_recipe(meeting, [EXAM, "hygiene.contamination=null"]), tmp_path / "off")
    assert report(tmp_path / "longer")["sources"]["boolq"]["checks"] == {}
    assert report(tmp_path / "off")["rules"]["contamination"] is None


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The names of the files that are read whole, in order."""
    names = []
    blocks = FileInput.blocks

    def counted(given: Any) -> Any:
        names.append(given.file.name)
        return blocks(given)

    monkeypatch.setattr(FileInput, "blocks", counted)
    monkeypatch.setattr(cache_files, "SMALL", 0)
    return names


ALL = ["boolq.jsonl", "exam.jsonl", "math.jsonl", "piqa.jsonl"]


@pytest.mark.parametrize("near", ["null", pytest.param("keep", marks=pytest.mark.slow)])
def test_a_second_run_reads_no_text_for_what_was_found(meeting: Any, tmp_path: Path, reads: Any, near: str) -> None:
    if near == "keep":
        pytest.importorskip("datasketch")
    own = [EXAM, f"hygiene.near_duplicates={near}"]
    expected = prepare(load_recipe(meeting, [*own, "cache=false"])).findings
    assert expected.checks["boolq"]["contamination"]["evaluation exam"].records == 1
    kept = [*own, f"cache={json.dumps(str(tmp_path / 'kept'))}"]
    reads.clear()
    assert prepare(load_recipe(meeting, kept)).findings == expected
    assert sorted(set(reads)) == ALL
    reads.clear()
    assert prepare(load_recipe(meeting, kept)).findings == expected
    assert reads == []
    for file in (tmp_path / "kept").iterdir():
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    assert prepare(load_recipe(meeting, kept)).findings == expected
    assert sorted(set(reads)) == ALL


@pytest.mark.parametrize(
    ("file", "override", "read", "found"),
    [
        ("piqa.jsonl", None, ["piqa.jsonl", "piqa.jsonl", "exam.jsonl"], 1),
        ("exam.jsonl", None, ["exam.jsonl", "exam.jsonl", "boolq.jsonl", "piqa.jsonl"], 0),
        (None, "hygiene.contamination={action: keep, ngram: 40}", ["exam.jsonl", "boolq.jsonl", "piqa.jsonl"], 0),
        (None, "seed=7", [], 1),
    ],
    ids=["source", "evaluation set", "ngram", "seed"],
)
def test_another_byte_or_rule_is_looked_at_again(
    meeting: Any, tmp_path: Path, reads: Any, file: str | None, override: str | None, read: Any, found: int
) -> None:
    kept = [EXAM, f"cache={json.dumps(str(tmp_path / 'kept'))}", *([override] if override else [])]
    prepare(load_recipe(meeting, kept[:2]))
    if file:
        path = tmp_path / "data" / file
        path.write_text(path.read_text().replace("rice" if file == "exam.jsonl" else "question 7", "XXXX"))
    reads.clear()
    checks = prepare(load_recipe(meeting, kept)).findings.checks["boolq"]
    assert sorted(reads) == sorted(read)
    assert len(checks.get("contamination", {})) == found


def test_a_companion_set_that_asks_an_evaluation_prompt_is_told_and_can_be_refused(
    meeting: Any, tmp_path: Path
) -> None:
    (tmp_path / "data" / "exam.jsonl").write_text('{"instruction": "MATH question 1?", "output": "true"}\n')
    run(load_recipe(meeting, [EXAM]), tmp_path / "run")
    found = report(tmp_path / "run")["companion"]
    assert found["prompts"]["evaluation"] == {"exam": 2}  # it stands twice, and is joined as it is
    assert found["checks"]["evaluation_prompts"]["evaluation exam"]["others"] == 1
    with pytest.raises(DataError, match=r"the companion set: record [0-9a-f]{64} has a prompt of the evaluation set"):
        run(load_recipe(meeting, [EXAM, "hygiene.evaluation_prompts=refuse"]), tmp_path / "refused")


@pytest.mark.slow
def test_near_duplicates_leave_on_request(meeting: Any, tmp_path: Path) -> None:
    pytest.importorskip("datasketch")
    near = json.dumps({"instruction": f"boolq: {LONG} then", "output": "the correct answer is true"})
    with (tmp_path / "data" / "piqa.jsonl").open("a") as handle:
        handle.write(near + "\n")
    rule = "hygiene.near_duplicates={threshold: 0.75, permutations: 256}"
    run(load_recipe(meeting, [rule]), tmp_path / "run")
    checks = report(tmp_path / "run")["sources"]["piqa"]["checks"]
    assert {other: row["records"] for other, row in checks["near_duplicates"].items()} == {"source boolq": 1}
    assert manifest(tmp_path / "run")["piqa"]["barred"] == 1
    assert "datasketch" in json.loads((tmp_path / "run" / "manifest.json").read_text())["versions"]
    assert not verify(tmp_path / "run", data_dir=tmp_path / "data").differences


@pytest.mark.parametrize(
    ("rules", "left"),
    [
        ([EXAM], r"30 left for `hygiene\.evaluation_prompts` \(evaluation exam\)"),
        (["hygiene.cross_source=drop"], r"30 left for `hygiene\.cross_source` \(source boolq\)"),
        (["hygiene.near_duplicates=drop"], r"30 left for `hygiene\.near_duplicates` \(source boolq\)"),
    ],
)
def test_a_source_that_the_hygiene_bars_whole_says_what_took_it(
    make_recipe: Any, tmp_path: Path, rules: Any, left: str
) -> None:
    if "near" in rules[0]:
        pytest.importorskip("datasketch")
    recipe, data = make_recipe(), tmp_path / "data"
    shutil.copy(data / "boolq.jsonl", data / "piqa.jsonl")
    shutil.copy(data / "boolq.jsonl", data / "exam.jsonl")
    with pytest.raises(DataError, match=rf"there are only 0 \(\d+ read, .*, {left}"):
        run(load_recipe(recipe, rules), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_order_of_lines_changes_nothing_but_the_files_digests(meeting: Any, tmp_path: Path) -> None:
    written = []
    for directory in ("one", "two"):
        recipe = load_recipe(meeting, [EXAM, "hygiene.contamination=drop", "hygiene.near_duplicates=drop"])
        run(recipe, tmp_path / directory)
        hygiene = report(tmp_path / directory)
        for row in (*hygiene["evaluation"].values(), hygiene["companion"]):
            del row["files"]
        written.append(hygiene)
        for file in (tmp_path / "data").glob("*.jsonl"):
            file.write_text("".join(sorted(file.read_text().splitlines(keepends=True))))
    assert written[0] == written[1]


def forge(file: Path, path: Any, value: Any) -> None:
    """Put another value at a place of a report."""
    root = inner = json.loads(file.read_text())
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    file.write_text(json.dumps(root))


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        (("sources", "boolq", "barred"), 7, "sources.boolq.barred"),
        (("sources", "boolq", "majority"), 0.9, "sources.boolq.majority"),
        (("rules", "contamination", "ngram"), 12, "rules.contamination.ngram"),
        (("evaluation",), {}, "evaluation"),
    ],
)
def test_an_edited_report_is_told_from_the_directory_alone(
    finished_exam: Path, path: Any, value: Any, field: str
) -> None:
    forge(finished_exam / "hygiene.json", path, value)
    assert field in {one.field for one in verify(finished_exam).differences if one.file == "hygiene.json"}


def test_a_dropped_record_that_is_in_the_splits_and_a_count_that_its_ids_do_not_give_are_told(
    finished_exam: Path,
) -> None:
    file = finished_exam / "hygiene.json"
    root = json.loads(file.read_text())
    rows = map(json.loads, (finished_exam / "train.jsonl").read_text().splitlines())
    selected = next(row for row in rows if row["source"] == "boolq")
    found = root["sources"]["boolq"]["checks"]["evaluation_prompts"]["evaluation exam"]
    found["record_ids"][0] = selected["record_id"]
    file.write_text(json.dumps(root))
    told = {one.field for one in verify(finished_exam).differences if one.file == "hygiene.json"}
    place = "sources.boolq.checks.evaluation_prompts.evaluation exam"
    assert {f"{place}.record_ids", f"{place}.record_ids_sha256"} <= told


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("sources", "boolq", "records"), 31),
        (("sources", "boolq", "checks", "evaluation_prompts", "evaluation exam", "others"), 3),
        (("sources", "boolq", "prompts", "candidates"), {"piqa": 1}),
        (("evaluation", "exam", "repeated_prompts"), 2),
    ],
)
def test_a_forged_count_is_told_by_the_sources(exam_run: Path, finished_exam: Path, path: Any, value: Any) -> None:
    forge(finished_exam / "hygiene.json", path, value)
    told = {one.field for one in verify(finished_exam, data_dir=exam_run.parent / "data").differences}
    assert any(one.startswith(".".join(path)) for one in told)


@pytest.mark.slow
@pytest.mark.parametrize("check", ["cross_source", "near_duplicates"])
def test_a_companion_set_that_copies_a_source_is_told_and_can_be_refused(
    make_recipe: Any, tmp_path: Path, check: str
) -> None:
    if check == "near_duplicates":
        pytest.importorskip("datasketch")
    recipe = make_recipe()
    shutil.copy(tmp_path / "data" / "boolq.jsonl", tmp_path / "data" / "math.jsonl")
    run(load_recipe(recipe, [f"hygiene.{check}=drop"]), tmp_path / "run")
    found = report(tmp_path / "run")["companion"]["checks"][check]["source boolq"]
    assert found["records"] == 33  # three stand twice
    assert not verify(tmp_path / "run", data_dir=tmp_path / "data").differences
    with pytest.raises(DataError, match=r"the companion set: record .* source 'boolq'"):
        run(load_recipe(recipe, ["hygiene.near_duplicates=null", f"hygiene.{check}=refuse"]), tmp_path / "refused")
    assert not (tmp_path / "refused").exists()


@pytest.fixture
def finished_exam(exam_run: Any, tmp_path: Path) -> Any:
    return shutil.copytree(exam_run, tmp_path / "run")
