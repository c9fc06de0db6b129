"""`mxr logout`: forget the stored token for a registry."""

from __future__ import annotations

import os

import click

from mxr.errors import NotFoundError
from mxr_cli.options import Session, common
from mxr_cli.output import echo, print_json


@click.command
@click.argument("url", metavar="[URL]", required=False)
@common
def logout(session: Session, url: str | None) -> None:
    """Remove the token that `mxr login` stored for the registry at URL. It stays valid until it is revoked."""
    from mxr.settings import load_settings
    from mxr.settings.client_tokens import read_stored, write_stored

    settings = load_settings(os.environ, {"registry": url}) if url else session.settings
    assert settings.config_dir is not None
    stored = read_stored(settings.config_dir)
    if stored.pop(settings.registry, None) is None:
        listed = ", ".join(sorted(stored)) or "none"
        raise NotFoundError(
            f"No token is stored for {settings.registry}.", hint=f"Registries with a stored token: {listed}."
        )
    write_stored(settings.config_dir, stored)
    print_json({"registry": settings.registry}) if session.as_json else echo(f"{settings.registry}: token removed")
