"""The command `mxr-registry serve`."""

from __future__ import annotations

import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mxr.artifact.matching import ANY, BUILT_ONLY
from mxr.display.streams import write_line
from mxr.errors import TemporaryError
from mxr_registry.config.settings import RegistrySettings, check_served

from .command_options import database, read_values, settings_options
from .server.listeners import address_of, is_loopback, open_listeners, own_socket

if TYPE_CHECKING:
    import asyncio

    import uvicorn

    from mxr_registry.server.listeners import ServerCertificate

    from .routes.deps import Services
    from .server.connections import BoundedConnections

GRACEFUL = 3
"""Seconds that running requests get to finish when the service stops."""

ACCEPTED_AT_ONCE = 32
"""Connections that one turn of the event loop accepts. uvloop accepts one for each socket that listens: after a burst
of connections, a client would wait for as many turns as there are connections before its own."""

KEEP_SOCKET: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
"""Newer versions of asyncio remove the path of a Unix socket themselves. Here it may be that of another descriptor."""

MAX_DESCRIPTORS = 65_536
"""Open files of one process. More would cost memory for every process that it starts."""


@click.command()
@click.option("--host", metavar="ADDRESS", help="The address to listen on [MXR_SERVE_HOST]. Default: 127.0.0.1.")
@click.option(
    "--port", metavar="PORT", help="The port to listen on; 0 chooses a free one [MXR_SERVE_PORT]. Default: 8765."
)
@click.option(
    "--unix",
    metavar="PATH",
    help="A Unix socket to listen on, for a proxy and other users of this host, who need tokens; with --port, a port "
    "too [MXR_SERVE_UNIX].",
)
@settings_options
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="A name under which clients reach this registry, besides its IP addresses and localhost; repeatable "
    "[MXR_SERVE_ALLOWED_HOSTS, separated by spaces].",
)
@click.option(
    "--trusted-proxies",
    multiple=True,
    metavar="ADDRESS",
    help="An address or network (10.0.0.0/8) of a proxy whose X-Forwarded-For is believed; repeatable "
    "[MXR_SERVE_TRUSTED_PROXIES, separated by spaces]. Default: none.",
)
@click.option(
    "--root-path",
    metavar="PATH",
    help="The path of a proxy below which clients reach this registry, such as /mxr [MXR_SERVE_ROOT_PATH]. Default: "
    "none.",
)
@click.option(
    "--tls-cert",
    metavar="FILE",
    help="Terminate TLS with this certificate (PEM, with its chain) [MXR_SERVE_TLS_CERT]. SIGHUP loads it again.",
)
@click.option("--tls-key", metavar="FILE", help="The key of the certificate, without a password [MXR_SERVE_TLS_KEY].")
@click.option("--verbose", is_flag=True, default=None, help="Log every request [MXR_SERVE_VERBOSE].")
def serve(data: Path | None, config: Path | None, words: tuple[str, ...], **given: Any) -> None:
    """Serve the registry until interrupted (SIGINT or SIGTERM).

    Every request needs a token (`mxr-registry token create`). With a loopback address, mxr and mxr-worker of the user
    who serves need none: they use a Unix socket beside it, where the kernel says who they are.

    On a loopback address without --trusted-proxies or --unix, every artifact answers requests. Otherwise only artifacts
    do that a worker built or somebody promoted. `mxr-registry namespace set` changes it.
    """
    more = {f"serve.{name}": value for name, value in given.items()}
    values = read_values(data=data, config=config, words=words, more=more)
    settings = RegistrySettings.of(values, os.environ)
    check_served(values, settings)
    for line in values.notes:
        logging.getLogger("mxr_registry").warning("%s", line)
    certificate = _certificate(settings)
    listeners = open_listeners(settings, os.environ)
    remote = [listener for listener in listeners if listener.family != socket.AF_UNIX and not is_loopback(listener)]
    if remote and not (certificate or settings.trusted_proxies):
        logging.getLogger("mxr_registry").warning(
            "tokens cross the network in the clear: give --tls-cert and --tls-key, or put a proxy with TLS before it"
        )
    settings = replace(settings, serve=_default_serve(settings, listeners))
    _prepare(settings)
    with own_socket(listeners, os.environ) as own:
        _serve(settings, listeners, own, certificate)


def _certificate(settings: RegistrySettings) -> ServerCertificate | None:
    from mxr_registry.server.listeners import ServerCertificate

    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return ServerCertificate(settings.tls_cert, settings.tls_key)


def _default_serve(settings: RegistrySettings, listeners: Sequence[socket.socket]) -> str:
    """The rule of namespaces without one of their own: only this host can reach a loopback address without a proxy."""
    return ANY if all(map(is_loopback, listeners)) and not settings.trusted_proxies else BUILT_ONLY


