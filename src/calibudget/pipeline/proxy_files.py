"""Proxy-score files: read, checked as a set, merged and bound to the pool of a run.

The shards of a pool: each scored chunk by chunk into a journal, written whole, and merged at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Final, cast

from calibudget.errors import ArtefactError
from calibudget.pipeline.progress import Progress
from calibudget.pipeline.run_directory import check_no_run
from calibudget.selection.proxy import (
    PAPER_CONTRACT,
    ProxyContract,
    ProxyHeader,
    ProxyPool,
    ProxyRecord,
    ProxyScores,
    parse_proxy_lines,
    proxy_lines,
    proxy_pool,
)
from calibudget.selection.proxy_checks import check_merged, check_pool, check_shard, merge_shards
from calibudget.sequences import chunks
from calibudget.store.canonical import canonical_json, loads_object
from calibudget.store.checksums import FileDigest, file_digest
from calibudget.store.files import atomic_file, clean_stale, directory_lock, move_into_place, work_directory
from calibudget.store.journal import Journal
from calibudget.store.splits import SPLITS_NAME, read_splits


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyReport:
    """What was found valid.

    Attributes:
        files: length and SHA-256 of each file that was read, by the path it was given as.
        pool_checked: whether the candidates were compared with those of a run.
    """

    header: ProxyHeader
    records: int
    files: Mapping[str, FileDigest]
    pool_checked: bool
    output: Path | None = None

    def to_json(self) -> dict[str, object]:
        """The object that `--json` prints."""
        header = asdict(self.header)
        del header["provenance"]
        return {
            "schema": "calibudget.proxy-report/1",
            **header,
            "records": self.records,
            "pool_checked": self.pool_checked,
            "files": {name: asdict(digest) for name, digest in self.files.items()},
            "output": None if self.output is None else {"path": str(self.output), **asdict(file_digest(self.output))},
        }


def read_proxy_file(path: Path) -> ProxyScores:
    """Read a proxy-score file; whether its records may be used is still to be checked.

    Raises:
        ArtefactError: missing, no regular file (a symbolic link is none), or a line that can't be read.
    """
    file_digest(path)
    with path.open("rb") as lines:
        return parse_proxy_lines(lines, path.name)


def write_proxy_file(path: Path, scores: ProxyScores) -> None:
    """Write proxy scores, atomically."""
    with atomic_file(path) as handle:
        handle.writelines(proxy_lines(scores))


def read_proxy_pool(path: Path) -> ProxyPool:
    """The pool that a run's `splits.parquet` describes."""
    splits = read_splits(path / SPLITS_NAME if path.is_dir() else path)
    return proxy_pool({label: ids.candidates for label, ids in splits.sources.items()})


def check_proxy_files(
    paths: Sequence[Path],
    output: Path | None = None,
    *,
    contract: ProxyContract = PAPER_CONTRACT,
    pool: ProxyPool | None = None,
) -> ProxyReport:
    """Check one file in itself (a shard or a merged set), or several as the complete set of a pool's shards.

    With an `output` they are the complete set, which is then written there in rank order.

    Raises:
        ArtefactError: the first thing found wrong, with file and line or position; or the output is one of the
            shards, lies in a run's directory or can't be written. Nothing is written then.
    """
    if output is not None:
        check_no_run(output.parent)
        if output.resolve() in {path.resolve() for path in paths}:
            raise ArtefactError(f"{output}: is one of the shards; name another file for the merged scores")
    found, names = [read_proxy_file(path) for path in paths], [path.name for path in paths]
    if len(found) == 1 and output is None:
        scores = found[0]
        check = check_merged if scores.header.shard is None else check_shard
        check(scores, contract=contract, name=names[0])
    else:
        scores = merge_shards(found, contract=contract, names=names)
    if pool is not None:
        check_pool(scores, pool, ", ".join(names))
    if output is not None:
        write_proxy_file(output, scores)
    return ProxyReport(
        header=scores.header,
        records=len(scores.records),
        files={str(path): file_digest(path) for path in paths},
        pool_checked=pool is not None,
        output=output,
    )


