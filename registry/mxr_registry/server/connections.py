"""HTTP connections with limits: uvicorn's protocol, for clients that send too much at once, stop sending or receiving.

uvicorn limits only the pause between two requests. This protocol also closes a connection

- if the header of a request is not complete `header_seconds` after it began, or exceeds `MAX_HEADER` bytes or
  `MAX_FIELDS` fields
- if it sends more than `MAX_PIPELINED` requests while an earlier one is answered
- if it does not end a TLS handshake within half of `header_seconds`
- if a body makes no progress for `idle_seconds`, or arrives more slowly than `MIN_RATE` for that long
- if the client does not take the response for `idle_seconds`
- if there are more than `connections`: of those that wait for bytes of their client, the one that has waited longest

A connection whose request waits in the registry (a long poll, a full store) is closed by none of these.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from http import HTTPStatus
from typing import Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvloop.loop import SSLProtocol  # type: ignore[attr-defined]

from mxr.errors import MEDIA_TYPE, MalformedError, MxrError, TemporaryError, UsageError
from mxr.protocol.local_socket import is_own_peer
from mxr_registry.access.authentication import OWN_PEER
from mxr_registry.config.limits import RequestLimits

from . import request_id

MAX_HEADER = 32 << 10
"""Maximum size of the request line and the header of a request, in bytes; also of the trailer of a body."""

MAX_FIELDS = 100
"""Header fields of a request, and of those that wait behind it. Each is three objects: tiny ones take 25 times their
bytes."""

MAX_PIPELINED = 8
"""Requests of one connection that wait behind another one. A client sends one at most: it can have a whole reply before
the registry has noted its end."""

HEADER_READ, BODY_READ = 16 << 10, 32 << 10
"""Bytes of one read. What is wrong, and what has to wait, is found before more is read; the kernel keeps the rest."""

MIN_RATE = 500.0
"""Bytes per second that a body has to reach on average."""

LINGER = 5.0
"""Seconds for which the rest of a body is read and dropped after the response was sent."""

RESERVED = 256
"""File descriptors for everything but connections and uploads: database, inspections, downloads."""


class _LimitError(Exception):
    """A header exceeds a limit."""


class _PipelineError(Exception):
    """Too many requests wait behind another one."""


class BoundedConnections:
    """The connections of one server that wait for their clients, and the timer that closes them."""

    def __init__(self, limits: RequestLimits, most: int) -> None:
        self.limits, self.most = limits, most
        self.count = 0
        # One for all: each read is parsed before the next one begins.
        self.buffer = memoryview(bytearray(BODY_READ))
        # Ordered by the last bytes from the client, oldest first.
        self.awaited: dict[BoundedProtocol | AcceptedConnection, None] = {}
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

    def make_room(self) -> None:
        """Close the connections that have waited longest for their clients, if there are too many connections."""
        for each in list(self.awaited)[: max(0, self.count - self.most)]:
            each.transport.abort()

    def end_handshakes(self) -> None:
        """Close the connections that have not sent a request because their TLS handshake has not ended."""
        for each in list(self.awaited):
            if isinstance(each, AcceptedConnection):
                each.transport.abort()


class AcceptedConnection(asyncio.BufferedProtocol):
    """A connection from its first moment, so that it counts before its TLS handshake; then bytes for its protocol."""

    def __init__(
        self, bounds: BoundedConnections, tls: ssl.SSLContext | None = None, *, own: bool = False, **options: Any
    ) -> None:
        """`own`: it came by the socket of this user, where the kernel says who is at the other end."""
        self._bounds, self._tls = bounds, tls
        self._http = BoundedProtocol(bounds, own=own, **options)
        self._deadline = 0.0
        self._is_open = self._is_ready = False
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count it, and begin the handshake if there is one; called again with the transport inside of TLS."""
        self.transport = transport
        if not self._is_open:
            self._is_open = True
            self._bounds.count += 1
        if self._tls is None:
            self._is_ready = True
            self._http.connection_made(transport)
        else:
            tls, self._tls = self._tls, None
            self._shake_hands(tls)
        self._bounds.make_room()

    def _shake_hands(self, tls: ssl.SSLContext) -> None:
        """Put TLS between transport and protocol. `loop.start_tls` would come too late: bytes can be there already."""
        loop = self._http.loop
        self._deadline = loop.time() + self._bounds.limits.header_seconds / 2
        self._bounds.awaited[self] = None
        self._bounds.watch(loop)
        ended: asyncio.Future[None] = loop.create_future()
        ended.add_done_callback(self._end_handshake)
        protocol = SSLProtocol(loop, self, tls, ended, server_side=True)
        self.transport.set_protocol(protocol)
        protocol.connection_made(self.transport)

    def _end_handshake(self, ended: asyncio.Future[None]) -> None:
        self._bounds.awaited.pop(self, None)
        # A probe, a scan of ports, a client that does not trust the certificate: nothing to log.
        if ended.cancelled() or ended.exception() is not None or not self._is_ready:
            self.transport.abort()
            self._forget()

    def check_deadlines(self, moment: float) -> None:
        """Close the connection if its handshake takes too long."""
        if moment >= self._deadline:
            self.transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the memory of the next read."""
        del sizehint
        return self._bounds.buffer[: self._http.read_size]

    def buffer_updated(self, nbytes: int) -> None:
        """Pass on what was read."""
        self._http.data_received(self._bounds.buffer[:nbytes])

    def pause_writing(self) -> None:
        """Pass it on."""
        self._http.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on."""
        self._http.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._forget()
        if self._is_ready:
            self._http.connection_lost(exc)

    def _forget(self) -> None:
        if self._is_open:
            self._is_open = False
            self._bounds.count -= 1


