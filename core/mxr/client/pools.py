"""The connections of a client, by proxies or not, and what it takes of replies: bytes, values and time, redirects.

A registry can be wrong, or lie. A read timeout bounds the pause between two bytes only: a reply that drips one byte a
minute would last for ever. So the socket of a request is shut down after the timeout, while the header arrives as well
as while the body does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from mxr.errors import UsageError
from mxr.version import __version__

if TYPE_CHECKING:
    import socket
    from pathlib import Path

    import urllib3

    from mxr.configuration.proxies import Proxy
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


PLAIN = {"User-Agent": f"mxr/{__version__}", "Accept-Encoding": "identity"}
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
        pool: ConnectionPools,
        first: urllib3.BaseHTTPResponse,
        timeout: float,
        headers: Mapping[str, str],
    ) -> Iterator[urllib3.BaseHTTPResponse | None]:
        """Follow the redirect in `first` and yield the reply, or None when the registry has to send the bytes.

        `timeout`: seconds without a byte received. `headers`: besides `PLAIN`.
        """
        import urllib3

        try:
            reply = pool.request(
                "GET",
                first.headers.get("location", "") if first.status == 307 else "",
                headers={**PLAIN, **headers},
                retries=False,
                redirect=False,
                timeout=urllib3.Timeout(connect=min(CONNECT, timeout), read=timeout),
                preload_content=False,
                decode_content=False,
            )
        except (urllib3.exceptions.HTTPError, OSError, UsageError):
            # All blobs are on the same host: without this, each of them would wait for the timeout.
            self.serves = False
            yield None
            return
        with returned_connection(reply):
            yield reply if reply.status in (200, 206) else None


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


class ConnectionPools:
    """Pools of so many connections to each host, one for each proxy. Can be used from several threads.

    `connect`: makes the connections without TLS. Raises `UsageError` for authorities that cannot be read.
    """

    def __init__(self, settings: Settings, connections: int, connect: Connect = lambda *_: None) -> None:
        self.proxies = settings.proxies
        self._trust = _trust(settings.ca_file)
        self._connections = connections
        self._connect = connect
        self._pools: dict[str, urllib3.PoolManager] = {}
        self._lock = threading.Lock()

    def request(self, method: str, url: str, **how: Any) -> urllib3.BaseHTTPResponse:
        """Send a request, as `urllib3.PoolManager.request` does. Raises `UsageError` for a proxy that is none."""
        proxy, _ = self.proxies.choose(url)
        with self._lock:
            name = proxy.url if proxy else ""
            if name not in self._pools:
                self._pools[name] = self._new_pool(proxy)
        return self._pools[name].request(method, url, **how)

    def _new_pool(self, proxy: Proxy | None) -> urllib3.PoolManager:
        import urllib3

        more: dict[str, Any] = {}
        if proxy is not None:
            more["proxy_url"] = proxy.address
            if proxy.account is not None:
                more["proxy_headers"] = urllib3.make_headers(proxy_basic_auth=proxy.account)
            if self._trust:
                more["proxy_ssl_context"] = self._trust["ssl_context"]
        kind = _timed_pools(urllib3.PoolManager if proxy is None else urllib3.ProxyManager, self._connect)
        more |= {"maxsize": self._connections, "socket_options": _keepalive(), "retries": False}
        return kind(headers=PLAIN, **more, **self._trust)


def _timed_pools(manager: type[Any], connect: Connect) -> type[urllib3.PoolManager]:
    """Return a class of pools with a deadline for the header of each reply, also for that of a proxy.

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

            def _tunnel(self) -> None:
                with shut_down_after(self.timeout or 0, lambda: self.sock.shutdown(socket.SHUT_RD)):
                    super()._tunnel()

            def getresponse(self) -> Any:
                with shut_down_after(self.timeout or 0, lambda: self.sock.shutdown(socket.SHUT_RD)):
                    return super().getresponse()

        return TimedConnection

    def pool(kind: type[Any], connection: type[Any]) -> type[Any]:
        return type(kind.__name__, (kind,), {"ConnectionCls": timed(connection)})

    class TimedPools(manager):  # type: ignore[misc]
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.pool_classes_by_scheme = {
                "http": pool(urllib3.HTTPConnectionPool, HTTPConnection),
                "https": pool(urllib3.HTTPSConnectionPool, HTTPSConnection),
            }

    return TimedPools


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
