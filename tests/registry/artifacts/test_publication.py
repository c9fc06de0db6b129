"""Publishing over HTTP: what is checked before an artifact is visible, and what a second publication does."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any

import pytest
from registry.registry_client import Parts, RegistryUnderTest, on_sqlite


def test_a_publication_shows_what_it_is(server: RegistryUnderTest, parts: Parts) -> None:
    status, said = server.publish(parts.gfx908, parts.gpu_key(), cut=5000, provenance={"by": "me"}, **parts.explicit)
    assert status == 201
    assert said["sha256"] == sha256(parts.gfx908).hexdigest() and said["size"] == len(parts.gfx908)
    assert said["provenance"] == {"by": "me"} and said["attributes"]["sramecc"] == "+"
    assert said["description"]["archs"] == ["gfx908:sramecc+:xnack-"]
    assert said["sources"]["rocm"] == "publisher" and said["sources"]["arch"] == "reader"
    assert server.call("GET", f"/v1/artifacts/{said['id']}") == (200, said)


def test_the_same_bytes_cut_otherwise_are_the_same_artifact(server: RegistryUnderTest, parts: Parts) -> None:
    key = parts.gpu_key(fast_math=False)
    first, one = server.publish(parts.gfx908, key, cut=4000, **parts.explicit)
    second, two = server.publish(parts.gfx908, key, cut=7000, **parts.explicit)
    assert (first, second) == (201, 200)
    assert one == two


def test_another_file_for_the_same_key_is_another_artifact_and_the_first_stays_first(
    server: RegistryUnderTest, parts: Parts
) -> None:
    key = parts.gpu_key("gfx90a")
    (_, one), (_, two) = (server.publish(data, key, **parts.explicit) for data in parts.same_key[:2])
    assert one["id"] != two["id"] and one["digest"] == two["digest"]
    assert server.call("POST", "/v1/resolve", {"key": key})[1]["artifact"]["id"] == one["id"]


def test_two_publishers_at_once_make_one_artifact(server: RegistryUnderTest, parts: Parts) -> None:
    key = parts.gpu_key(env={"MIGRAPHX_MLIR_TUNE_LIMIT": "1"})
    body = {"key": key, "manifest": server.manifest(parts.gfx908, cut=3000), **parts.explicit}
    with ThreadPoolExecutor(8) as pool:
        said = list(pool.map(lambda _: server.call("POST", "/v1/artifacts", body), range(8)))
    assert sorted(status for status, _ in said) == [200] * 7 + [201]
    assert len({found["id"] for _, found in said}) == 1


@on_sqlite
@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"arch": "gfx942"}, "arch"),
        ({"migraphx": "2.16"}, "migraphx"),
        ({"inputs": {"x": [1, 3, 32, 32]}}, "inputs.x"),
        ({"offload_copy": False}, "offload_copy"),
        ({"vendor": "hygon", "arch": "gfx908"}, "vendor"),
    ],
)
def test_a_key_that_the_file_contradicts_is_refused(
    server: RegistryUnderTest, parts: Parts, change: Any, field: str
) -> None:
    status, said = server.publish(parts.gfx908, parts.gpu_key(**change), **parts.explicit)
    assert (status, said["code"]) == (409, "mismatch")
    assert field in {each["field"] for each in said["context"]["differences"]}
    assert all(set(each) == {"field", "asked", "found"} for each in said["context"]["differences"])


@on_sqlite
def test_a_program_that_was_not_compiled_is_refused(server: RegistryUnderTest, parts: Parts) -> None:
    data = parts.uncompiled
    status, said = server.publish(data, parts.ref_key(precision="fp32"))
    assert (status, said["code"]) == (409, "mismatch")
    assert {"field": "compiled", "asked": True, "found": False} in said["context"]["differences"]


@on_sqlite
@pytest.mark.parametrize("data", [b"<html></html>", b"\x1f\x8b" + b"\0" * 50, b"{}", b"\x08\x07"])
def test_a_foreign_file_is_refused(server: RegistryUnderTest, parts: Parts, data: bytes) -> None:
    status, said = server.publish(data, parts.gpu_key())
    assert (status, said["code"]) == (422, "damaged")
    assert "model.mxr" in said["detail"]


@on_sqlite
def test_a_cut_off_program_is_refused(server: RegistryUnderTest, parts: Parts) -> None:
    status, said = server.publish(parts.gfx908[:-100], parts.gpu_key(), **parts.explicit)
    assert (status, said["code"]) == (422, "damaged")


def test_absent_blobs_are_named(server: RegistryUnderTest, parts: Parts) -> None:
    manifest = server.manifest(parts.gfx908, cut=6000)
    other = parts.gfx908[:-10] + b"0123456789"
    blobs = manifest["files"][0]["blobs"]
    absent = sha256(other[12000:]).hexdigest()
    blobs[2]["sha256"] = absent
    status, said = server.call("POST", "/v1/artifacts", {"key": parts.gpu_key(), "manifest": manifest})
    assert (status, said["code"]) == (404, "no_such_blob")
    assert said["context"]["missing"] == [absent]


@on_sqlite
def test_a_file_that_is_not_what_its_blobs_make_is_refused(server: RegistryUnderTest, parts: Parts) -> None:
    manifest = server.manifest(parts.gfx908, cut=9000)
    manifest["files"][0]["blobs"].reverse()
    status, said = server.call("POST", "/v1/artifacts", {"key": parts.gpu_key(), "manifest": manifest})
    assert (status, said["code"]) == (422, "damaged")
    assert "together" in said["detail"]


@on_sqlite
def test_damage_in_the_store_is_found_at_publishing(server: RegistryUnderTest, parts: Parts) -> None:
    key = parts.gpu_key(env={"MIGRAPHX_MLIR_TUNE_LIMIT": "13"})
    manifest = server.manifest(parts.gfx908, cut=2222)
    name = manifest["files"][0]["blobs"][3]["sha256"]
    server.corrupt(name)
    body = {"key": key, "manifest": manifest, **parts.explicit}
    status, said = server.call("POST", "/v1/artifacts", body)
    assert (status, said["code"], said["context"]["missing"]) == (404, "no_such_blob", [name])
    server.manifest(parts.gfx908, cut=2222)
    assert server.call("POST", "/v1/artifacts", body)[0] == 201


def bad_bodies(parts: Parts, manifest: Any) -> dict[str, Any]:
    key, good = parts.gpu_key(), {"key": parts.gpu_key(), "manifest": manifest}

    def file(**change: Any) -> Any:
        return {"key": key, "manifest": {"v": 1, "files": [{**manifest["files"][0], **change}]}}

    return {
        "unknown field": {**good, "colour": "red"},
        "key.arc": {**good, "key": {**key, "arc": "gfx908"}},
        "key.offload_copy": {**good, "key": {**key, "offload_copy": "yes"}},
        "attributes.num_cu": {**good, "attributes": {"num_cu": 10**30}},
        "attributes.latency_ms": {**good, "attributes": {"latency_ms": "HUGE"}},
        "manifest.files[0].size": file(size="12"),
        "manifest.files[0].blobs[0].size": file(blobs=[{"sha256": "0" * 64, "size": 1.5}]),
        "relative file name": file(name="../../etc/passwd"),
        "relative  file name": file(name="/etc/passwd"),
        "add up": file(size=1),
        "64 lower-case hex digits": file(sha256="ABC"),
        "at most 16384 bytes": {**good, "provenance": {"x": "y" * 20_000}},
        "lone surrogates": {**good, "provenance": {"x": "\ud800"}},
        "one file": {
            "key": key,
            "manifest": {"v": 1, "files": [*manifest["files"], {**manifest["files"][0], "name": "b"}]},
        },
        "manifest version 1": {"key": key, "manifest": {**manifest, "v": 2}},
        "model.model": {**good, "model": {"model": "sha256:" + "0" * 64, "name": "x", "inputs": []}},
    }


@on_sqlite
def test_bodies_that_are_not_right_name_the_field(server: RegistryUnderTest, parts: Parts) -> None:
    for words, body in bad_bodies(parts, server.manifest(parts.gfx908)).items():
        text = json.dumps(body).replace('"HUGE"', "1e999")
        status, said = server.call("POST", "/v1/artifacts", text.encode())
        assert (status, said["code"]) == (422, "usage"), (words, said)
        assert " ".join(words.split()) in said["detail"], said
        assert said["hint"]


@on_sqlite
@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"key":1,"key":2}', b"[" * 30_000, b"\xff\xfe", b'{"v": NaN}', b"1" * 5000]
)
def test_what_is_no_json_document_is_said(server: RegistryUnderTest, body: bytes) -> None:
    for path in ("/v1/artifacts", "/v1/resolve", "/v1/blobs/missing", "/v1/models"):
        status, said = server.call("POST", path, body)
        assert (status, said["code"]) == ((422, "usage") if body == b"[]" else (400, "malformed")), said


@on_sqlite
def test_a_body_that_is_too_large_is_refused(server: RegistryUnderTest) -> None:
    status, said = server.call("POST", "/v1/resolve", b" " * (9 * 2**20))
    assert (status, said["code"]) == (413, "too_large")
    assert "exceeds" in said["detail"]
