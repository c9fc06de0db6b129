"""What a web page of another site can make a browser send: the registry refuses it on every address."""

from __future__ import annotations

import pytest
from harness.rows import for_each
from registry.raw_connection import RawConnection
from registry.registry_client import RegistryUnderTest, Start

from mxr_registry.server.request_guard import is_own_host

JSON = "content-type: application/json"


@pytest.fixture(scope="module")
def engine() -> str:
    """The database is not the subject."""
    return "sqlite"


@pytest.fixture(scope="module")
def port(server: RegistryUnderTest) -> int:
    return int(server.port)


def status(port: int, *lines: str, body: bytes = b"") -> int:
    with RawConnection(port, *lines, body=body) as line:
        return line.status()


@for_each(
    [
        *((each, True) for each in ("127.0.0.1", "127.0.0.1:8765", "10.1.2.3:1", "[::1]:8765", "[fe80::1%eth0]")),
        *((each, True) for each in ("localhost", "LOCALHOST:8765", "localhost.", "registry.test", "Registry.Test:80")),
        *((each, False) for each in ("evil.example", "evil.example:8765", "localhost.evil.example", "127.0.0.1.evil")),
        *((each, False) for each in ("", " ", "a@127.0.0.1", "127.0.0.1/", "127.1", "2130706433", "0x7f000001")),
        *((each, False) for each in ("[::1", "::1", "127.0.0.1:port", "evil.example#127.0.0.1", "registry.test.evil")),
    ]
)
def test_hosts(host: str, own: bool) -> None:
    assert is_own_host(host, {"registry.test"}) is own


@pytest.mark.parametrize("path", ["/healthz", "/v1/artifacts", "/openapi.json", "/metrics", "/nothing"])
def test_a_foreign_host_is_refused_everywhere(port: int, path: str) -> None:
    with RawConnection(port, f"GET {path} HTTP/1.1", "host: evil.example:8765") as line:
        found, error = line.error()
    assert (found, error["code"]) == (403, "not_allowed")
    assert "evil.example" in error["detail"] and "--allowed-host" in error["hint"]


def test_a_long_host_is_refused(port: int) -> None:
    assert status(port, "GET /healthz HTTP/1.1", "host: " + "a" * 30_000) == 403


@pytest.mark.parametrize("path", ["/healthz", "/v1/artifacts", "/openapi.json", "/docs", "/nothing"])
def test_a_long_query_is_refused_on_every_route(port: int, path: str) -> None:
    for url in (f"{path}?{'a&' * 2_500}", f"{path}/{'a' * 5_000}"):
        with RawConnection(port, f"GET {url} HTTP/1.1", "host: localhost") as line:
            found, error = line.error()
        assert found == 414 and "exceeds 4096 bytes" in error["detail"]


def test_exactly_one_host(port: int) -> None:
    assert status(port, "GET /healthz HTTP/1.1") == 400
    assert status(port, "GET /healthz HTTP/1.0") == 400
    assert status(port, "GET /healthz HTTP/1.1", "host: 127.0.0.1", "host: evil.example") == 400
    assert status(port, "GET http://evil.example/healthz HTTP/1.1", "host: 127.0.0.1") == 200


def test_allowed_hosts_are_served(start: Start) -> None:
    server = start("--allowed-host", "Registry.Test", "--allowed-host", "mxr.internal")
    for host, found in (("registry.test:80", 200), ("mxr.internal", 200), ("other.internal", 403)):
        assert status(server.port, "GET /healthz HTTP/1.1", f"host: {host}") == found


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "http://localhost", "file://"])
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "DELETE"])
def test_a_foreign_origin_is_refused(port: int, method: str, origin: str) -> None:
    lines = (f"{method} /v1/artifacts/{'a' * 64} HTTP/1.1", f"host: 127.0.0.1:{port}", f"origin: {origin}")
    with RawConnection(port, *lines) as line:
        found, error = line.error()
    assert (found, error["code"]) == (403, "not_allowed") and "web page" in error["detail"]


