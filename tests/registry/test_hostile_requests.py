"""Bodies and headers that no operation takes: each gets a clear error, and nothing changes.

The operations are those of the OpenAPI document, so that a new one is attacked as well; each reply is held against it.
"""

from __future__ import annotations

from typing import Any

import pytest
from harness.api_document import document
from registry.raw_connection import RawConnection
from registry.registry_client import RegistryUnderTest

JSON = {"content-type": "application/json"}
TOO_LARGE = (8 << 20) + 1
VALUES = {"{sha256}": "0" * 64, "{id}": "0" * 32, "{name}": "x", "{model}": f"sha256:{'0' * 64}"}


def path_of(template: str) -> str:
    """A path for which there is nothing."""
    for part, value in VALUES.items():
        template = template.replace(part, value)
    assert "{" not in template
    return template


OPERATIONS = {
    found["operationId"]: (method.upper(), path_of(path), "application/json" in str(found.get("requestBody")))
    for path, methods in document()["paths"].items()
    for method, found in methods.items()
}
TAKES_JSON = sorted(name for name, (*_, takes) in OPERATIONS.items() if takes)
READS = sorted(name for name, (method, *_) in OPERATIONS.items() if method == "GET" and name != "follow_job")

UNREADABLE = {
    "nothing": b"",
    "white space": b" \n",
    "half": b'{"key": {',
    "two documents": b"{}{}",
    "a name twice": b'{"a":1,"a":1}',
    "NaN": b'{"a":NaN}',
    "infinity": b'[1,{"a":-Infinity}]',
    "a nest": b"[" * 33 + b"]" * 33,
    "a deep nest": b'{"a":' * 20_000 + b"1" + b"}" * 20_000,
    "a long number": b'{"a":' + b"9" * 5_000 + b"}",
    "UTF-16": '{"a":1}'.encode("utf-16"),
    "half of a pair": b'{"a":"\xed\xa0\x80"}',
    "a program": b"\x7fELF" + bytes(100),
}
REFUSED: tuple[Any, ...] = (
    None,
    True,
    1,
    "text",
    [],
    [{}],
    {"unknown": 1},
    {"": 1},
    {"key": 1, "requests": 1, "v": "x"},
)


@pytest.fixture(scope="module")
def engine() -> str:
    """The database makes no difference here."""
    return "sqlite"


def nothing_is_kept(server: RegistryUnderTest) -> bool:
    """No request made anything."""
    lists = ("artifacts", "models", "jobs", "locks", "misses", "workers")
    return all(server.ok("GET", f"/v1/{each}")["items"] == [] for each in lists)


@pytest.mark.parametrize("name", TAKES_JSON)
def test_a_body_that_is_no_json_is_malformed(server: RegistryUnderTest, name: str) -> None:
    method, path, _ = OPERATIONS[name]
    for case, body in UNREADABLE.items():
        reply = server.request(method, path, body, JSON)
        error = reply.json()
        assert (reply.status, error["code"]) == (400, "malformed"), (case, error)
        assert error["detail"].startswith("The body is not valid JSON: ") and len(error["detail"]) < 300
    assert nothing_is_kept(server)


@pytest.mark.parametrize("name", TAKES_JSON)
def test_a_body_of_another_form_is_refused(server: RegistryUnderTest, name: str) -> None:
    method, path, _ = OPERATIONS[name]
    for body in REFUSED:
        error = server.error(method, path, body if body is not None else b"null")
        assert (error["status"], error["code"]) == (422, "usage"), (body, error)
    assert nothing_is_kept(server)


@pytest.mark.parametrize("name", TAKES_JSON)
def test_a_body_beyond_8_mib_is_refused_before_it_is_sent(server: RegistryUnderTest, name: str) -> None:
    method, path, _ = OPERATIONS[name]
    lines = (f"{method} {path} HTTP/1.1", "host: localhost", "content-type: application/json")
    with RawConnection(server.port, *lines, f"content-length: {TOO_LARGE}") as line:
        status, error = line.error()
    assert (status, error["code"]) == (413, "too_large")


@pytest.mark.parametrize("name", READS)
def test_a_body_of_a_get_means_nothing(server: RegistryUnderTest, name: str) -> None:
    _, path, _ = OPERATIONS[name]
    usual = server.request("GET", path)
    for body in (b"{}", b"{", b"x" * 100_000):
        reply = server.request("GET", path, body, JSON)
        assert (reply.status, reply.headers["content-type"]) == (usual.status, usual.headers["content-type"])
    assert server.request("GET", path, b"a=1", {"content-type": "text/plain"}).status == 415


@pytest.mark.parametrize("name", READS)
def test_whatever_a_client_accepts_the_reply_is_of_the_described_type(server: RegistryUnderTest, name: str) -> None:
    _, path, _ = OPERATIONS[name]
    usual = server.request("GET", path)
    for accept in ("text/html", "application/xml;q=0.9", "application/json;q=0", "image/*, ;;;", "x" * 10_000, ""):
        reply = server.request("GET", path, headers={"accept": accept})
        assert (reply.status, reply.headers["content-type"]) == (usual.status, usual.headers["content-type"])
