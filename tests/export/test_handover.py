from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from calibudget.errors import ArtefactError, DependencyError, InputError
from calibudget.export.check import check_installed, compare
from calibudget.export.handover import export
from calibudget.export.trainers import TRAINERS
from calibudget.lm.encoding import Encoder
from calibudget.lm.loading import load_tokenizer
from calibudget.pipeline.run_directory import recipe_of_run
from calibudget.sources.row_records import RecordMaker
from calibudget.store.train_set import read_train

TRAINED = [name for name, trainer in TRAINERS.items() if trainer.trains]


@pytest.fixture
def taught(two_fruits: Path) -> Any:
    """Ids and labels as scoring encodes the records that the rows' originals make."""
    recipe = recipe_of_run(two_fruits)
    makers = {label: RecordMaker(spec) for label, spec in recipe.all_specs.items()}
    records = [makers[str(row["source"])](row["original"]) for row in read_train(two_fruits / "train.jsonl")]  # type: ignore[arg-type]
    encoded = Encoder(recipe.template, load_tokenizer(recipe.model)).encode_all(records)  # type: ignore[arg-type]
    return [
        ([*one.prompt_ids, *one.response_ids], [-100] * len(one.prompt_ids) + list(one.response_ids)) for one in encoded
    ]


def _label(token: Any, weight: Any) -> Any:
    return token if weight else -100


def rows_in(folder: Path, name: Any) -> Any:
    """Ids and labels that an exported folder holds."""
    match TRAINERS[name].rows:
        case "parquet":
            columns = pq.read_table(folder / "train.parquet").to_pydict()
        case "dataset":
            with pa.ipc.open_stream(folder / "train.dataset" / "data-00000-of-00001.arrow") as stream:
                columns = stream.read_all().to_pydict()
        case "messages":
            rows = [
                json.loads(json.loads(line)["messages"]) for line in (folder / "train.jsonl").read_text().splitlines()
            ]
            turns = [turns[-1]["content"] for turns in rows]
            return [(turn["token_ids"], list(map(_label, turn["token_ids"], turn["loss_scale"]))) for turn in turns]
    return list(zip(columns["input_ids"], columns["labels"], strict=True))


@pytest.mark.parametrize("name", TRAINED)
def test_a_trainer_is_given_the_ids_and_labels_that_the_run_measured(
    two_fruits: Path, tmp_path: Path, taught: Any, name: Any
) -> None:
    exported = export(two_fruits, name, tmp_path / "out", ["rank=4", "epochs=2", "batch_size=4"])
    assert rows_in(tmp_path / "out", name) == taught
    fields = json.loads((tmp_path / "out" / "export.json").read_text())
    assert fields["rows"] == 15
    assert fields["taught_tokens"] == sum(label != -100 for _, labels in taught for label in labels)
    manifest = json.loads((two_fruits / "manifest.json").read_text())
    assert fields["manifest_sha256"] == manifest["manifest_sha256"]
    for file, bound in fields["files"].items():
        assert sha256((tmp_path / "out" / file).read_bytes()).hexdigest() == bound["sha256"]
    assert compare(exported, [(tuple(ids), tuple(labels)) for ids, labels in taught[::-1]]).holds
    assert not [path for path in tmp_path.iterdir() if path.name != "out"]


def test_the_configuration_says_what_training_here_would_do(
    two_fruits: Path, tmp_path: Path, tiny_directory: Path
) -> None:
    options = ["rank=4", "scaling=8", "learning_rate=1e-4", "learning_rate_ratio=16", "epochs=2", "batch_size=6"]
    export(two_fruits, "llamafactory", tmp_path / "lf", options)
    config = yaml.safe_load((tmp_path / "lf" / "config.yaml").read_text())
    weights = Path("model.safetensors")  # another process of tests may have told where it has the same model
    assert (Path(config["model_name_or_path"]) / weights).read_bytes() == (tiny_directory / weights).read_bytes()
    assert (config["lora_rank"], config["lora_alpha"], config["num_train_epochs"]) == (4, 8, 2)
    assert config["learning_rate"] == pytest.approx(1e-4 / 4)
    assert config["loraplus_lr_ratio"] == 16
    assert config["per_device_train_batch_size"] * config["gradient_accumulation_steps"] == 6
    assert set(config["lora_target"].split(",")) >= {"q_proj", "down_proj"}
    assert config["warmup_steps"] == 1  # 3% of 2 x 3 steps, rounded up
    compile((export(two_fruits, "trl", tmp_path / "trl").folder / "train.py").read_text(), "train.py", "exec")


