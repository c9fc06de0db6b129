"""The connections of a client: what they trust, when they count as broken, and the headers that each of them gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mxr.errors import UsageError

from .replies import PLAIN, shut_down_after

if TYPE_CHECKING:
    import socket
    from pathlib import Path

    import urllib3

    from mxr.settings import Settings

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
