"""The log: a line a request where it is wanted, text or JSON, with the id by which nginx and the client name it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from harness.waiting import until
from registry.registry_client import Parts, RegistryUnderTest, Start


@pytest.fixture(scope="module")
def engine() -> str:
    """The database is not the subject."""
    return "sqlite"


def lines_of(server: RegistryUnderTest, part: str) -> list[str]:
    return [line for line in server.log.read_text().splitlines() if part in line]


def json_of(server: RegistryUnderTest, request_id: str) -> dict[str, Any]:
    """The line of a request; it comes after the reply."""

    def found() -> list[Any]:
        rows = [json.loads(line) for line in server.log.read_text().splitlines() if line.startswith("{")]
        return [row for row in rows if row.get("request_id") == request_id and "route" in row]

    (line,) = until(found)
    assert isinstance(line, dict)
    return line


def test_requests_as_json(start: Start, parts: Parts) -> None:
    server = start("--verbose", "--set", "serve.log=json")
    key = parts.ref_key(model=server.register_model())
    miss = server.request("POST", "/v1/resolve", {"key": key}, headers={"x-request-id": "one"})
    assert miss.status == 404
    line = json_of(server, "one")
    assert (line["level"], line["method"], line["route"]) == ("info", "POST", "POST /v1/resolve")
    assert (line["status"], line["principal"], line["address"]) == (404, "tests", "127.0.0.1")
    assert line["digest"] == miss.json()["context"]["digest"] and line["sent"] == len(miss.data)
    assert line["received"] > 100 and 0 < line["seconds"] < 60 and line["at"].endswith("Z")
    server.request("POST", "/v1/jobs", {"key": key, "constraints": {}}, headers={"x-request-id": "two"})
    line = json_of(server, "two")
    assert line["digest"] == miss.json()["context"]["digest"] and len(line["job"]) == 32
    server.request("GET", "/v1/artifacts/../%1b[2J", headers={"x-request-id": "three"})
    assert "\x1b" not in server.log.read_text() and json_of(server, "three")["status"] >= 400
    # Everything else in the log is JSON, too, but for the line that says where it listens.
    assert [line for line in server.log.read_text().splitlines() if not line.startswith("{")][1:] == []


def test_requests_as_text(start: Start) -> None:
    server = start("--verbose")
    assert server.request("GET", "/v1/artifacts", headers={"x-request-id": "four"}).status == 200
    (line,) = until(lambda: lines_of(server, "(request four)"))
    assert "GET /v1/artifacts: 200 by tests from 127.0.0.1 in " in line and " ms, 0 bytes in, " in line
    secret = server.ok("POST", "/v1/tokens", {"name": "a", "scopes": ["fetch"]})["secret"]
    assert secret.rpartition("_")[2] not in server.log.read_text()


def test_no_line_where_nobody_wants_it(start: Start) -> None:
    server = start()
    server.ok("GET", "/v1/artifacts")
    assert lines_of(server, "/v1/artifacts") == []


def test_an_outage_is_a_line_a_minute(start: Start) -> None:
    server = start()
    store = server.data / "store"
    name = server.upload(b"away")["sha256"]
    store.rename(server.data / "elsewhere")
    for _ in range(50):
        assert server.call("PUT", f"/v1/blobs/{name}", b"away")[0] == 503
    found = lines_of(server, "is not its own any more")
    assert len(found) == 1 and "PUT /v1/blobs" in found[0]
