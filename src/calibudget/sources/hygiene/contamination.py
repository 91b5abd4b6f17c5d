"""The words of a text, and runs of them that sources share with evaluation sets (n-gram contamination).

Words are what texts are compared by whatever their case, punctuation and spacing.

A record has two texts, its prompt and its response. Two records meet where a text of each holds the same n words in a
row, or, of prompts without any run of n words, where they have the same words. The form in which an evaluation set
puts its questions is no evidence: runs of `FORM` words that a `COMMON` part of its records share are taken out of all
texts beforehand, and no run reaches over the gap.

Runs are looked up by a 64-bit value and compared word by word where that is found, so nothing is found that isn't
there. Memory holds some 40 bytes for each word of the evaluation sets, their vocabulary, and the digests of what
is found; sources are gone through `_CHUNK` records at a time.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibudget.records import Record
from calibudget.sequences import chunks
from calibudget.sources.hygiene.checks import Matches
from calibudget.sources.identity import digests
from calibudget.values import nfc

#: Words in a run that may be an evaluation set's form.
FORM: Final = 4
#: Part of a set's records that share its form, and how many they are at least.
COMMON: Final = 0.25
AT_LEAST: Final = 10
#: Records of a source that are looked at together.
_CHUNK: Final = 4096
#: Ends every text, and stands where form was taken out.
_GAP: Final = 0
#: A word that no evaluation set has.
_UNKNOWN: Final = 2**32 - 1
_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)
Ids = NDArray[np.uint32]
#: Scripts written without spaces between words: Thai, Lao, Tibetan, Myanmar, Khmer, kana, Han.
_UNSPACED: Final = (
    "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
#: Letters beyond the basic plane, emoji apart.
_BEYOND: Final = "\U00010000-\U0001efff\U00020000-\U0003ffff"
_ascii_words: Final = re.compile(r"[a-z0-9]+").findall
_has_unspaced: Final = re.compile(f"[{_UNSPACED}]").search


def words(text: str) -> list[str]:
    """Runs of letters, digits and their marks, NFC under full case folding; none in a text without any.

    In scripts that put no spaces between words each character is a word.
    """
    if text.isascii():
        return _ascii_words(text.lower())
    folded = nfc(text).casefold()
    spaced, unspaced = _patterns()
    runs = spaced.findall(folded)
    if not _has_unspaced(folded):
        return runs
    return [word for run in runs for word in (unspaced.findall(run) if _has_unspaced(run) else [run])]


def word_runs(record: Record, length: int) -> list[bytes]:
    """The different runs of words of a record, in no set's order; all its words where they are fewer."""
    own = words(" ".join([*(turn.content for turn in record.prompt), record.completion]))
    count = max(1, len(own) - length + 1)
    return [*dict.fromkeys(" ".join(own[at : at + length]).encode() for at in range(count))] if own else []


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Runs of letters, digits and marks; and what such a run is parted into."""
    basic = [chr(point) for point in range(0x10000) if unicodedata.category(chr(point))[0] in "LMN"]
    marks = "".join(one for one in basic if unicodedata.category(one)[0] == "M")
    return re.compile(f"[{''.join(basic)}{_BEYOND}]+"), re.compile(f"[{_UNSPACED}][{marks}]*|[^{_UNSPACED}]+")


class _Texts(NamedTuple):
    """Texts of records as numbers of words, two a record, each ended by a gap.

    Attributes:
        ids: the words.
        starts: where text 2i (the prompt of record i) and 2i + 1 (its response) begin, and where the last one ends.
    """

    ids: Ids
    starts: NDArray[np.int64]

    def owners(self, at: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers of the texts in which places lie."""
        return np.searchsorted(self.starts, at, side="right") - 1


def _texts(records: Iterable[Record], number: Callable[[str], int]) -> _Texts:
    ids, starts = array("I"), array("q")
    for record in records:
        for text in (" ".join(turn.content for turn in record.prompt), record.completion):
            starts.append(len(ids))
            ids.extend(map(number, words(text)))
            ids.append(_GAP)
    starts.append(len(ids))
    return _Texts(np.array(ids, dtype=np.uint32), np.array(starts, dtype=np.int64))


