"""Envelopes and keys: what was signed verifies, and nothing else does."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mxr.errors import BadSignatureError, DamagedError, MxrError, NotAllowedError, UnknownKeyError, WouldOverwriteError
from mxr.trust import endorsement
from mxr.trust.envelope import MAX_PAYLOAD, Envelope, Signature
from mxr.trust.keys import PublicKey, SigningKey
from mxr.util import codec

KIND = "application/vnd.test+json"
DOCUMENT = {"artifact": "ab" * 32, "n": 7}


@pytest.fixture
def key(tmp_path: Path) -> SigningKey:
    return SigningKey.create(tmp_path / "one.key")


@pytest.fixture
def other(tmp_path: Path) -> SigningKey:
    return SigningKey.create(tmp_path / "other.key")


def keys(*some: SigningKey) -> dict[str, PublicKey]:
    return {each.public.id: each.public for each in some}


def test_what_was_signed_verifies_also_after_json(key: SigningKey, other: SigningKey) -> None:
    sent = json.loads(json.dumps(codec.encode(Envelope.sign(KIND, DOCUMENT, key, other))))
    found = codec.decode(Envelope, sent)
    assert found.verify(KIND, keys(key)) == (DOCUMENT, {key.public.id})
    assert found.verify(KIND, keys(key, other)) == (DOCUMENT, {key.public.id, other.public.id})
    assert found.unverified() == DOCUMENT


def test_each_flipped_byte_is_found(key: SigningKey) -> None:
    envelope = Envelope.sign(KIND, DOCUMENT, key)
    payload, sig = base64.b64decode(envelope.payload), base64.b64decode(envelope.signatures[0].sig)

    def text(data: bytes, at: int) -> str:
        return base64.b64encode(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]).decode()

    changed = [replace(envelope, payload=text(payload, at)) for at in range(len(payload))]
    changed += [
        replace(envelope, signatures=(replace(envelope.signatures[0], sig=text(sig, at)),)) for at in range(len(sig))
    ]
    changed += [replace(envelope, payloadType=KIND + "x"), replace(envelope, payloadType="")]
    for each in changed:
        with pytest.raises(BadSignatureError):
            each.verify(KIND, keys(key))
    with pytest.raises(BadSignatureError):
        envelope.verify("application/vnd.other+json", keys(key))


def test_one_bad_signature_of_two_refuses_both_and_unknown_ones_do_not_count(
    key: SigningKey, other: SigningKey
) -> None:
    good = Envelope.sign(KIND, DOCUMENT, key)
    forged = Signature(other.public.id, good.signatures[0].sig)
    both = replace(good, signatures=(*good.signatures, forged))
    with pytest.raises(BadSignatureError):
        both.verify(KIND, keys(key, other))
    assert both.verify(KIND, keys(key))[1] == {key.public.id}
    with pytest.raises(UnknownKeyError):
        good.verify(KIND, keys(other))
    # The id of a trusted key in front of another one's signature.
    with pytest.raises(BadSignatureError):
        replace(good, signatures=(forged,)).verify(KIND, keys(other))


@pytest.mark.parametrize(
    "bad",
    [
        {"payload": "?", "payloadType": KIND, "signatures": [{"keyid": "", "sig": ""}]},
        {"payload": "", "payloadType": KIND, "signatures": []},
        {"payload": "", "payloadType": KIND, "signatures": [{"keyid": "a", "sig": "b"}] * 9},
        {"payload": "A" * (MAX_PAYLOAD * 2), "payloadType": KIND, "signatures": [{"keyid": "", "sig": ""}]},
        {"payload": "", "payloadType": KIND},
        {"payload": 7, "payloadType": KIND, "signatures": [{"keyid": "", "sig": ""}]},
        [],
    ],
)
def test_what_is_no_envelope_is_refused(bad: Any, key: SigningKey) -> None:
    with pytest.raises(MxrError):
        codec.decode(Envelope, bad).verify(KIND, keys(key))


def test_a_signed_text_that_is_no_object_is_refused(key: SigningKey) -> None:
    for text in (b"[]", b"{", b"\xff"):
        data = b"DSSEv1 %d %s %d %s" % (len(KIND), KIND.encode(), len(text), text)
        sig = base64.b64encode(key.sign(data)).decode()
        envelope = Envelope(base64.b64encode(text).decode(), KIND, (Signature(key.public.id, sig),))
        with pytest.raises(MxrError):
            envelope.verify(KIND, keys(key))


def test_a_key_is_a_file_of_its_user_and_never_replaced(tmp_path: Path, key: SigningKey) -> None:
    path = tmp_path / "one.key"
    assert path.stat().st_mode & 0o777 == 0o600
    assert SigningKey.load(path).public.id == key.public.id == PublicKey(key.public.pem).id
    assert "PRIVATE" not in repr(key)
    with pytest.raises(WouldOverwriteError):
        SigningKey.create(path)
    (tmp_path / "link.key").symlink_to(tmp_path / "absent.key")
    with pytest.raises(MxrError):
        SigningKey.create(tmp_path / "link.key")
    path.chmod(0o622)
    with pytest.raises(NotAllowedError):
        SigningKey.load(path)
    text = path.read_bytes()
    for bad in (b"", b"x", text[:60], key.public.pem.encode()):
        (tmp_path / "bad.key").write_bytes(bad)
        with pytest.raises(DamagedError) as caught:
            SigningKey.load(tmp_path / "bad.key")
        assert text.decode()[30:60] not in str(caught.value)


@pytest.mark.parametrize("pem", ["", "x", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "\n" * 9])
def test_what_is_no_public_key_is_refused(pem: str) -> None:
    with pytest.raises(MxrError, match="not an Ed25519 public key"):
        PublicKey(pem)


def test_an_endorsement_is_of_one_key_for_one_registry(key: SigningKey, other: SigningKey, tmp_path: Path) -> None:
    third = SigningKey.create(tmp_path / "third.key")
    said = endorsement.endorse(other.public, "uuid", 1e9, key, "registry")
    endorsement.check(said, other.public, "uuid", keys(key), "registry")
    for public, registry, known, role in (
        (third.public, "uuid", keys(key), "registry"),
        (other.public, "another", keys(key), "registry"),
        (other.public, "uuid", keys(third), "registry"),
        (other.public, "uuid", keys(key), "worker"),
    ):
        with pytest.raises(MxrError):
            endorsement.check(said, public, registry, known, role)