def test_its_own_origin_is_served(port: int) -> None:
    host = f"host: 127.0.0.1:{port}"
    assert status(port, "GET /healthz HTTP/1.1", host, f"origin: http://127.0.0.1:{port}") == 200
    assert status(port, "GET /healthz HTTP/1.1", host, f"origin: http://127.0.0.1:{port}", "origin: null") == 403


def test_what_a_browser_says_about_the_page(port: int) -> None:
    get = ("GET /healthz HTTP/1.1", "host: localhost")
    promote = (f"POST /v1/artifacts/{'a' * 64}/promote HTTP/1.1", "host: localhost", "content-length: 0")
    for site in ("cross-site", "same-site"):
        assert status(port, *get, f"sec-fetch-site: {site}", "sec-fetch-mode: no-cors") == 403
        assert status(port, *promote, f"sec-fetch-site: {site}", "sec-fetch-mode: navigate") == 403
        link = (f"sec-fetch-site: {site}", "sec-fetch-mode: navigate", "sec-fetch-dest: document")
        assert status(port, *get, *link) == 200
        assert status(port, *promote, *link) == 403
    assert status(port, *get, "sec-fetch-site: same-origin", "sec-fetch-mode: cors") == 200


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", None, "", "text/plain;json"],
)
@pytest.mark.parametrize("framing", ["content-length: 2", "transfer-encoding: chunked"])
def test_a_body_that_a_page_can_send_is_refused(port: int, kind: str | None, framing: str) -> None:
    lines = ["POST /v1/resolve HTTP/1.1", "host: localhost", framing, *([f"content-type: {kind}"] if kind else [])]
    with RawConnection(port, *lines, body=b"{}" if "length" in framing else b"2\r\n{}\r\n0\r\n\r\n") as line:
        found, error = line.error()
    assert found == 415 and "application/json" in error["detail"]


def test_bodies_that_a_client_sends_are_read(port: int) -> None:
    resolve = ("POST /v1/resolve HTTP/1.1", "host: localhost", "content-length: 2")
    for kind in ("application/json", "Application/JSON; charset=utf-8", "application/octet-stream"):
        assert status(port, *resolve, f"content-type: {kind}", body=b"{}") == 422
    assert status(port, *resolve, JSON, "content-type: text/plain", body=b"{}") == 415


def test_no_body(port: int) -> None:
    promote = (f"POST /v1/artifacts/{'a' * 64}/promote HTTP/1.1", "host: localhost")
    assert status(port, *promote) == 404
    assert status(port, *promote, "content-length: 0") == 404
    assert status(port, "POST /v1/resolve HTTP/1.1", "host: localhost") == 400


def test_a_large_body_is_refused_before_it_is_sent(port: int) -> None:
    lines = ("POST /v1/resolve HTTP/1.1", "host: localhost", JSON)
    with RawConnection(port, *lines, f"content-length: {2**33}") as line:
        found, error = line.error()
    assert (found, error["code"]) == (413, "too_large")


def test_large_bodies_share_one_memory(start: Start) -> None:
    server = start(config="[limits]\nbody = 200000\nbody_memory = 1500000\n")
    lines = ("POST /v1/survey HTTP/1.1", "host: localhost", JSON)
    with RawConnection(server.port, *lines, "content-length: 200000", body=b"[") as first:
        with RawConnection(server.port, *lines, "content-length: 200000") as second:
            found, error = second.error()
        assert (found, error["retry"]) == (503, True)
        assert status(server.port, *lines, "content-length: 2", body=b"[]") == 422
        first.send(b"-" * 199_999)
        assert first.status() == 400
    assert status(server.port, *lines, "content-length: 200000", body=b"-" * 200_000) == 400
    # What the values would take counts as well.
    assert status(server.port, *lines, "content-length: 200000", body=b"[" * 200_000) == 413
