"""Does the train set hold exactly the selected examples, in order, each as its original fields make it?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final

from calibudget.errors import DataError, InputError
from calibudget.keys import order_keys
from calibudget.messages import counted
from calibudget.pipeline.checks.findings import Findings
from calibudget.pipeline.checks.splits import COPY_MARK
from calibudget.pipeline.training_encoding import Rendering, is_earlier, rendering_again
from calibudget.recipe.schema import COMPANION, Recipe
from calibudget.records import Record, Selection
from calibudget.selection.draw import unmarked
from calibudget.selection.train_rows import RowRole, train_row
from calibudget.sources.row_records import RecordMaker
from calibudget.store.manifest import Manifest
from calibudget.store.splits import SplitIds
from calibudget.store.train_set import HELD_OUT_NAME, TrainLayout, read_train

#: What the rows of each layout hold.
_SHAPES: Final[Mapping[TrainLayout, str]] = {
    "rendered": "texts",
    "completion": "texts",
    "turns": "turns",
    "messages": "messages",
}
#: From a row's original fields to the record that the recipe makes of them.
_Maker = Callable[[Mapping[str, object]], Record | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainIds:
    """What stands in a train set, without its texts.

    All are in file order; `sources` by label, and `order` has label and id of every row.
    """

    sources: dict[str, list[str]] = field(default_factory=dict)
    companion: list[str] = field(default_factory=list)
    order: list[tuple[str, str]] = field(default_factory=list)


def check_train(findings: Findings, recipe: Recipe, selection: Selection, manifest: Manifest | None) -> TrainIds | None:
    """Compare the train set's rows with the selection and with their own original fields; None if it can't be read.

    The manifest says how texts were rendered; without a tokenizer that this takes they stay unchecked, which is told.
    """
    name = recipe.output.train_name
    again, earlier = rendering_again(recipe, manifest), is_earlier(manifest)
    ids = findings.read(name, lambda path: _read(findings, recipe, path, again, earlier=earlier))
    if ids is None:
        return None
    findings.compare(name, selection.companion_count, len(ids.companion), field="companion rows")
    for label in sorted({*selection.picks, *ids.sources}):
        _check_picks(findings, name, label, selection.picks.get(label, ()), ids.sources.get(label, []))
    _check_order(findings, recipe, name, selection, ids)
    findings.checked.append("train set: its rows are the picks, each the record that its original fields make")
    if again is None:
        findings.checked.append("train set: its texts aren't rendered again, since the model's tokenizer isn't here")
    return ids


def check_held_out(findings: Findings, recipe: Recipe, splits: SplitIds) -> None:
    """Compare `held-out.jsonl` with the evaluation splits, and each row with its own original fields."""
    rows = findings.read(HELD_OUT_NAME, lambda path: list(read_train(path)))
    if rows is None:
        return
    expected = [[label, one] for label, ids in sorted(splits.sources.items()) for one in ids.evaluation]
    found = [[str(row["source"]), str(row["record_id"])] for row in rows]
    if findings.compare(HELD_OUT_NAME, expected, found, field="rows"):
        makers = {label: RecordMaker(spec) for label, spec in recipe.specs.items()}
        again = partial(train_row, layout="turns")
        for number, row in enumerate(rows, start=1):
            compared = ("record_id", "role", "prompt", "completion", "tools")
            _check_row(findings, HELD_OUT_NAME, f"row {number}", row, makers[str(row["source"])], again, compared)
    findings.checked.append("held-out records: those of the evaluation splits, each as its original fields make it")


def _read(findings: Findings, recipe: Recipe, path: Path, again: Rendering | None, *, earlier: bool) -> TrainIds:
    specs = recipe.all_specs
    makers = {label: RecordMaker(spec) for label, spec in specs.items()}
    ids = TrainIds()
    layout = recipe.output.layout
    if earlier:  # its manifest doesn't tell it
        shape = _shape(next(read_train(path), {"prompt": ""}))
        layout = next(one for one, other in _SHAPES.items() if other == shape and one != "rendered")
    compared = ("record_id",) if again is None else ("record_id", "prompt", "completion", "messages", "tools")
    texts = None if again is None else again.texts
    expected = partial(train_row, layout="turns" if again is None else layout, rendered=texts)
    shapes: set[str] = set()
    for number, row in enumerate(read_train(path), start=1):
        label, record_id, role = str(row["source"]), str(row["record_id"]), str(row["role"])
        shapes.add(_shape(row))
        place = f"row {number}"
        if label not in specs or (role == "companion") != (label == COMPANION):
            findings.add(path.name, f"{place}: source", f"a source of the recipe in its role, not {role}", label)
            continue
        (ids.companion if role == "companion" else ids.sources.setdefault(label, [])).append(record_id)
        ids.order.append((label, record_id))
        own_id = unrepeated_id(recipe, row)
        if specs[label].duplicates == "keep":
            own_id = COPY_MARK.sub("", own_id)
        _check_row(findings, path.name, place, {**row, "record_id": own_id}, makers[label], expected, compared)
    for shape in sorted(shapes - {_SHAPES[layout]}):
        findings.compare(path.name, _SHAPES[layout], shape, field="layout")
    return ids


def _shape(row: Mapping[str, object]) -> str:
    if "messages" in row:
        return "messages"
    return "turns" if isinstance(row["prompt"], list) else "texts"


def unrepeated_id(recipe: Recipe, row: Mapping[str, object]) -> str:
    """The id of a row's record, without the mark of a repeat."""
    record_id = str(row["record_id"])
    return unmarked(record_id)[0] if recipe.max_repeats > 1 and row["role"] == "source" else record_id


def _check_row(
    findings: Findings,
    file: str,
    place: str,
    row: Mapping[str, object],
    make: _Maker,
    expected_row: Callable[[Record, RowRole], Mapping[str, object]],
    compared: Sequence[str],
) -> None:
    """Compare a row with the record that its original fields make."""
    original = row["original"]
    try:
        record = make(original if isinstance(original, Mapping) else {})
        if record is None:
            raise DataError("the recipe's filter leaves it out")
        expected = expected_row(record, "companion" if row["role"] == "companion" else "source")
    except InputError as error:
        findings.add(file, f"{place}: original", "fields that the recipe can use", str(error))
        return
    for name in compared:
        findings.compare(file, expected.get(name), row.get(name), field=f"{place}: {name}")


def _check_picks(findings: Findings, file: str, label: str, picks: Iterable[str], found: list[str]) -> None:
    picks = list(picks)
    place = f"source {label}"
    findings.compare(file, len(picks), len(found), field=f"{place}: rows")
    for missing in sorted(set(picks) - set(found))[:1]:
        findings.add(file, place, f"the pick {missing}", f"{counted(len(set(picks) - set(found)), 'pick')} missing")
    for stray in sorted(set(found) - set(picks))[:1]:
        findings.add(file, place, "picks only", f"{stray} and {len(set(found) - set(picks)) - 1} more that aren't")


def _check_order(findings: Findings, recipe: Recipe, file: str, selection: Selection, ids: TrainIds) -> None:
    if recipe.output.order == "source":
        expected = [(label, pick) for label, picks in sorted(selection.picks.items()) for pick in picks]
        in_order = ids.order[: len(expected)] == expected
    else:
        labels = {label for label, _ in ids.order}
        key = {label: order_keys("order", selection.seed, label) for label in labels}
        keys = [key[label](record_id) for label, record_id in ids.order]
        in_order = all(before <= after for before, after in pairwise(keys))
    if not in_order:
        findings.add(file, "order of rows", f"the order {recipe.output.order!r}", "another")
