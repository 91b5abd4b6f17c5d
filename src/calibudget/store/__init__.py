"""Everything that touches a run directory: canonical bytes, atomic files, the lock, the journal, sums and artefacts."""

from calibudget.store.atomic import atomic_file, clean_stale, write_atomic
from calibudget.store.canonical import canonical_json, loads_object, read_object, sha256_hex
from calibudget.store.journal import Journal
from calibudget.store.lock import LOCK_NAME, directory_lock
from calibudget.store.paths import check_labels, confined
from calibudget.store.sums import SUMS_NAME, Difference, FileDigest, check_sums, file_digest, read_sums, write_sums

__all__ = [
    "LOCK_NAME",
    "SUMS_NAME",
    "Difference",
    "FileDigest",
    "Journal",
    "atomic_file",
    "canonical_json",
    "check_labels",
    "check_sums",
    "clean_stale",
    "confined",
    "directory_lock",
    "file_digest",
    "loads_object",
    "read_object",
    "read_sums",
    "sha256_hex",
    "write_atomic",
    "write_sums",
]
