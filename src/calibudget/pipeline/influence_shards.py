"""The shards of a pool's influence: each scored chunk by chunk into a journal, written whole, and merged at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Final, cast

from calibudget.errors import ArtefactError
from calibudget.pipeline.progress import Progress
from calibudget.pipeline.proxies import merge_proxy_files, read_proxy_file, write_proxy_file
from calibudget.selection import ProxyContract, ProxyHeader, ProxyPool, ProxyRecord, ProxyScores, check_shard
from calibudget.store import Journal, canonical_json, loads_object, work_directory

MERGED_NAME: Final = "influence.jsonl"
#: Candidates between two entries of a journal.
_CHUNK: Final = 128

#: A candidate as `selection.train_row` makes it.
Row = Mapping[str, object]
#: Similarities of rows, in their order, to each subgroup.
Score = Callable[[Sequence[Row]], Sequence[Sequence[float]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shards:
    """A pool's shards in a directory.

    Attributes:
        directory: where they lie.
        pool: what is scored.
        header: what all shards share, `shard` being None.
    """

    directory: Path
    pool: ProxyPool
    header: ProxyHeader

    @property
    def contract(self) -> ProxyContract:
        """What each file must agree with."""
        return ProxyContract(subgroups=self.header.subgroups, shards=self.header.shards)

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

        Args:
            shard: which one.
            rows: its candidates in the order of positions.
            score: scores some of them; called with one chunk after another, so that chunks depend on the pool alone.
            progress: told how many are scored.

        Raises:
            ArtefactError: work of another configuration was begun here, another process is at it, or the disk is full.
        """
        work = self.directory / f".shard-{shard}"
        total = len(range(shard, self.pool.size, self.header.shards))
        of_this = {"pool_sha256": self.header.pool_sha256, "shard": shard, "shards": self.header.shards}
        with work_directory(work):
            header = {**of_this, "provenance": dict(self.header.provenance)}
            with Journal.open(work / "journal", header) as journal:
                means = [_means(row) for entry in journal.entries for row in cast(list[list[float]], entry["means"])]
                left = islice(rows, len(means), None)
                while chunk := list(islice(left, _CHUNK)):
                    progress(f"influence, shard {shard}", len(means), total)
                    scored = [_means(values) for values in score(chunk)]
                    journal.append({"means": [list(values) for values in scored]})
                    means += scored
            progress(f"influence, shard {shard}", total, total)
            self._write(shard, means)

    def merge(self) -> None:
        """Write all shards in rank order, once all are there."""
        files = [self.file(shard) for shard in range(self.header.shards)]
        if all(file.exists() for file in files):
            merge_proxy_files(files, self.directory / MERGED_NAME, contract=self.contract, pool=self.pool)

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
        write_proxy_file(self.file(shard), ProxyScores(header=replace(self.header, shard=shard), records=records))


def _as_read(fields: Mapping[str, object]) -> dict[str, object]:
    """An object as it comes back from a file: whole floats as integers, tuples as arrays."""
    return loads_object(canonical_json(dict(fields)), "provenance")


def _means(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(float(value) + 0.0 for value in values)  # -0.0 becomes 0.0, as in canonical JSON
