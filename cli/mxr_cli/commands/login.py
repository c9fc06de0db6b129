"""`mxr login`: store a token for a registry."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

import click

from mxr.display.text import printable
from mxr.errors import UsageError
from mxr_cli.options import Session, common
from mxr_cli.output import echo, note, print_json

MOST = 8_192
"""Bytes that are read from standard input."""


@click.command
@click.argument("url", metavar="[URL]", required=False)
@common
def login(session: Session, url: str | None) -> None:
    """Store the token for the registry at URL, for `mxr` and `import mxr` of this user.

    The token is asked for, or read from standard input. The registry must accept it. It is kept in tokens.json beside
    config.toml, readable by this user only, and sent to this registry only. MXR_TOKEN and MXR_TOKEN_FILE come first.

    \b
    mxr login https://registry.example.com
    mxr login https://registry.example.com < alice.token
    """
    from mxr.client.credentials import is_loopback_url
    from mxr.client.registry import Client
    from mxr.settings import load_settings
    from mxr.settings.client_tokens import check_token, read_stored, write_stored

    settings = load_settings(os.environ, {"registry": url, "plaintext": session.settings.plaintext}) if url else None
    settings = settings or session.settings
    token = check_token(_read(settings.registry), "standard input")
    if token is None:
        raise UsageError("There is no token on standard input.", hint=f"mxr login {settings.registry} < FILE")
    found = Client(replace(settings, token=token, token_file=None, withheld="")).whoami()
    assert settings.config_dir is not None
    write_stored(settings.config_dir, read_stored(settings.config_dir) | {settings.registry: token})
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


def _read(registry: str) -> str:
    if sys.stdin is not None and sys.stdin.isatty():
        return str(click.prompt(f"Token for {printable(registry)}", hide_input=True, err=True))
    return "" if sys.stdin is None else sys.stdin.read(MOST)
