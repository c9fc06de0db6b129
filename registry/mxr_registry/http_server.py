"""The server of a registry process: uvicorn with our connections, and how it begins and stops.

A stop has three parts. For `serve.drain` seconds the listener stays open and everything is served, but `/readyz` says
503 and each reply closes its connection, so that load balancers and proxies go elsewhere. Then the listener closes,
long polls end, and what is being transferred has `serve.graceful` seconds to end. What is left is cut, with a 503 where
no reply has begun. Ctrl-C (SIGINT) drains nothing, and a second one ends the stop at once; another SIGTERM changes
nothing, because supervisors may send several.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import uvicorn

from mxr.artifact.matching import ANY
from mxr.display.streams import write_line
from mxr.errors import TemporaryError
from mxr_registry.config.settings import RegistrySettings
from mxr_registry.server.listeners import address_of, tell_ready

from .jobs import lease_endings
from .routes.deps import Services
from .server.connections import AcceptedConnection, BoundedConnections
from .server.threads import bound_shared_threads

log = logging.getLogger("mxr_registry")

ACCEPTED_AT_ONCE = 32
"""Connections that one turn of the event loop accepts. uvloop accepts one for each socket that listens: after a burst
of connections, a client would wait for as many turns as there are connections before its own."""

KEEP_SOCKET: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
"""Newer versions of asyncio remove the path of a Unix socket themselves. Here it may be that of another descriptor."""

DRAIN = 5.0
"""Seconds of `serve.drain` where nothing sets it and other hosts reach the registry."""

STEP = 0.05
"""Seconds between two looks whether SIGINT came."""


class RegistryServer(uvicorn.Server):
    """One process that serves. `own`: the socket of the user who serves. `tls`: what the listeners speak, if TLS."""

    def __init__(
        self,
        app: Any,
        services: Services,
        bounds: BoundedConnections,
        listeners: Sequence[socket.socket],
        own: socket.socket | None,
        tls: ssl.SSLContext | None,
    ) -> None:
        super().__init__(_config(services.settings, app, partial(AcceptedConnection, bounds, tls)))
        self._services, self._bounds, self._listeners, self._own = services, bounds, listeners, own
        self._scheme = "http" if tls is None else "https"

    def run_until_stopped(self) -> None:
        """Listen, serve and stop."""
        self.run(sockets=[each for one in self._listeners if one.family != socket.AF_UNIX for each in _copies(one)])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Extend leases, and listen."""
        services = self._services
        # Last before listening: the rest of the startup takes longer than a short lease.
        try:
            lease_endings.extend_after_downtime(services.db, services.rules)
        except TemporaryError as problem:
            # Serve anyway: existing artifacts can still be fetched, for example from a full disk.
            log.warning("leases were not extended: %s", problem.message)
        bound_shared_threads()
        await super().startup(sockets)
        for listener in self._listeners:
            if listener.family == socket.AF_UNIX:
                await self._listen_unix(listener, own=False)
        if self._own is not None:
            await self._listen_unix(self._own, own=True)
        if self.started:
            unix = services.settings.unix
            shown = " and ".join(address_of(listener, self._scheme, unix) for listener in self._listeners)
            write_line(f"mxr-registry: listening on {shown} ({services.settings.where})")
            tell_ready(os.environ)

    async def _listen_unix(self, listener: socket.socket, *, own: bool) -> None:
        """Listen on a Unix socket; TLS is for the network. uvicorn would open it as a TCP socket."""
        options = {"config": self.config, "server_state": self.server_state, "app_state": self.lifespan.state}
        accept = partial(AcceptedConnection, self._bounds, own=own, **options)
        for each in _copies(listener):
            server = await asyncio.get_running_loop().create_unix_server(
                accept, sock=each, backlog=self.config.backlog, **KEEP_SOCKET
            )
            self.servers.append(server)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain, close the listener, end long polls, and wait for what is being transferred."""
        self._services.stopping.set()
        if signal.SIGINT not in self._captured_signals:
            await self._drain(_drain_seconds(self._services.settings))
        # Long polls would delay the end; while the listener was open, their clients would have come back at once.
        self._services.notifier.close()
        self._bounds.end_handshakes()
        await super().shutdown(sockets)

    async def _drain(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end and not self.force_exit:
            await asyncio.sleep(min(STEP, seconds))


def _drain_seconds(settings: RegistrySettings) -> float:
    """No proxy balances a registry that only this host reaches: its user waits for nothing."""
    if settings.drain is not None:
        return settings.drain
    return 0.0 if settings.serve == ANY else DRAIN


def _copies(listener: socket.socket) -> list[socket.socket]:
    return [listener, *(listener.dup() for _ in range(ACCEPTED_AT_ONCE - 1))]


def _config(settings: RegistrySettings, app: Any, accept: Callable[..., asyncio.BaseProtocol]) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="uvloop",
        # uvicorn calls it as it would a class.
        http=accept,  # type: ignore[arg-type]
        ws="none",
        lifespan="off",
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies),
        # Each request has a line of our own (`server.request_record`).
        access_log=False,
        log_config=None,
        log_level="info" if settings.verbose else "warning",
        timeout_graceful_shutdown=settings.graceful,  # type: ignore[arg-type]
        server_header=False,
        date_header=False,
    )
