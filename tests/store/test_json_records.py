"""What every JSON artefact keeps, seals, checks and refuses, on a record of each kind of field."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import ArtefactError
from calibudget.store.json_records import Artefact, Shape, plain
from calibudget.values import Count, Number, Text


@dataclass(frozen=True, kw_only=True)
class Part:
    size: Count
    weight: Number = 0.5
    note: Text | None = None


@dataclass(frozen=True, kw_only=True)
class Whole:
    name: Text
    parts: tuple[Part, ...]
    by_label: Mapping[str, Part]
    cap: Count | None = 5
    nothing: Text | None = None
    flags: tuple[Text, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Optional:
    part: Part | None = None


WHOLE = Whole(
    name="é", parts=(Part(size=1, weight=2.5, note="n"), Part(size=2)), by_label={"x": Part(size=3)}, cap=None
)
OBJECT: dict[str, Any] = {
    "schema": "test/1",
    "name": "é",
    "parts": [{"size": 1, "weight": 2.5, "note": "n"}, {"size": 2, "weight": 0.5}],
    "by_label": {"x": {"size": 3, "weight": 0.5}},
    "cap": None,
    "flags": [],
}


def digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def without(value: Any, *path: Any) -> Any:
    copy = inner = json.loads(json.dumps(value))
    for part in path[:-1]:
        inner = inner[part]
    del inner[path[-1]]
    return copy


def test_a_plain_artefact_leaves_out_what_is_none_by_default(tmp_path: Path) -> None:
    artefact = Artefact("test/1", Whole)
    assert artefact.to_json(WHOLE) == OBJECT
    assert plain(WHOLE) == without(OBJECT, "schema")
    assert artefact.write(tmp_path / "f", WHOLE) == ""
    assert artefact.read_sealed(tmp_path / "f") == (WHOLE, "")
    assert artefact.parse(without(OBJECT, "flags"), "f") == WHOLE  # what holds nothing may be left out
    nulls = json.loads(json.dumps(Artefact("test/1", Whole, nulls=True).to_json(WHOLE)))
    parts = [OBJECT["parts"][0], OBJECT["parts"][1] | {"note": None}]
    assert nulls == OBJECT | {"nothing": None, "parts": parts, "by_label": {"x": parts[1] | {"size": 3}}}


def test_a_seal_and_a_digest_are_added_told_and_held(tmp_path: Path) -> None:
    sealing = Artefact("test/1", Whole, seal="seal")
    sealed = OBJECT | {"seal": digest(OBJECT)}
    assert sealing.to_json(WHOLE) == sealed
    assert sealing.write(tmp_path / "f", WHOLE) == sealed["seal"]
    assert sealing.read_sealed(tmp_path / "f") == (WHOLE, sealed["seal"])
    (tmp_path / "f").write_text(json.dumps(sealed | {"name": "e"}))
    with pytest.raises(ArtefactError, match=r"^f: seal: isn't the digest of the other fields"):
        sealing.read(tmp_path / "f")
    digesting = Artefact("test/1", Whole, digest=("sum", lambda whole: digest(whole.name)))
    assert digesting.to_json(WHOLE) == OBJECT | {"sum": digest("é")}
    for kept in ({}, {"sum": None}, {"sum": digest("another")}):
        assert digesting.parse(OBJECT | kept, "f") == WHOLE
    for artefact, value, said in [
        (sealing, OBJECT, "seal: is missing"),
        (sealing, OBJECT | {"seal": None}, "seal: must be text, not None"),
        (digesting, OBJECT | {"sum": "x"}, "sum: must be of the form .*, not 'x'"),
    ]:
        with pytest.raises(ArtefactError, match=f"^f: {said}$"):
            artefact.parse(value, "f")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (["a"], r"must be an object, not \['a'\]"),
        (without(OBJECT, "schema"), "schema: is missing"),
        (OBJECT | {"schema": "test/2"}, "schema: must be 'test/1', not 'test/2'"),
        (without(OBJECT, "name"), "name: is missing"),
        (OBJECT | {"more": 1}, "more: is not a field.*"),
        (without(OBJECT, "cap"), "cap: is missing"),  # it holds 5 by default
        (without(OBJECT, "parts", 1, "weight"), r"parts\[1\].weight: is missing"),
        (without(OBJECT, "by_label", "x", "weight"), "by_label.x.weight: is missing"),
        (without(OBJECT, "parts", 0, "size"), r"parts\[0\].size: is missing"),
        (OBJECT | {"cap": -1}, "cap: must be at least 0, not -1"),
        (OBJECT | {"name": "bad"}, "name: is bad, by the check"),
    ],
)
def test_what_an_artefact_refuses_is_named_by_its_path(value: Any, said: str) -> None:
    artefact = Artefact("test/1", Whole, check=lambda one: "name: is bad, by the check" if one.name == "bad" else None)
    given = value if "cap" in said or not isinstance(value, dict) else {"cap": 4} | value
    assert artefact.parse(OBJECT | {"cap": 4}, "f") == replace(WHOLE, cap=4)
    with pytest.raises(ArtefactError, match=f"^f: {said}$"):
        artefact.parse(given, "f")


def test_a_shape_refuses_other_fields_or_ignores_them() -> None:
    row = {"size": 1, "other": 2}
    assert Shape(Part, others="ignore").parse(row, "f") == Part(size=1)
    for value, said in [(row, "other: is not a field"), (3, "must be an object, not 3")]:
        with pytest.raises(ArtefactError, match=f"^f: {said}"):
            Shape(Part).parse(value, "f")


def test_a_json_schema_says_what_a_file_holds_and_needs() -> None:
    hexadecimal = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
    fields = ["name", "parts", "by_label", "cap", "nothing", "flags"]
    for artefact, added, needed in [
        (Artefact("test/1", Whole), {}, []),
        (Artefact("test/1", Whole, seal="seal"), {"seal": hexadecimal}, ["seal"]),
        (Artefact("test/1", Whole, digest=("sum", str)), {"sum": hexadecimal}, []),
    ]:
        schema = artefact.json_schema()
        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        assert list(schema["properties"]) == ["schema", *added, *fields]
        assert {name: schema["properties"][name] for name in ("schema", *added)} == {
            "schema": {"const": "test/1"}, **added,
        }  # fmt: skip
        assert schema["properties"]["parts"] == {"type": "array", "items": {"$ref": "#/$defs/Part"}, "title": "Parts"}
        assert schema["required"] == ["schema", *needed, "name", "parts", "by_label"]
        assert (schema["additionalProperties"], list(schema["$defs"])) == (False, ["Part"])
    assert Artefact("test/1", Optional).json_schema()["required"] == ["schema"]
