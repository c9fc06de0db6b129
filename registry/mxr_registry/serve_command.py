"""The command `mxr-registry serve`."""

from __future__ import annotations

import logging
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mxr.artifact.matching import ANY, BUILT_ONLY
from mxr.display import logs
from mxr.display.streams import write_line
from mxr.errors import MxrError, UsageError
from mxr_registry.config.settings import RegistrySettings, check_served

from .command_options import database, read_values, settings_options
from .server import request_id
from .server.listeners import is_loopback, open_listeners, own_socket

if TYPE_CHECKING:
    from mxr_registry.database.session import Database
    from mxr_registry.server.listeners import ServerCertificate

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
    help="Terminate TLS with this certificate (PEM, with its chain) [MXR_SERVE_TLS_CERT]. A renewed one is loaded "
    "while it serves.",
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
    if settings.log == "json":
        logs.use_json(request_id.current)
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
    from mxr_registry.artifacts import recalls

    from .database import claim, schema
    from .storage import open_store

    wanted = settings.registry_id
    if wanted and settings.embedded and not settings.database.exists():
        raise UsageError(
            f"serve.registry_id is {wanted}, but there is no registry in {settings.data}.",
            hint="Mount the file system, or name the right data directory.",
        )
    db, store = database(settings), open_store(settings.store_url, settings.s3)
    try:
        if db.embedded:
            schema.upgrade(db)
        else:
            schema.check_schema(db)
        if wanted:
            claim.require_id(db, wanted)
        if claim.claim_store(db, store, serve=True):
            write_line(
                f"mxr-registry: this is a new registry, {claim.id_of(db)}; its store is {store.owner.where}", err=True
            )
        store.prepare()
        settings.reserve.hold()
        reconcile(db, store)
        recalls.reconcile(db, store)
        _prepare_key(settings, db)
    finally:
        db.close()
    store.drop_stale()


def _prepare_key(settings: RegistrySettings, db: Database) -> None:
    """Make the signing key of a new registry in its data directory, and say where there is none that can sign.

    It still serves then: only publications are refused.
    """
    from mxr.trust.keys import SigningKey

    from .access import signing_keys
    from .signer import Signer

    path = settings.signing_key
    with db.writing() as session:
        new = signing_keys.is_new(session)
        try:
            if new and path is not None and settings.signing.key_file is None and not path.exists():
                SigningKey.create(path)
            signing_keys.require_active(session, Signer(path).key())
        except MxrError as problem:
            logging.getLogger("mxr_registry").warning("%s %s", problem.message, problem.hint)


def _raise_descriptors() -> int:
    """Raise the limit of open files to the most that is allowed, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most


RENEWALS = 10.0
"""Seconds between two looks at the files of the certificate."""


def _watch(certificate: ServerCertificate) -> None:
    while True:
        time.sleep(RENEWALS)
        certificate.reload_changed()


def _serve(
    settings: RegistrySettings,
    listeners: Sequence[socket.socket],
    own: socket.socket | None,
    certificate: ServerCertificate | None,
) -> None:
    from mxr_registry.maintenance.sweep import sweep_regularly

    from .app import Served, create_app
    from .http_server import RegistryServer
    from .server.connections import BoundedConnections, connection_limit

    app = create_app(settings)
    services = app.state.services
    # A connection that stays open from the start: `mxr-registry move` detects by it that this database is served.
    services.db.open_connection()
    services.identity.read()
    bounds = BoundedConnections(settings.limits, connection_limit(settings.limits.connections, _raise_descriptors()))
    server = RegistryServer(
        Served(app), services, bounds, listeners, own, None if certificate is None else certificate.context
    )

    def stop(_number: int, _frame: Any) -> None:
        server.should_exit = True

    # This handler covers SIGTERM before uvicorn installs its own. It also catches the signal that uvicorn raises again
    # after a clean shutdown.
    signal.signal(signal.SIGTERM, stop)
    if certificate is not None:
        signal.signal(signal.SIGHUP, lambda _number, _frame: certificate.reload())
        threading.Thread(target=_watch, args=(certificate,), daemon=True).start()
    elif not os.isatty(0):
        # `systemctl reload` must not end a service that has nothing to load. A closed terminal still ends its programs.
        signal.signal(signal.SIGHUP, lambda _number, _frame: None)
    with sweep_regularly(settings, services.db, services.store):
        server.run_until_stopped()
    services.usage.close()
    services.authenticator.close()
    services.db.close()
