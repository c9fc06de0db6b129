"""The registry for whoever has no `mxr`: plain HTTP, and bodies that make no sense."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from harness.registry import PROBLEM
from harness.scale import SOAK

from .conftest import Programs
from .stack import STACKS, Host, Registry

ON = STACKS if SOAK else ("embedded",)


def test_a_file_by_a_plain_get(registry: Registry, published: dict[str, Any], programs: Programs) -> None:
    data = programs.gfx908.read_bytes()
    url = f"/v1/artifacts/{published['id']}/files/model.mxr"
    whole = registry.ask("GET", url)
    assert (whole.status, whole.data) == (200, data)
    assert int(whole.headers["content-length"]) == len(data)
    assert whole.headers["etag"] == f'"{published["sha256"]}"'
    head = registry.ask("HEAD", url)
    assert (head.status, head.data, head.headers["content-length"]) == (200, b"", str(len(data)))
    part = registry.ask("GET", url, Range="bytes=100-199")
    assert (part.status, part.data) == (206, data[100:200])
    assert part.headers["content-range"] == f"bytes 100-199/{len(data)}"
    assert registry.ask("GET", url, Range="bytes=-5").data == data[-5:]
    beyond = registry.ask("GET", url, Range=f"bytes={len(data)}-")
    assert beyond.status == 416
    assert registry.ask("GET", url, If_None_Match=whole.headers["etag"]).status == 304
    resumed = registry.ask("GET", url, Range="bytes=5-", If_Range='"another"')
    assert (resumed.status, resumed.data) == (200, data)
    assert registry.ask("GET", url.replace("model.mxr", "other.mxr")).status == 404
    assert registry.ask("GET", url.replace("model.mxr", "..%2F..%2Fregistry.db")).status == 404


def test_resolve_by_raw_json(registry: Registry, published: dict[str, Any], programs: Programs) -> None:
    hit = registry.ask("POST", "/v1/resolve", {"key": published["key"]}).json()
    assert hit["artifact"]["id"] == published["id"]
    assert sha256(registry.ask("GET", hit["urls"]["model.mxr"]).data).hexdigest() == published["sha256"]
    short = {name: published["key"][name] for name in ("model", "arch", "migraphx", "rocm", "inputs")}
    short |= {"kind": "gpu", "offload_copy": True, "fast_math": True}
    brief = registry.ask("POST", "/v1/resolve", {"key": short})
    assert (brief.status, brief.json()["artifact"]["id"]) == (200, published["id"])
    unclear = registry.ask("POST", "/v1/resolve", {"key": {**short, "kind": None}})
    assert (unclear.status, "key.kind" in unclear.json()["detail"]) == (422, True)
    miss = registry.ask("POST", "/v1/resolve", {"key": published["key"] | {"rocm": "6.4"}})
    assert miss.status == 404
    nearest = miss.json()["context"]["nearest"]
    assert nearest == [{"id": published["id"], "differences": [{"field": "rocm", "asked": "6.4", "found": "7.2"}]}]


BAD: dict[str, Any] = {
    "a list": [],
    "no key": {},
    "an unknown field": {"key": {}, "more": 1},
}
UNREADABLE: dict[str, Any] = {
    "nothing": b"",
    "no JSON": b"{",
    "not UTF-8": b'{"key": "\xff"}',
    "NaN": b'{"key": NaN}',
    "deep": b'{"key":' * 5000 + b"1" + b"}" * 5000,
    "a name twice": b'{"key": {}, "key": {}}',
    "a number too large": b'{"key": ' + b"9" * 5000 + b"}",
}
IN_KEY: dict[str, Any] = {
    "an unknown field of the key": {"colour": "red"},
    "a wrong type": {"offload_copy": "yes"},
    "a number for a text": {"arch": 908},
    "a huge dim": {"inputs": {"x": [10**30, 3]}},
    "a negative dim": {"inputs": {"x": [-1, 3]}},
    "true for a number": {"inputs": {"x": [True, 3]}},
    "a fraction": {"inputs": {"x": [1.5, 3]}},
    "an arch that is none": {"arch": "gfx908; drop table"},
    "another version": {"v": 3},
    "no model": {"model": "convrelu.onnx"},
}


@pytest.mark.parametrize("path", ["/v1/resolve", "/v1/artifacts"])
def test_bodies_that_make_no_sense_are_refused_in_the_form_of_errors(
    registry: Registry, published: dict[str, Any], path: str
) -> None:
    bodies = BAD | UNREADABLE | {name: {"key": published["key"] | part} for name, part in IN_KEY.items()}
    for name, body in bodies.items():
        reply = registry.ask("POST", path, body)
        error = reply.json()
        known = ("malformed", 400) if name in UNREADABLE else ("usage", 422)
        assert (error["code"], reply.status, error["status"]) == (*known, known[1]), (name, reply.data)
        assert set(error) == {*PROBLEM, "request_id"}, name
        assert reply.headers["content-type"] == "application/problem+json", name
        assert error["detail"] and len(error["detail"]) < 1000, name


def test_manifests_that_lie_are_refused(registry: Registry, published: dict[str, Any]) -> None:
    shown = registry.ask("GET", f"/v1/artifacts/{published['id']}").json()
    file = shown["manifest"]["files"][0]
    absent = {"sha256": "ab" * 32, "size": file["size"]}
    changes: list[tuple[dict[str, Any], int, str]] = [
        ({"name": "../model.mxr"}, 422, "usage"),
        ({"name": "/model.mxr"}, 422, "usage"),
        ({"name": "a\x00b"}, 422, "usage"),
        ({"blobs": [absent]}, 422, "usage"),
        ({"blobs": [absent], "sha256": absent["sha256"]}, 404, "no_such_blob"),
        ({"sha256": "cd" * 32}, 422, "usage"),
        ({"size": 5}, 422, "usage"),
        ({"blobs": []}, 422, "usage"),
    ]
    for change, status, code in changes:
        body = {"key": published["key"], "manifest": {"v": 1, "files": [file | change]}}
        reply = registry.ask("POST", "/v1/artifacts", body)
        assert reply.status == status, (change, reply.data)
        assert reply.json()["code"] == code
    assert json.loads(registry.ask("GET", f"/v1/artifacts?model={published['key']['model']}").data)["next"] is None


def test_a_blob_whose_bytes_do_not_match_is_not_kept(registry: Registry) -> None:
    name = sha256(b"the right bytes").hexdigest()
    for wrong in (b"the wrong bytes", b"the right byte", b""):
        reply = registry.ask("PUT", f"/v1/blobs/{name}", wrong)
        assert reply.status == 422, reply.data
    assert registry.ask("GET", f"/v1/blobs/{name}").status == 404
    missing = registry.ask("POST", "/v1/blobs/missing", {"blobs": [{"sha256": name, "size": 15}]}).json()
    assert missing["missing"] == [name]
    for _ in range(2):
        assert registry.ask("PUT", f"/v1/blobs/{name}", b"the right bytes").status == 201
    assert registry.ask("GET", f"/v1/blobs/{name}", Range="bytes=4-8").data == b"right"
    assert registry.ask("PUT", "/v1/blobs/nonsense", b"x").status == 422


def test_the_service_tells_of_itself(registry: Registry, mxr: Host, model: Path) -> None:
    for path in ("/healthz", "/readyz"):
        assert registry.ask("GET", path).status == 200
    paths = registry.ask("GET", "/openapi.json").json()["paths"]
    assert {"/v1/resolve", "/v1/artifacts", "/v1/blobs/missing", "/v1/models"} <= set(paths)
    for method, path in (("GET", "/v2"), ("GET", "/v2/resolve"), ("POST", "/healthz")):
        reply = registry.ask(method, path)
        assert reply.status in (404, 405)
        assert reply.json()["hint"]
    mxr("fetch", model, "--arch", "gfx1030", "--rocm", "7.2", "--migraphx", "2.15", "--batch", "2", expect=3)
    misses = registry.ask("GET", "/v1/misses").json()
    assert mxr("key", model, "--arch", "gfx1030", "--rocm", "7.2", "--migraphx", "2.15", "--batch", "2", "--json").json[
        "digest"
    ] in json.dumps(misses)
