"""The connections of a client, and what it takes of replies: bytes, values and time, a proxy's errors, redirects.

A registry can be wrong, or lie. A read timeout bounds the pause between two bytes only: a reply that drips one byte a
minute would last for ever. So the socket of a request is shut down after the timeout, while the header arrives as well
as while the body does.

Source for proxies: nginx.org, modules ngx_http_core_module and ngx_http_proxy_module (`client_max_body_size` is 1 MiB
and `proxy_read_timeout` 60 s where nothing sets them).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from mxr.errors import MxrError, TemporaryError, TooLargeError, UsageError

if TYPE_CHECKING:
    import socket
    from pathlib import Path

    import urllib3

    from mxr.settings import Settings


MAX_REPLY = 16 << 20
"""Bytes of a JSON reply. The largest are an artifact with its description, and a page of a list."""

MAX_ERROR = 1 << 20
"""Bytes of an error; of a larger one only the status is used."""

MAX_VALUES = 600_000
"""JSON values in a reply. Each takes up to 250 bytes of memory."""

MIN_RATE = 8 << 10
"""Bytes per second that a blob must reach on average, beyond the timeout of its request."""


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


PAGE = "The section on proxies in docs/operate.md has a configuration that works."

HINTS = {
    429: "Send fewer requests at the same time, or raise the limit of the proxy.",
    413: f"Raise its limit of a request's body to 5 GiB; in nginx: `client_max_body_size 5g;`. {PAGE}",
    502: "See whether the registry runs, and whether the proxy has its address.",
    503: "See whether the registry runs, and whether the proxy has its address.",
    504: "The registry took longer than the proxy waits. Let it wait for 20 minutes; in nginx: "
    f"`proxy_read_timeout 20m;`. {PAGE}",
}


def proxy_error(status: int, server: str) -> MxrError | None:
    """Return the error for a reply that does not come from the registry, None where it may come from anything.

    `server`: the Server header of the reply.
    """
    hint = HINTS.get(status)
    if hint is None:
        return None
    name = f" ({server[:60]})" if server else ""
    if status == 413:
        return TooLargeError(f"A proxy{name} in front of the registry does not take a body of this size.", hint=hint)
    if status == 429:
        return TemporaryError(f"A proxy{name} in front of the registry limits the rate of requests.", hint=hint)
    what = "gave up waiting for the registry" if status == 504 else "does not reach the registry"
    return TemporaryError(f"A proxy{name} in front of the registry {what} (HTTP status {status}).", hint=hint)


PLAIN = {"User-Agent": "mxr/1", "Accept-Encoding": "identity"}
"""Headers without secrets, sent to any host."""

CONNECT = 5.0
"""Seconds to connect to the other host before the registry is asked for the bytes instead."""


class RedirectHost:
    """The host that one registry redirects to. `serves` becomes false when that host cannot be reached."""

    def __init__(self) -> None:
        self.serves = True

    @contextmanager
    def follow(
        self,
        pool: urllib3.PoolManager,
        first: urllib3.BaseHTTPResponse,
        timeout: float,
    ) -> Iterator[urllib3.BaseHTTPResponse | None]:
        """Follow the redirect in `first` and yield the reply, or None when the registry has to send the bytes.

        `timeout`: seconds without a byte received.
        """
        import urllib3

        try:
            reply = pool.request(
                "GET",
                first.headers.get("location", "") if first.status == 307 else "",
                headers=PLAIN,
                retries=False,
                redirect=False,
                timeout=urllib3.Timeout(connect=min(CONNECT, timeout), read=timeout),
                preload_content=False,
                decode_content=False,
            )
        except (urllib3.exceptions.HTTPError, OSError):
            # All blobs are on the same host: without this, each of them would wait for the timeout.
            self.serves = False
            yield None
            return
        with returned_connection(reply):
            yield reply if reply.status == 200 else None


@contextmanager
def returned_connection(reply: urllib3.BaseHTTPResponse) -> Iterator[None]:
    """Return the connection to the pool after the block, or closes it if the reply was not read to its end."""
    try:
        yield
    finally:
        reply.drain_conn() if reply.status < 300 and reply.length_remaining == 0 else reply.close()
        reply.release_conn()


Connect = Callable[[str, int, "float | None"], "tuple[socket.socket, Path] | None"]
"""Given host, port and timeout in seconds, returns a connected Unix socket and its path, or None for TCP."""


def new_pool(settings: Settings, connections: int, connect: Connect = lambda *_: None) -> urllib3.PoolManager:
    """Return a pool of so many connections to each host. `connect`: makes the connections without TLS.

    Raises `UsageError` for authorities that cannot be read.
    """
    trust = _trust(settings.ca_file)
    kind = _pool_manager(connect)
    return kind(maxsize=connections, headers=PLAIN, retries=False, socket_options=_keepalive(), **trust)


def _pool_manager(connect: Connect) -> type[urllib3.PoolManager]:
    """Return the class of a client's pools: with a deadline for the header of each reply.

    urllib3 is imported with the first request, to keep a fetch from the cache fast.
    """
    import socket

    import urllib3
    from urllib3.connection import HTTPConnection, HTTPSConnection

    def timed(kind: type[Any]) -> type[Any]:
        class TimedConnection(kind):  # type: ignore[misc]
            socket_path: Path | None = None

            def _new_conn(self) -> Any:
                own = connect(self.host, self.port, self.timeout) if kind is HTTPConnection else None
                found, self.socket_path = own or (super()._new_conn(), None)
                return found

            def getresponse(self) -> Any:
                with shut_down_after(self.timeout or 0, lambda: self.sock.shutdown(socket.SHUT_RD)):
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


def _trust(ca_file: Path | None) -> dict[str, Any]:
    """Return the options of a pool that trusts the authorities in this file too. Raises `UsageError`."""
    if ca_file is None:
        return {}
    import ssl

    context = ssl.create_default_context()
    try:
        context.load_verify_locations(ca_file)
    except OSError as problem:
        raise UsageError(
            f"The certificates in {ca_file} cannot be used: {problem.strerror or problem}.",
            hint="Set MXR_CA_FILE to a file of certificates in PEM form.",
        ) from None
    return {"ssl_context": context}


def _keepalive() -> list[tuple[int, int, int]]:
    """Return socket options that detect a silently broken connection within a minute.

    During a long poll, or while the registry reads a whole program, no bytes arrive for minutes. A read timeout cannot
    distinguish that from a gateway that dropped the connection; TCP keepalive can. Options that this system does not
    have are left out. Source: Linux, tcp(7).
    """
    import socket

    from urllib3.connection import HTTPConnection

    values = {"TCP_KEEPIDLE": 20, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
    found = [
        (socket.IPPROTO_TCP, getattr(socket, name), value) for name, value in values.items() if hasattr(socket, name)
    ]
    return [*HTTPConnection.default_socket_options, (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), *found]
