"""A recipe's selector: what it takes, what the evidence says of it, how it is derived again, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibudget.errors import ArtefactError, InputError, RecipeError
from calibudget.pipeline.proxy_files import check_proxy_files, read_proxy_pool, write_proxy_file
from calibudget.pipeline.run import run
from calibudget.pipeline.verify import verify
from calibudget.recipe.load import load_recipe
from calibudget.selection.proxy import ProxyContract, ProxyHeader, ProxyRecord, ProxyScores
from calibudget.store.canonical import canonical_json, read_object
from calibudget.store.checksums import file_digest
from calibudget.store.splits import read_splits
from tests.pipeline.conftest import forge, rows_of

CONTRACT = ProxyContract(subgroups=("boolq", "piqa"), shards=2)


@pytest.fixture
def splits(tmp_path: Path, make_recipe: Any, finished: Path) -> Any:
    """The splits of the recipe that `make_recipe` writes; they don't depend on its selector."""
    make_recipe()
    return read_splits(finished / "run" / "splits.parquet")


def candidates(splits: Any) -> Any:
    return [(label, one) for label, ids in splits.sources.items() for one in ids.candidates]


def worth(record_id: Any) -> Any:
    return int(record_id[:6], 16) / 1000


def write_scores(path: Path, rows: Any) -> None:
    path.write_text("".join(json.dumps({"source": s, "record_id": one, "score": n}) + "\n" for s, one, n in rows))


def write_influence(
    directory: Path, splits_file: Any, *, name: str = "influence.jsonl", means: Any = lambda one: (worth(one), -1.0)
) -> None:
    pool = read_proxy_pool(splits_file)
    shards = [[], []]  # type: ignore[var-annotated]
    for position, (source, one) in enumerate(pool.entries()):
        values = tuple(map(float, means(one)))
        fields: dict[str, Any] = {
            "source": source,
            "record_id": one,
            "subgroups": CONTRACT.subgroups,
            "subgroup_means": values,
        }
        shards[position % 2].append(ProxyRecord(position=position, score=max(values), **fields))
    for number, records in enumerate(shards):
        header = ProxyHeader(
            pool_size=pool.size, pool_sha256=pool.sha256, subgroups=CONTRACT.subgroups, shards=2, shard=number
        )
        write_proxy_file(directory / f"shard-{number}", ProxyScores(header=header, records=tuple(records)))
    check_proxy_files([directory / "shard-0", directory / "shard-1"], directory / name, contract=CONTRACT)


def picks(directory: Any, label: Any) -> Any:
    return {row["record_id"] for row in rows_of(directory) if row["source"] == label}


def quotas(directory: Path) -> Any:
    return {label: row["quota"] for label, row in read_object(directory / "allocation.json")["sources"].items()}  # type: ignore[attr-defined]


def best(splits: Any, label: Any, count: Any) -> Any:
    """What a selector by `worth` takes, by an independent rule: ties can't be, the worths are unlike."""
    return set(sorted(splits.sources[label].candidates, key=worth)[-count:])


def made(tmp_path: Path, make_recipe: Any, selector: Any) -> Any:
    return run(load_recipe(make_recipe(more=f"selector: {selector}\n")), tmp_path / "run")


