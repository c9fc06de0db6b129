"""Bounds the memory of the request bodies that one process holds at the same time.

Each request with a JSON body above `FREE` bytes reserves its size until it is answered. Smaller bodies, such as those
of resolves, are never refused; the number of connections bounds them. Uploaded blobs are written as they arrive.
"""

from __future__ import annotations

from mxr.errors import Temporary

from .asgi import App, Receive, Scope, Send, send_error

FREE = 64 << 10
"""Bytes up to which a body reserves nothing."""

RETRY_AFTER = 5
"""Seconds after which a client is asked to try again."""


class BodyMemory:
    """ASGI middleware that answers 503 where a large body finds no memory. `total`: bytes for all large bodies.

    `largest`: the limit of one body, which a body without Content-Length reserves.
    """

    def __init__(self, app: App, total: int, largest: int) -> None:
        self.app, self._total, self._largest = app, max(total, largest), largest
        self._reserved = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        size = self._size(scope) if scope["type"] == "http" else 0
        if size <= FREE:
            await self.app(scope, receive, send)
            return
        if self._reserved + size > self._total:
            error = Temporary("The registry is handling too many large requests.", hint="Try again in some seconds.")
            await send_error(send, error, error.status, (b"retry-after", str(RETRY_AFTER).encode()))
            return
        self._reserved += size
        try:
            await self.app(scope, receive, send)
        finally:
            self._reserved -= size

    def _size(self, scope: Scope) -> int:
        if scope["method"] == "PUT" and scope["path"].startswith("/v1/blobs/"):
            return 0
        for name, value in scope["headers"]:
            if name == b"content-length":
                return min(int(value), self._largest) if value.isdigit() and len(value) < 20 else self._largest
            if name == b"transfer-encoding":
                return self._largest
        return 0
