"""Bounds the memory of the request bodies that one process holds at the same time.

A JSON body above `FREE` bytes reserves `WIRE_FACTOR` times its size until its request is answered. The route that reads
it reserves more for the values in it, before it builds them (`routes.bodies`). Smaller bodies, such as those of
resolves, are never refused for their size; the number of connections bounds them. Uploaded blobs are written as they
arrive.
"""

from __future__ import annotations

from mxr.errors import TemporaryError
from mxr_registry.memory_budget import RESERVATION, MemoryBudget, Reservation

from .asgi import App, Receive, Scope, Send, send_error

FREE = 64 << 10
"""Bytes up to which a body reserves nothing."""

WIRE_FACTOR = 5
"""Bytes of memory for each byte of a body: the bytes themselves, and the text, whose letters take up to four bytes."""


class BodyMemory:
    """ASGI middleware that answers 503 where a large body finds no memory. `total`: bytes for all large bodies.

    `largest`: the limit of one body, which a body without Content-Length reserves.
    """

    def __init__(self, app: App, total: int, largest: int) -> None:
        self.app, self._largest = app, largest
        self._budget = MemoryBudget(max(total, WIRE_FACTOR * largest))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
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