def _runs(ids: Ids, length: int) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Where runs of so many words without a gap begin, and a value of each: equal runs have equal ones."""
    count = max(0, len(ids) - length + 1)
    value = np.zeros(count, dtype=np.uint64)
    for offset in range(length):
        value = value * _FACTOR + ids[offset : offset + count]
    gaps = np.concatenate([[0], np.cumsum(ids == _GAP)])
    at = np.flatnonzero(gaps[length:] == gaps[:count]) if count else np.empty(0, dtype=np.int64)
    return at, value[at]


def _form(texts: _Texts) -> NDArray[np.uint64]:
    """The runs of `FORM` words that are an evaluation set's form, by their values."""
    at, value = _runs(texts.ids, FORM)
    pairs = np.unique(np.stack([value, (texts.owners(at) // 2).astype(np.uint64)]), axis=1)
    form, count = np.unique(pairs[0], return_counts=True)
    return form[count >= max(AT_LEAST, COMMON * (len(texts.starts) // 2))]


def _without(ids: Ids, form: NDArray[np.uint64]) -> Ids:
    at, value = _runs(ids, FORM)
    begins = at[np.isin(value, form)]
    ids = ids.copy()
    for offset in range(FORM):
        ids[begins + offset] = _GAP
    return ids


class EvaluationWords:
    """The words of evaluation sets, to look sources up in."""

    def __init__(self, evaluation: Mapping[str, Iterable[Record]], ngram: int) -> None:
        """Take in the evaluation sets."""
        self._ngram = ngram
        self._names = list(evaluation)
        self._vocabulary: dict[str, int] = {}
        sets = [_texts(records, self._number) for records in evaluation.values()]
        self._form = np.unique(np.concatenate([np.empty(0, dtype=np.uint64), *map(_form, sets)]))
        sizes = [len(texts.starts) // 2 for texts in sets]
        self._set_of = np.repeat(np.arange(len(sets)), sizes)
        offsets = np.cumsum([0, *(len(texts.ids) for texts in sets)])
        starts = [texts.starts[:-1] + offset for texts, offset in zip(sets, offsets, strict=False)]
        self._texts = _Texts(
            _without(np.concatenate([np.empty(0, dtype=np.uint32), *(texts.ids for texts in sets)]), self._form),
            np.concatenate([*starts, offsets[-1:]]),
        )
        at, value = _runs(self._texts.ids, ngram)
        order = np.argsort(value, kind="stable")
        self._value, self._at = value[order], at[order]
        self._owner = self._texts.owners(self._at) // 2
        self._whole: dict[bytes, list[int]] = {}
        for record, prompt in _whole_prompts(self._texts, ngram):
            self._whole.setdefault(prompt, []).append(record)

    def look_up(self, records: Iterable[Record]) -> dict[str, Matches]:
        """What a source shares with each evaluation set; a set with which it shares nothing is left out.

        Returns:
            By name of the set, the digests of the source's texts, and how many of the set's records they meet.
        """
        texts: list[set[bytes]] = [set() for _ in self._names]
        met = np.zeros(len(self._set_of), dtype=np.bool_)
        for piece in chunks(records, _CHUNK):
            for record, hits in zip(piece, self._hits(piece), strict=True):
                if len(hits):
                    met[hits] = True
                    digest, _ = digests(record.prompt, record.completion, record.tools)
                    for one in np.unique(self._set_of[hits]).tolist():
                        texts[one].add(digest)
        others = np.bincount(self._set_of[met], minlength=len(self._names)).tolist()
        return {
            name: Matches(digests=frozenset(own), others=count)
            for name, own, count in zip(self._names, texts, others, strict=True)
            if own
        }

    def _hits(self, piece: Sequence[Record]) -> list[NDArray[np.int64]]:
        """Of each record the evaluation records that it meets."""
        texts = _texts(piece, lambda word: self._vocabulary.get(word, _UNKNOWN))
        texts = texts._replace(ids=_without(texts.ids, self._form))
        at, value = _runs(texts.ids, self._ngram)
        first = np.searchsorted(self._value, value, side="left")
        last = np.searchsorted(self._value, value, side="right")
        hits: list[list[Any]] = [[] for _ in piece]
        for index in np.flatnonzero(last > first).tolist():
            run = texts.ids[at[index] : at[index] + self._ngram]
            there = self._at[first[index] : last[index]]
            same = (self._texts.ids[there[:, None] + np.arange(self._ngram)] == run).all(axis=1)
            owner = int(texts.owners(at[index : index + 1])[0]) // 2
            hits[owner] += self._owner[first[index] : last[index]][same].tolist()
        for number, prompt in _whole_prompts(texts, self._ngram):
            hits[number] += self._whole.get(prompt, [])
        return [np.unique(np.array(own, dtype=np.int64)) for own in hits]

    def _number(self, word: str) -> int:
        return self._vocabulary.setdefault(word, len(self._vocabulary) + 1)


def _whole_prompts(texts: _Texts, ngram: int) -> Iterator[tuple[int, bytes]]:
    """The words of the prompts that hold no run of n words, with the number of their record; not those without any."""
    at, _ = _runs(texts.ids, ngram)
    long = np.zeros(len(texts.starts), dtype=np.bool_)
    long[texts.owners(at)] = True
    for number in range(0, len(texts.starts) - 1, 2):
        if not long[number]:
            ids = texts.ids[texts.starts[number] : texts.starts[number + 1]]
            known = ids[ids != _GAP]
            if len(known):
                yield number // 2, known.tobytes()
