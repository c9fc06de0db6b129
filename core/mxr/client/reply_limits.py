"""What a client takes of a registry's replies: bytes, values and time. A registry can be wrong, or lie.

A read timeout bounds the pause between two bytes only: a reply that drips one byte a minute would last for ever. So the
socket of a request is shut down at a deadline, while the header arrives as well as while the body does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket

    import urllib3

MAX_REPLY = 16 << 20
"""Bytes of a JSON reply. The largest are an artifact with its description, and a page of a list."""

MAX_ERROR = 1 << 20
"""Bytes of an error; of a larger one only the status is used."""

MAX_VALUES = 600_000
"""JSON values in a reply. Each takes up to 250 bytes of memory."""

REPLY_SECONDS = 180.0
"""Seconds for a header, and for the body of a JSON reply, in addition to the timeout of the request."""

MIN_RATE = 8 << 10
"""Bytes per second that a blob must reach on average, after `REPLY_SECONDS`."""


@contextmanager
def shut_down_after(seconds: float, shut_down: Callable[[], object]) -> Iterator[None]:
    """Call `shut_down` in another thread if the block takes longer."""
    import threading

    def stop() -> None:
        with suppress(OSError, ValueError, RuntimeError, AttributeError):
            shut_down()

    timer = threading.Timer(seconds, stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        # The thread ends a moment later: the reply and its pool must not end with it, while the program exits.
        timer.function = _nothing


def _nothing() -> None: ...


def pool_manager(authorize: Callable[[socket.socket], Mapping[str, str]]) -> type[urllib3.PoolManager]:
    """Return the class of a client's pools: with a deadline for the header of each reply.

    `authorize`: returns further headers for a connected socket, once for each connection. urllib3 is imported with the
    first request, to keep a fetch from the cache fast.
    """
    import socket

    import urllib3
    from urllib3.connection import HTTPConnection, HTTPSConnection

    def timed(kind: type[Any]) -> type[Any]:
        class TimedConnection(kind):  # type: ignore[misc]
            authorized: tuple[object, Mapping[str, str]] = (None, {})

            def request(self, method: str, url: str, body: Any = None, headers: Any = None, **options: Any) -> None:
                if self.sock is None:
                    self.connect()
                if self.authorized[0] is not self.sock:
                    self.authorized = (self.sock, authorize(self.sock))
                super().request(method, url, body, {**(headers or {}), **self.authorized[1]}, **options)

            def getresponse(self) -> Any:
                with shut_down_after((self.timeout or 0) + REPLY_SECONDS, lambda: self.sock.shutdown(socket.SHUT_RD)):
                    return super().getresponse()

        return TimedConnection

    def pool(kind: type[Any], connection: type[Any]) -> type[Any]:
        return type(kind.__name__, (kind,), {"ConnectionCls": timed(connection)})

    class TimedPoolManager(urllib3.PoolManager):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.pool_classes_by_scheme = {
                "http": pool(urllib3.HTTPConnectionPool, HTTPConnection),
                "https": pool(urllib3.HTTPSConnectionPool, HTTPSConnection),
            }

    return TimedPoolManager
