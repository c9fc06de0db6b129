"""The program `mxr-registry`: serve, migrate, fsck. Reads the environment, once."""

from __future__ import annotations

import errno
import ipaddress
import logging
import os
import signal
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mxr.errors import Damaged, DiskFull, Interrupted, MxrError, NotAllowed, NotFound, Temporary, Usage
from mxr.fields import canonical

from .settings import Settings

if TYPE_CHECKING:
    from .db import Database
    from .fsck import Finding

GRACEFUL = 3
"""Seconds that requests under way get when the service is told to stop."""


def main() -> None:
    """Run the program, print what went wrong in two lines, and end with the error's number."""
    debug = "--debug" in sys.argv
    try:
        sys.exit(program.main(standalone_mode=False) or 0)
    except click.ClickException as problem:
        problem.show()
        sys.exit(problem.exit_code)
    except (click.Abort, KeyboardInterrupt):
        failed: MxrError = Interrupted()
    except MxrError as problem:
        if debug:
            raise
        failed = problem
    except Exception as problem:
        if debug:
            raise
        failed = MxrError(f"A fault of mxr-registry: {type(problem).__name__}: {problem}".splitlines()[0])
    if "--json" in sys.argv:
        click.echo(canonical(failed.to_json()))
    _tell(failed)
    sys.exit(failed.exit)


def _tell(failed: MxrError) -> None:
    click.echo(f"mxr-registry: {failed.message}\n{failed.hint}", err=True)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(package_name="mxr", prog_name="mxr-registry")
def program(debug: bool) -> None:
    """The registry of compiled MIGraphX programs.

    Without configuration it keeps a SQLite database and the files under one data directory. MXR_DATABASE_URL and
    MXR_STORE_URL name others.
    """
    logging.basicConfig(
        level=logging.DEBUG if debug else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    logging.getLogger("alembic").setLevel(logging.WARNING)


_data = click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where database and files are. Default: mxr-registry in $XDG_DATA_HOME, or in ~/.local/share.",
)


@program.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", default=8765, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free one.")
@_data
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Pools and leases, in TOML [MXR_REGISTRY_CONFIG].",
)
@click.option("--insecure", is_flag=True, help="Listen beyond this machine, though nobody needs a token.")
@click.option("--verbose", is_flag=True, help="Log every request.")
def serve(host: str, port: int, data: Path | None, config: Path | None, insecure: bool, verbose: bool) -> None:
    """Serve the registry until told to stop."""
    settings = replace(
        Settings.read(os.environ, data, config), host=host, port=port, insecure=insecure, verbose=verbose
    )
    listener = _listen(settings)
    _prepare(settings)
    _serve(settings, listener)


@program.command()
@_data
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def migrate(data: Path | None, as_json: bool) -> None:
    """Bring the database's schema up to date."""
    from . import schema

    db = _database(Settings.read(os.environ, data))
    revision = schema.upgrade(db)
    click.echo(canonical({"revision": revision}) if as_json else f"The schema is {revision}.")


@program.command()
@_data
@click.option("--repair", is_flag=True, help="Remove old leftovers, and set damaged bytes aside.")
@click.option("--quick", is_flag=True, help="Look at sizes only, without reading the bytes.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def fsck(data: Path | None, repair: bool, quick: bool, as_json: bool) -> None:
    """Has every row its bytes, and every byte its row? Ends with 65 where something is lost or wrong."""
    from . import fsck as room
    from . import schema
    from .storage import open_store

    settings = Settings.read(os.environ, data)
    if settings.embedded and not settings.database.exists():
        raise NotFound(f"There is no registry in {settings.data}.", hint="Name its folder with --data.")
    db = _database(settings)
    schema.check(db)

    def say(finding: Finding) -> None:
        if not as_json:
            click.echo(str(finding))

    report = room.Fsck(db, open_store(settings.store_url), settings.grace, say, repair, quick).run()
    if as_json:
        click.echo(canonical(report.to_json()))
    else:
        damage = sum(each.damage for each in report.findings)
        click.echo(
            f"{report.artifacts} artifacts, {report.models} models, {report.blobs} blobs, {report.stored} files: "
            f"{damage} damaged or lost, {len(report.findings) - damage} leftovers."
        )
    if not report.ok:
        hint = "Push the artifacts named above again: only what is missing is uploaded."
        lost = Damaged("The registry has lost something.", hint=hint)
        if not as_json:
            raise lost
        # The report was the one document of this command.
        _tell(lost)
        raise click.exceptions.Exit(lost.exit)


def _database(settings: Settings) -> Database:
    from .db import Database

    if settings.embedded:
        _make_folder(settings.data)
    return Database(settings.database_url)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        full = problem.errno in (errno.ENOSPC, errno.EDQUOT)
        kind: type[MxrError] = DiskFull if full else Usage
        raise kind(f"{folder} cannot be made: {problem.strerror}.", hint="Name another with --data.") from None


def _prepare(settings: Settings) -> None:
    """Database and store as they must be before the first request."""
    from . import schema
    from .storage import open_store
    from .storage.local import LocalStore

    db, store = _database(settings), open_store(settings.store_url)
    try:
        if db.embedded:
            schema.upgrade(db)
        else:
            schema.check(db)
    finally:
        db.close()
    store.ready()
    if isinstance(store, LocalStore):
        store.drop_stale()


def _listen(settings: Settings) -> socket.socket:
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


def _serve(settings: Settings, listener: socket.socket) -> None:
    import uvicorn

    from .app import Served, create_app

    app = create_app(settings)
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
            await super().startup(sockets)
            if self.started:
                host, port = listener.getsockname()[:2]
                shown = f"[{host}]" if ":" in host else host
                click.echo(f"mxr-registry: listening on http://{shown}:{port} (data in {settings.data})")

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            # Whoever waits for news is told to come again; else a long poll would hold the stop up.
            app.state.bus.close()
            await super().shutdown(sockets)

    # The server raises the signal that stopped it once more: told to stop, it has ended well.
    signal.signal(signal.SIGTERM, _nothing)
    Server(config).run(sockets=[listener])
    app.state.rooms.db.close()


def _nothing(_number: int, _frame: Any) -> None:
    return


if __name__ == "__main__":
    main()
