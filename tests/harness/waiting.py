"""Waiting for events instead of sleeping: for a condition, and for a request that a server has read."""

from __future__ import annotations

import http.client
import json
import select
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from .tokens import authorization

T = TypeVar("T")

ESTABLISHED = "01"
"""Source: Linux, include/net/tcp_states.h, TCP_ESTABLISHED."""


def until(condition: Callable[[], T], seconds: float = 60.0, pause: float = 0.02) -> T:
    """The first value of `condition` that counts as true; an AssertionError where none comes in time."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"not within {seconds:g} s; the last value was {found!r}"
        time.sleep(pause)
    return found


class PendingRequest:
    """A request, sent as a whole on a connection of its own, whose reply is read later; no thread is needed."""

    def __init__(
        self,
        url: str,
        method: str,
        path: str,
        body: Any = None,
        *,
        timeout: float = 90.0,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """`body`: sent as JSON unless it is bytes or None. `headers`: instead of that with the usual token."""
        self.secret = ""
        """The secret of the lease, of a claim."""
        parts = urlsplit(url)
        self._http = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout)
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
        sent = ({"content-type": kind} if data else {}) | dict(headers or authorization(url))
        self._http.request(method, path, body=data, headers=sent)
        self.client_port: int = self._http.sock.getsockname()[1]
        self.server_port: int = self._http.sock.getpeername()[1]

    def reply(self, seconds: float | None = None) -> tuple[int, Any]:
        """Status and JSON of the reply, once it has come; OSError or HTTPException where the server went away.

        A TimeoutError where it does not come within `seconds`, or within the timeout of the request.
        """
        status, text = self.text(seconds)
        return status, json.loads(text) if text else None

    def text(self, seconds: float | None = None) -> tuple[int, str]:
        """Status and body of the reply, as `reply`."""
        try:
            if seconds is not None:
                self._http.sock.settimeout(seconds)
            reply = self._http.getresponse()
            data = reply.read()
        finally:
            self.close()
        return reply.status, data.decode()

    @property
    def answered(self) -> bool:
        """Whether the reply has begun to arrive."""
        return bool(select.select([self._http.sock], [], [], 0)[0])

    def close(self) -> None:
        """Close the connection, whatever was received."""
        self._http.close()

    def __del__(self) -> None:
        # A test may leave a request without reading its reply.
        self._http.close()


def requests_read(*pending: PendingRequest, seconds: float = 60.0) -> None:
    """Wait until the servers have read all of these requests: accepted their connections, and left nothing in a queue.

    One that was answered was read. What a server does next is not known; a later request whose reply came is a sign
    that it went on.
    """
    wanted = [(each, (each.client_port, each.server_port), (each.server_port, each.client_port)) for each in pending]

    def read() -> bool:
        empty = _established_without_data()
        return all(each.answered or (one in empty and other in empty) for each, one, other in wanted)

    until(read, seconds)


def _established_without_data() -> set[tuple[int, int]]:
    """Local and remote port of each established TCP connection here with nothing in its send and receive queues.

    Source: Linux, Documentation/networking/proc_net_tcp.rst.
    """
    found = set()
    for table in ("tcp", "tcp6"):
        path = Path("/proc/net", table)
        lines = path.read_text().splitlines()[1:] if path.exists() else []
        for _, local, remote, state, queues, *_ in map(str.split, lines):
            if state == ESTABLISHED and not any(int(size, 16) for size in queues.split(":")):
                found.add((int(local.rpartition(":")[2], 16), int(remote.rpartition(":")[2], 16)))
    return found