def test_what_a_trainer_cannot_be_told_is_listed(two_fruits: Path, tmp_path: Path) -> None:
    exported = export(two_fruits, "open-instruct", tmp_path / "out", ["beta2=0.95", "recovery_steps=2"])
    assert set(exported.left_out) == {"learning_rate_ratio", "beta2", "recovery_steps"}
    readme = (tmp_path / "out" / "README.md").read_text()
    assert all(f"`{field}`" in readme for field in exported.left_out)


def test_torchtune_which_steps_on_whole_batches_only_is_given_one(two_fruits: Path, tmp_path: Path) -> None:
    exported = export(two_fruits, "torchtune", tmp_path / "few", ["batch_size=32"])  # of 15 rows
    config = yaml.safe_load((tmp_path / "few" / "config.yaml").read_text())
    assert config["batch_size"] * config["gradient_accumulation_steps"] == 15
    assert "batch_size" not in exported.left_out
    assert "3 rows" in export(two_fruits, "torchtune", tmp_path / "more", ["batch_size=4"]).left_out["batch_size"]


def test_megatron_is_given_ids_texts_and_the_blend_of_the_quotas(two_fruits: Path, tmp_path: Path, taught: Any) -> None:
    exported = export(two_fruits, "megatron", tmp_path / "out", ["epochs=2"])
    assert "labels" in exported.left_out
    blend = json.loads((tmp_path / "out" / "blend.json").read_text())
    assert blend["train_samples"] == 30
    assert sum(source["count"] for source in blend["sources"].values()) == 15
    assert sum(source["weight"] for source in blend["sources"].values()) == pytest.approx(1)
    words = (tmp_path / "out" / "blend.txt").read_text().split()
    assert sum(map(float, words[::2])) == pytest.approx(1)
    for place, (label, source) in enumerate(blend["sources"].items()):
        rows = [json.loads(line) for line in (tmp_path / "out" / source["file"]).read_text().splitlines()]
        assert len(rows) == source["count"]
        assert all(row["input"].endswith("### Response:\n") and row["output"].endswith("<|im_end|>") for row in rows)
        ids = [
            token for one, row in zip(exported.examples, taught, strict=True) if one.source == label for token in row[0]
        ]
        assert source["tokens"] == len(ids)
        assert words[2 * place + 1] == Path(source["file"]).stem
        assert float(words[2 * place]) == pytest.approx(len(ids) / exported.fields["tokens"])  # type: ignore[operator]
        assert np.fromfile((tmp_path / "out" / source["file"]).with_suffix(".bin"), "<i4").tolist() == ids


def test_a_data_set_for_the_hub_holds_the_rows_as_they_are(two_fruits: Path, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    export(two_fruits, "huggingface", tmp_path / "out")
    rows = datasets.load_from_disk(str(tmp_path / "out"))["train"].to_list()
    ours = list(read_train(two_fruits / "train.jsonl"))
    assert [json.loads(row["original"]) for row in rows] == [row["original"] for row in ours]
    assert [row["completion"] for row in rows] == [row["completion"] for row in ours]
    assert (tmp_path / "out" / "README.md").read_text().startswith("---\n")


def test_croissant_binds_its_file(two_fruits: Path, tmp_path: Path) -> None:
    export(two_fruits, "croissant", tmp_path / "out")
    described = json.loads((tmp_path / "out" / "croissant.json").read_text())
    file = described["distribution"][0]
    assert sha256((tmp_path / "out" / file["contentUrl"]).read_bytes()).hexdigest() == file["sha256"]
    first = json.loads((tmp_path / "out" / "train.jsonl").read_text().splitlines()[0])
    assert {field["source"]["extract"]["column"] for field in described["recordSet"][0]["field"]} == set(first)


def test_a_run_that_does_not_verify_is_not_handed_over(two_fruits: Path, tmp_path: Path) -> None:
    run_dir = shutil.copytree(two_fruits, tmp_path / "run")
    lines = (run_dir / "scores.parquet").read_bytes()
    (run_dir / "scores.parquet").write_bytes(lines[:-9] + bytes([lines[-9] ^ 1]) + lines[-8:])
    with pytest.raises(ArtefactError, match="doesn't verify"):
        export(run_dir, "trl", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".calibudget-*"))


