"""HTTP connections with deadlines: uvicorn's protocol, plus limits on clients that stop sending or receiving.

uvicorn limits only the pause between two requests. This protocol also closes a connection

- if the header of a request is not complete `header_seconds` after it began, or exceeds `MAX_HEADER` bytes
- if a body makes no progress for `idle_seconds`, or arrives more slowly than `MIN_RATE` for that long
- if the client does not take the response for `idle_seconds`
- if there are more than `connections`: of those that wait for bytes of their client, the one that has waited longest

A connection whose request waits in the registry (a long poll, a full store) is closed by none of these.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mxr.errors import MEDIA_TYPE, MalformedError, MxrError, TemporaryError, UsageError
from mxr_registry import request_id
from mxr_registry.config.limits import RequestLimits

MAX_HEADER = 64 << 10
"""Maximum size of the request line and the header of a request, in bytes."""

MIN_RATE = 500.0
"""Bytes per second that a body has to reach on average."""

LINGER = 5.0
"""Seconds for which the rest of a body is read and dropped after the response was sent."""

RESERVED = 256
"""File descriptors for everything but connections and uploads: database, inspections, downloads."""


class BoundedConnections:
    """The connections of one server that wait for their clients, and the timer that closes them."""

    def __init__(self, limits: RequestLimits, most: int) -> None:
        self.limits, self.most = limits, most
        # Ordered by the last bytes from the client, oldest first.
        self.awaited: dict[BoundedProtocol, None] = {}
        self.stalled: dict[BoundedProtocol, None] = {}
        self._interval = min(1.0, limits.header_seconds / 4, limits.idle_seconds / 4)
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Check the deadlines until no connection waits any more."""
        if self._timer is None:
            self._timer = loop.call_later(self._interval, self._check, loop)

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer, moment = None, loop.time()
        for each in [*self.awaited, *self.stalled]:
            each.check_deadlines(moment)
        if self.awaited or self.stalled:
            self.watch(loop)

    def make_room(self, count: int) -> None:
        """Close the connections that have waited longest for their clients, if there are too many connections."""
        for each in list(self.awaited)[: max(0, count - self.most)]:
            each.transport.abort()


class BoundedProtocol(HttpToolsProtocol):
    """One connection. `bounds` is that of its server; see `bounded_protocol`."""

    bounds: ClassVar[BoundedConnections]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._in_header = self._in_body = self._in_linger = False
        self._header_size = 0
        self._deadline = self._write_deadline = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._begin_header()
        self.bounds.make_room(len(self.connections))
        self.bounds.watch(self.loop)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self.bounds.awaited.pop(self, None)
        self.bounds.stalled.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Move the deadline of a body, and refuse a header that is too long."""
        if self._in_body:
            self._extend(len(data))
        else:
            if not self._in_header:
                self._begin_header()
                self.bounds.watch(self.loop)
            self._header_size += len(data)
        super().data_received(data)
        if self._in_header and self._header_size > MAX_HEADER:
            self._refuse(431, UsageError(f"The header of the request exceeds {MAX_HEADER} bytes.", hint="Shorten it."))

    def on_message_begin(self) -> None:
        """Note the begin of a request, which may follow another one in the same packet."""
        if not self._in_header:
            self._begin_header()
            self._header_size = 1
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Wait for the body."""
        self._in_header, self._in_body, self._in_linger = False, True, False
        self._header_size = 0
        self._deadline = self.loop.time() + self.bounds.limits.idle_seconds
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Wait for nothing more."""
        self._in_header = self._in_body = False
        self.bounds.awaited.pop(self, None)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Read the rest of a body that nobody wants, for a short time: closing at once would lose the response."""
        if self._in_body:
            self._in_linger = True
            self._deadline = self.loop.time() + min(LINGER, self.bounds.limits.idle_seconds)
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Note that the client does not take the response."""
        self._write_deadline = self.loop.time() + self.bounds.limits.idle_seconds
        self.bounds.stalled[self] = None
        self.bounds.watch(self.loop)
        super().pause_writing()

    def resume_writing(self) -> None:
        """Note that the client takes the response again."""
        self.bounds.stalled.pop(self, None)
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP. `msg`: uvicorn's words, in place of which this error is sent."""
        del msg
        self._refuse(400, MalformedError("This is not an HTTP/1.1 request.", hint="Check what sends it."))

    def check_deadlines(self, moment: float) -> None:
        """Close the connection if a deadline has passed."""
        if self in self.bounds.stalled and moment >= self._write_deadline:
            self.transport.abort()
        elif self in self.bounds.awaited and moment >= self._deadline:
            if self.flow.read_paused:
                # The registry is not reading: the client is not late.
                self._deadline = moment + self.bounds.limits.idle_seconds
                self._touch()
            elif self._in_header and not self._header_size:
                self.transport.abort()
            else:
                self._refuse(408, TemporaryError("The request did not arrive in time.", hint="Send it again."))

    def _begin_header(self) -> None:
        self._in_header, self._header_size = True, 0
        self._deadline = self.loop.time() + self.bounds.limits.header_seconds
        self._touch()

    def _extend(self, received: int) -> None:
        if not self._in_linger:
            latest = self.loop.time() + self.bounds.limits.idle_seconds
            self._deadline = min(latest, self._deadline + received / MIN_RATE)
        self._touch()

    def _touch(self) -> None:
        self.bounds.awaited.pop(self, None)
        self.bounds.awaited[self] = None

    def _refuse(self, status: int, error: MxrError) -> None:
        """Send the error, unless a response has begun, and close the connection."""
        self.bounds.awaited.pop(self, None)
        self._in_header = False
        if self.transport.is_closing():
            return
        unanswered = self.cycle is not None and not self.cycle.response_complete
        if unanswered and (self.cycle.response_started or not self._in_body):
            # This error would appear within another response, or before that of an earlier request.
            self.transport.abort()
            return
        if not self._in_linger:
            # No request came to be: the current one of this context may be another.
            id = request_id.make()
            body = request_id.error_body(error, status, id)
            head = (
                f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: {MEDIA_TYPE}\r\n"
                f"content-length: {len(body)}\r\nx-request-id: {id}\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
        self.transport.close()
        self.loop.call_later(LINGER, self.transport.abort)


def bounded_protocol(limits: RequestLimits, most: int) -> type[BoundedProtocol]:
    """Return the protocol class of one server, with its own set of connections. `most`: see `connection_limit`."""
    return type("ServedProtocol", (BoundedProtocol,), {"bounds": BoundedConnections(limits, most)})


def connection_limit(wanted: int, descriptors: int) -> int:
    """Return how many connections these file descriptors allow: each may have an upload's file open, too."""
    return max(1, min(wanted, (descriptors - RESERVED) // 2))
