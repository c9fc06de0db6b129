"""Clients that stop sending or receiving: their connections end, and other clients are served meanwhile."""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from harness.scale import crowd
from harness.waiting import until
from registry.raw_connection import RawConnection, upload
from registry.registry_client import RegistryUnderTest, Start, ref_key
from registry.test_bounded import memory_of

SHORT = "[limits]\nheader_seconds = 0.5\nidle_seconds = 0.5\n"


@pytest.fixture(scope="module")
def engine() -> str:
    """The database is not the subject."""
    return "sqlite"


@pytest.fixture
def short(start: Start) -> Any:
    """A registry with short deadlines."""
    return start(config=SHORT)


def partial_files(server: RegistryUnderTest) -> list[str]:
    return [path.name for path in (server.data / "store").rglob(".upload-*")]


def test_an_upload_that_stops_is_closed_and_leaves_nothing(short: Any) -> None:
    with upload(short.port, 4 << 20, b"x" * (2 << 20)) as line:
        until(lambda: partial_files(short))
        found, error = line.error()
        assert (found, error["code"], error["retry"]) == (408, "temporary", True)
        assert line.rest() == b""
    until(lambda: not partial_files(short))
    assert short.upload(b"another client")


def test_an_upload_that_drips_is_closed(short: Any) -> None:
    with upload(short.port) as line, ThreadPoolExecutor(1) as pool:
        ending = pool.submit(line.status)
        with contextlib.suppress(OSError):
            while not ending.done():
                line.send(b"x")
                time.sleep(0.1)
        assert ending.result() == 408


def test_an_upload_that_goes_on_is_not_closed(short: Any) -> None:
    data = b"slow but steady" * 1000
    with upload(short.port, len(data)) as line:
        for at in range(0, len(data), 1000):
            line.send(data[at : at + 1000])
            time.sleep(0.1)
        assert line.status() == 422, "the sha256 is another, and that is all that is wrong"