#: All shards together.
MERGED_NAME: Final = "influence.jsonl"
#: Seconds that a merge waits for another's, which is a copy of the shards' files.
_PATIENCE: Final = 600.0
#: Candidates between two entries of a journal.
_CHUNK: Final = 128
#: A candidate as `selection.train_rows.train_row` makes it.
Row = Mapping[str, object]
#: Similarities of rows, in their order, to each subgroup.
Score = Callable[[Sequence[Row]], Sequence[Sequence[float]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shards:
    """A pool's shards in a directory."""

    directory: Path
    pool: ProxyPool
    header: ProxyHeader

    @property
    def contract(self) -> ProxyContract:
        """What each file must agree with."""
        return ProxyContract(subgroups=self.header.subgroups, shards=self.header.shards)

    def journal_folder(self, shard: int) -> Path:
        """What is done of an unfinished shard; gone when its file is whole, unless a kill came between."""
        return self.directory / f".shard-{shard}"

    def file(self, shard: int) -> Path:
        """Where one shard's scores go."""
        return self.directory / f"influence-{shard}-of-{self.header.shards}.jsonl"

    def entries(self, shard: int) -> Iterable[tuple[int, tuple[str, str]]]:
        """Position, source and id of each of a shard's candidates, in the order of positions."""
        return islice(enumerate(self.pool.entries()), shard, None, self.header.shards)

    def is_whole(self, shard: int) -> bool:
        """Whether a shard's file is there.

        Raises:
            ArtefactError: it is there and of other work.
        """
        path = self.file(shard)
        if not path.exists():
            return False
        found = read_proxy_file(path)
        check_shard(found, contract=self.contract, name=path.name)
        if found.header != replace(self.header, shard=shard, provenance=_as_read(self.header.provenance)):
            raise ArtefactError(f"{path}: was made of another pool, model or configuration; name another directory")
        return True

    def score(self, shard: int, rows: Iterable[Row], score: Score, progress: Progress) -> None:
        """Score a shard, going on where an earlier call was interrupted, and write its file.

        `rows` are its candidates in the order of positions. `score` is called with one chunk after another, so that
        chunks depend on the pool alone.

        Raises:
            ArtefactError: work of another configuration was begun here, another process is at it, or the disk is full.
        """
        total = len(range(shard, self.pool.size, self.header.shards))
        of_this = {"pool_sha256": self.header.pool_sha256, "shard": shard, "shards": self.header.shards}
        with work_directory(self.journal_folder(shard)) as at:
            header = {**of_this, "provenance": dict(self.header.provenance)}
            with Journal.open(at, header) as journal:
                means = [_means(row) for entry in journal.entries for row in cast(list[list[float]], entry["means"])]
                for chunk in chunks(islice(rows, len(means), None), _CHUNK):
                    progress(f"influence, shard {shard}", len(means), total)
                    scored = [_means(values) for values in score(chunk)]
                    journal.append({"means": [list(values) for values in scored]})
                    means += scored
            progress(f"influence, shard {shard}", total, total)
            self._write(shard, means)

    def tidy_up(self, shards: Iterable[int]) -> None:
        """Remove the journals of whole shards that a kill or the disk left; whoever is at one does it now."""
        for folder in map(self.journal_folder, shards):
            if folder.exists():
                with suppress(ArtefactError), work_directory(folder):
                    pass

    def merge(self) -> None:
        """Write all shards in rank order, once all are there; of several processes one after the other."""
        files = [self.file(shard) for shard in range(self.header.shards)]
        with directory_lock(self.directory, patience=_PATIENCE):
            clean_stale(self.directory)  # nobody else writes here: shards are made in folders of their own
            if all(file.exists() for file in files):
                check_proxy_files(files, self.directory / MERGED_NAME, contract=self.contract, pool=self.pool)

    def _write(self, shard: int, means: Sequence[tuple[float, ...]]) -> None:
        subgroups = self.header.subgroups
        records = tuple(
            ProxyRecord(
                position=position,
                source=source,
                record_id=record_id,
                subgroups=subgroups,
                subgroup_means=values,
                score=max(values),
            )
            for (position, (source, record_id)), values in zip(self.entries(shard), means, strict=True)
        )
        made = self.journal_folder(shard) / self.file(shard).name
        write_proxy_file(made, ProxyScores(header=replace(self.header, shard=shard), records=records))
        move_into_place(made, self.file(shard))


def _as_read(fields: Mapping[str, object]) -> dict[str, object]:
    """An object as it comes back from a file: whole floats as integers, tuples as arrays."""
    return loads_object(canonical_json(dict(fields)), "provenance")


def _means(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(float(value) + 0.0 for value in values)  # -0.0 becomes 0.0, as in canonical JSON
