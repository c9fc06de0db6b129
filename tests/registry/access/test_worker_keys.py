"""What a worker signs of its programs: taken only from an enrolled key, and only of exactly this program and job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from registry.registry_client import REF, RegistryUnderTest, Start, marked, ref_key

from mxr.artifact.key import Key
from mxr.artifact.manifest import Manifest, artifact_id
from mxr.trust.envelope import Envelope
from mxr.trust.keys import SigningKey
from mxr.trust.statement import BUILT, PAYLOAD_TYPE, statement
from mxr.util import codec

from .test_signing_keys import key, key_file

MOMENT = "2026-11-29T12:00:00Z"


@pytest.fixture
def registry(start: Start) -> RegistryUnderTest:
    """A registry of its own."""
    return start()


def enrolled(registry: RegistryUnderTest, path: Path) -> SigningKey:
    """A new key that is enrolled for a worker."""
    made = SigningKey.create(path)
    path.with_suffix(".pem").write_text(made.public.pem)
    key(registry, "enroll", str(path.with_suffix(".pem")), "--name", "gpu-1")
    return made


class Signing:
    """A worker that gets a job, and says what it signed of it."""

    def __init__(self, registry: RegistryUnderTest) -> None:
        self.registry, self.number = registry, 0
        self.worker, self.model = registry.register_worker("one"), registry.register_model()
        self.uuid = registry.ok("GET", "/v1/keys")["registry"]

    def finish(
        self, signer: SigningKey, change: Callable[[Envelope], Envelope] = lambda made: made, **more: Any
    ) -> tuple[int, Any]:
        """The reply to a finish with a statement, in which some is changed; and the job."""
        self.number += 1
        job = self.registry.submit(ref_key(self.model, env=marked(str(self.number))))["id"]
        lease = self.registry.claim(self.worker)
        artifact = self.registry.publication(lease, data=REF, attributes={"migraphx_patch": "2.16.0"})
        asked, manifest = codec.decode(Key, artifact["key"]), codec.decode(Manifest, artifact["manifest"])
        said = {"registry": self.uuid, "artifact": artifact_id(asked.digest, manifest.files), "digest": asked.digest}
        said |= {"key": artifact["key"], "attributes": artifact["attributes"], "job": job, "worker": "one"}
        files = more.pop("files", {file.name: file.sha256 for file in manifest.files})
        document = statement(more.pop("kind", BUILT), files, said | {"built_at": MOMENT} | more)
        built = codec.encode(change(Envelope.sign(PAYLOAD_TYPE, document, signer)))
        done = {"lease": lease["secret"], "artifact": artifact, "built": built}
        status, said = self.registry.call("POST", f"/v1/jobs/{job}/finish", done)
        if status == 200:
            # Sent again, because its reply was lost.
            assert self.registry.call("POST", f"/v1/jobs/{job}/finish", done)[0] == 200
        return status, said if status == 200 else self.registry.job(job) | {"error": said}


def test_what_an_enrolled_worker_signed_is_kept(registry: RegistryUnderTest, tmp_path: Path) -> None:
    worker, by = Signing(registry), enrolled(registry, tmp_path / "worker.key")
    status, job = worker.finish(by)
    assert status == 200
    items = registry.ok("GET", f"/v1/statements/{job['artifact']}")["items"]
    assert [each["kind"] for each in items] == ["urn:mxr:accepted:v1", BUILT]
    document, signers = codec.decode(Envelope, items[1]["envelope"]).verify(PAYLOAD_TYPE, {by.public.id: by.public})
    assert signers == {by.public.id} and document["predicate"]["job"] == job["id"]
    listed = {each["id"]: (each["role"], each["name"]) for each in registry.ok("GET", "/v1/keys")["items"]}
    assert listed[by.public.id] == ("worker", "gpu-1") and sorted(listed.values(), key=str)[0] == ("registry", None)
    assert key(registry, "resign") == {"signed": 0}


def test_what_proves_nothing_publishes_nothing(registry: RegistryUnderTest, tmp_path: Path) -> None:
    worker, by = Signing(registry), enrolled(registry, tmp_path / "worker.key")
    stranger = SigningKey.create(tmp_path / "stranger.key")
    own = SigningKey.load(key_file(registry))
    _, earlier = worker.finish(by)

    def flipped(made: Envelope) -> Envelope:
        from dataclasses import replace

        at = len(made.payload) // 2
        return replace(
            made, payload=made.payload[:at] + ("A" if made.payload[at] != "A" else "B") + made.payload[at + 1 :]
        )

    attacks: list[tuple[SigningKey, dict[str, Any]]] = [
        (stranger, {}),
        (own, {}),
        (by, {"change": flipped}),
        (by, {"job": earlier["id"]}),
        (by, {"registry": "another"}),
        (by, {"artifact": earlier["artifact"]}),
        (by, {"files": {"model.mxr": "0" * 64}}),
        (by, {"files": {}}),
        (by, {"attributes": {"migraphx_patch": "2.16.1"}}),
        (by, {"kind": "urn:mxr:accepted:v1"}),
        (by, {"built_at": "yesterday"}),
    ]
    for signer, more in attacks:
        status, job = worker.finish(signer, **more)
        assert (status, job["error"]["code"]) == (409, "mismatch"), more
        assert job["state"] == "queued" and job["artifact"] is None
        registry.ok("POST", f"/v1/jobs/{job['id']}/cancel")
    for word in ("retire", "revoke"):
        key(registry, word, by.public.id)
        status, job = worker.finish(by)
        assert status == 409 and "no key that counts" in job["error"]["detail"]
        registry.ok("POST", f"/v1/jobs/{job['id']}/cancel")


def test_the_key_of_a_worker_is_none_of_the_registry(registry: RegistryUnderTest, tmp_path: Path) -> None:
    by = enrolled(registry, tmp_path / "worker.key")
    file = key_file(registry)
    kept = file.read_bytes()
    assert key(registry, "retire", next(iter(SigningKey.load(file).public.id.split())), expect=6), "the only one of it"
    file.write_bytes((tmp_path / "worker.key").read_bytes())
    try:
        worker = Signing(registry)
        registry.submit(ref_key(worker.model))
        lease = registry.claim(worker.worker)
        done = {"lease": lease["secret"], "artifact": registry.publication(lease, data=REF)}
        status, said = registry.call("POST", f"/v1/jobs/{lease['job']}/finish", done)
        assert status == 503 and "is that of a worker" in said["detail"]
        (tmp_path / "second.pem").write_text(SigningKey.create(tmp_path / "second.key").public.pem)
        refused = key(registry, "enroll", str(tmp_path / "second.pem"), "--name", "x", expect=75)["error"]
        assert "is that of a worker" in refused["detail"]
    finally:
        file.write_bytes(kept)
    assert by.public.id in {each["id"] for each in key(registry, "ls")["keys"]}