def test_uniform_says_nothing_new_and_picks_what_it_always_did(
    tmp_path: Path, make_recipe: Any, finished: Path
) -> None:
    made(tmp_path, make_recipe, "uniform")
    for name in ("selection.json", "train.jsonl", "manifest.json"):
        assert (tmp_path / "run" / name).read_bytes() == (finished / "run" / name).read_bytes()
    selection = read_object(tmp_path / "run" / "selection.json")
    assert selection["selector"] == "uniform"
    assert "details" not in selection
    assert not (tmp_path / "run" / "selector.parquet").exists()
    # The digest of the picks, pinned before there were other selectors.
    assert selection["selected_sha256"] == "c6624fcb41a1caa2cf8e54a72bf6e5e7820b73e32c7f506ad344558e1e5e1e40"


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_file_of_scores_takes_the_best_of_each_source(
    tmp_path: Path, make_recipe: Any, splits: Any, form: str
) -> None:
    rows = [(label, one, worth(one)) for label, one in candidates(splits)]
    file = tmp_path / f"scores.{form}"
    if form == "jsonl":
        write_scores(file, rows)
    else:
        columns = dict(zip(("source", "record_id", "score"), zip(*rows, strict=True), strict=True))
        pq.write_table(pa.table({**columns, "why": ["words"] * len(rows)}), file)
    made(tmp_path, make_recipe, f"{{scores: {file.name}}}")
    for label, quota in quotas(tmp_path / "run").items():
        assert picks(tmp_path / "run", label) == best(splits, label, quota)
    details = read_object(tmp_path / "run" / "selection.json")["details"]
    digest = file_digest(file)
    assert details["name"] == "scores"  # type: ignore[index]
    assert details["parameters"]["file"] == {"name": file.name, "bytes": digest.bytes, "sha256": digest.sha256}  # type: ignore[index]
    assert read_object(tmp_path / "run" / "manifest.json")["selection"]["details"] == details  # type: ignore[index]
    assert "order: descending" in (tmp_path / "run" / "recipe.resolved.yaml").read_text()
    file.unlink()  # the evidence is enough
    assert verify(tmp_path / "run", data_dir=tmp_path / "data").differences == ()


def test_a_column_of_the_data_is_made_again_from_the_data(tmp_path: Path, make_recipe: Any) -> None:
    make_recipe()
    data = tmp_path / "data"
    for name in ("boolq", "piqa"):
        rows = [json.loads(line) for line in (data / f"{name}.jsonl").read_text().splitlines()]
        text = "".join(json.dumps(row | {"rating": number % 30}) + "\n" for number, row in enumerate(rows))
        (data / f"{name}.jsonl").write_text(text)
    made(tmp_path, make_recipe, "{scores: {column: rating}}")
    verification = verify(tmp_path / "run", data_dir=data)
    assert verification.differences == ()
    assert "selector: scores, from the sources again" in verification.checked
    text = (data / "piqa.jsonl").read_text().replace('"rating": 7}', '"rating": 7.5}')
    (data / "piqa.jsonl").write_text(text)
    found = {one.file for one in verify(tmp_path / "run", data_dir=data).differences}
    assert "selector.parquet" in found


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["characters", "tokens"])
def test_a_band_of_lengths_is_made_again_from_the_data(tmp_path: Path, make_recipe: Any, unit: str) -> None:
    lengths = "[28, 30]" if unit == "characters" else "[6, 6]"  # "the correct answer is true" has 26 characters
    with pytest.raises(InputError, match=r"the selector quality has 0 of \d+ candidates"):
        made(tmp_path, make_recipe, f"{{quality: {{length: {lengths.replace('6', '3')}, unit: {unit}}}}}")
    lengths = "[26, 26]" if unit == "characters" else "[6, null]"
    made(tmp_path, make_recipe, f"{{quality: {{length: {lengths}, unit: {unit}}}}}")
    verification = verify(tmp_path / "run", data_dir=tmp_path / "data")
    assert verification.differences == ()
    assert "selector: quality, from the sources again" in verification.checked


def test_influence_is_bound_to_the_pool_and_mixed_inside_each_quota(
    tmp_path: Path, make_recipe: Any, splits: Any, finished: Path
) -> None:
    write_influence(tmp_path, finished / "run")
    made(
        tmp_path, make_recipe, "{mix: {influence: 0.75, uniform: 0.25}, influence: {file: influence.jsonl, shards: 2}}"
    )
    details = read_object(tmp_path / "run" / "selection.json")["details"]
    assert details["name"] == "mix"  # type: ignore[index]
    parameters = details["parts"]["influence"]["parameters"]  # type: ignore[index]
    assert parameters["file"]["sha256"] == file_digest(tmp_path / "influence.jsonl").sha256
    assert parameters["subgroups"] == ["boolq", "piqa"]
    for label, quota in quotas(tmp_path / "run").items():
        influential = best(splits, label, round(quota * 0.75))
        if quota * 0.75 % 1 != 0.5:
            assert influential <= picks(tmp_path / "run", label)
    assert verify(tmp_path / "run").differences == ()


