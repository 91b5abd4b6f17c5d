"""Records that are nearly alike: by estimate across sources and evaluation sets, exactly to held-out ones.

Two records are compared by the runs of words that they hold, prompt and response together (Jaccard similarity).

By estimate (datasketch's MinHash and LSH): sets are gone through in a
fixed order, evaluation sets first, each in the order of its texts' digests, so nothing depends on the order read: a
record that is nearly alike one before it that stays is found, the others stay. So every record that is found is nearly
alike one that isn't. LSH finds most pairs at the threshold and nearly all far above it, not every one; the Jaccard
similarity of those that it proposes is estimated from all hash values.

Hash values lie in a file. Memory holds what datasketch keeps in its tables, some 5 KB a record that stays at the
default 128 permutations, and the digests of what is found.

Exactly, since nothing like a held-out record may be trained on. The form in which a source puts its questions is no
likeness: runs that a `COMMON` part of its held-out records hold are left out of all records. Two sets that are alike to
a threshold t share at least one of any |A| - ceil(t |A|) + 1 members of the one, A. So of each held-out record only
that many runs, the rarest, are looked up, and what they lead to is compared whole.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from calibudget.errors import requires
from calibudget.records import Record
from calibudget.sources.hygiene.checks import Matches
from calibudget.sources.hygiene.contamination import AT_LEAST, COMMON, word_runs
from calibudget.sources.identity import digests
from calibudget.sources.identity_table import Scratch
from calibudget.sources.spec import NearDuplicatesRule

if TYPE_CHECKING:
    from datasketch import MinHash

_HASHES: Final = "hashes"
#: What a pair compared in vain weighs, and a pair missed: 14 bands of 9 values at the default settings, which propose
#: 87% of the pairs at 0.8, all but one in a thousand at 0.9, and 3% of those at 0.5.
_WEIGHTS: Final = (0.1, 0.9)


class NearDuplicates:
    """Goes through sets of records, one after another, and knows the records that stay."""

    def __init__(self, rule: NearDuplicatesRule) -> None:
        """Begin with none."""
        with requires("the search for near-duplicates", "hygiene"):
            from datasketch import MinHash, MinHashLSH
        self._rule = rule
        self._empty = MinHash(num_perm=rule.permutations, seed=rule.seed)
        self._index = MinHashLSH(threshold=rule.threshold, num_perm=rule.permutations, weights=_WEIGHTS)
        self._scratch = Scratch()
        self._row = np.dtype((self._empty.hashvalues.dtype, rule.permutations))
        self._names: list[str] = []
        self._set_of: list[int] = []

    def add(self, name: str, records: Iterable[Record]) -> None:
        """Take in an evaluation set, all of whose records stay."""
        self._names.append(name)
        for _, made in self._in_order(records):
            self._keep(made)

    def look_up(self, name: str, records: Iterable[Record], *, joins: bool = True) -> dict[str, Matches]:
        """What of a set is nearly alike a record that stays; what isn't stays from now on.

        Args:
            name: what the set is called in later findings.
            records: its records.
            joins: whether its own records are looked at later; those of the companion set aren't.

        Returns:
            By name of the other set, the digests of the set's texts, and how many of its records they are like.
        """
        self._names.append(name)
        found: dict[str, set[bytes]] = {}
        others: dict[str, set[int]] = {}
        for digest, made in self._in_order(records):
            other = self._first_like(made)
            if other is None and joins:
                self._keep(made)
            elif other is not None:
                there = self._names[self._set_of[other]]
                found.setdefault(there, set()).add(digest)
                others.setdefault(there, set()).add(other)
        return {
            there: Matches(digests=frozenset(own), others=len(others[there])) for there, own in sorted(found.items())
        }

    def _in_order(self, records: Iterable[Record]) -> Iterator[tuple[bytes, MinHash]]:
        """The different texts of a set with their hash values, by digest; texts without words are left out."""
        scratch, keys = Scratch(), []
        for record in records:
            runs = word_runs(record, self._rule.ngram)
            if runs:
                made = self._empty.copy()
                made.update_batch(runs)
                scratch.append(_HASHES, made.hashvalues.tobytes())
                keys.append(digests(record.prompt, record.completion, record.tools)[0])
        before = b""
        for index in sorted(range(len(keys)), key=keys.__getitem__):
            if keys[index] != before:
                before = keys[index]
                made = self._empty.copy()
                made.hashvalues = self._read(scratch, index)
                yield before, made

    def _first_like(self, made: MinHash) -> int | None:
        for other in sorted(self._index.query(made)):
            if np.mean(self._read(self._scratch, other) == made.hashvalues) >= self._rule.threshold:
                return int(other)
        return None

    def _keep(self, made: MinHash) -> None:
        self._index.insert(len(self._set_of), made, check_duplication=False)
        self._scratch.append(_HASHES, made.hashvalues.tobytes())
        self._set_of.append(len(self._names) - 1)

    def _read(self, scratch: Scratch, index: int) -> NDArray[Any]:
        size = self._row.itemsize
        return np.frombuffer(scratch.read(_HASHES, index * size, size), dtype=self._row.base)


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
