"""Small ASGI middleware around the application, and the reply that refuses a request before it reaches it.

RequestIds     adds `X-Request-ID` to every reply, and makes it the id of the request; and the version of mxr; and
               counts and logs the request
IdentifiedApp  adds `MXR-Registry`, the UUID of the database: clients keep what they cache apart by it
SubPath        serves the registry below a path of a proxy, whether the proxy removes that path or passes it on
BodyMemory     bounds the memory of the request bodies that one process holds at the same time
"""

from __future__ import annotations

import threading

from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import mxr.facts as facts
from mxr.errors import MEDIA_TYPE, MxrError, TemporaryError
from mxr.protocol.artifacts import REGISTRY_HEADER, VERSION_HEADER
from mxr.version import __version__
from mxr_registry import wait_budget
from mxr_registry.database.identity import RegistryIdentity
from mxr_registry.server.memory_budget import RESERVATION, MemoryBudget, Reservation

from . import request_id, request_record
from .request_id import error_body
from .request_record import RECORD


async def send_error(send: Send, error: MxrError, status: int, *headers: tuple[bytes, bytes]) -> None:
    """Send an error as the whole response. The client may still be sending its body; nothing reads it."""
    body = error_body(error, status)
    fields = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": body})


CLOSE = (b"connection", b"close")
VERSION = (VERSION_HEADER.lower().encode(), __version__.encode())


class RequestIds:
    """ASGI middleware, before all others. From here on, errors name facts as fields of the API.

    While the registry is `stopping`, each reply closes its connection: proxies keep none that will be gone.
    """

    def __init__(self, app: ASGIApp, stopping: threading.Event, answer: float, *, logs: bool) -> None:
        """`answer`: seconds that each request may wait for the database. `logs`: whether each has a line in the log."""
        self.app, self._stopping, self._answer, self._logs = app, stopping, answer, logs

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            # The registry speaks nothing else, and no middleware after this one has to ask.
            return
        facts.dialect.set(facts.HTTP)
        wait_budget.begin(self._answer)
        header = (request_id.HEADER, request_id.begin_request(scope["headers"]).encode())
        record = scope[RECORD] = request_record.begin()

        async def receive_counted() -> Message:
            message = await receive()
            record.received += len(message.get("body", b""))
            return message

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                close: list[tuple[bytes, bytes]] = [CLOSE] if self._stopping.is_set() else []
                message["headers"] = [*message.get("headers", ()), header, VERSION, *close]
            else:
                record.sent += len(message.get("body", b""))
                if not message.get("more_body"):
                    # Before the client has the reply: what it asks next finds this request counted.
                    record.end(scope, logs=self._logs)
            await send(message)

        try:
            await self.app(scope, receive_counted, send_with_id)
        finally:
            record.end(scope, logs=self._logs)


NAME = REGISTRY_HEADER.lower().encode()


class IdentifiedApp:
    """ASGI middleware that adds the header. A reply has none while the database does not answer."""

    def __init__(self, app: ASGIApp, identity: RegistryIdentity) -> None:
        self.app, self.identity = app, identity

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""

        async def send_identified(message: Message) -> None:
            if message["type"] == "http.response.start":
                uuid = self.identity.known or await run_in_threadpool(self.identity.read)
                if uuid is not None:
                    message["headers"] = [*message.get("headers", ()), (NAME, uuid.encode())]
            await send(message)

        await self.app(scope, receive, send_identified)


LOCATION = b"location"


class SubPath:
    """ASGI middleware that removes `root` from the path of a request, and adds it to `Location` of the reply.

    Requests without it are served too: probes reach the registry directly. `root`: begins with a slash and does not end
    with one.
    """

    def __init__(self, app: ASGIApp, root: str) -> None:
        self.app = app
        self._root = root

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        path: str = scope["path"]
        if path.startswith(f"{self._root}/"):
            scope = {**scope, "path": path.removeprefix(self._root)}

        async def send_below(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [self._below(*header) for header in message.get("headers", ())]
            await send(message)

        await self.app(scope, receive, send_below)

    def _below(self, name: bytes, value: bytes) -> tuple[bytes, bytes]:
        """A header of the reply. A redirect to a signed URL has another host, and stays as it is."""
        own = name.lower() == LOCATION and value.startswith(b"/")
        return name, self._root.encode() + value if own else value


FREE = 64 << 10
"""Bytes up to which a body reserves nothing."""

WIRE_FACTOR = 5
"""Bytes of memory for each byte of a body: the bytes themselves, and the text, whose letters take up to four bytes."""


class BodyMemory:
    """ASGI middleware that answers 503 where a large body finds no memory. `total`: bytes for all large bodies.

    `largest`: the limit of one body, which a body without Content-Length reserves. A JSON body above `FREE` bytes
    reserves `WIRE_FACTOR` times its size until its request is answered. The route that reads it reserves more for the
    values in it, before it builds them (`server.bodies`). Smaller bodies, such as those of resolves, are never refused
    for their size; the number of connections bounds them. Uploaded blobs are written as they arrive.
    """

    def __init__(self, app: ASGIApp, total: int, largest: int) -> None:
        self.app, self._largest = app, largest
        self._budget = MemoryBudget(max(total, WIRE_FACTOR * largest))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        reservation, size = Reservation(self._budget), self._size(scope)
        try:
            if size > FREE:
                reservation.grow(WIRE_FACTOR * size)
        except TemporaryError as error:
            await send_error(send, error, error.status, (b"retry-after", f"{error.retry_after:.0f}".encode()))
            return
        scope[RESERVATION] = reservation
        try:
            await self.app(scope, receive, send)
        finally:
            reservation.release()

    def _size(self, scope: Scope) -> int:
        if scope["method"] == "PUT" and scope["path"].startswith("/v1/blobs/"):
            return 0
        for name, value in scope["headers"]:
            if name == b"content-length":
                return min(int(value), self._largest) if value.isdigit() and len(value) < 20 else self._largest
            if name == b"transfer-encoding":
                return self._largest
        return 0
