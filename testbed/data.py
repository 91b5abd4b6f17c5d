"""From families to files: made once where reasoning-gym is, read anywhere.

A directory holds `<family>.train.jsonl.gz` and `<family>.test.jsonl.gz` of every family and `manifest.json` with the
digests of what they hold. Which items are made, and which of them are held out, depends on the seeds alone.

Of families with answers of their own the held-out answers are new too, and not parts of others: otherwise a held-out
NLL would measure what was learnt by heart.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from calibudget.errors import ArtefactError, DataError, DependencyError
from calibudget.messages import counted
from calibudget.records import Message, Record
from calibudget.sources.identity import Identity, identify
from calibudget.sources.spec import SourceSpec
from calibudget.sources.whole_source import SourceRead, read_source
from calibudget.store.canonical import canonical_json, read_bytes, read_object, sha256_hex
from calibudget.store.files import write_atomic
from testbed.answers import known_answers, normal_answer
from testbed.families import (
    CALIBRATION_SIZE,
    COMPANION,
    FIRST_HALVES,
    TEST_SIZE,
    Half,
    families_of,
    first_seed,
)
from testbed.family import Family

MANIFEST_NAME: Final = "manifest.json"
_SCHEMA: Final = "calibudget.testbed-data/1"
#: Items tried for each one wanted: small families repeat themselves.
_PATIENCE: Final = 20

#: Told how many families are made, and of how many.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyData:
    """One family as read: what may be trained on or calibrated with, and what is held out."""

    family: Family
    train: SourceRead
    test: tuple[Record, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfData:
    """One half's families by label in code-point order, and the companion family.

    Attributes:
        sha256: digest of the data's manifest.
    """

    half: Half
    families: Mapping[str, FamilyData]
    companion: FamilyData
    sha256: str


def generate(directory: Path, halves: Iterable[Half] = FIRST_HALVES, progress: Progress | None = None) -> str:
    """Make all files of some halves and of the companion family.

    Args:
        directory: where they go; made if it isn't there.
        halves: which; those of the first testbed by default.
        progress: told after each family.

    Returns:
        SHA-256 of the manifest.

    Raises:
        DependencyError: reasoning-gym is missing.
        DataError: a family repeats itself too often to fill its pool, or its held-out answers can be learnt by heart.
    """
    directory.mkdir(parents=True, exist_ok=True)
    every = [*(family for half in halves for family in families_of(half)), COMPANION]
    files: dict[str, object] = {}
    for number, family in enumerate(every, start=1):
        for name, rows in parted(family, first_seed(family)).items():
            text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
            file = f"{family.name}.{name}.jsonl.gz"
            write_atomic(directory / file, gzip.compress(text, mtime=0))
            files[file] = {"rows": len(rows), "sha256": sha256_hex(text)}
        if progress is not None:
            progress(number, len(every))
    manifest = canonical_json({"schema": _SCHEMA, "files": files})
    write_atomic(directory / MANIFEST_NAME, manifest)
    return sha256_hex(manifest)


def read_half(directory: Path, half: Half) -> HalfData:
    """Read one half and the companion family, every file held against the manifest.

    Args:
        directory: what `generate` made.
        half: which half.

    Raises:
        ArtefactError: a file is missing or isn't the one that the manifest names.
        DataError: a held-out record shares its prompt, or its answer of its own, with one that may be trained on.
    """
    files = _manifest_files(directory)
    families = {family.name: _read(directory, family, files) for family in families_of(half)}
    return HalfData(
        half=half,
        families={label: families[label] for label in sorted(families)},
        companion=_read(directory, COMPANION, files),
        sha256=data_sha256(directory),
    )


def data_sha256(directory: Path) -> str:
    """SHA-256 of the manifest, which binds all files.

    Raises:
        ArtefactError: there is none, or it isn't one.
    """
    return sha256_hex(canonical_json(read_object(directory / MANIFEST_NAME)))


def _manifest_files(directory: Path) -> Mapping[str, object]:
    manifest = read_object(directory / MANIFEST_NAME)
    files = manifest.get("files")
    if manifest.get("schema") != _SCHEMA or not isinstance(files, dict):
        raise ArtefactError(f"{directory / MANIFEST_NAME}: isn't a manifest of testbed data that this version reads")
    return files


def parted(family: Family, seed: int) -> dict[str, list[dict[str, str]]]:
    """The rows of both files, "train" and "test": items of their own, of which some are held out by a keyed draw.

    Args:
        family: the family.
        seed: of its first item.

    Raises:
        DependencyError: reasoning-gym is missing.
        DataError: as `generate`.
    """
    wanted = family.pool + (CALIBRATION_SIZE if family is not COMPANION else 0) + TEST_SIZE + family.spare
    chosen: dict[str, dict[str, str]] = {}
    answers: set[str] = set()
    for row, identity in items(family, seed, wanted * _PATIENCE):
        answer = normal_answer(row["answer"])
        if identity.prompt_hash in chosen or (family.own_answers and answer in answers):
            continue
        chosen[identity.prompt_hash] = row
        answers.add(answer)
        if len(chosen) == wanted:
            break
    else:
        unlike = "prompts with answers of their own" if family.own_answers else "prompts"
        raise DataError(f"{family.name}: only {len(chosen):,} different {unlike} among {wanted * _PATIENCE:,} items")
    keys = {prompt: hashlib.sha256(f"held-out {prompt}".encode()).digest() for prompt in chosen}
    held = set(sorted(chosen, key=keys.__getitem__)[: TEST_SIZE + family.spare])
    rows = {
        "train": [row for prompt, row in chosen.items() if prompt not in held],
        "test": [row for prompt, row in chosen.items() if prompt in held],
    }
    if family.own_answers:
        known = known_answers(*([row["answer"] for row in rows[name]] for name in ("train", "test")))
        rows["test"] = [row for row in rows["test"] if row["answer"] not in known][:TEST_SIZE]
        if len(rows["test"]) < TEST_SIZE:
            raise DataError(
                f"{family.name}: half or more of {counted(len(known), 'held-out answer')} stands in answers that may "
                f"be trained on ({known[0]!r}); its held-out records would show what was learnt by heart"
            )
    return rows


def items(family: Family, seed: int, size: int) -> Iterator[tuple[dict[str, str], Identity]]:
    """A family's items from a seed on, as rows, with what names each; those without an answer are left out.

    Raises:
        DependencyError: reasoning-gym is missing.
    """
    try:
        from reasoning_gym import create_dataset
    except ImportError as error:
        raise DependencyError("the testbed's data needs reasoning-gym; pip install 'calibudget[demo]'") from error
    made: Any = create_dataset(family.game or family.name, seed=seed, size=size, **family.options)
    for index in range(size):
        item = made[index]
        prompt, answer = str(item["question"]).strip(), str(item["answer"]).strip()
        if not answer:
            continue  # base_conversion has a few
        yield (
            {"prompt": prompt, "completion": answer, "answer": answer},
            identify((Message(role="user", content=prompt),), answer),
        )


def _read(directory: Path, family: Family, files: Mapping[str, object]) -> FamilyData:
    reads = []
    for part in ("train", "test"):
        name = f"{family.name}.{part}.jsonl.gz"
        expected = files.get(name)
        if not isinstance(expected, Mapping) or expected.get("sha256") != _text_sha256(directory / name):
            raise ArtefactError(
                f"{directory / name}: isn't the file that {MANIFEST_NAME} names; generate the data anew"
            )
        reads.append(read_source(SourceSpec(label=family.name, path=name, answer=family.answer), directory))
    train, test = reads
    overlap = {record.prompt_hash for record in train.records} & {record.prompt_hash for record in test.records}
    if overlap:
        raise DataError(f"{family.name}: {len(overlap)} held-out prompts may be trained on; generate the data anew")
    answers = [{normal_answer(record.completion) for record in part.records} for part in reads]
    if family.own_answers and answers[0] & answers[1]:
        raise DataError(
            f"{family.name}: {len(answers[0] & answers[1])} held-out answers may be trained on; generate the data anew"
        )
    return FamilyData(family=family, train=train, test=test.records)


def _text_sha256(path: Path) -> str:
    """Digest of what a file holds, which doesn't change with the compressor as the file's own would."""
    try:
        return sha256_hex(gzip.decompress(read_bytes(path)))
    except (OSError, EOFError, zlib.error) as error:
        raise ArtefactError(f"{path}: can't be decompressed: {error}") from error