@pytest.mark.slow
def test_a_token_budget_is_spent_in_the_selectors_order(tmp_path: Path, make_recipe: Any, splits: Any) -> None:
    write_scores(tmp_path / "s.jsonl", [(label, one, worth(one)) for label, one in candidates(splits)])
    text = make_recipe(more="selector: {scores: s.jsonl}\n").read_text()
    (tmp_path / "recipe.yaml").write_text(text.replace("budget: 24", "budget: {tokens: 200}"))
    run(load_recipe(tmp_path / "recipe.yaml"), tmp_path / "run")
    for label in ("boolq", "piqa"):
        found = picks(tmp_path / "run", label)
        assert found == best(splits, label, len(found))
    assert verify(tmp_path / "run").differences == ()


@pytest.mark.slow
def test_a_later_round_goes_on_after_a_selected_one(tmp_path: Path, make_recipe: Any, splits: Any) -> None:
    write_scores(tmp_path / "s.jsonl", [(label, one, worth(one)) for label, one in candidates(splits)])
    made(tmp_path, make_recipe, "{scores: s.jsonl}")
    again = make_recipe(more="selector: {scores: {file: s.jsonl, others: ignore}}\nrounds: {previous: run}\n")
    run(load_recipe(again, ["floor=0", "budget=10"]), tmp_path / "second")
    for label in ("boolq", "piqa"):
        first, second = picks(tmp_path / "run", label), picks(tmp_path / "second", label)
        assert first | second == best(splits, label, len(first) + len(second))
    assert verify(tmp_path / "second").differences == ()


def test_forged_selectors_are_found(tmp_path: Path, make_recipe: Any, splits: Any) -> None:
    write_scores(tmp_path / "s.jsonl", [(label, one, worth(one)) for label, one in candidates(splits)])
    made(tmp_path, make_recipe, "{scores: s.jsonl}")
    directory = tmp_path / "run"
    path = directory / "selector.parquet"
    before = path.read_bytes()
    table = pq.read_table(path)
    scores = [score + 1000 * (number == 0) for number, score in enumerate(table["score"].to_pylist())]
    pq.write_table(table.set_column(3, table.schema.field("score"), pa.array(scores)), path)
    forge(directory)
    found = {(one.file, one.field) for one in verify(directory).differences}
    assert ("selection.json", "details.scores_sha256") in found
    path.write_bytes(before)
    recipe = directory / "recipe.resolved.yaml"
    recipe.write_text(recipe.read_text().replace("order: descending", "order: ascending"))
    forge(directory)
    found = {(one.file, one.field) for one in verify(directory).differences}
    assert ("selector.parquet", "scores: parameters.order") in found
    recipe.write_text(recipe.read_text().replace("order: ascending", "order: descending"))
    selection = read_object(directory / "selection.json")
    selection["details"]["parameters"]["file"]["sha256"] = "0" * 64  # type: ignore[index]
    (directory / "selection.json").write_bytes(canonical_json(selection))
    forge(directory)
    found = {(one.file, one.field) for one in verify(directory).differences}
    assert ("selection.json", "details.parameters.file.sha256") in found


def refused(tmp_path: Path, make_recipe: Any, selector: Any, error: Any, words: Any) -> None:
    with pytest.raises(error, match=words):
        made(tmp_path, make_recipe, selector)
    assert not (tmp_path / "run" / "SHA256SUMS.tsv").exists()


def test_scores_of_another_pool_are_refused_by_line(tmp_path: Path, make_recipe: Any, splits: Any) -> None:
    rows = [(label, one, worth(one)) for label, one in candidates(splits)]
    write_scores(tmp_path / "s.jsonl", [*rows, ("piqa", "f" * 64, 1.0)])
    words = rf"s.jsonl:{len(rows) + 1}: '{'f' * 64}' is no candidate of piqa; score this pool"
    refused(tmp_path, make_recipe, "{scores: s.jsonl}", ArtefactError, words)
    write_scores(tmp_path / "s.jsonl", [*rows, ("piqa", "f" * 64, 1.0), ("piqa", "e" * 64, 1.0)])
    words = rf"'{'f' * 64}' is no candidate of piqa \(the first of 2 such rows\); score this pool"
    refused(tmp_path, make_recipe, "{scores: s.jsonl}", ArtefactError, words)
    write_scores(tmp_path / "s.jsonl", [*rows, ("math", "f" * 64, 1.0)])
    refused(tmp_path, make_recipe, "{scores: s.jsonl}", ArtefactError, "the recipe has no source 'math'")
    write_scores(tmp_path / "s.jsonl", [*rows, ("piqa", "f" * 64, 1.0)])
    made(tmp_path, make_recipe, "{scores: {file: s.jsonl, others: ignore}}")  # the control
    assert read_object(tmp_path / "run" / "selection.json")["details"]["parameters"]["others_found"] == 1  # type: ignore[index]


