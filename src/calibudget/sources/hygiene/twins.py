"""Records that are nearly alike a held-out one, found exactly: nothing of them may be trained on.

Records are compared by the runs of words that they hold, as near-duplicates are (Jaccard similarity of the sets of
runs). The form in which a source puts its questions is no likeness: runs that a `COMMON` part of its held-out records
hold are left out of all records.

Two sets that are alike to a threshold t share at least one of any |A| - ceil(t |A|) + 1 members of the one, A. So of
each held-out record only that many runs, the rarest, are looked up, and what they lead to is compared whole.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from calibudget.records import Record
from calibudget.sources.hygiene.checks import Matches
from calibudget.sources.hygiene.contamination import AT_LEAST, COMMON
from calibudget.sources.hygiene.words import word_runs
from calibudget.sources.identity import digests
from calibudget.sources.spec import NearDuplicatesRule


class HeldOutWords:
    """The runs of words of held-out records, to look records up in."""

    def __init__(self, held_out: Iterable[Sequence[Record]], rule: NearDuplicatesRule) -> None:
        """Take in what is held out, source by source; of the rule the threshold and the length of runs count."""
        self._rule = rule
        sets = [[frozenset(word_runs(record, rule.ngram)) for record in records] for records in held_out]
        self._form: set[bytes] = set()
        for own in sets:
            holders = Counter(run for runs in own for run in runs)
            self._form.update(run for run, count in holders.items() if count >= max(AT_LEAST, COMMON * len(own)))
        self._runs = [runs - self._form for own in sets for runs in own]
        rarity = Counter(run for runs in self._runs for run in runs)
        self._led_to: dict[bytes, list[int]] = {}
        for number, runs in enumerate(self._runs):
            telling = len(runs) - math.ceil(rule.threshold * len(runs)) + 1 if runs else 0
            for run in sorted(runs, key=lambda run: (rarity[run], run))[:telling]:
                self._led_to.setdefault(run, []).append(number)

    def like(self, records: Iterable[Record]) -> Matches:
        """The texts that are nearly alike held-out records, by their digests, and how many of those they are like."""
        found: set[bytes] = set()
        met: set[int] = set()
        for record in records:
            others = self._like(record)
            if others:
                met |= others
                found.add(digests(record.prompt, record.completion, record.tools)[0])
        return Matches(digests=frozenset(found), others=len(met))

    def _like(self, record: Record) -> set[int]:
        """The numbers of the held-out records that a record is like."""
        own = word_runs(record, self._rule.ngram)
        led_to = {number for run in own for number in self._led_to.get(run, ())}
        runs = frozenset(own) - self._form if led_to else frozenset()
        least = self._rule.threshold
        return {number for number in led_to if len(runs & self._runs[number]) >= least * len(runs | self._runs[number])}
