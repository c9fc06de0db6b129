"""Each request has an id: taken from the client or made, returned, in errors, and in each line of the log."""

from __future__ import annotations

import json
import re
import sqlite3

import pytest
from harness.waiting import until
from registry.raw_connection import RawConnection
from registry.registry_client import RegistryUnderTest, Start

MADE = re.compile(r"[0-9a-f]{16}")


@pytest.fixture(scope="module")
def engine() -> str:
    """The database is not the subject."""
    return "sqlite"


def id_of(
    server: RegistryUnderTest, method: str = "GET", path: str = "/healthz", headers: dict[str, str] | None = None
) -> str:
    return str(server.request(method, path, headers=headers).headers["x-request-id"])


@pytest.mark.parametrize("id", ["a", "7", "deploy-17/pod.4", "0af7651916cd43dd8448eb211c80319c", "x" * 128])
def test_an_id_of_the_client_is_taken(server: RegistryUnderTest, id: str) -> None:
    assert id_of(server, headers={"x-request-id": id}) == id
    reply = server.request("GET", "/nothing", headers={"x-request-id": id})
    assert (reply.headers["x-request-id"], reply.json()["request_id"]) == (id, id)


@pytest.mark.parametrize(
    "id", ["", " ", "a b", "x" * 129, "x" * 10_000, "\x1b[2J", "a\tb", "é", '"', "<script>", "-rf", "a,b", "%0a"]
)
def test_an_id_that_could_harm_is_replaced(server: RegistryUnderTest, id: str) -> None:
    lines = ("GET /nothing HTTP/1.1", "host: localhost", f"x-request-id: {id}", "connection: close")
    with RawConnection(server.port, *lines) as line:
        head, _, body = line.rest().partition(b"\r\n\r\n")
    assert head.startswith((b"HTTP/1.1 404 ", b"HTTP/1.1 400 "))
    found = json.loads(body)["request_id"]
    assert MADE.fullmatch(found) and f"x-request-id: {found}".encode() in head


def test_two_ids_are_none(server: RegistryUnderTest) -> None:
    lines = ("GET /nothing HTTP/1.1", "host: localhost", "x-request-id: one", "x-request-id: two")
    with RawConnection(server.port, *lines) as line:
        assert MADE.fullmatch(line.error()[1]["request_id"])


def test_every_reply_has_its_own(server: RegistryUnderTest) -> None:
    asked = ["/healthz", "/v1/artifacts", "/nothing", "/metrics", "/v1/models/nothing"]
    found = [id_of(server, "GET", each) for each in asked * 2]
    assert len(set(found)) == len(found) and all(map(MADE.fullmatch, found))


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (("GET /healthz HTTP/1.1", "host: evil.example", "x-request-id: mine"), 403),
        (("GET /healthz HTTP/1.1", "x-request-id: mine"), 400),
        (("POST /v1/resolve HTTP/1.1", "host: localhost", "content-length: 2", "x-request-id: mine"), 415),
        (("GET /nothing HTTP/1.1", "host: localhost", "x-request-id: mine"), 404),
        (("DELETE /v1/resolve HTTP/1.1", "host: localhost", "x-request-id: mine"), 405),
    ],
)
def test_who_refuses_a_request_knows_its_id(server: RegistryUnderTest, lines: tuple[str, ...], status: int) -> None:
    with RawConnection(server.port, *lines) as line:
        found, error = line.error()
    assert (found, error["status"], error["request_id"]) == (status, status, "mine")


@pytest.mark.parametrize(
    "data", [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nno colon\r\n\r\n", b"\x16\x03\x01\x02\x00\x01"]
)
def test_what_is_not_http_is_refused_in_the_same_form(server: RegistryUnderTest, data: bytes) -> None:
    with RawConnection(server.port) as line:
        line.send(data)
        found, error = line.error()
    assert (found, error["code"]) == (400, "malformed") and MADE.fullmatch(error["request_id"])


def test_the_log_names_the_request(start: Start) -> None:
    server = start()
    with sqlite3.connect(server.data / "registry.db") as database:
        database.execute("ALTER TABLE locks RENAME TO gone")
    reply = server.request("GET", "/v1/locks", headers={"x-request-id": "night-3"})
    error = reply.json()
    assert (reply.status, reply.headers["x-request-id"], error["request_id"]) == (500, "night-3", "night-3")
    assert "night-3" in error["detail"] and "gone" not in json.dumps(error)
    until(lambda: "internal error" in server.log.read_text())
    lines = [line for line in server.log.read_text().splitlines() if "internal error" in line]
    assert lines[0].endswith("(request night-3)")
