"""What clients that take no reply make a registry hold: large JSON replies, and the chunks of downloads."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import pytest
from fastapi import Request
from harness.api_document import application, routes
from harness.rows import for_each
from registry.registry_client import RegistryUnderTest, Start, ref_key
from registry.test_bounded import memory_of

from mxr.errors import UnauthenticatedError
from mxr.util.hashing import CHUNK
from mxr_registry.routes.deps import LOG_PAGES
from mxr_registry.server.download_buffers import COPIES, MIN_CHUNK, DownloadBuffers
from mxr_registry.server.reply_memory import BEGIN_BUILDING, FREE, LISTS, LISTS_AT_ONCE, PIECE, ReplyMemory
from mxr_registry.server.request_record import RECORD, RequestRecord
from mxr_registry.server.scoped import ScopedRoute

MIB = 1 << 20


@pytest.fixture(scope="module")
def engine() -> str:
    """The database is not the subject."""
    return "sqlite"


def app_of(size: int, more: bool = False) -> Callable[..., Awaitable[None]]:
    """An application that replies with so many bytes."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * size, "more_body": more})
        if more:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    return app


class Taker:
    """A client that takes its reply when it is told to."""

    def __init__(self, app: ReplyMemory, path: str = "/v1/resolve") -> None:
        self.taking, self.status, self.size, self.largest = asyncio.Event(), 0, 0, 0
        scope = {"type": "http", "method": "GET", "path": path, "headers": []}
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))

    async def _receive(self) -> MutableMapping[str, Any]:
        raise AssertionError("nothing is read")

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            return
        self.size += len(message["body"])
        self.largest = max(self.largest, len(message["body"]))
        await self.taking.wait()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_large_replies_that_nobody_takes_share_one_memory() -> None:
    async def run() -> None:
        app = ReplyMemory(app_of(3 * MIB), 10 * MIB)
        takers = [Taker(app) for _ in range(5)]
        await settle()
        assert [each.status for each in takers] == [200, 200, 200, 503, 503]
        for each in takers:
            each.taking.set()
        await asyncio.gather(*(each.task for each in takers))
        assert [each.size for each in takers[:3]] == [3 * MIB] * 3 and takers[0].largest == PIECE
        assert all(0 < each.size < 1000 for each in takers[3:])
        last = Taker(app)
        last.taking.set()
        await last.task
        assert last.status == 200, "what was held is given back"

    asyncio.run(run())


@pytest.mark.parametrize(("size", "more"), [(FREE, False), (20 * MIB, True)])
def test_small_replies_and_streams_are_always_sent(size: int, more: bool) -> None:
    async def run() -> None:
        app = ReplyMemory(app_of(size, more), 1)
        takers = [Taker(app) for _ in range(50)]
        await settle()
        assert {each.status for each in takers} == {200}
        for each in takers:
            each.taking.set()
        await asyncio.gather(*(each.task for each in takers))
        assert {each.size for each in takers} == {size}

    asyncio.run(run())


def test_few_lists_are_built_at_once_and_those_that_wait_hold_nothing() -> None:
    async def run() -> None:
        building, let_go = 0, asyncio.Event()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            nonlocal building
            if LISTS.fullmatch(scope["path"]):
                await scope[BEGIN_BUILDING]()
            building += 1
            await let_go.wait()
            await app_of(10)(scope, receive, send)
            building -= 1

        memory = ReplyMemory(app, MIB)
        lists = [Taker(memory, path) for path in ("/v1/misses", "/v1/artifacts/ab", "/v1/models") * LISTS_AT_ONCE]
        await settle()
        assert building == LISTS_AT_ONCE
        for count, path in enumerate(("/v1/resolve", "/v1/jobs/ab", "/v1/artifacts/ab/files/m.mxr"), 1):
            Taker(memory, path)
            await settle()
            assert building == LISTS_AT_ONCE + count, "other requests do not wait"
        let_go.set()
        await settle()
        # A client that does not take its list keeps no other from being built.
        assert {each.status for each in lists} == {200}
        for each in lists:
            each.taking.set()
        await asyncio.gather(*(each.task for each in lists))

    asyncio.run(run())


