"""`selection.json`: which examples were selected, by digest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

from calibudget.errors import InputTypeError
from calibudget.keys import canonical_array
from calibudget.records import Selection
from calibudget.sequences import require_ordered
from calibudget.store.artefacts.fields import Fields, open_artefact
from calibudget.store.atomic import write_atomic
from calibudget.store.canonical import canonical_json, read_object, sha256_hex
from calibudget.wording import shown

SELECTION_NAME: Final = "selection.json"
_SCHEMA: Final = "calibudget.selection/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceDigest:
    """One source's picks: its quota in the budget's unit, and the digest of their ids in key order.

    `count` (examples) and `tokens` say what was picked for a quota of tokens; None where the quota counts examples.
    """

    quota: int
    record_ids_sha256: str
    count: int | None = None
    tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionDigest:
    """A selection without its ids; `selection.json`.

    Attributes:
        seed: selection seed.
        selector: name of the rule that chose among the candidates ("uniform").
        sources: quota and digest of each source, by label in code-point order.
        count: examples selected from all sources, the companion set apart.
        companion_count: companion records joined unchanged.
        selected_sha256: digest of all picks, sources in code-point order, each in key order.
        tokens: tokens of all picks; None where the budget counts examples.
        details: what the selector says of itself; None for the uniform draw.
    """

    seed: int
    selector: str
    sources: Mapping[str, SourceDigest]
    count: int
    companion_count: int
    selected_sha256: str
    tokens: int | None = None
    details: Mapping[str, object] | None = None


def ids_sha256(ids: Iterable[str]) -> str:
    """Digest of an id list: SHA-256 of its RFC 8785 array, in the given order.

    Raises:
        InputTypeError: no ordered sequence, or an id is no string.
        InputError: an id holds a lone surrogate.
    """
    require_ordered(ids, "ids")
    texts = list(ids)
    for text in texts:
        if not isinstance(text, str):
            raise InputTypeError(f"an id is a string, not {type(text).__name__}: {shown(text)}")
    return sha256_hex(canonical_array(texts))


def digest_selection(selection: Selection) -> SelectionDigest:
    """What `selection.json` says of a selection."""
    picks = dict(sorted(selection.picks.items()))
    return SelectionDigest(
        seed=selection.seed,
        selector=selection.selector,
        sources={label: _digest_source(selection, label) for label in picks},
        count=sum(map(len, picks.values())),
        companion_count=selection.companion_count,
        selected_sha256=ids_sha256(chain.from_iterable(picks.values())),
        tokens=None if selection.tokens is None else sum(use.taken for use in selection.tokens.values()),
        details=selection.details,
    )


def selection_to_json(selection: Selection) -> dict[str, object]:
    """The `selection.json` object of a selection."""
    digest = digest_selection(selection)
    fields = {"schema": _SCHEMA, **_given(asdict(replace(digest, details=None)))}
    return fields if digest.details is None else fields | {"details": dict(digest.details)}


def write_selection(path: Path, selection: Selection) -> None:
    """Write `selection.json`, atomically.

    Raises:
        ArtefactError: the file can't be written.
    """
    write_atomic(path, canonical_json(selection_to_json(selection)))


def read_selection(path: Path) -> SelectionDigest:
    """Read `selection.json`.

    Raises:
        ArtefactError: the file is missing or torn, or a field isn't what it should be; both are named.
    """
    root = open_artefact(read_object(path), path.name, _SCHEMA)
    digest = SelectionDigest(
        seed=root.integer("seed", minimum=None),
        selector=root.text("selector"),
        sources={label: _parse_source(row) for label, row in root.by_label("sources").items()},
        count=root.integer("count"),
        companion_count=root.integer("companion_count"),
        selected_sha256=root.digest("selected_sha256"),
        tokens=root.nullable("tokens", root.integer, may_be_absent=True),
        details=root.nullable("details", root.mapping, may_be_absent=True),
    )
    root.finish()
    return digest


def _digest_source(selection: Selection, label: str) -> SourceDigest:
    ids = selection.picks[label]
    if selection.tokens is None:
        return SourceDigest(quota=len(ids), record_ids_sha256=ids_sha256(ids))
    use = selection.tokens[label]
    return SourceDigest(quota=use.quota, record_ids_sha256=ids_sha256(ids), count=len(ids), tokens=use.taken)


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that aren't None, at any depth."""
    given = {name: value for name, value in fields.items() if value is not None}
    return {name: _given(value) if isinstance(value, Mapping) else value for name, value in given.items()}


def _parse_source(row: Fields) -> SourceDigest:
    source = SourceDigest(
        quota=row.integer("quota"),
        record_ids_sha256=row.digest("record_ids_sha256"),
        count=row.nullable("count", row.integer, may_be_absent=True),
        tokens=row.nullable("tokens", row.integer, may_be_absent=True),
    )
    row.finish()
    return source
