"""What a request that stores something answers: 201 and `Location` for what it made, 200 for what was there, 202."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest
from harness.workers import registration_of
from registry.registry_client import REF, Parts, RegistryUnderTest, marked

MODEL = b"\x32\x07another"


def put(server: RegistryUnderTest, method: str, path: str, body: Any) -> tuple[int, str | None]:
    reply = server.request(method, path, body)
    return reply.status, reply.headers.get("location")


def bodies(server: RegistryUnderTest, parts: Parts, kind: str) -> tuple[str, str, Any, str]:
    """Method, path, body and location."""
    if kind == "blob":
        name = sha256(b"a blob").hexdigest()
        return "PUT", f"/v1/blobs/{name}", b"a blob", f"/v1/blobs/{name}"
    if kind == "artifact":
        body = {"key": parts.ref_key(env=marked("stored")), "manifest": server.manifest(REF)}
        return "POST", "/v1/artifacts", body, "/v1/artifacts/"
    if kind == "model":
        stated = server.registration(parts.onnx + MODEL)
        return "POST", "/v1/models", stated, f"/v1/models/{stated['model']}"
    if kind == "worker":
        return "POST", "/v1/workers", registration_of("stored", parts.ref_capabilities), "/v1/workers/"
    return "PUT", "/v1/locks/stored", {"artifacts": []}, "/v1/locks/stored"


@pytest.mark.parametrize("kind", ["blob", "artifact", "model", "worker", "lock"])
def test_what_is_made_has_a_place_and_what_is_there_is_answered_alike(registry: Any, parts: Parts, kind: str) -> None:
    method, path, body, place = bodies(registry, parts, kind)
    first, again = (put(registry, method, path, body) for _ in range(2))
    assert first[0] == 201
    # Who uploads bytes again does not hear whether somebody has them.
    assert again == (first if kind == "blob" else (200, None))
    assert first[1] is not None and first[1].startswith(place) and registry.get(first[1]).status == 200


def test_a_job_is_accepted_and_has_a_place(registry: Any, parts: Parts) -> None:
    key = parts.ref_key(env=marked("accepted"))
    for _ in range(2):
        # What a resolve did not find is requested with the same body.
        assert registry.call("POST", "/v1/resolve", {"key": key, "constraints": {}})[0] == 404
        status, place = put(registry, "POST", "/v1/jobs", {"key": key, "constraints": {}})
        assert status == 202 and place is not None and registry.ok("GET", place)["state"] == "queued"
    assert registry.publish(REF, key)[0] == 201
    assert put(registry, "POST", "/v1/jobs", {"key": key}) == (200, None)