def test_influence_of_another_pool_or_contract_is_refused(
    tmp_path: Path, make_recipe: Any, splits: Any, finished: Path
) -> None:
    write_influence(tmp_path, finished / "run")
    text = make_recipe(more="selector: {influence: {file: influence.jsonl, shards: 2}}\nsplit_seed: 7\n").read_text()
    with pytest.raises(ArtefactError, match=r"influence.jsonl: made for another pool .*calibudget influence"):
        run(load_recipe(tmp_path / "recipe.yaml"), tmp_path / "run")
    assert "split_seed" in text
    words = r"influence.jsonl: scored in 2 shards, expected were 4; .*`influence: {file: ..., shards: 2}` in the recipe"
    refused(tmp_path, make_recipe, "{influence: influence.jsonl}", ArtefactError, words)
    words = r"shard-0: is shard 0 of 2; merge all shards first \(`calibudget proxy merge`\)"
    refused(tmp_path, make_recipe, "{influence: {file: shard-0, shards: 2}}", ArtefactError, words)
    other = "{influence: {file: influence.jsonl, shards: 2, subgroups: [piqa, boolq]}}"
    refused(tmp_path, make_recipe, other, ArtefactError, "must be piqa, boolq, in this order")
    made(tmp_path, make_recipe, "{influence: {file: influence.jsonl, shards: 2}}")  # the control


@pytest.mark.parametrize(
    ("selector", "words"),
    [
        ("{}", "names no selector"),
        ("{scores: {}}", "either a `file` of scores or a `column`"),
        ("{scores: {column: b, others: ignore}}", "`others` belongs to a `file`"),
        ("{scores: a, influence: b}", "say how much of a quota each takes"),
        ("{scores: a, mix: {scores: 1, influence: 1}}", "`mix` names 'influence'"),
        ("{scores: a, mix: {uniform: 1}}", "'scores' has no weight in `mix`"),
        ("{scores: a, mix: {scores: 0.7, uniform: 0.2}}", r"must sum to 1, not to 0\.9; .*scores: 0\.777778"),
        ("{scores: a, mix: {scores: -1}}", "must be at least 0.0, not -1"),
        ("{quality: {unit: words}}", "length: missing"),
        ("{quality: {length: [1, 2], perplexity: [1, 2]}}", "`perplexity` was removed"),
        ("{quality: {length: [9, 2]}}", "from its lowest to its highest"),
        ("{scores: s}\nmax_repeats: 2", "`max_repeats` repeats the uniform draw"),
        ("{luck: 1}", "unknown field"),
    ],
)
def test_selectors_that_mean_nothing_are_refused_by_line(make_recipe: Any, selector: str, words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        load_recipe(make_recipe(more=f"selector: {selector}\n"))


def test_bands_of_perplexities_that_an_earlier_version_resolved_as_none_are_left_out(
    make_recipe: Any,
) -> None:
    earlier = "{quality: {length: [1, 2], unit: words, perplexity: null, perplexities: null}}"
    quality = load_recipe(make_recipe(more=f"selector: {earlier}\n")).selector.quality
    assert quality is not None
    assert quality.length == (1, 2)


@pytest.mark.slow
def test_paths_of_the_command_line_start_there_and_absolute_ones_leave_no_trace(
    tmp_path: Path, make_recipe: Any, splits: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    write_scores(tmp_path / "elsewhere" / "s.jsonl", [(label, one, worth(one)) for label, one in candidates(splits)])
    monkeypatch.chdir(tmp_path / "elsewhere")
    run(load_recipe(make_recipe(), ["selector.scores=s.jsonl"]), tmp_path / "run")
    resolved = (tmp_path / "run" / "recipe.resolved.yaml").read_text()
    assert "file: s.jsonl" in resolved
    assert str(tmp_path) not in resolved