class BoundedProtocol(HttpToolsProtocol):
    """The requests of one connection. `bounds`: those of its server. `own`: see `AcceptedConnection`."""

    def __init__(self, bounds: BoundedConnections, *, own: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.bounds = bounds
        self._own = own
        self._in_header = self._in_body = self._in_linger = False
        self._header_size = self._fields = 0
        self._answered: Any = None
        self._deadline = self._write_deadline = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        found = transport.get_extra_info("socket")
        if found.family == socket.AF_UNIX:
            # It is on this host, which limits and logs know by this address.
            self.client, self.server = ("127.0.0.1", 0), ("127.0.0.1", None)
            with socket.fromfd(found.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as peer:
                self._own = self._own and is_own_peer(peer)
        self._begin_header()
        self.bounds.watch(self.loop)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self.bounds.awaited.pop(self, None)
        self.bounds.stalled.pop(self, None)
        if self._answered is not None and not self._answered.response_complete:
            # uvicorn tells it only to the latest request, and this one would write to a closed connection.
            self._answered.disconnected = True
            self._answered.message_event.set()
        super().connection_lost(exc)

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    @property
    def read_size(self) -> int:
        """Bytes of the next read."""
        return BODY_READ if self._in_body else HEADER_READ

    def data_received(self, data: bytes | memoryview) -> None:
        """Parse what arrived, move the deadline of a body, and refuse what exceeds a limit."""
        self._unset_keepalive_if_required()
        if self._in_body:
            self._extend(len(data))
        elif not self._in_header:
            self._begin_header()
            self.bounds.watch(self.loop)
        self._header_size += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass
        except httptools.HttpParserError as problem:
            self._refuse_unparsed(problem.__context__)
        if self._header_size > MAX_HEADER:
            self._refuse_unparsed(_LimitError(f"exceeds {MAX_HEADER} bytes"))

    def on_message_begin(self) -> None:
        """Note the begin of a request, which may follow another one in the same packet."""
        if not self._in_header:
            self._begin_header()
            self._header_size = 1
        if self.cycle is None or self.cycle.response_complete:
            self._fields = 0
        super().on_message_begin()
        cast("dict[str, Any]", self.scope)[OWN_PEER] = self._own

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count the fields, those of a trailer too. Raises `_LimitError`, which ends the parsing."""
        super().on_header(name, value)
        self._fields += 1
        if self._fields > MAX_FIELDS:
            raise _LimitError(f"has more than {MAX_FIELDS} fields")

    def on_headers_complete(self) -> None:
        """Wait for the body. Raises `_PipelineError`, which ends the parsing."""
        self._in_header, self._in_body, self._in_linger = False, True, False
        self._header_size = 0
        self._deadline = self.loop.time() + self.bounds.limits.idle_seconds
        super().on_headers_complete()
        if len(self.pipeline) > MAX_PIPELINED:
            raise _PipelineError

    def on_body(self, body: bytes) -> None:
        """Note the progress of a body: what arrives without any counts as header, such as a trailer without end."""
        self._header_size = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Wait for nothing more."""
        self._in_header = self._in_body = False
        self._header_size = 0
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

    def _refuse_unparsed(self, problem: BaseException | None) -> None:
        if isinstance(problem, _PipelineError):
            self.bounds.awaited.pop(self, None)
            self.transport.abort()
        elif isinstance(problem, _LimitError):
            self._refuse(431, UsageError(f"The header of the request {problem}.", hint="Shorten it."))
        else:
            self._refuse(400, MalformedError("This is not an HTTP/1.1 request.", hint="Check what sends it."))

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


def connection_limit(wanted: int, descriptors: int) -> int:
    """Return how many connections these file descriptors allow: each may have an upload's file open, too."""
    return max(1, min(wanted, (descriptors - RESERVED) // 2))