def _prepare(settings: RegistrySettings) -> None:
    """Prepare database and store before the first request: migrate or check the schema, remove stale uploads."""
    from mxr_registry.access.tokens import reconcile

    from .database import schema
    from .storage import open_store

    db, store = database(settings), open_store(settings.store_url, settings.s3)
    try:
        if db.embedded:
            schema.upgrade(db)
        else:
            schema.check_schema(db)
        store.ready()
        reconcile(db, store)
    finally:
        db.close()
    store.drop_stale()


def _raise_descriptors() -> int:
    """Raise the limit of open files to the most that is allowed, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most


def _uvicorn_config(
    settings: RegistrySettings, app: Any, accept: Callable[..., asyncio.BaseProtocol]
) -> uvicorn.Config:
    import uvicorn

    if settings.verbose:
        logging.getLogger("uvicorn.access").setLevel(logging.INFO)
    return uvicorn.Config(
        app,
        loop="uvloop",
        # uvicorn calls it as it would a class.
        http=accept,  # type: ignore[arg-type]
        ws="none",
        lifespan="off",
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies),
        access_log=settings.verbose,
        log_config=None,
        log_level="info" if settings.verbose else "warning",
        timeout_graceful_shutdown=GRACEFUL,
        server_header=False,
        date_header=False,
    )


def _serve(
    settings: RegistrySettings,
    listeners: Sequence[socket.socket],
    own: socket.socket | None,
    certificate: ServerCertificate | None,
) -> None:
    from mxr_registry.maintenance.sweep import sweep_regularly

    from .app import Served, create_app
    from .server.connections import AcceptedConnection, BoundedConnections, connection_limit

    app = create_app(settings)
    services = app.state.services
    # A connection that stays open from the start: `mxr-registry move` detects by it that this database is served.
    services.db.open_connection()
    most = connection_limit(settings.limits.connections, _raise_descriptors())
    bounds = BoundedConnections(settings.limits, most)
    accept = partial(AcceptedConnection, bounds, None if certificate is None else certificate.context)
    config = _uvicorn_config(settings, Served(app), accept)
    server = _server(config, services, bounds, listeners, own, "http" if certificate is None else "https")

    def stop(_number: int, _frame: Any) -> None:
        server.should_exit = True

    # This handler covers SIGTERM before uvicorn installs its own. It also catches the signal that uvicorn raises again
    # after a clean shutdown.
    signal.signal(signal.SIGTERM, stop)
    if certificate is not None:
        signal.signal(signal.SIGHUP, lambda _number, _frame: certificate.reload())
    elif not os.isatty(0):
        # `systemctl reload` must not end a service that has nothing to load. A closed terminal still ends its programs.
        signal.signal(signal.SIGHUP, lambda _number, _frame: None)
    with sweep_regularly(settings, services.db, services.store):
        server.run(sockets=[each for one in listeners if one.family != socket.AF_UNIX for each in _copies(one)])
    services.usage.close()
    services.authenticator.close()
    services.db.close()


def _copies(listener: socket.socket) -> list[socket.socket]:
    return [listener, *(listener.dup() for _ in range(ACCEPTED_AT_ONCE - 1))]


def _server(
    config: uvicorn.Config,
    services: Services,
    bounds: BoundedConnections,
    listeners: Sequence[socket.socket],
    own: socket.socket | None,
    scheme: str,
) -> uvicorn.Server:
    """Return the server, which extends leases before it listens, and ends long polls before it shuts down."""
    import asyncio

    import uvicorn

    from mxr_registry.server.listeners import tell_ready

    from .jobs import lease_endings
    from .server.connections import AcceptedConnection
    from .server.threads import bound_shared_threads

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            # Last before listening: the rest of the startup takes longer than a short lease.
            try:
                lease_endings.extend_after_downtime(services.db, services.rules)
            except TemporaryError as problem:
                # Serve anyway: existing artifacts can still be fetched, for example from a full disk.
                logging.getLogger("mxr_registry").warning("leases were not extended: %s", problem.message)
            bound_shared_threads()
            await super().startup(sockets)
            for listener in listeners:
                if listener.family == socket.AF_UNIX:
                    await self.listen_unix(listener, own=False)
            if own is not None:
                await self.listen_unix(own, own=True)
            if self.started:
                where = services.settings.where
                shown = " and ".join(address_of(listener, scheme, services.settings.unix) for listener in listeners)
                write_line(f"mxr-registry: listening on {shown} ({where})")
                tell_ready(os.environ)

        async def listen_unix(self, listener: socket.socket, *, own: bool) -> None:
            """Listen on a Unix socket; TLS is for the network. uvicorn would open it as a TCP socket."""
            options = {"config": config, "server_state": self.server_state, "app_state": self.lifespan.state}
            accept = partial(AcceptedConnection, bounds, own=own, **options)
            for each in _copies(listener):
                server = await asyncio.get_running_loop().create_unix_server(
                    accept, sock=each, backlog=config.backlog, **KEEP_SOCKET
                )
                self.servers.append(server)

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            # End all long polls at once; otherwise they would delay the shutdown.
            services.notifier.close()
            bounds.end_handshakes()
            await super().shutdown(sockets)

    return Server(config)
