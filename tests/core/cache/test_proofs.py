"""What a host learns of keys stays with it, also where its user cannot write the file that says what is required."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mxr.artifact.attributes import Attributes
from mxr.artifact.key import Key
from mxr.artifact.manifest import Blob, File, Manifest, artifact_id
from mxr.artifact.records import Artifact
from mxr.cache.store import Cache, CachePolicy
from mxr.errors import NotAllowedError, RevokedKeyError, UsageError
from mxr.protocol.recalls import RecallList
from mxr.trust import rules
from mxr.trust.envelope import Envelope
from mxr.trust.keys import SigningKey
from mxr.trust.recall_list import PAYLOAD_TYPE as RECALLS
from mxr.trust.recall_list import SignedRecalls
from mxr.trust.rules import KnownKey, TrustRule
from mxr.trust.statement import ACCEPTED, PAYLOAD_TYPE, statement
from mxr.util import codec
from mxr.util.codec import Timestamp, time_text

UUID, URL = "11111111-1111-4111-8111-111111111111", "https://registry.example.com"
FOREVER = 4e9


@pytest.fixture
def artifact() -> Artifact:
    sha = "ab" * 32
    manifest = Manifest((File("model.mxr", 7, sha, (Blob(sha, 7),)),))
    key = Key("sha256:" + "c" * 64, "gpu", "2.15", (("x", (4, 3)),), "amd", "gfx942", "7.2")
    id = artifact_id(key.digest, manifest.files)
    return Artifact(
        id, key.digest, manifest.sha256, 7, key, Attributes(), {}, Timestamp(1.0), "built", "built", manifest=manifest
    )


class Told:
    """What a registry tells: one statement, and a list by which the first key is revoked."""

    def __init__(self, artifact: Artifact, old: SigningKey, new: SigningKey) -> None:
        self.identity, self.recalls = UUID, 7
        said = {"registry": UUID, "namespace": "default", "artifact": artifact.id, "digest": artifact.digest}
        said |= {"key": artifact.key.to_json(), "attributes": artifact.attributes.to_json(), "origin": "built"}
        document = statement(ACCEPTED, {"model.mxr": "ab" * 32}, said | {"accepted_at": time_text(1e9)})
        self.signed = Envelope.sign(PAYLOAD_TYPE, document, old)
        keys = {
            old.public.id: KnownKey(old.public.pem, "revoked", Timestamp(1e9)),
            new.public.id: KnownKey(new.public.pem),
        }
        listed = SignedRecalls(UUID, "default", 7, Timestamp(1e9), Timestamp(FOREVER), (), keys)
        self.list = RecallList("default", 7, (), Envelope.sign(RECALLS, codec.encode(listed), new))
        self.asked = 0

    def statements(self, _: str) -> Any:
        return SimpleNamespace(items=[SimpleNamespace(envelope=self.signed)])

    def recall_list(self) -> RecallList:
        self.asked += 1
        return self.list


@pytest.mark.parametrize("writable", [True, False])
def test_a_revocation_stays_known(
    tmp_path: Path, artifact: Artifact, monkeypatch: pytest.MonkeyPatch, writable: bool
) -> None:
    old, new = (SigningKey.create(tmp_path / f"{name}.key") for name in ("old", "new"))
    trusted = {each.public.id: KnownKey(each.public.pem) for each in (old, new)}
    rules.write_rules(tmp_path / "config", {URL: TrustRule(UUID, trusted)})
    policy = CachePolicy(registry=URL, private=tmp_path / "state", config=tmp_path / "config")
    told: Any = Told(artifact, old, new)

    def opened() -> Cache:
        return Cache(tmp_path / "cache", policy)

    cache = opened()
    cache.note_registry(UUID)
    cache.collect_proof(artifact, lambda: told)
    cache.require_proof(artifact)
    if not writable:

        def refuse(*_: Any) -> None:
            raise NotAllowedError

        monkeypatch.setattr(rules, "write_rules", refuse)
    cache.note_reply(told)
    assert told.asked == 1
    # In this process, and in later ones without a network.
    for each in (cache, opened(), opened()):
        with pytest.raises(RevokedKeyError):
            each.require_proof(artifact)
    later = opened()
    later.note_reply(told)
    assert told.asked == 1, "it has taken this list"
    # A host that lost what it learned asks again.
    for path in (tmp_path / "state").rglob("*.json"):
        path.unlink()
    rules_file = tmp_path / "config" / "trust.json"
    again = opened()
    again.note_reply(told)
    assert told.asked == (1 if writable else 2)
    with pytest.raises(RevokedKeyError):
        again.require_proof(artifact)
    rules_file.write_text("{")
    with pytest.raises(UsageError):
        opened().require_proof(artifact)
