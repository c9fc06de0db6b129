"""`mxr whoami`: the principal and the scopes of the token that is sent."""

from __future__ import annotations

import click

from mxr_cli.options import Session, common
from mxr_cli.output import echo, format_time, print_json


@click.command
@common
def whoami(session: Session) -> None:
    """Show the principal of the token that is sent to the registry, what it allows, and when it expires."""
    from mxr.protocol.artifacts import message_document

    client = session.client()
    found = client.whoami()
    if session.as_json:
        print_json(message_document(found))
        return
    expires = f", expires {format_time(found.expires_at)}" if found.expires_at is not None else ""
    way = f", by the socket {client.socket_path}" if client.socket_path else ""
    echo(f"{found.name} ({', '.join(found.scopes)}){expires} at {session.settings.registry}{way}")
