"""The command that serves the registry until it is told to stop."""

from __future__ import annotations

import errno
import ipaddress
import logging
import os
import signal
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from mxr.errors import NotAllowed, Temporary, Usage
from mxr_registry.config.settings import RegistrySettings

from .command_options import config_option, data_option, database

GRACEFUL = 3
"""Seconds that requests under way get when the service is told to stop."""


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", default=8765, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free one.")
@data_option
@config_option
@click.option("--insecure", is_flag=True, help="Listen beyond this machine, though nobody needs a token.")
@click.option("--verbose", is_flag=True, help="Log every request.")
def serve(host: str, port: int, data: Path | None, config: Path | None, insecure: bool, verbose: bool) -> None:
    """Serve the registry until told to stop."""
    settings = replace(
        RegistrySettings.read(os.environ, data, config), host=host, port=port, insecure=insecure, verbose=verbose
    )
    listener = _listen(settings)
    _prepare(settings)
    _serve(settings, listener)


def _prepare(settings: RegistrySettings) -> None:
    """Database and store as they must be before the first request."""
    from .database import schema
    from .storage import open_store

    db, store = database(settings), open_store(settings.store_url, settings.s3)
    try:
        if db.embedded:
            schema.upgrade(db)
        else:
            schema.check(db)
    finally:
        db.close()
    store.ready()
    store.drop_stale()


def _listen(settings: RegistrySettings) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0]
    except OSError as problem:
        raise Usage(f"--host {settings.host}: {problem.strerror}.", hint="Give an address of this machine.") from None
    if not ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback and not settings.insecure:
        raise NotAllowed(
            f"{settings.host} can be reached from other machines, and nobody needs a token here.",
            hint="Listen on 127.0.0.1, or add --insecure where the network itself keeps strangers out.",
        )
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError as problem:
        listener.close()
        if problem.errno == errno.EADDRINUSE:
            hint = "Stop what listens there, or choose another --port (0 takes a free one)."
            raise Temporary(f"Port {settings.port} of {settings.host} is taken.", hint=hint) from None
        raise Usage(f"Cannot listen on {settings.host}:{settings.port}: {problem.strerror}.") from None
    return listener


def _serve(settings: RegistrySettings, listener: socket.socket) -> None:
    import uvicorn

    from mxr_registry.maintenance.sweep import sweep_regularly

    from .app import Served, create_app
    from .jobs import lease_endings

    app = create_app(settings)
    # One connection from the start: `mxr-registry move` sees by it that this database is served.
    app.state.rooms.db.wake()
    config = uvicorn.Config(
        Served(app),
        loop="uvloop",
        http="httptools",
        lifespan="off",
        access_log=settings.verbose,
        log_config=None,
        log_level="info" if settings.verbose else "warning",
        timeout_graceful_shutdown=GRACEFUL,
        server_header=False,
        date_header=False,
    )
    if settings.verbose:
        logging.getLogger("uvicorn.access").setLevel(logging.INFO)

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            # At the last moment: what else is done at the start takes longer than a short lease.
            try:
                lease_endings.resume(app.state.rooms.db, app.state.rules)
            except Temporary as problem:
                # What is here can be fetched all the same (from a full disk, say).
                logging.getLogger("mxr_registry").warning("leases are as they were: %s", problem.message)
            await super().startup(sockets)
            if self.started:
                host, port = listener.getsockname()[:2]
                shown = f"[{host}]" if ":" in host else host
                click.echo(f"mxr-registry: listening on http://{shown}:{port} ({settings.where})")

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            # Whoever waits for news is told to come again; else a long poll would hold the stop up.
            app.state.bus.close()
            await super().shutdown(sockets)

    server = Server(config)

    def stop(_number: int, _frame: Any) -> None:
        server.should_exit = True

    # Told to stop before the server listens for that itself, it ends all the same. And the server raises the signal
    # that stopped it once more: by then it has ended well.
    signal.signal(signal.SIGTERM, stop)
    with sweep_regularly(settings, app.state.rooms.db, app.state.rooms.store):
        server.run(sockets=[listener])
    app.state.rooms.tally.close()
    app.state.rooms.db.close()
