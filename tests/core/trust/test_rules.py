"""What a rule takes for proof: one record of exactly this artifact, by a key that counts, made while it counted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mxr.artifact.attributes import Attributes
from mxr.artifact.key import Key
from mxr.artifact.manifest import Blob, File, Manifest, artifact_id
from mxr.artifact.records import Artifact
from mxr.errors import (
    BadSignatureError,
    MxrError,
    OtherRecordError,
    RevokedKeyError,
    UnknownKeyError,
    UnsignedError,
    UsageError,
)
from mxr.trust import endorsement, rules
from mxr.trust.envelope import Envelope, Signature
from mxr.trust.keys import SigningKey
from mxr.trust.rules import BUILT, OF_REGISTRY, OF_WORKER, SIGNED, KnownKey, OfferedKey, TrustRule
from mxr.trust.statement import ACCEPTED, PAYLOAD_TYPE, statement
from mxr.trust.statement import BUILT as BUILT_KIND
from mxr.util.codec import Timestamp, time_text

REGISTRY, DAY = "1b4e28ba-2fa1-41d2-883f-0016d3cca427", 86_400.0
SIGNED_AT = 1_790_000_000.0


@pytest.fixture
def signer(tmp_path: Path) -> SigningKey:
    return SigningKey.create(tmp_path / "one.key")


@pytest.fixture
def artifact() -> Artifact:
    sha = "ab" * 32
    manifest = Manifest((File("model.mxr", 7, sha, (Blob(sha, 7),)),))
    key = Key("sha256:" + "c" * 64, "gpu", "2.15", (("x", (4, 3)),), "amd", "gfx942", "7.2")
    return Artifact(
        id=artifact_id(key.digest, manifest.files),
        digest=key.digest,
        sha256=manifest.sha256,
        size=7,
        key=key,
        attributes=Attributes(sramecc="+", xnack="-"),
        provenance={},
        published_at=Timestamp(1.0),
        origin="pushed",
        serve="any",
        manifest=manifest,
    )


def record(artifact: Artifact, signer: SigningKey, /, **more: Any) -> Envelope:
    """What a registry signs of an artifact, with some of it changed."""
    assert artifact.manifest is not None
    said = {
        "registry": REGISTRY,
        "namespace": "default",
        "artifact": artifact.id,
        "digest": artifact.digest,
        "key": artifact.key.to_json(),
        "attributes": artifact.attributes.to_json(),
        "origin": "pushed",
        "accepted_at": time_text(SIGNED_AT),
    }
    kind = more.pop("kind", ACCEPTED)
    files = more.pop("files", {file.name: file.sha256 for file in artifact.manifest.files})
    return Envelope.sign(PAYLOAD_TYPE, statement(kind, files, said | more), signer)


def rule(*signers: SigningKey, **more: Any) -> TrustRule:
    return TrustRule(REGISTRY, {each.public.id: KnownKey(each.public.pem, **more) for each in signers})


def test_a_record_proves_what_it_says(artifact: Artifact, signer: SigningKey) -> None:
    rule(signer).prove("default", artifact, [record(artifact, signer)])
    with pytest.raises(UnsignedError):
        rule(signer).prove("default", artifact, [])


@pytest.mark.parametrize(
    "change",
    [
        {"registry": "another"},
        {"namespace": "team/other"},
        {"artifact": "0" * 64},
        {"digest": "0" * 64},
        {"key": {}},
        {"attributes": {"num_cu": 7}},
        {"files": {"model.mxr": "0" * 64}},
        {"files": {"other.mxr": "0" * 64, "model.mxr": "0" * 64}},
        {"accepted_at": "yesterday"},
        {"accepted_at": None},
        {"origin": 7},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_record_of_something_else_proves_nothing(artifact: Artifact, signer: SigningKey, change: Any) -> None:
    bad = record(artifact, signer, **change)
    with pytest.raises(OtherRecordError):
        rule(signer).prove("default", artifact, [bad])
    # One that proves it is enough, whatever else lies beside it.
    rule(signer).prove("default", artifact, [bad, record(artifact, signer)])


def test_each_failure_has_a_type_of_its_own(artifact: Artifact, signer: SigningKey, tmp_path: Path) -> None:
    other = SigningKey.create(tmp_path / "other.key")
    good = record(artifact, signer)
    with pytest.raises(UnknownKeyError):
        rule(other).prove("default", artifact, [good])
    forged = replace(good, signatures=(Signature(other.public.id, good.signatures[0].sig),))
    with pytest.raises(BadSignatureError):
        rule(other).prove("default", artifact, [forged])
    with pytest.raises(BadSignatureError):
        rule(signer, other).prove(
            "default", artifact, [replace(good, signatures=(*good.signatures, *forged.signatures))]
        )
    with pytest.raises(RevokedKeyError):
        rule(signer, state="revoked").prove("default", artifact, [good])
    unknown = Envelope.sign(PAYLOAD_TYPE, statement(ACCEPTED + "2", {}, {}), signer)
    with pytest.raises(OtherRecordError):
        rule(signer).prove("default", artifact, [unknown])
    with pytest.raises(OtherRecordError, match="worker"):
        replace(rule(signer), origin=BUILT).prove("default", artifact, [good])
    replace(rule(signer), origin=BUILT).prove("default", artifact, [record(artifact, signer, origin="built")])


def test_a_retired_key_counts_for_what_it_signed_before(artifact: Artifact, signer: SigningKey) -> None:
    good = record(artifact, signer)
    for ended, counts in ((SIGNED_AT + DAY, True), (SIGNED_AT, True), (SIGNED_AT - DAY, False)):
        found = rule(signer, state="retired", ended_at=Timestamp(ended))
        if counts:
            found.prove("default", artifact, [good])
        else:
            with pytest.raises(RevokedKeyError):
                found.prove("default", artifact, [good])


def offered(key: SigningKey, by: SigningKey | None, registry: str = REGISTRY, **more: Any) -> OfferedKey:
    role = more.get("role", OF_REGISTRY)
    said = None if by is None else endorsement.endorse(key.public, registry, SIGNED_AT, by, role)
    return OfferedKey(key.public.id, KnownKey(key.public.pem, **more), said)


def built(artifact: Artifact, worker: SigningKey, /, **more: Any) -> Envelope:
    """What a worker signs of an artifact, with some of it changed."""
    said = {"kind": BUILT_KIND, "job": "a" * 32, "worker": "gpu-1", "built_at": time_text(SIGNED_AT)}
    return record(artifact, worker, **said | more)


def test_what_a_worker_signed(artifact: Artifact, signer: SigningKey, tmp_path: Path) -> None:
    worker, stranger = SigningKey.create(tmp_path / "worker.key"), SigningKey.create(tmp_path / "stranger.key")
    of_worker = {worker.public.id: KnownKey(worker.public.pem, role=OF_WORKER)}
    found = TrustRule(REGISTRY, {**rule(signer).keys, **of_worker}, SIGNED)
    good = [record(artifact, signer, origin="built"), built(artifact, worker)]
    found.prove("default", artifact, good)
    found.prove("default", artifact, good[::-1])
    # The worker leaves open what the registry found, and states what it knows.
    more = replace(artifact, attributes=replace(artifact.attributes, num_cu=304, libraries=("rocblas",)))
    known = record(more, signer, origin="built")
    found.prove("default", more, [known, built(artifact, worker)])
    for envelopes, error in (
        (good[:1], UnsignedError),
        (good[1:], UnsignedError),
        ([record(artifact, signer), good[1]], OtherRecordError),
        ([good[0], built(artifact, stranger)], UnknownKeyError),
        ([good[0], built(artifact, signer)], UnknownKeyError),
        ([record(artifact, worker, origin="built"), good[1]], UnknownKeyError),
        ([good[0], built(artifact, worker, files={"model.mxr": "0" * 64})], OtherRecordError),
        ([good[0], built(artifact, worker, artifact="0" * 64)], OtherRecordError),
        ([good[0], built(artifact, worker, registry="another")], OtherRecordError),
        ([good[0], built(artifact, worker, attributes={"sramecc": "-", "xnack": "-"})], OtherRecordError),
        ([good[0], built(artifact, worker, job=None)], OtherRecordError),
        ([good[0], built(artifact, worker, kind="urn:mxr:built:v2")], UnsignedError),
    ):
        with pytest.raises(error):
            found.prove("default", artifact, envelopes)
    for state, moment in (("revoked", SIGNED_AT + DAY), ("retired", SIGNED_AT - 2 * DAY)):
        known_key = KnownKey(worker.public.pem, state, Timestamp(moment), OF_WORKER)
        ended = found.listed({worker.public.id: known_key})
        with pytest.raises(RevokedKeyError):
            ended.prove("default", artifact, good)
    with pytest.raises(UsageError):
        KnownKey(worker.public.pem, role="admin")


def test_keys_are_followed_as_far_as_they_endorse_each_other(signer: SigningKey, tmp_path: Path) -> None:
    second, third, stranger = (SigningKey.create(tmp_path / f"{name}.key") for name in ("second", "third", "stranger"))
    start = rule(signer)
    chain = [offered(third, second), offered(second, signer), offered(stranger, stranger)]
    assert set(start.follow(chain).keys) == {signer.public.id, second.public.id, third.public.id}
    for bad in (
        [offered(second, None)],
        [offered(second, signer, "another registry")],
        [offered(third, second)],
        [replace(offered(second, signer), id=third.public.id)],
        [replace(offered(second, signer), known=KnownKey(stranger.public.pem))],
        [replace(offered(second, signer), known=KnownKey("no key"))],
        # The word for a key of a worker makes none of the registry.
        [replace(offered(second, signer, role=OF_WORKER), known=KnownKey(second.public.pem))],
    ):
        assert start.follow(bad) == start
    # A key that was revoked endorses nobody any more, and does not come back.
    ended = start.follow([offered(signer, None, state="revoked", ended_at=Timestamp(SIGNED_AT))])
    assert ended.keys[signer.public.id].state == "revoked"
    assert ended.follow([offered(second, signer), offered(signer, None)]) == ended
    # Nor does a registry put another key under a known id.
    spoiled = start.follow(
        [replace(offered(signer, None, state="retired"), known=KnownKey(stranger.public.pem, "retired"))]
    )
    assert spoiled.keys[signer.public.id].public_key == signer.public.pem


def test_the_file_is_only_this_users(tmp_path: Path, signer: SigningKey) -> None:
    assert rules.read_rules(None) == {} == rules.read_rules(tmp_path / "absent")
    found = {"https://registry": rule(signer)}
    path = rules.write_rules(tmp_path / "config", found)
    assert rules.read_rules(tmp_path / "config") == found and path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o602)
    with pytest.raises(UsageError):
        rules.read_rules(tmp_path / "config")
    with pytest.raises(MxrError):
        rules.write_rules(None, found)


def test_a_signed_list_brings_the_keys_before_and_ends_others(
    artifact: Artifact, signer: SigningKey, tmp_path: Path
) -> None:
    old, stranger = SigningKey.create(tmp_path / "old.key"), SigningKey.create(tmp_path / "stranger.key")
    retired = KnownKey(old.public.pem, "retired", Timestamp(SIGNED_AT + DAY))
    found = rule(signer).listed({old.public.id: retired})
    found.prove("default", artifact, [record(artifact, old)])
    for id, bad in (
        (old.public.id, KnownKey(old.public.pem, "revoked", Timestamp(SIGNED_AT))),
        (old.public.id, KnownKey(stranger.public.pem)),
    ):
        assert rule(signer).listed({id: bad}) == rule(signer)
    ended = found.listed({old.public.id: KnownKey(old.public.pem, "revoked", Timestamp(SIGNED_AT))})
    assert ended.listed({old.public.id: retired}) == ended
    with pytest.raises(RevokedKeyError):
        ended.prove("default", artifact, [record(artifact, old)])
    with pytest.raises(MxrError):
        rule(signer).listed({"0" * 64: KnownKey("no key")})
