"""Proxy scores as lines: a header object, then one object a record; `docs/formats.md` has every field.

Reading is strict about each line by itself; whether the records may be used is for `proxy_checks` to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from calibudget.errors import ArtefactError
from calibudget.selection.proxy import ProxyHeader, ProxyRecord, ProxyScores
from calibudget.sequences import require_ordered
from calibudget.store import canonical_json, loads_object
from calibudget.store.artefacts.fields import Fields, open_artefact

_SCHEMA: Final = "calibudget.proxy/1"


def proxy_lines(scores: ProxyScores) -> Iterator[bytes]:
    """The lines of a proxy-score file, each canonical JSON and a line feed.

    Raises:
        InputError: a value that has no canonical JSON form.
    """
    header = scores.header
    fields = {
        "schema": _SCHEMA,
        "pool_size": header.pool_size,
        "pool_sha256": header.pool_sha256,
        "subgroups": header.subgroups,
        "shards": header.shards,
        "shard": header.shard,
        "provenance": dict(header.provenance),
    }
    yield canonical_json(fields) + b"\n"
    for record in scores.records:
        row = {
            "position": record.position,
            "source": record.source,
            "record_id": record.record_id,
            "subgroups": record.subgroups,
            "subgroup_means": record.subgroup_means,
            "score": record.score,
        }
        yield canonical_json(row) + b"\n"


def parse_proxy_lines(lines: Sequence[bytes] | Iterator[bytes], name: str) -> ProxyScores:
    """Read the lines of a proxy-score file.

    Args:
        lines: the lines in order, with or without their line feeds.
        name: what to call the file in an error.

    Raises:
        InputTypeError: something else than lines of bytes.
        ArtefactError: a line isn't one JSON object of exactly the documented fields; file, line and field are named.
    """
    require_ordered(lines, "lines")
    numbered = ((line, f"{name} line {number}") for number, line in enumerate(lines, start=1))
    first = next(numbered, None)
    if first is None:
        raise ArtefactError(f"{name}: empty; a proxy-score file begins with its header")
    header = _parse_header(*first)
    return ProxyScores(header=header, records=tuple(_parse_record(line, place, header) for line, place in numbered))


def _parse_header(line: bytes, place: str) -> ProxyHeader:
    fields = open_artefact(loads_object(line, place), place, _SCHEMA)
    header = ProxyHeader(
        pool_size=fields.integer("pool_size"),
        pool_sha256=fields.digest("pool_sha256"),
        subgroups=_texts(fields, "subgroups"),
        shards=fields.integer("shards", minimum=1),
        shard=fields.nullable("shard", fields.integer),
        provenance=fields.mapping("provenance"),
    )
    fields.finish()
    return header


def _parse_record(line: bytes, place: str, header: ProxyHeader) -> ProxyRecord:
    fields = Fields(loads_object(line, place), place)
    subgroups = _texts(fields, "subgroups")
    record = ProxyRecord(
        position=fields.integer("position", minimum=None),
        source=_name(fields, "source"),
        record_id=_name(fields, "record_id"),
        subgroups=header.subgroups if subgroups == header.subgroups else subgroups,  # one tuple for a million records
        subgroup_means=fields.numbers("subgroup_means", length=len(subgroups)),
        score=fields.number("score"),
    )
    fields.finish()
    return record


def _name(fields: Fields, name: str) -> str:
    text = fields.text(name)
    if not text:
        fields.refuse(name, "a string that isn't empty", text)
    return text


def _texts(fields: Fields, name: str) -> tuple[str, ...]:
    texts = fields.array(name)
    for text in texts:
        if not isinstance(text, str):
            fields.refuse(name, "an array of strings", texts)
    return tuple(map(str, texts))
