"""What others signed of an artifact: kept and shown, verified by nobody, and proof of nothing."""

from __future__ import annotations

import base64
import json
from typing import Any

from registry.registry_client import Parts, RegistryUnderTest, marked, on_sqlite

from mxr.artifact.limits import MAX_STATEMENT_BYTES

SLSA = "https://slsa.dev/provenance/v1"


def published(server: RegistryUnderTest, parts: Parts, mark: str) -> Any:
    status, said = server.publish(parts.gfx908, parts.gpu_key(env=marked(mark)), **parts.explicit)
    assert status in (200, 201)
    return said


def envelope(*sha256s: str, signature: dict[str, Any] | None = None, **change: Any) -> dict[str, Any]:
    """A DSSE envelope around a statement about these files."""
    subject = [{"name": f"file-{at}", "digest": {"sha256": sha}} for at, sha in enumerate(sha256s)]
    said = {"_type": "https://in-toto.io/Statement/v1", "subject": subject, "predicateType": SLSA, "predicate": {}}
    payload = base64.b64encode(json.dumps(said | change).encode()).decode()
    signed = {"sig": base64.b64encode(b"x" * 64).decode()} if signature is None else signature
    return {"payload": payload, "payloadType": "application/vnd.in-toto+json", "signatures": [signed]}


def sigstore(*sha256s: str, **change: Any) -> dict[str, Any]:
    """A bundle of sigstore, as a CI writes it."""
    material = {"certificate": {"rawBytes": "AAAA"}, "tlogEntries": [{"logIndex": "1"}]}
    kind = "application/vnd.dev.sigstore.bundle.v0.3+json"
    found = {"mediaType": kind, "verificationMaterial": material, "dsseEnvelope": envelope(*sha256s)}
    return found | change


def add(server: RegistryUnderTest, id: str, statement: Any) -> tuple[int, Any]:
    return server.call("POST", f"/v1/statements/{id}", {"statement": statement})


def test_what_others_signed_is_kept_as_it_came(server: RegistryUnderTest, parts: Parts) -> None:
    artifact = published(server, parts, "imported")
    id, bundle = artifact["id"], sigstore("0" * 64, artifact["sha256"])
    status, said = add(server, id[:12], bundle)
    assert (status, said["kind"], said["imported"], said["bundle"]) == (201, SLSA, True, bundle)
    assert add(server, id, bundle)[0] == 200, "it is there once"
    plain = envelope(artifact["sha256"], signature={"keyid": "ab" * 32, "sig": "AAAA"})
    assert add(server, id, plain)[0] == 201
    items = server.ok("GET", f"/v1/statements/{id}")["items"]
    assert [(each["kind"], each["imported"]) for each in items] == [
        ("urn:mxr:accepted:v1", False),
        (SLSA, True),
        (SLSA, True),
    ]
    assert items[2]["bundle"] == bundle and items[1]["envelope"] == plain and items[1]["bundle"] is None
    # What this registry signed itself is no statement of others.
    assert add(server, id, items[0]["envelope"])[0] == 200
    assert len(server.ok("GET", f"/v1/statements/{id}")["items"]) == 3
    (event,) = server.ok("GET", f"/v1/events?subject={id}&kind=artifact.statement&limit=1")["items"]
    assert event["detail"] == {"kind": SLSA, "sigstore": False}


def test_there_are_not_too_many_of_them(server: RegistryUnderTest, parts: Parts) -> None:
    artifact = published(server, parts, "many")
    for at in range(20):
        assert add(server, artifact["id"], envelope(artifact["sha256"], predicate={"at": at}))[0] == 201
    status, said = add(server, artifact["id"], envelope(artifact["sha256"], predicate={"at": 20}))
    assert (status, said["context"]["limit"]) == (409, 20)


@on_sqlite
def test_bad_statements_are_refused(server: RegistryUnderTest, parts: Parts) -> None:
    artifact = published(server, parts, "bad")
    sha = artifact["sha256"]
    for statement, status in (
        (envelope("0" * 64), 409),
        (envelope(sha, _type="https://in-toto.io/Statement/v0.1"), 409),
        (envelope(sha) | {"payloadType": "text/plain"}, 409),
        (envelope(), 422),
        (envelope(sha, subject="all"), 422),
        (envelope(sha, subject=[{"name": "a"}]), 422),
        (envelope(sha, predicateType=7), 422),
        (envelope(sha, predicateType="a\nb"), 422),
        (envelope(sha, predicateType="x" * 101), 422),
        (envelope(sha) | {"signatures": []}, 422),
        (envelope(sha) | {"signatures": [7]}, 422),
        (envelope(sha) | {"signatures": [{"sig": "AAAA"}] * 9}, 422),
        (envelope(sha) | {"payload": "%"}, 409),
        (envelope(sha) | {"payload": base64.b64encode(b"[" * 5000).decode()}, 400),
        (sigstore(sha, dsseEnvelope=None), 422),
        (sigstore(sha, mediaType="application/json"), 422),
        (envelope(sha, predicate={"x": "y" * MAX_STATEMENT_BYTES}), 422),
        ({}, 422),
        (7, 422),
    ):
        found, said = add(server, artifact["id"], statement)
        assert found == status and said["detail"], (found, said, str(statement)[:200])
    assert add(server, "0" * 64, envelope(sha))[0] == 404
    assert len(server.ok("GET", f"/v1/statements/{artifact['id']}")["items"]) == 1