@for_each(sorted({route.path for route in routes() if LISTS.fullmatch(route.path)}))
def test_a_list_waits_for_its_place_after_its_token_was_checked(path: str) -> None:
    """A client without a token would hold a place of those who have one."""
    route = next(each for each in routes() if each.path == path and "GET" in each.methods)
    assert isinstance(route, ScopedRoute)

    async def begin() -> None:
        raise AssertionError("it was not admitted")

    scope = {"type": "http", "method": "GET", "path": path, "headers": [], "app": application(), BEGIN_BUILDING: begin}
    scope[RECORD] = RequestRecord()
    with pytest.raises(UnauthenticatedError):
        asyncio.run(route.get_route_handler()(Request(scope)))


@pytest.mark.parametrize("count", [1, 30, 400, 4096])
def test_the_chunks_of_downloads_shrink_with_what_they_hold(count: int) -> None:
    buffers = DownloadBuffers(64 * MIB)
    sizes = [buffers.take() for _ in range(count)]
    assert sizes[0] == CHUNK and sizes == sorted(sizes, reverse=True)
    assert buffers.held <= 64 * MIB + COPIES * MIN_CHUNK * count
    for size in sizes:
        buffers.give_back(size)
    assert buffers.held == 0


def test_downloads_that_nobody_reads_take_little_memory(server: RegistryUnderTest) -> None:
    """200 of them took 400 MiB."""
    name = server.upload(os.urandom(32 * MIB))["sha256"]
    server.get(f"/v1/blobs/{name}")
    before = memory_of(server.process.pid, "VmRSS")
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.settimeout(60)
            client.connect(("127.0.0.1", server.port))
            token = f"authorization: {server.http.headers['authorization']}"
            client.sendall(f"GET /v1/blobs/{name} HTTP/1.1\r\nhost: localhost\r\n{token}\r\n\r\n".encode())
            assert client.recv(12) == b"HTTP/1.1 200"
        assert server.get("/healthz").status == 200
        assert memory_of(server.process.pid, "VmRSS") - before < 160
        assert len(server.get(f"/v1/blobs/{name}").data) == 32 * MIB


@pytest.mark.parametrize("what", ["events", "log"])
def test_logs_that_nobody_reads_take_little_memory(start: Start, what: str) -> None:
    """Each event stream held 12.9 MiB: up to 512 KiB of log, as JSON, several times; each reply the whole log."""
    server = start()
    server.submit(ref_key(server.register_model()))
    lease = server.claim(server.register_worker())
    for _ in range(5):
        server.heartbeat(lease, log="\x01" * (256 << 10))
    with contextlib.ExitStack() as stack:
        before = memory_of(server.process.pid, "VmRSS")
        for number in range(300):
            line = stack.enter_context(socket.socket())
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            line.connect(("127.0.0.1", server.port))
            token = "".join(f"{name}: {value}\r\n" for name, value in server.http.headers.items())
            line.sendall(f"GET /v1/jobs/{lease['job']}/{what} HTTP/1.1\r\nhost: localhost\r\n{token}\r\n".encode())
            # One token has half of the places for pages; the others wait, and hold nothing.
            if number < LOG_PAGES // 2:
                assert line.recv(12, socket.MSG_PEEK) == b"HTTP/1.1 200"
        server.ok("GET", "/v1/jobs")
        assert memory_of(server.process.pid, "VmHWM") - before < 64
        other = server.ok("POST", "/v1/tokens", {"name": "other", "scopes": ["admin"]})["secret"]
        reply = server.request("GET", f"/v1/jobs/{lease['job']}/log", headers={"authorization": f"Bearer {other}"})
    assert reply.data.count(b"\x01") == 5 * (256 << 10)
    end = int(reply.headers["mxr-log-next"])
    for offset in (end - 100_000, end - 7, end):
        reply = server.request("GET", f"/v1/jobs/{lease['job']}/log?offset={offset}")
        assert (len(reply.data), reply.headers["mxr-log-next"]) == (end - offset, str(end))


def test_the_public_page_takes_no_memory_of_callers_with_tokens(start: Start) -> None:
    server = start(config="[limits]\nreply_memory = 2097152\n")
    for number in range(20):
        key = ref_key(f"sha256:{number:064x}", inputs={"x" * 26_000: [1]})
        server.error("POST", "/v1/resolve", {"key": key, "constraints": {}})
    names = ("/docs/swagger-ui-bundle.js", "/openapi.json")
    with contextlib.ExitStack() as stack:
        for number in range(20):
            line = stack.enter_context(socket.socket())
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            line.connect(("127.0.0.1", server.port))
            line.sendall(f"GET {names[number % 2]} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode() * 4)
        for _ in range(3):
            status, found = server.call("GET", "/v1/misses")
            assert status == 200 and len(found["items"]) == 20
