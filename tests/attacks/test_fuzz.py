"""Any value in any place of what is read as JSON or YAML: read, or refused by name. For more, see targets.py."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.attacks.targets import untyped
from tests.attacks.test_damage import targets

assert targets  # a fixture

NAMES = (
    *("recipe.yaml", "protocol.yaml", "manifest.json", "statistics.json", "allocation.json", "selection.json"),
    *("hygiene.json", "evaluation.json", "cell.json", "influence.jsonl", "rows.jsonl", "turns.jsonl", "frozen.json"),
)
NUMBERS = st.one_of(st.integers(), st.floats(), st.sampled_from([2**53, -1, 10**400, 1e308, 5e-324]))
VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), NUMBERS, st.text(max_size=20), st.sampled_from(["1e9", "~", "../x", "a\0b", "ﬁ", ""])
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)),
    max_leaves=8,
)


def places(value: Any, at: Any = ()) -> Any:
    """The places of everything inside a value, inner ones too."""
    yield at
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(inner, (*at, key))


def with_value(value: Any, at: Any, new: Any, key: str | None) -> Any:
    """The value with another one at a place, under another key where one is given."""
    if not at:
        return new
    changed = copy.deepcopy(value)
    holder = changed
    for part in at[:-1]:
        holder = holder[part]
    if key is not None and isinstance(holder, dict):
        del holder[at[-1]]
        holder[key] = new
    else:
        holder[at[-1]] = new
    return changed


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("examples", [15, pytest.param(4000, marks=pytest.mark.full)])
def test_any_value_in_any_place_is_read_or_refused(targets: Any, tmp_path: Path, name: str, examples: int) -> None:
    target = next(one for one in targets if one.name == name)
    text = target.data.decode()
    whole: Any = [json.loads(line) for line in text.splitlines()] if name.endswith("l") and "jsonl" in name else None
    whole = whole if whole is not None else yaml.safe_load(text) if name.endswith("yaml") else json.loads(text)
    all_places = list(places(whole))

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck), database=None, derandomize=True)
    @given(at=st.sampled_from(all_places), new=VALUES, key=st.one_of(st.none(), st.text(max_size=8)))
    def check(at: Any, new: Any, key: Any) -> None:
        made = with_value(whole, at, new, key)
        if name.endswith("yaml"):
            data = yaml.safe_dump(made, allow_unicode=True)
        elif name.endswith("jsonl"):
            data = "\n".join(json.dumps(row) for row in (made if isinstance(made, list) else [made]))
        else:
            data = json.dumps(made)
        said = untyped(target, data.encode(errors="surrogatepass"), tmp_path)
        assert said is None, said

    check()
