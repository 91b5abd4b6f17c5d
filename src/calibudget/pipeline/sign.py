"""Signing a run: `signature.dsse.json`, which `verify` checks with the signer's key."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from calibudget.errors import ArtefactError, CheckFailedError, InputError
from calibudget.pipeline.checks.signature import (
    PAYLOAD_TYPE,
    PREDICATE_TYPE,
    STATEMENT_TYPE,
    encoded,
    key_id,
    load_key,
    signature_rows,
    signing_scheme,
)
from calibudget.pipeline.verify import verified
from calibudget.store.canonical import canonical_json, read_object
from calibudget.store.checksums import SIGNATURE_NAME, file_digest, read_sums
from calibudget.store.files import directory_lock, write_atomic
from calibudget.store.manifest import MANIFEST


def sign(run_dir: str | Path, key_file: str | Path) -> str:
    """Sign a finished run that verifies, with a private key, into its `signature.dsse.json`; the key's id is returned.

    The id is the SHA-256 of the key's public part in DER form. Another key's signature of the same files stays beside
    the new one.

    Raises:
        DependencyError: the extra `sign` isn't installed.
        InputError: the key can't be read or isn't of a known kind.
        ArtefactError: the run isn't finished, or holds a signature of other files.
        CheckFailedError: the run doesn't verify.
    """
    directory = Path(run_dir)
    key = load_key(Path(key_file))
    if not hasattr(key, "sign"):
        raise InputError(f"{key_file}: holds a public key; signing takes the private one")
    signing_scheme(key.public_key())
    verified(directory, "it isn't signed", CheckFailedError)
    with directory_lock(directory):
        payload = _statement(directory)
        signatures = _signatures_of(directory, payload)
        public = key.public_key()
        own_id = key_id(public)
        value = base64.b64encode(bytes(key.sign(encoded(payload), *signing_scheme(public)))).decode()
        signatures = [one for one in signatures if one.get("keyid") != own_id] + [{"keyid": own_id, "sig": value}]
        envelope = {
            "payload": base64.b64encode(payload).decode(),
            "payloadType": PAYLOAD_TYPE,
            "signatures": sorted(signatures, key=lambda one: str(one.get("keyid"))),
        }
        write_atomic(directory / SIGNATURE_NAME, canonical_json(envelope))
    return own_id


def _statement(directory: Path) -> bytes:
    sums = read_sums(directory)
    manifest = read_object(directory / MANIFEST.name)
    statement = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": digest.sha256}} for name, digest in sums.items()],
        "predicateType": PREDICATE_TYPE,
        "predicate": {"manifest_sha256": manifest["manifest_sha256"]},
    }
    return canonical_json(statement)


def _signatures_of(directory: Path, payload: bytes) -> list[dict[str, Any]]:
    """Signatures that are there already, if they are of these files."""
    path = directory / SIGNATURE_NAME
    if not path.exists():
        return []
    file_digest(path)
    envelope = read_object(path)
    if envelope.get("payload") != base64.b64encode(payload).decode():
        raise ArtefactError(f"{path}: signs other files than the run has now; remove it to sign anew")
    return signature_rows(envelope)
