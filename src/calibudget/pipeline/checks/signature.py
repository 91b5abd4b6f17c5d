"""Who stands for a run: an in-toto statement of its files' digests in a signed DSSE envelope, beside the files.

The envelope (`signature.dsse.json`) names every file that `SHA256SUMS.tsv` bound when it was made; what training and
evaluation add later isn't signed until somebody signs again. Keys are PEM files of Ed25519, ECDSA (SHA-256) or RSA (PSS
with SHA-256); a passphrase comes from the environment. Formats: in-toto Statement v1, DSSE v1.
"""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from calibudget.errors import ArtefactError, InputError, requires
from calibudget.pipeline.checks.findings import Findings
from calibudget.store.canonical import loads_object, read_object, sha256_hex
from calibudget.store.checksums import SIGNATURE_NAME, SUMS_NAME, read_sums
from calibudget.store.manifest import MANIFEST

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes

#: Environment variable that holds the passphrase of an encrypted key.
PASSPHRASE: Final = "CALIBUDGET_KEY_PASSPHRASE"  # noqa: S105 - a name

PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = "urn:calibudget:run:1"
_KINDS: Final = "Ed25519, ECDSA or RSA"


def check_signature(findings: Findings, key_file: Path) -> None:
    """Check that a key signed the run's files as they are; `key_file` holds its public part, or both."""
    from cryptography.exceptions import InvalidSignature

    key = load_key(key_file)
    public = key.public_key() if hasattr(key, "public_key") else key
    signing_scheme(public)
    envelope = findings.read(SIGNATURE_NAME, read_object)
    if envelope is None:
        return
    try:
        payload = base64.b64decode(str(envelope["payload"]), validate=True)
        rows = [one for one in signature_rows(envelope) if one.get("keyid") == key_id(public)]
        values = [base64.b64decode(str(one["sig"]), validate=True) for one in rows]
    except (KeyError, binascii.Error, ArtefactError) as error:
        findings.add(SIGNATURE_NAME, "", "a DSSE envelope", f"another form ({error})")
        return
    if envelope.get("payloadType") != PAYLOAD_TYPE or not values:
        findings.add(SIGNATURE_NAME, "signatures", f"one by the key of {key_file.name}", "none")
        return
    try:
        for value in values:
            public.verify(value, encoded(payload), *signing_scheme(public))
    except InvalidSignature:
        findings.add(SIGNATURE_NAME, "signatures", f"one by the key of {key_file.name}", "one that isn't")
        return
    _check_statement(findings, payload)


def _check_statement(findings: Findings, payload: bytes) -> None:
    statement = findings.derive(SIGNATURE_NAME, "a statement", lambda: loads_object(payload, SIGNATURE_NAME))
    subjects = statement.get("subject") if statement is not None else None
    if statement is None or not isinstance(subjects, list) or statement.get("_type") != STATEMENT_TYPE:
        findings.add(SIGNATURE_NAME, "payload", "an in-toto statement", "another form")
        return
    signed = {one.get("name"): (one.get("digest") or {}).get("sha256") for one in subjects if isinstance(one, dict)}
    findings.compare(SIGNATURE_NAME, PREDICATE_TYPE, statement.get("predicateType"), field="predicateType")
    sums = findings.read(SUMS_NAME, lambda path: read_sums(path.parent)) or {}
    now = {name: sums[name].sha256 for name in signed if name in sums}
    findings.compare(SIGNATURE_NAME, now, signed, field="subject")
    manifest = findings.read(MANIFEST.name, MANIFEST.read)
    own = {*manifest.artefacts, MANIFEST.name} if manifest is not None else set()
    if missing := sorted(own - {*signed}):
        findings.add(SIGNATURE_NAME, "subject", f"{missing[0]} among the signed files", "a statement without it")
    later = sorted(sums.keys() - {*signed})
    findings.checked.append(
        f"signature: {len(signed)} files, by the key given" + (f"; not signed: {', '.join(later)}" if later else "")
    )


def signature_rows(envelope: dict[str, object]) -> list[dict[str, Any]]:
    """The signatures of an envelope."""
    rows = envelope.get("signatures")
    if not isinstance(rows, list) or not all(isinstance(one, dict) for one in rows):
        raise ArtefactError(f"{SIGNATURE_NAME}: has no list of signatures")
    return rows


def encoded(payload: bytes) -> bytes:
    """What is signed: DSSE's encoding of the payload with its type."""
    return b"DSSEv1 %d %s %d %s" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload), payload)


def key_id(public: PublicKeyTypes) -> str:
    """SHA-256 of a public key in DER form."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return sha256_hex(public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


def signing_scheme(public: PublicKeyTypes) -> tuple[Any, ...]:
    """What signing takes beside the data, by the kind of the key."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa

    if isinstance(public, ed25519.Ed25519PublicKey):
        return ()
    if isinstance(public, ec.EllipticCurvePublicKey):
        return (ec.ECDSA(hashes.SHA256()),)
    if isinstance(public, rsa.RSAPublicKey) and public.key_size >= 2048:
        return padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH), hashes.SHA256()
    raise InputError(f"a key of this kind or size isn't taken; make one of {_KINDS} (2,048 bits or more)")


def load_key(path: Path) -> Any:
    """The private or public key of a PEM file."""
    with requires("a signature", "sign"):
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
    passphrase = os.environ.get(PASSPHRASE)
    try:
        data = path.read_bytes()
        if b"PRIVATE KEY" in data:
            return load_pem_private_key(data, passphrase.encode() if passphrase and b"ENCRYPTED" in data else None)
        return load_pem_public_key(data)
    except OSError as error:
        raise InputError(f"{path}: can't be read: {error.strerror or error}") from error
    except TypeError as error:
        raise InputError(f"{path}: is encrypted; put its passphrase into {PASSPHRASE}") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InputError(f"{path}: holds no PEM key of {_KINDS}, or the passphrase in {PASSPHRASE} is wrong") from error
