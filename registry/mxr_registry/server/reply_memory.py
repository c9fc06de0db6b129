"""Bounds the memory of large JSON replies: while they are built, and while clients do not take them.

A page of a list, a manifest or a description can have some MB. A client that asks for many and reads none would hold
all of them. Replies of at most `FREE` bytes, such as those of almost every resolve, and streams, are not affected.
"""

from __future__ import annotations

import asyncio
import re

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mxr.errors import TemporaryError
from mxr_registry import counters
from mxr_registry.server.memory_budget import RETRY_AFTER, MemoryBudget

from .middleware import send_error

FREE = 64 << 10
"""Bytes up to which a reply is always sent."""

PIECE = 256 << 10
"""Bytes of a reply that are handed to the connection at once: it keeps a copy of them until the client takes them."""

BEGIN_BUILDING = "mxr.begin_building"
"""The name under which the ASGI scope of a request has what a route awaits before it builds one of `LISTS`.

After its token was checked: who has none must not hold a place.
"""

LISTS = re.compile(r"/v1/((artifacts|models|locks)(/[^/]+)?|jobs|workers|misses|uses|queue)")
LISTS_AT_ONCE = 2
"""Lists, artifacts, models and locks that are built at the same time, each with up to three times its size.

Building takes a processor, and Python has one: more at once are no faster, and make all other requests wait."""


class ReplyMemory:
    """ASGI middleware that answers 503 in place of a large reply that finds no memory. `total`: bytes for all."""

    def __init__(self, app: ASGIApp, total: int) -> None:
        self.app, self._budget = app, MemoryBudget(total)
        self._building: asyncio.Semaphore | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if self._building is None:
            self._building = asyncio.Semaphore(LISTS_AT_ONCE)
        reply = _Reply(self._budget, send, self._building)
        scope[BEGIN_BUILDING] = reply.begin_building
        try:
            await self.app(scope, receive, reply.send)
        finally:
            reply.release()


class _Reply:
    """One reply: its start waits for the first part of the body, whose size decides."""

    def __init__(self, budget: MemoryBudget, send: Send, places: asyncio.Semaphore) -> None:
        self._budget, self._send, self._places = budget, send, places
        self._building = False
        self._start: Message | None = None
        self._held = 0
        self._refused = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        start, self._start = self._start, None
        if start is None:
            if not self._refused:
                await self._send(message)
            return
        self._end_building()
        body = message.get("body", b"")
        if message.get("more_body") or len(body) <= FREE:
            await self._send(start)
            await self._send(message)
            return
        if not self._budget.take(len(body)):
            self._refused = True
            counters.REFUSED.labels("reply_memory").inc()
            error = TemporaryError("Too many large replies wait for their clients.", hint="Try again in some seconds.")
            await send_error(self._send, error, error.status, (b"retry-after", f"{RETRY_AFTER:.0f}".encode()))
            return
        self._held = len(body)
        await self._send(start)
        for at in range(0, len(body), PIECE):
            await self._send({**message, "body": body[at : at + PIECE], "more_body": True})
        # Waits until the client has taken the rest.
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def begin_building(self) -> None:
        await self._places.acquire()
        self._building = True

    def _end_building(self) -> None:
        if self._building:
            self._places.release()
            self._building = False

    def release(self) -> None:
        self._end_building()
        if self._held:
            self._budget.give_back(self._held)
            self._held = 0
