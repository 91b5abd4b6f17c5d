"""Signatures and rescoring: who stands for a run, and whether the model says it again."""

from __future__ import annotations

import base64
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calibudget.errors import ArtefactError, CheckFailedError, InputError
from calibudget.pipeline.run import run
from calibudget.pipeline.sign import sign
from calibudget.pipeline.verify import verify
from calibudget.recipe.load import load_recipe
from calibudget.store.canonical import canonical_json
from calibudget.store.checksums import write_sums
from calibudget.store.scores import read_scores, write_scores

serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa  # noqa: E402 - only where it is

KEYS = {
    "ed25519": ed25519.Ed25519PrivateKey.generate,
    "ecdsa": lambda: ec.generate_private_key(ec.SECP256R1()),
    "rsa": lambda: rsa.generate_private_key(65537, 2048),
}


def write_key(path: Path, kind: str = "ed25519", passphrase: Any = None) -> Any:
    """A new key pair: the private file, and the public one beside it."""
    key = KEYS[kind]()  # type: ignore[no-untyped-call]
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    lock = serialization.BestAvailableEncryption(passphrase) if passphrase else serialization.NoEncryption()
    path.write_bytes(key.private_bytes(pem, pkcs8, lock))  # type: ignore[attr-defined]
    public = path.with_suffix(".pub")
    public.write_bytes(key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo))  # type: ignore[attr-defined]
    return path, public


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("signed")
    rows = [{"instruction": f"q {i}?", "output": f"answer{i % 2 + 1}"} for i in range(80)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = "engine: fake\nmodel: embedded\nbudget: 9\ncalibration: {per_source: 30}\nsources:\n"
    answer = "answer: {kind: choice, labels: [answer1, answer2]}"
    (folder / "recipe.yaml").write_text(f"{text}  a: {{path: rows.jsonl, {answer}}}\n")
    run(load_recipe(folder / "recipe.yaml"), folder / "run")
    return folder / "run"


@pytest.fixture
def run_dir(made: Any, tmp_path: Path) -> Any:
    return shutil.copytree(made, tmp_path / "run")


def fields(directory: Any, key: Any) -> Any:
    return [(one.file, one.field) for one in verify(directory, key=key).differences]


@pytest.mark.parametrize("kind", KEYS)
def test_a_signed_run_verifies_with_either_half_of_the_key(run_dir: Path, tmp_path: Path, kind: Any) -> None:
    private, public = write_key(tmp_path / "key.pem", kind)
    sign(run_dir, private)
    for key in (private, public):
        found = verify(run_dir, key=key)
        assert found.differences == ()
        assert found.levels["signature"] == "checked"
    assert verify(run_dir).differences == ()
    assert "--key" in verify(run_dir).levels["signature"]


def test_the_envelope_is_dsse_over_an_in_toto_statement(run_dir: Path, tmp_path: Path) -> None:
    private, public = write_key(tmp_path / "key.pem")
    sign(run_dir, private)
    envelope = json.loads((run_dir / "signature.dsse.json").read_bytes())
    payload, kind = base64.b64decode(envelope["payload"]), envelope["payloadType"]
    message = f"DSSEv1 {len(kind)} {kind} {len(payload)} ".encode() + payload  # as the specification of DSSE spells it
    key = serialization.load_pem_public_key(public.read_bytes())
    key.verify(base64.b64decode(envelope["signatures"][0]["sig"]), message)
    statement = json.loads(payload)
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    names = {one["name"]: one["digest"]["sha256"] for one in statement["subject"]}
    assert {"manifest.json", "train.jsonl", "scores.parquet"} <= names.keys()


def test_a_run_that_a_forger_rewrote_to_the_last_digest_is_found(run_dir: Path, made: Path, tmp_path: Path) -> None:
    private, public = write_key(tmp_path / "key.pem")
    sign(run_dir, private)
    envelope = (run_dir / "signature.dsse.json").read_bytes()
    other = tmp_path / "other"  # an honest run of another recipe: every digest in it fits
    recipe = load_recipe(made.parent / "recipe.yaml", ["seed=7"])
    run(recipe, other)
    (other / "signature.dsse.json").write_bytes(envelope)
    assert verify(other).differences == ()
    assert ("signature.dsse.json", "subject.manifest.json") in fields(other, public)


@pytest.mark.parametrize("forge", ["other key", "payload", "type", "none", "garbage", "fewer", "gone"])
def test_every_forged_envelope_is_found(run_dir: Path, tmp_path: Path, forge: str) -> None:
    private, public = write_key(tmp_path / "key.pem")
    other, _ = write_key(tmp_path / "other.pem")
    sign(run_dir, other if forge == "other key" else private)
    path = run_dir / "signature.dsse.json"
    envelope = json.loads(path.read_bytes())
    statement = json.loads(base64.b64decode(envelope["payload"]))
    if forge == "payload":
        statement["predicate"]["manifest_sha256"] = "0" * 64
        envelope["payload"] = base64.b64encode(canonical_json(statement)).decode()
    elif forge == "type":
        envelope["payloadType"] = "text/plain"
    elif forge == "none":
        envelope["signatures"] = []
    elif forge == "garbage":
        envelope["signatures"] = [{"keyid": envelope["signatures"][0]["keyid"], "sig": "AAAA"}]
    elif forge == "fewer":  # signed by the right key, of one file only
        statement["subject"] = [one for one in statement["subject"] if one["name"] == "recipe.resolved.yaml"]
        payload = canonical_json(statement)
        kind = envelope["payloadType"].encode()
        message = b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)
        key = serialization.load_pem_private_key(private.read_bytes(), None)
        envelope["payload"] = base64.b64encode(payload).decode()
        envelope["signatures"][0]["sig"] = base64.b64encode(key.sign(message)).decode()
    path.write_bytes(canonical_json(envelope))
    if forge == "gone":
        path.unlink()
    assert {file for file, _ in fields(run_dir, public)} == {"signature.dsse.json"}


