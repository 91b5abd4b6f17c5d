from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from calibudget.errors import DataError, InputTypeError
from calibudget.keys import order_key
from calibudget.records import Split
from calibudget.sources.spec import SourceSpec
from calibudget.sources.split import Parting, check_roles
from calibudget.sources.whole_source import SourceRead, open_source

Write = Callable[..., Path]
Read = Callable[..., SourceRead]
Parted = Callable[..., Split]

ROWS = [{"prompt": f"Say {number}", "completion": f"It is {number}."} for number in range(40)]


@pytest.fixture
def split(tmp_path: Path) -> Callable[..., Split]:
    """Open and split a source below tmp_path."""

    def split_path(
        path: str = "rows.jsonl", size: int = 10, split_seed: int = 1, selection_seed: int = 2, **fields: object
    ) -> Split:
        spec = SourceSpec(label="s", path=path, **fields)  # type: ignore[arg-type]
        source = open_source(spec, tmp_path, selection_seed=selection_seed)
        return Parting(source).draw(split_seed=split_seed, calibration_size=size).split()

    return split_path


def test_the_first_under_the_calibration_key_calibrate_and_the_rest_are_candidates(
    write: Write, read: Read, split: Parted
) -> None:
    write("rows.jsonl", ROWS)
    source = read()
    parted = split()
    ids = [record.record_id for record in source.records]
    drawn = sorted(ids, key=lambda record_id: order_key("calibration", 1, "s", record_id))[:10]
    rest = sorted(set(ids) - set(drawn), key=lambda record_id: order_key("selection", 2, "s", record_id))
    assert [record.record_id for record in parted.calibration] == drawn
    assert [record.record_id for record in parted.candidates] == rest
    assert parted.pool_size == 30
    assert (parted.read, parted.duplicates, parted.skipped, parted.shared_prompts) == (40, 0, 0, 0)
    check_roles({"calibration": drawn, "candidate": rest})


def test_candidates_that_share_a_prompt_with_a_calibration_record_leave_and_are_counted(
    write: Write, split: Parted
) -> None:
    write("rows.jsonl", [*ROWS, *({"prompt": row["prompt"].upper() + " ", "completion": "else"} for row in ROWS)])
    parted = split(size=10)
    calibrating = {record.prompt_hash for record in parted.calibration}
    assert len(parted.calibration) == 10
    assert not calibrating & {record.prompt_hash for record in parted.candidates}
    assert parted.shared_prompts == 80 - 10 - parted.pool_size > 0


def test_under_keep_the_count_is_exact_and_copies_leave_with_their_twin(
    write: Write, read: Read, split: Parted
) -> None:
    write("rows.jsonl", [*ROWS, *({**row, "copy": n} for row in ROWS[:20] for n in range(2))])
    parted = split(duplicates="keep", size=30)
    assert len(parted.calibration) == len({record.prompt_hash for record in parted.calibration}) == 30
    assert not any("#" in record.record_id for record in parted.calibration)
    roles: dict[str, set[str]] = {}
    for role, records in (("calibration", parted.calibration), ("candidate", parted.candidates)):
        for record in records:
            roles.setdefault(record.record_id.partition("#")[0], set()).add(role)
    assert all(len(role) == 1 for role in roles.values())
    assert parted.pool_size + parted.shared_prompts + 30 == 80
    assert parted.duplicates == 40


def test_all_records_may_calibrate_and_one_more_is_refused_with_the_numbers(
    write: Write, read: Read, split: Parted
) -> None:
    write("rows.jsonl", [*ROWS, ROWS[0]])
    assert split(size=40).pool_size == 0
    with pytest.raises(
        DataError, match=r"needs 41 records that differ, but there are only 40 \(41 read.* 1 duplicate\)"
    ):
        split(size=41)
    with pytest.raises(DataError, match="there are only 40"):
        split(duplicates="keep", size=41)


@pytest.mark.parametrize(
    "roles",
    [
        {"calibration": [1, 2], "candidate": ["1", "2"]},
        {"calibration": [1, "2"]},
        {"calibration": "abc"},
        {"calibration": b"abc"},
        {"calibration": {"a": 1}},
    ],
)
def test_ids_are_strings_or_integers_and_nothing_else(roles: object) -> None:
    with pytest.raises(InputTypeError):
        check_roles(roles)  # type: ignore[arg-type]