@pytest.mark.parametrize(("name", "option"), [("huggingface", "epochs=2"), ("megatron", "rank=4")])
def test_an_option_that_nothing_follows_is_refused(two_fruits: Path, tmp_path: Path, name: str, option: str) -> None:
    with pytest.raises(InputError, match="leave it out"):
        export(two_fruits, name, tmp_path / "out", [option])
    assert not list(tmp_path.iterdir())


def test_what_a_killed_hand_over_left_goes_and_a_live_one_is_not_disturbed(two_fruits: Path, tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from calibudget.export import handover\n"
        "handover.write_atomic = lambda *_: (print('half', flush=True), sys.stdin.read())\n"
        "handover.export(sys.argv[1], 'trl', sys.argv[2])"
    )
    command = [sys.executable, "-c", script, str(two_fruits), str(tmp_path / "out")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as half:
        assert half.stdout is not None
        assert half.stdout.readline() == "half\n"
        with pytest.raises(ArtefactError, match="in use"):
            export(two_fruits, "trl", tmp_path / "out")
        half.kill()
    assert [path.name for path in tmp_path.iterdir()] != ["out"]
    export(two_fruits, "trl", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_folder_that_holds_something_is_refused(two_fruits: Path, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(ArtefactError, match="holds something"):
        export(two_fruits, "trl", tmp_path)
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "victim" / "files").mkdir(parents=True)
    held = tmp_path / f".calibudget-{sha256(b'out').hexdigest()[:16]}.tmp"
    held.symlink_to("victim")
    with pytest.raises(ArtefactError, match="is a link"):
        export(two_fruits, "trl", tmp_path / "out")
    assert (tmp_path / "victim" / "files").is_dir()
    with pytest.raises(ArtefactError, match="holds something"):
        export(two_fruits, "trl", tmp_path / "link")
    assert sorted(path.name for path in tmp_path.iterdir()) == [held.name, "link", "note.txt", "victim"]


def test_every_kind_of_difference_is_counted_and_told(two_fruits: Path, tmp_path: Path, taught: Any) -> None:
    exported = export(two_fruits, "trl", tmp_path / "out")
    rows = [(tuple(ids), tuple(labels)) for ids, labels in taught]
    retaught = [(rows[0][0], rows[0][0]), *rows[1:]]  # the prompt is taught too
    found = compare(exported, retaught)
    assert (found.equal, found.loaded, found.holds) == (14, 15, False)
    assert "label 0 is" in found.differences[0]
    longer = compare(exported, [*rows[:-1], ((*rows[-1][0], 2), (*rows[-1][1], 2))])
    assert longer.equal == 14
    assert not compare(exported, rows[1:]).holds
    assert not compare(exported, [*rows, rows[0]]).holds
    first = exported.examples[0]
    assert first.name in compare(replace(exported, examples=(first,)), []).differences[0]


def test_a_check_without_the_trainer_says_so_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no loader"):
        check_installed("megatron")
    with pytest.raises(DependencyError, match="can't be run"):
        check_installed("trl", python=str(tmp_path / "python"))
    with pytest.raises(DependencyError, match="no Python that runs"):
        check_installed("trl", python="/bin/true")
    with pytest.raises(DependencyError, match="isn't installed"):
        check_installed("llamafactory")
