from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import ArtefactError
from calibudget.pipeline.round_ledger import ROUNDS, Ledger, Round, RoundSource
from calibudget.store.canonical import canonical_json


def used(*picks: Any, held_out: Any = ()) -> Any:
    return RoundSource(units=len(picks), record_ids=picks, calibration_ids=held_out)


def round_of(number: Any, **sources: Any) -> Any:
    return Round(manifest_sha256=f"{number:064x}", policy="equal", unit="examples", budget=3, sources=sources)


LEDGER = Ledger(
    rounds=(
        round_of(1, a=used("x", "y", held_out=("c",)), b=used("x")),
        round_of(2, a=used("z"), b=used(held_out=("d",))),
    )
)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda value: value["rounds"][1]["sources"]["a"].update(record_ids=["x"]),
            "an example of 'a' was picked by two",
        ),
        (lambda value: value["rounds"][0].update(manifest_sha256="1"), r"rounds\[0\].manifest_sha256"),
        (lambda value: value["rounds"][0]["sources"]["a"].update(units=-1), "units: must be at least 0"),
        (lambda value: value["rounds"][0].update(extra=1), "extra: is not a field"),
    ],
)
def test_faults_are_named_by_field(tmp_path: Path, change: Any, said: str) -> None:
    value = json.loads(canonical_json(ROUNDS.to_json(LEDGER)))
    change(value)
    (tmp_path / "rounds.json").write_bytes(canonical_json(value))
    with pytest.raises(ArtefactError, match=said):
        ROUNDS.read(tmp_path / "rounds.json")
