"""Every byte of every artefact, flipped: readers refuse it or read what was written, and never fall over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import ArtefactError
from calibudget.keys import order_key
from calibudget.records import Bootstrap, Message, Record, Score, Selection, SourceStatistics, Split, Statistics
from calibudget.store.artefacts import SELECTION, STATISTICS, digest_selection
from calibudget.store.scores import read_scores, write_scores
from calibudget.store.splits import read_splits, write_splits
from calibudget.store.train_set import read_train, write_train


def make_record(number: Any) -> Any:
    prompt = (Message(role="user", content="ask"),)
    return Record(
        source="a", record_id=f"{number}", prompt_hash="", prompt=prompt, completion="x", answer=None, original={}
    )


def write_small_splits(path: Any) -> None:
    records = [make_record(number) for number in range(6)]
    split = Split(
        source="a",
        calibration=tuple(sorted(records[:2], key=lambda r: order_key("calibration", 1, "a", r.record_id))),
        candidates=tuple(sorted(records[2:], key=lambda r: order_key("selection", 2, "a", r.record_id))),
        read=6,
        duplicates=0,
        skipped=0,
        shared_prompts=0,
    )
    write_splits(path, [split], split_seed=1, selection_seed=2)


def write_small_scores(path: Any) -> None:
    scores = [
        Score(
            source="a", record_id=f"{i}", response_tokens=3, nll=0.1 * i, correct=i > 1, prediction=None, error=0.1 * i
        )
        for i in range(3)
    ]
    write_scores(path, scores, error="nll", provenance={"model": {"name": "fake"}})


def write_small_train(path: Any) -> None:
    row = {"source": "a", "record_id": "1", "role": "source", "prompt": "p", "completion": "c", "original": {"x": 1}}
    write_train(path, [row, {**row, "record_id": "2"}], layout="completion")


def write_small_statistics(path: Any) -> None:
    row = SourceStatistics(
        pool_size=9,
        calibration_size=2,
        mean_nll=0.3,
        error_rate=None,
        mean_error=0.3,
        bootstrap_sd=0.01,
        bootstrap_means=(0.25, 0.35),
    )
    STATISTICS.write(
        path, Statistics(model={}, error="nll", bootstrap=Bootstrap(resamples=2, seed=0), sources={"a": row})
    )


def write_small_selection(path: Any) -> None:
    SELECTION.write(path, digest_selection(Selection(seed=0, selector="uniform", picks={"a": ("1", "2")})))


ARTEFACTS = {
    "splits.parquet": (write_small_splits, read_splits),
    "scores.parquet": (write_small_scores, read_scores),
    "train.parquet": (write_small_train, lambda path: list(read_train(path))),
    "train.jsonl": (write_small_train, lambda path: list(read_train(path))),
    "statistics.json": (write_small_statistics, STATISTICS.read),
    "selection.json": (write_small_selection, SELECTION.read),
}


def read_flipped(path: Path, reader: Any, stride: Any, masks: Any) -> Iterator[Any]:
    """What the reader makes of each damaged file: a value, or None where it refuses it."""
    data = path.read_bytes()
    for position in range(0, len(data), stride):
        for mask in masks:
            damaged = bytearray(data)
            damaged[position] ^= mask
            path.write_bytes(bytes(damaged))
            try:
                yield position, reader(path)
            except ArtefactError as error:
                assert str(error).startswith(path.name)  # noqa: PT017
                yield position, None


@pytest.mark.parametrize("name", [name for name in ARTEFACTS if name.endswith(".parquet")])
@pytest.mark.parametrize(
    ("stride", "masks"),
    [
        (23, (0x01,)),
        pytest.param(1, (0x01, 0x10, 0x80, 0xFF), marks=pytest.mark.full),
    ],
)
def test_a_damaged_table_is_refused_or_reads_as_written(tmp_path: Path, name: Any, stride: int, masks: Any) -> None:
    write, reader = ARTEFACTS[name]
    write(tmp_path / name)
    whole = reader(tmp_path / name)
    refused = 0
    for position, found in read_flipped(tmp_path / name, reader, stride, masks):
        refused += found is None
        assert found is None or found == whole, position
    assert refused


def test_files_of_another_kind_are_refused(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for data in [b"", b"PAR1", b"PAR1" * 3, b"\0" * 64, b"{}", b"[]", b"null", b'{"schema":1}']:
        for name in ARTEFACTS:
            with subtests.test(name=name, data=data):
                (tmp_path / name).write_bytes(data)
                if name == "train.jsonl" and not data:
                    assert list(read_train(tmp_path / name)) == []
                    continue
                with pytest.raises(ArtefactError, match=f"^{name}"):
                    ARTEFACTS[name][1](tmp_path / name)


def test_deep_and_wide_json_is_refused_not_followed(tmp_path: Path) -> None:
    for text in ("[" * 10**6, '{"a":' * 10**5, '{"schema":' + "9" * 10**5 + "}"):
        (tmp_path / "statistics.json").write_text(text)
        with pytest.raises(ArtefactError):
            STATISTICS.read(tmp_path / "statistics.json")


def test_a_table_in_another_format_isnt_a_way_in(tmp_path: Path) -> None:
    """A pickle under an artefact's name is bytes like any other: nothing is ever unpickled."""
    payload = b"cos\nsystem\n(S'touch " + str(tmp_path / "owned").encode() + b"'\ntR."
    for name, (_, reader) in ARTEFACTS.items():
        (tmp_path / name).write_bytes(payload)
        with pytest.raises(ArtefactError):
            reader(tmp_path / name)
    assert not (tmp_path / "owned").exists()
