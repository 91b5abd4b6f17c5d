"""Records that must not be trained on: an evaluation set asks their prompt, or another source holds them too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from calibudget.errors import DataError
from calibudget.records import Record
from calibudget.sources.duplicates import Resolved
from calibudget.sources.hygiene import as_rows
from calibudget.sources.spec import Duplicates
from calibudget.sources.table import IdentityTable, among, same_as_before


def evaluation_prompts(evaluation: Mapping[str, Sequence[Record]]) -> frozenset[bytes]:
    """The prompt hashes of all evaluation sets."""
    return frozenset(prompt for records in evaluation.values() for prompt in as_rows(records)["prompt"].tolist())


def refuse_prompts(sources: Iterable[Resolved], evaluation: Mapping[str, Sequence[Record]]) -> None:
    """Refuse sources that hold a prompt of an evaluation set.

    Raises:
        DataError: one does; the record, the set and how many there are are named.
    """
    for source in sources:
        for name, records in sorted(evaluation.items()):
            prompts = evaluation_prompts({name: records})
            parts = [rows[among(rows["prompt"], prompts)] for rows in source.parts()]
            found = np.concatenate(parts)
            if len(found):
                first = found[np.lexsort((found["at"], found["file"]))][0]
                where = source.scan.place(int(first["file"]), int(first["at"]))
                raise DataError(
                    f"source {source.scan.spec.label!r}: {where} has a prompt of the evaluation set {name!r}, as have "
                    f"{len(found) - 1:,} others; leave them out, or say `hygiene.evaluation_prompts: drop` or `keep`"
                )


def shared_texts(sources: Sequence[Resolved], policy: Duplicates) -> list[frozenset[bytes]]:
    """Of each source the texts that a source before it has too; memory holds those and no others.

    Args:
        sources: in code-point order of their labels; the first that has a record keeps it.
        policy: under `keep` nothing is looked for.

    Raises:
        DataError: under `refuse`, a record is in two sources; both are named.
    """
    found: list[set[bytes]] = [set() for _ in sources]
    if policy == "keep" or len(sources) < 2:
        return [frozenset(texts) for texts in found]
    table = IdentityTable()
    for number, source in enumerate(sources):
        for rows in source.parts():
            own = rows.copy()
            own["key"], own["file"] = rows["text"], number
            table.add_rows(own)
    for rows in table.parts():
        first = rows["file"][np.maximum.accumulate(np.where(same_as_before(rows["key"]), 0, np.arange(len(rows))))]
        for index in np.flatnonzero(rows["file"] != first).tolist():
            number = int(rows["file"][index])
            if policy == "refuse":
                one, two = (sources[int(one)].scan.spec.label for one in (first[index], number))
                raise DataError(
                    f"sources {one!r} and {two!r} both hold the record {rows['text'][index].tobytes().hex()}; leave "
                    "one out, or say `hygiene.cross_source: drop` or `keep`"
                )
            found[number].add(rows["text"][index].tobytes())
    return [frozenset(texts) for texts in found]