@pytest.mark.parametrize("begin", [b"", b"GET /healthz HT", b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nx: "])
def test_a_header_that_does_not_end_is_closed(short: Any, begin: bytes) -> None:
    with RawConnection(short.port) as line:
        line.send(begin)
        assert line.rest()[:12] in ((b"HTTP/1.1 408",) if begin else (b"",))


def test_a_second_request_has_the_same_deadline(short: Any) -> None:
    with RawConnection(short.port, "GET /healthz HTTP/1.1", "host: localhost") as line:
        line.send(b"GET /healthz HTTP/1.1\r\n")
        assert [part[:3] for part in line.rest().split(b"HTTP/1.1 ")[1:]] == [b"200", b"408"]


def test_a_header_without_end_is_too_large(server: RegistryUnderTest) -> None:
    with RawConnection(server.port, seconds=30) as line:
        line.send(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n")
        with contextlib.suppress(OSError):
            for _ in range(100):
                line.send(b"x: " + b"y" * 10_000 + b"\r\n")
        assert line.rest()[:12] in (b"HTTP/1.1 431", b"")
    assert server.call("GET", "/healthz")[0] == 200


@pytest.mark.parametrize("ends", [b"\r\n", b""])
def test_a_header_of_many_fields_is_refused(server: RegistryUnderTest, ends: bytes) -> None:
    begin = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n"
    with RawConnection(server.port) as line:
        line.send(begin + b"a:\r\n" * 99 + b"\r\n")
        assert line.status() == 200
    with RawConnection(server.port) as line:
        line.send(begin + b"a:\r\n" * 7_000 + ends)
        found, error = line.error()
        assert found == 431 and "more than 100 fields" in error["detail"]


def test_a_trailer_has_the_limits_of_a_header(server: RegistryUnderTest) -> None:
    lines = ("POST /v1/resolve HTTP/1.1", "host: localhost", "content-type: application/json")
    for trailer in (b"a:\r\n" * 7_000, b"a: " + b"x" * 1_000_000):
        with RawConnection(server.port, *lines, "transfer-encoding: chunked") as line:
            line.send(b"1\r\n{\r\n0\r\n")
            with contextlib.suppress(OSError):
                line.send(trailer)
            assert line.rest()[:12] in (b"HTTP/1.1 431", b"")
    assert server.call("GET", "/healthz")[0] == 200


def test_a_few_requests_may_wait_for_an_earlier_one(server: RegistryUnderTest) -> None:
    with RawConnection(server.port) as line:
        begin = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n"
        line.send((begin + b"\r\n") * 8 + begin + b"connection: close\r\n\r\n")
        assert line.rest().count(b"HTTP/1.1 200") == 9


def test_a_train_of_requests_ends_its_connection(server: RegistryUnderTest) -> None:
    """20 connections took 380 MiB, and stopped everything for 7 s."""
    train = b"GET / HTTP/1.1\r\n\r\n" * 14_000
    before = memory_of(server.process.pid, "VmHWM")
    lines = [RawConnection(server.port) for _ in range(20)]
    for line in lines:
        with contextlib.suppress(OSError):
            line.send(train)
    assert server.call("GET", "/healthz")[0] == 200
    for line in lines:
        assert line.rest().count(b"HTTP/1.1 ") <= 1
        line.close()
    assert memory_of(server.process.pid, "VmHWM") - before < 40, "a read of 256 KiB for each, and little more"


def test_a_refused_body_is_not_read_for_long(short: Any) -> None:
    lines = ("PUT /v1/blobs/x HTTP/1.1", "host: evil.example", "content-type: application/octet-stream")
    with RawConnection(short.port, *lines, f"content-length: {1 << 40}") as line:
        assert line.status() == 403
        with pytest.raises(OSError):
            while True:
                line.send(b"x" * 65536)


def test_a_client_that_takes_no_response_is_closed(start: Start) -> None:
    server = start(config=SHORT)
    blob = server.upload(bytes(16 << 20))
    with RawConnection(server.port, f"GET /v1/blobs/{blob['sha256']} HTTP/1.1", "host: localhost") as line:
        until(lambda: _blobs_open(server))
        until(lambda: not _blobs_open(server))
        assert len(line.rest()) < 16 << 20


def _blobs_open(server: RegistryUnderTest) -> int:
    found = 0
    for each in Path(f"/proc/{server.process.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found += "/store/blobs/" in str(each.readlink())
    return found


def test_waiting_requests_are_not_closed(short: Any) -> None:
    worker = short.register_worker()
    begun = time.monotonic()
    assert short.claim(worker, wait=2) is None
    assert time.monotonic() - begun >= 2


def test_a_crowd_of_idle_uploads_stops_nobody(start: Start) -> None:
    count = crowd(600, 60)
    # A body beyond what all uploads may buffer waits for others, until they are closed.
    server = start(config="[limits]\nidle_seconds = 8\n")
    lines = [upload(server.port, body=b"x" * (index % 3 * 100_000)) for index in range(count)]
    try:
        data = b"somebody else's bytes"
        name = server.upload(data)["sha256"]
        assert server.get(f"/v1/blobs/{name}").data == data
        assert server.submit(ref_key(server.register_model()))["state"] == "queued"
        assert {each.call("GET", "/readyz")[0] for each in [server] * 20} == {200}
    finally:
        for line in lines:
            line.close()


def test_beyond_the_limit_the_longest_silent_connection_ends(start: Start) -> None:
    server = start(config="[limits]\nconnections = 8\n")
    lines = [upload(server.port, body=b"x") for _ in range(8)]
    try:
        assert server.call("GET", "/healthz")[0] == 200
        assert lines[0].rest() == b""
        more = [RawConnection(server.port) for _ in range(30)]
        assert server.call("GET", "/healthz")[0] == 200
        assert all(line.rest() == b"" for line in (*lines[1:], *more[:20]))
        lines += more
    finally:
        for line in lines:
            line.close()
