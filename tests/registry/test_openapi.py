"""The OpenAPI document: complete, valid, and true of each operation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.routing import APIRoute
from harness.api_document import CONFORMANCE, document, faults, operations, routes
from harness.rows import for_each
from harness.workers import sign_off
from openapi_spec_validator import OpenAPIV31SpecValidator
from registry.registry_client import REF, RegistryUnderTest, gpu_key, ref_key
from starlette.routing import Route

from mxr.artifact.attributes import Request
from mxr.artifact.key import Key
from mxr.errors import UsageError
from mxr.protocol import jobs as job_protocol
from mxr.util import codec
from mxr_registry.pages.site import PageRoute
from mxr_registry.routes.deps import DirectRoute
from mxr_registry.server.scoped import REFUSAL, ScopedRoute

OPERATIONS = {found["operationId"]: (method, found) for method, _, found in operations()}
SCHEMAS = document()["components"]["schemas"]
EXAMPLES = {"Key": Key, "Request": Request, "CompileRequest": job_protocol.CompileRequest}


@pytest.fixture(scope="module")
def engine() -> str:
    """The database makes no difference here."""
    return "sqlite"


def walk(part: Any) -> Iterator[dict[str, Any]]:
    """Each object in a part of the document."""
    if isinstance(part, dict):
        yield part
        part = list(part.values())
    if isinstance(part, list):
        for each in part:
            yield from walk(each)


def test_the_document_is_valid(server: RegistryUnderTest) -> None:
    assert server.ok("GET", "/openapi.json") == document()
    OpenAPIV31SpecValidator(document()).validate()
    assert document()["openapi"] == "3.1.0"


def test_every_route_is_in_the_document() -> None:
    """All that the application answers, except HEAD, and the document itself."""
    found = {
        (method, route.path.replace(":path", ""))
        for route in routes()
        if not isinstance(route, PageRoute)
        for method in route.methods - {"HEAD"}
        if route.name != REFUSAL
    }
    described = {(method.upper(), path) for path, found in document()["paths"].items() for method in found}
    assert found - described == {
        ("GET", "/openapi.json"),
        ("GET", "/docs"),
        ("GET", "/docs/{name}"),
        ("GET", "/page/{name}"),
    }
    assert described <= found


def test_no_request_builds_a_route() -> None:
    """FastAPI builds those of an included router when the first request comes, which then takes ten times as long."""
    assert {type(route) for route in routes()} <= {Route, APIRoute, ScopedRoute, DirectRoute, PageRoute}


@pytest.mark.parametrize("path", sorted(document()["paths"]))
def test_a_path_tells_the_methods_that_it_has(server: RegistryUnderTest, path: str) -> None:
    described = {method.upper() for method in document()["paths"][path]}
    asked = path.replace("{sha256}", "0" * 64).replace("{", "").replace("}", "")
    for method in {"GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"} - described:
        reply = server.request(method, asked)
        assert reply.status == 405, method
        assert {*reply.headers["allow"].split(", ")} - {"HEAD"} == described, method


@for_each(sorted(OPERATIONS))
def test_an_operation_is_described(name: str) -> None:
    method, found = OPERATIONS[name]
    assert name.isidentifier() and name.islower()
    assert found["summary"] and found["description"] and found["tags"]
    for parameter in found["parameters"]:
        assert parameter["description"] and parameter["schema"]["type"] if "type" in parameter["schema"] else True
    for status, response in found["responses"].items():
        assert response["description"], status
        for content in response.get("content", {}).values():
            assert content["schema"], status
        if int(status) >= 400:
            assert response["content"]["application/problem+json"]["schema"] == {"$ref": "#/components/schemas/Problem"}
        if status in ("201", "202"):
            assert "Location" in response["headers"]
        if status in ("429", "503"):
            assert "Retry-After" in response["headers"]
    assert ("requestBody" in found) == (
        method in ("POST", "PUT") and not name.startswith(("promote_", "cancel_", "create_sign_in_"))
    )


def test_a_parameter_that_a_list_does_not_know_is_told_those_that_it_knows(server: RegistryUnderTest) -> None:
    lists = {
        path: sorted(each["name"] for each in methods["get"]["parameters"] if each["in"] == "query")
        for path, methods in document()["paths"].items()
        if "get" in methods
    }
    lists = {path: known for path, known in lists.items() if "after" in known}
    assert len(lists) > 7
    for path, known in lists.items():
        error = server.error("GET", f"{path}?colour=red")
        assert (error["status"], error["detail"]) == (422, "colour: unknown parameter."), path
        assert error["hint"] == f"Use one of these: {', '.join(known)}.", path
        assert server.error("GET", f"{path}?limit=0")["detail"].startswith("limit: "), path


def test_every_reference_leads_to_a_schema_and_every_schema_is_used() -> None:
    references = {each["$ref"] for each in walk(document()) if "$ref" in each}
    assert references == {f"#/components/schemas/{name}" for name in SCHEMAS}


@for_each(sorted(SCHEMAS))
def test_every_field_is_described(name: str) -> None:
    assert SCHEMAS[name]["description"] and SCHEMAS[name]["title"] == name
    for field, found in SCHEMAS[name].get("properties", {}).items():
        assert found["description"].endswith((".", ")")), field
        for example in found.get("examples", ()):
            assert not faults(found, example), field


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_the_examples_are_valid(name: str) -> None:
    for example in SCHEMAS[name]["examples"]:
        assert not faults({"$ref": f"#/components/schemas/{name}"}, example)
        codec.decode(EXAMPLES[name], example)


REFUSED = (
    ("key.model", "sha256:" + "g" * 64),
    ("key.model", "a" * 64),
    ("key.kind", "cpu"),
    ("key.vendor", "nvidia"),
    ("key.rocm", "7"),
    ("key.rocm", "7.2.1"),
    ("key.migraphx", "x.y"),
    ("key.form", "part"),
    ("key.precision", "fp64"),
    ("key.precision", "fp16+"),
    ("key.calibration", "0" * 63),
    ("key.offload_copy", "yes"),
    ("key.v", 1),
    ("key.inputs", {"x": [-1]}),
    ("key.inputs", {"x": [1.5]}),
    ("key.inputs", {"x": [[1, 2]]}),
    ("key.inputs", {"x": [2**31]}),
    ("key.inputs", [1]),
    ("key.env", {"A": 1}),
    ("key.unknown", 1),
    ("constraints.num_cu", 0),
    ("constraints.num_cu", 65_537),
    ("constraints.num_cu", "304"),
    ("constraints.chiplets", -1),
    ("constraints.xnack", "any"),
    ("constraints.allow", ["everything"]),
    ("constraints.tuning", "best"),
    ("constraints.rocm_patch", "7.2"),
    ("constraints.build", "x" * 201),
    ("constraints.real_arch", "x"),
    ("priority", 101),
    ("priority", -101),
    ("priority", 1.5),
    ("file_name", ""),
    ("require_worker", 1),
    ("wait", True),
    ("", []),
    ("", None),
    ("key", None),
)
"""Values of one field of a compile request that the schema refuses, by the path of the field."""


@for_each(REFUSED)
def test_what_the_schema_refuses_the_code_refuses_too(path: str, value: Any) -> None:
    body: Any = json.loads(json.dumps(SCHEMAS["CompileRequest"]["examples"][0]))
    if path:
        *outer, last = path.split(".")
        inner = body
        for name in outer:
            inner = inner[name]
        inner[last] = value
    else:
        body = value
    assert faults({"$ref": "#/components/schemas/CompileRequest"}, body)
    if path == "file_name":
        return  # An empty name is refused with the key that it belongs to.
    with pytest.raises(UsageError):
        codec.decode(job_protocol.CompileRequest, body)


def test_every_operation_answers_as_described(server: RegistryUnderTest) -> None:
    """The harness holds each request and each reply against the document; here is one of each operation."""
    CONFORMANCE.seen.clear()
    key = ref_key(server.register_model())
    server.register_model()
    request = {"key": key, "constraints": {}}
    for path in ("/healthz", "/readyz", "/v1/defaults", "/v1/queue", "/v1/pools", "/v1/models", "/v1/uses?days=7"):
        server.ok("GET", path)
    assert server.request("GET", "/metrics").status == 200
    assert server.call("POST", "/v1/resolve", request)[0] == 404
    assert server.ok("GET", "/v1/misses")["items"] and server.ok("GET", "/v1/events")["items"]
    server.ok("GET", f"/v1/models/{key['model']}")

    # Each way in which a job goes on and ends.
    worker = server.register_worker()
    server.register_worker()
    for path in ("/v1/workers", f"/v1/workers/{worker}"):
        server.ok("GET", path)
    job = server.submit(key)["id"]
    assert server.submit(key)["id"] == job
    server.ok("POST", "/v1/jobs/watch", {"jobs": {job: 0, "0" * 32: 0}})
    lease = server.claim(worker)
    server.heartbeat(lease, phase="compile", log="begun\n")
    server.ok("POST", f"/v1/jobs/{job}/handback", {"lease": lease["secret"]})
    server.fail(server.claim(worker), "transient")
    server.end_backoff(job)
    done = server.finish(server.claim(worker))
    id = done["artifact"]
    server.ok("GET", f"/v1/jobs/{job}?wait=1&version=0")
    for path in (f"/v1/jobs/{job}/log", f"/v1/jobs/{job}/events"):
        assert server.request("GET", path).status == 200
    assert server.submit(key)["state"] == "done"
    other = server.submit(ref_key(key["model"], env={"MIGRAPHX_DISABLE_FAST_GELU": "1"}))
    server.ok("POST", f"/v1/jobs/{other['id']}/cancel")
    assert len(server.ok("GET", "/v1/jobs?limit=2")["items"]) == 2

    # The artifact, its files and its blobs.
    found = server.ok("POST", "/v1/resolve", request)
    url = found["urls"]["model.mxr"]
    blob = "/v1/blobs/" + found["artifact"]["manifest"]["files"][0]["blobs"][0]["sha256"]
    for path in (url, blob):
        tag = server.request("GET", path).headers["etag"]
        for name, value, status in (
            ("range", "bytes=0-3", 206),
            ("range", "bytes=999999999-", 416),
            ("if-none-match", tag, 304),
        ):
            assert server.request("GET", path, headers={name: value}).status == status
    tag = server.request("GET", f"/v1/artifacts/{id}").headers["etag"]
    assert server.get(f"/v1/artifacts/{id}", if_none_match=tag).status == 304
    server.ok("POST", "/v1/candidates", partial(key))
    server.ok("POST", "/v1/survey", {"requests": [request, {"key": gpu_key(key["model"])}]})
    server.ok("POST", "/v1/uses", {"uses": [{"id": id, "count": 2}]})
    server.ok("POST", "/v1/blobs/missing", {"blobs": [{"sha256": "0" * 64, "size": 1}]})
    pushed = ref_key("sha256:" + "1" * 64)
    assert [server.publish(REF, pushed)[0] for _ in range(2)] == [201, 200]
    assert server.publish(REF, key)[0] == 409
    assert server.ok("GET", f"/v1/artifacts?model={key['model']}")["items"][0]["id"] == id
    server.ok("POST", f"/v1/artifacts/{id}/promote")

    # Locks.
    for pinned in ([id], []):
        server.ok("PUT", "/v1/locks/release", {"artifacts": pinned})
    tag = server.request("GET", "/v1/locks/release").headers["etag"]
    assert server.get("/v1/locks/release", if_none_match=tag).status == 304
    for method, path in (("GET", "/v1/locks"), ("DELETE", "/v1/locks/release")):
        server.ok(method, path)
    lock = {"lock": json.dumps({"version": 1, "entries": [{"id": id}]})}
    assert [server.call("PUT", "/v1/tags/prod", lock)[0] for _ in range(2)] == [201, 200]
    tag = server.request("GET", "/v1/tags/prod").headers["etag"]
    assert server.get("/v1/tags/prod", if_none_match=tag).status == 304
    assert server.call("PUT", "/v1/tags/prod", {"revision": 9})[0] == 404
    for method, path in (("GET", "/v1/tags"), ("GET", "/v1/tags/prod/revisions"), ("DELETE", "/v1/tags/prod")):
        server.ok(method, path)
    assert server.error("DELETE", f"/v1/artifacts/{id}")["context"]["used"]
    said = {"word": "quarantined", "reason": "wrong results"}
    server.ok("PUT", f"/v1/artifacts/{id}/recall", said)
    assert server.error("PUT", f"/v1/artifacts/{id}/recall", said | {"word": "yanked"})["code"] == "conflict"
    assert server.call("PUT", "/v1/artifacts/00000000/recall", said)[0] == 404
    assert server.get(f"/v1/artifacts/{id}/files/model.mxr").status == 410
    server.ok("GET", "/v1/recalls")
    (signed,) = server.ok("GET", f"/v1/statements/{id}")["items"]
    signed = signed["envelope"]
    assert server.call("POST", f"/v1/statements/{id}", {"statement": signed})[0] == 200
    signed["signatures"] += [{"keyid": "", "sig": "AAAA"}]
    assert server.call("POST", f"/v1/statements/{id}", {"statement": signed})[0] == 201
    server.ok("GET", "/v1/keys")
    server.ok("DELETE", f"/v1/artifacts/{id}/recall")
    assert server.call("DELETE", f"/v1/artifacts/{id}/recall")[0] == 404
    server.ok("PUT", f"/v1/artifacts/{id}/recall", said)
    server.ok("DELETE", f"/v1/artifacts/{id}")
    assert server.call("DELETE", f"/v1/artifacts/{id}")[0] == 404
    sign_off(server.ok, worker)
    assert sign_off(server.error, worker)["code"] == "not_found"

    # Tokens.
    made = server.ok("POST", "/v1/tokens", {"name": "ci", "scopes": ["fetch", "ask"], "expires": 90})
    server.ok("GET", "/v1/tokens?limit=1")
    server.ok("POST", "/v1/sign-in-links")
    server.request("GET", "/v1/whoami", headers={"authorization": f"Bearer {made['secret']}"})
    server.ok("DELETE", f"/v1/tokens/{made['token']['id']}")

    assert {name for name, _ in CONFORMANCE.seen} == set(OPERATIONS)
    described = {
        (name, int(status))
        for name, (_, found) in OPERATIONS.items()
        for status in found["responses"]
        if status < "400"
    }
    # A redirect needs S3 (tests/registry/storage).
    assert described - CONFORMANCE.seen == {("download_blob", 307)}


def partial(key: dict[str, Any]) -> dict[str, Any]:
    """A partial request that leaves the toolchain open."""
    return {name: value for name, value in key.items() if name not in ("migraphx", "v")}
