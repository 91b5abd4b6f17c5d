"""Proxy-score files: read, checked as a set, merged and bound to the pool of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from calibudget.errors import ArtefactError
from calibudget.selection.proxy import (
    PAPER_CONTRACT,
    ProxyContract,
    ProxyHeader,
    ProxyPool,
    ProxyScores,
    parse_proxy_lines,
    proxy_lines,
    proxy_pool,
)
from calibudget.selection.proxy_checks import check_merged, check_pool, check_shard, merge_shards
from calibudget.store.files import atomic_file
from calibudget.store.splits import SPLITS_NAME, read_splits
from calibudget.store.sums import FileDigest, file_digest


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyReport:
    """What was found valid.

    Attributes:
        header: of the one file, or of the merged set.
        records: number of records in the files together.
        files: length and SHA-256 of each file that was read, by the path it was given as.
        pool_checked: whether the candidates were compared with those of a run.
        output: the merged file, None where none was written.
    """

    header: ProxyHeader
    records: int
    files: Mapping[str, FileDigest]
    pool_checked: bool
    output: Path | None = None

    def to_json(self) -> dict[str, object]:
        """The object that `--json` prints."""
        header = self.header
        return {
            "schema": "calibudget.proxy-report/1",
            "pool_size": header.pool_size,
            "pool_sha256": header.pool_sha256,
            "subgroups": list(header.subgroups),
            "shards": header.shards,
            "shard": header.shard,
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
    """The pool that a run's `splits.parquet` describes.

    Args:
        path: the file, or the run directory that holds it.
    """
    splits = read_splits(path / SPLITS_NAME if path.is_dir() else path)
    return proxy_pool({label: ids.candidates for label, ids in splits.sources.items()})


def validate_proxy_files(
    paths: Sequence[Path], *, contract: ProxyContract = PAPER_CONTRACT, pool: ProxyPool | None = None
) -> ProxyReport:
    """Check one file in itself (a shard or a merged set), or several as the complete set of a pool's shards.

    Raises:
        ArtefactError: the first thing found wrong, with file and line or position.
    """
    if len(paths) > 1:
        return _report(_merged(paths, contract, pool), paths, pool)
    scores = read_proxy_file(paths[0])
    check = check_merged if scores.header.shard is None else check_shard
    check(scores, contract=contract, name=paths[0].name)
    if pool is not None:
        check_pool(scores, pool, paths[0].name)
    return _report(scores, paths, pool)


def merge_proxy_files(
    paths: Sequence[Path], output: Path, *, contract: ProxyContract = PAPER_CONTRACT, pool: ProxyPool | None = None
) -> ProxyReport:
    """Merge the complete set of a pool's shards into one file in rank order.

    Raises:
        ArtefactError: the first thing found wrong, with file and line or position; or the output is one of the
            shards or can't be written. Nothing is written then.
    """
    if output.resolve() in {path.resolve() for path in paths}:
        raise ArtefactError(f"{output}: is one of the shards; name another file for the merged scores")
    merged = _merged(paths, contract, pool)
    write_proxy_file(output, merged)
    return _report(merged, paths, pool, output)


def _merged(paths: Sequence[Path], contract: ProxyContract, pool: ProxyPool | None) -> ProxyScores:
    shards = [read_proxy_file(path) for path in paths]
    merged = merge_shards(shards, contract=contract, names=[path.name for path in paths])
    if pool is not None:
        check_pool(merged, pool, ", ".join(path.name for path in paths))
    return merged


def _report(
    scores: ProxyScores, paths: Sequence[Path], pool: ProxyPool | None, output: Path | None = None
) -> ProxyReport:
    return ProxyReport(
        header=scores.header,
        records=len(scores.records),
        files={str(path): file_digest(path) for path in paths},
        pool_checked=pool is not None,
        output=output,
    )