def test_two_keys_may_sign_and_a_changed_run_is_signed_anew_only_by_choice(run_dir: Path, tmp_path: Path) -> None:
    (one, one_public), (two, two_public) = (write_key(tmp_path / f"{name}.pem") for name in ("one", "two"))
    sign(run_dir, one)
    sign(run_dir, two)
    sign(run_dir, one)
    assert fields(run_dir, one_public) == fields(run_dir, two_public) == []
    (run_dir / "adapter").mkdir()
    (run_dir / "adapter" / "x").write_bytes(b"")
    names = [line.split("\t")[0] for line in (run_dir / "SHA256SUMS.tsv").read_text().splitlines()]
    write_sums(run_dir, [*names, "adapter/x"])
    found = verify(run_dir, key=one)
    assert found.differences == ()
    assert "not signed: adapter/x" in " ".join(found.checked)
    with pytest.raises(ArtefactError, match="remove it to sign anew"):
        sign(run_dir, one)


def test_what_does_not_verify_is_not_signed_and_bad_keys_are_told(
    run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private, public = write_key(tmp_path / "key.pem")
    locked, _ = write_key(tmp_path / "locked.pem", passphrase=b"open")
    (tmp_path / "none.pem").write_text("no key")
    for path, words in ((public, "private one"), (tmp_path / "none.pem", "no PEM key"), (locked, "PASSPHRASE")):
        with pytest.raises(InputError, match=words):
            sign(run_dir, path)
    with pytest.raises(InputError, match="can't be read"):
        verify(run_dir, key=tmp_path / "missing.pem")
    monkeypatch.setenv("CALIBUDGET_KEY_PASSPHRASE", "open")
    sign(run_dir, locked)
    (run_dir / "signature.dsse.json").unlink()
    (run_dir / "train.jsonl").write_bytes(b"{}\n")
    with pytest.raises(CheckFailedError, match="isn't signed"):
        sign(run_dir, private)
    assert not (run_dir / "signature.dsse.json").exists()


@pytest.mark.slow
def test_a_model_that_scored_says_it_again_and_invented_scores_are_found(
    tiny_directory: Path, made: Path, tmp_path: Path
) -> None:
    recipe = load_recipe(made.parent / "recipe.yaml", ["engine=local", f"model={tiny_directory}"])
    directory = tmp_path / "run"
    run(recipe, directory)
    found = verify(directory, data_dir=made.parent, model=str(tiny_directory), sample=7)
    assert found.differences == ()
    assert found.levels["rescoring"] == found.levels["redraw"] == "checked"
    assert "7 calibration records scored again" in " ".join(found.checked)
    scores = read_scores(directory / "scores.parquet")
    invented = [replace(one, nll=one.nll + 0.01, error=one.error + 0.01) for one in scores.scores]
    write_scores(directory / "scores.parquet", invented, error=scores.error, provenance=dict(scores.provenance))  # type: ignore[arg-type]
    changed = verify(directory, data_dir=made.parent, model=str(tiny_directory), sample=7)
    assert sum(one.field.endswith(".nll") and "within" in one.expected for one in changed.differences) == 7
    with pytest.raises(InputError, match="--data-dir"):
        verify(directory, model=str(tiny_directory))
