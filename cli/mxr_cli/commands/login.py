"""`mxr login`, `logout` and `whoami`: the token for a registry."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import replace

import click

from mxr.display.text import printable
from mxr.errors import MxrError, NotFoundError, UsageError
from mxr.version import __version__
from mxr_cli.help import command
from mxr_cli.options import Session, common
from mxr_cli.output import echo, format_time, note, print_json

MOST = 8_192
"""Bytes that are read from standard input."""


@command()
@click.argument("url", metavar="[URL]", required=False)
@common
def login(session: Session, url: str | None) -> None:
    """Store the token for the registry at URL, for `mxr` and `import mxr` of this user.

    The token is asked for, or read from standard input. The registry must accept it. It is kept in tokens.json beside
    config.toml, readable by this user only, and sent to this registry only. MXR_TOKEN and MXR_TOKEN_FILE come first.
    If no registry is configured, this one becomes the default, in config.toml.

    \b
    mxr login https://registry.example.com
    mxr login https://registry.example.com < alice.token
    """
    from mxr.cache.store import Cache
    from mxr.client.credentials import is_loopback_url
    from mxr.client.registry import Client
    from mxr.settings import (
        check_token,
        load_settings,
        read_stored,
        set_default_registry,
        write_stored,
    )

    settings = load_settings(os.environ, {"registry": url, "plaintext": session.settings.plaintext}) if url else None
    settings = settings or session.settings
    token = check_token(_read(settings.registry), "standard input")
    if token is None:
        raise UsageError("There is no token on standard input.", hint=f"mxr login {settings.registry} < FILE")
    client = Client(replace(settings, token=token, token_file=None, withheld=""))
    found = client.whoami()
    if client.identity:
        # Whichever registry answered there before: this one is meant.
        with suppress(MxrError):
            Cache.of(settings).accept_registry(client.identity)
    write_stored(settings.config_dir, read_stored(settings.config_dir) | {settings.registry: token})
    # A token that is configured otherwise is for the default registry, whichever that is: it must not change.
    configured = {"registry", "token", "token_file"} & session.settings.sources.keys()
    if settings.registry != session.settings.registry:
        path = None if configured else set_default_registry(settings)
        note(
            f"mxr: {settings.registry} is the default registry from now on ({path}); `mxr logout` undoes it."
            if path
            else f"mxr: {session.settings.registry} stays the default registry ({_default(session)}). Change it "
            f"there, or set MXR_REGISTRY={settings.registry} to use this one."
        )
    for name in ("token", "token_file"):
        if name in settings.sources:
            note(f"mxr: {settings.sources[name]} is set, and comes before what is stored.")
    if is_loopback_url(settings.registry):
        note(
            "mxr: while that registry is down, any program of this host can take its port, and gets this token. "
            "unix:/PATH of its socket is safe (docs/access.md)."
        )
    if session.as_json:
        print_json({"registry": settings.registry, "name": found.name, "scopes": list(found.scopes)})
    else:
        echo(f"{settings.registry}: {found.name} ({', '.join(found.scopes)})")


def _default(session: Session) -> str:
    """Where the default registry comes from; without a value of its own, it is where the token is for it."""
    sources = session.settings.sources
    return str(sources.get("registry") or sources.get("token_file") or sources.get("token") or "config.toml")


def _read(registry: str) -> str:
    if sys.stdin is not None and sys.stdin.isatty():
        return str(click.prompt(f"Token for {printable(registry)}", hide_input=True, err=True))
    return "" if sys.stdin is None else sys.stdin.read(MOST)


@command()
@click.argument("url", metavar="[URL]", required=False)
@common
def logout(session: Session, url: str | None) -> None:
    """Remove the token that `mxr login` stored for the registry at URL. It stays valid until it is revoked.

    If `mxr login` made this registry the default, it is none any more.
    """
    from mxr.settings import load_settings, read_stored, unset_default_registry, write_stored

    settings = load_settings(os.environ, {"registry": url}) if url else session.settings
    stored = read_stored(settings.config_dir)
    if stored.pop(settings.registry, None) is None:
        listed = ", ".join(sorted(stored)) or "none"
        raise NotFoundError(
            f"No token is stored for {settings.registry}.", hint=f"Registries with a stored token: {listed}."
        )
    write_stored(settings.config_dir, stored)
    if unset_default_registry(settings):
        note(f"mxr: {settings.registry} is the default registry no more.")
    print_json({"registry": settings.registry}) if session.as_json else echo(f"{settings.registry}: token removed")


@command()
@common
def whoami(session: Session) -> None:
    """Show the principal of the token that is sent to the registry, what it allows, and when it expires."""
    from mxr.protocol.artifacts import message_document

    client = session.client()
    found = client.whoami()
    if session.as_json:
        print_json(message_document(found) | {"client_version": __version__, "registry_version": client.version})
        return
    expires = f", expires {format_time(found.expires_at)}" if found.expires_at is not None else ""
    way = f", by the socket {client.socket_path}" if client.socket_path else ""
    echo(f"{found.name} ({', '.join(found.scopes)}){expires} at {session.settings.registry}{way}")
    if client.version != __version__:
        note(f"mxr: the registry runs mxr {client.version or 'of another version'}; this is {__version__}.")
