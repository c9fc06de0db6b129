"""How a registry stops: it drains, lets transfers end, and cuts what is left without a traceback."""

from __future__ import annotations

import json
import secrets
import signal
import socket
import threading
import time
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import pytest
from harness.waiting import PendingRequest, requests_read, until
from registry.registry_client import RegistryUnderTest, Start

LONG = "120"


@pytest.fixture(scope="module")
def engine() -> str:
    """The database makes no difference here."""
    return "sqlite"


class Line:
    """One connection whose request and reply move by hand."""

    def __init__(self, server: RegistryUnderTest, method: str, path: str, size: int = 0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", server.port), 30)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 256 << 10)
        token = server.http.headers["authorization"]
        self.send(f"{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: {token}\r\n".encode())
        self.send(f"content-type: application/octet-stream\r\ncontent-length: {size}\r\n\r\n".encode())

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def rest(self) -> bytes:
        """All that still comes."""
        found = bytearray()
        while part := self.socket.recv(1 << 20):
            found += part
        return bytes(found)

    def __del__(self) -> None:
        self.socket.close()


@pytest.fixture
def stopped(start: Start) -> Iterator[Any]:
    """Starts a registry with these settings, and stops it whatever it waits for."""
    made: list[RegistryUnderTest] = []

    def begin(drain: str, graceful: str) -> RegistryUnderTest:
        made.append(start("--set", f"serve.drain={drain}", "--set", f"serve.graceful={graceful}"))
        return made[-1]

    yield begin
    for each in made:
        each.process.kill()


def blob_of(server: RegistryUnderTest, size: int = 16 << 20) -> tuple[str, bytes]:
    """A blob that the registry has, which no buffer of the kernel takes whole."""
    data = secrets.token_bytes(size)
    name = sha256(data).hexdigest()
    server.ok("PUT", f"/v1/blobs/{name}", data)
    return name, data


def told_to_stop(server: RegistryUnderTest) -> None:
    """It got SIGTERM, and knows it."""
    server.process.send_signal(signal.SIGTERM)
    until(lambda: server.call("GET", "/readyz")[0] == 503)


def test_while_it_drains_it_serves_and_is_not_ready(stopped: Any) -> None:
    server = stopped(LONG, LONG)
    told_to_stop(server)
    status, said = server.call("GET", "/readyz")
    assert (status, said["code"], said["retry"]) == (503, "temporary", True) and "is stopping" in said["detail"]
    assert server.call("GET", "/healthz") == (200, {"ok": True})
    reply = server.request("GET", "/v1/artifacts")
    assert reply.status == 200 and reply.headers["connection"] == "close", "a proxy must not keep this connection"
    blob_of(server, 1 << 20)
    # SIGTERM again changes nothing; Ctrl-C ends it.
    server.process.send_signal(signal.SIGTERM)
    assert server.call("GET", "/v1/artifacts")[0] == 200
    assert server.stop(signal.SIGINT) == 130
    assert "Traceback" not in server.log.read_text()


def test_its_socket_closes_when_it_has_drained(stopped: Any) -> None:
    server = stopped("0.5", LONG)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(60) == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port))


def test_a_long_poll_ends_when_the_listener_closes(stopped: Any) -> None:
    server = stopped("0.5", LONG)
    waiting = PendingRequest(server.url, "GET", "/v1/jobs/watch?wait=60")
    requests_read(waiting)
    server.process.send_signal(signal.SIGTERM)
    assert waiting.reply(30)[0] < 500
    assert server.process.wait(60) == 0


def test_transfers_may_end_after_the_listener_is_closed(stopped: Any) -> None:
    server = stopped("0", LONG)
    name, data = blob_of(server)
    down = Line(server, "GET", f"/v1/blobs/{name}?direct=no")
    new = secrets.token_bytes(100_000)
    up = Line(server, "PUT", f"/v1/blobs/{sha256(new).hexdigest()}", len(new))
    up.send(new[:50_000])
    head = down.socket.recv(1)
    server.process.send_signal(signal.SIGTERM)
    until(lambda: refused(server.port))
    up.send(new[50_000:])
    assert up.rest().startswith(b"HTTP/1.1 201 ")
    got = head + down.rest()
    assert got.startswith(b"HTTP/1.1 200 ") and got.endswith(data[-1000:]) and len(got) > len(data)
    assert server.process.wait(60) == 0
    assert "cut" not in server.log.read_text()


def refused(port: int) -> bool:
    """Whether nobody listens."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def test_what_does_not_end_in_time_is_cut_in_a_line_each(stopped: Any) -> None:
    server = stopped("0", "0.5")
    name, _ = blob_of(server)
    down = [Line(server, "GET", f"/v1/blobs/{name}?direct=no") for _ in range(3)]
    new = secrets.token_bytes(100_000)
    up = Line(server, "PUT", f"/v1/blobs/{sha256(new).hexdigest()}", len(new))
    up.send(new[:50_000])
    for each in down:
        each.socket.recv(1)
    assert server.stop() == 0
    head, _, body = up.rest().partition(b"\r\n\r\n")
    said = json.loads(body)
    assert head.startswith(b"HTTP/1.1 503 ") and b"retry-after: 1" in head and b"problem+json" in head
    assert said["code"] == "temporary" and said["retry"] is True and "stopped before" in said["detail"]
    log = server.log.read_text()
    assert "Traceback" not in log and log.count("was cut: the registry stops") == 4
    assert len(log.splitlines()) < 12, log


def test_two_signals_under_load_end_it_once(stopped: Any) -> None:
    server = stopped("0.2", LONG)
    going = threading.Event()

    def ask() -> None:
        while not going.is_set():
            try:
                server.http.request("GET", f"{server.url}/v1/artifacts", retries=False)
                blob_of(server, 100_000)
            except Exception:
                going.wait(0.01)

    load = [threading.Thread(target=ask) for _ in range(8)]
    for each in load:
        each.start()
    try:
        until(lambda: server.call("GET", "/healthz")[0] == 200)
        for pause in (0.0, 0.1, 0.2):
            time.sleep(pause)
            server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
    finally:
        going.set()
        for each in load:
            each.join(60)
    assert "Errno" not in server.log.read_text() and "bug" not in server.log.read_text()
