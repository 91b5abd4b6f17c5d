"""Records of one source whose ids are equal: dropped, kept under numbered ids, or refused (docs/formats.md)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from calibudget.errors import DataError, InputError
from calibudget.records import Record
from calibudget.sources.identity import identify
from calibudget.sources.spec import Duplicates
from calibudget.store import canonical_json, plain_json

_NUMBERED: Final = re.compile(r"#[0-9]+$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """What is left of a source's records.

    Attributes:
        records: the records that stay, in the given order, no two with one id.
        copies: the bare id of every renamed record.
        duplicates: records removed or renamed.
    """

    records: tuple[Record, ...]
    copies: Mapping[str, str]
    duplicates: int


def resolve_duplicates(records: Sequence[Record], place: Callable[[int], str], *, policy: Duplicates) -> Resolved:
    """Make the ids of a source unique.

    Of records with one id, `drop` keeps the one whose original fields have the smallest canonical bytes; `keep`
    puts them in that order, leaves the first its id and gives the n-th `#n`. Neither depends on the order read.

    Args:
        records: one source's records.
        place: where each was read, by its position among them, for messages.
        policy: drop, keep or refuse.

    Raises:
        DataError: records with one id of their own but different text, `refuse` and there is a duplicate, or `keep`
            and an id of its own ends like a numbered one.
    """
    if policy == "keep":
        _check_unnumbered(records, place)
    groups: dict[str, list[int]] = {}
    for index, record in enumerate(records):
        groups.setdefault(record.record_id, []).append(index)
    if len(groups) == len(records):
        return Resolved(records=tuple(records), copies={}, duplicates=0)
    removed: set[int] = set()
    names: dict[int, str] = {}
    for name, indexes in groups.items():
        if len(indexes) == 1:
            continue
        _check_group(records, place, indexes, policy)
        ordered = sorted(indexes, key=lambda index: _order_bytes(records[index]))
        if policy == "drop":
            removed.update(ordered[1:])
        else:
            names.update({index: f"{name}#{number}" for number, index in enumerate(ordered[1:], start=2)})
    kept = (_named(record, names.get(index)) for index, record in enumerate(records) if index not in removed)
    copies = {new: records[index].record_id for index, new in names.items()}
    return Resolved(records=tuple(kept), copies=copies, duplicates=len(records) - len(groups))


def _check_group(
    records: Sequence[Record], place: Callable[[int], str], indexes: list[int], policy: Duplicates
) -> None:
    first, *others = indexes
    for other in others:
        if not _same_text(records[first], records[other]):
            raise DataError(
                f"source {records[first].source!r}: {place(first)} and {place(other)} have the id"
                f" {records[first].record_id!r} but different text"
            )
    if policy == "refuse":
        raise DataError(
            f"source {records[first].source!r}: {place(others[0])} repeats {place(first)}; remove one, or say"
            " `duplicates: drop` or `keep`"
        )


def _same_text(one: Record, two: Record) -> bool:
    if one.prompt == two.prompt and one.completion == two.completion:
        return True
    return identify(one.prompt, one.completion) == identify(two.prompt, two.completion)


def _check_unnumbered(records: Sequence[Record], place: Callable[[int], str]) -> None:
    for index, record in enumerate(records):
        if _NUMBERED.search(record.record_id):
            raise DataError(
                f"{place(index)}: the id {record.record_id!r} looks like a copy's; drop `keep` or `id_field`"
            )


def _named(record: Record, name: str | None) -> Record:
    return record if name is None else replace(record, record_id=name)


def _order_bytes(record: Record) -> bytes:
    """The canonical bytes of the original fields; what RFC 8785 can't write (long integers) in a form as fixed."""
    plain = plain_json(record.original)
    try:
        return canonical_json(plain)
    except InputError:
        return json.dumps(plain, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode("utf-8")
