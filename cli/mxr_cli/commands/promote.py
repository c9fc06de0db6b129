"""`mxr promote`: make an artifact the first choice for its key."""

from __future__ import annotations

import click

from mxr_cli.artifact_rows import artifact_row
from mxr_cli.options import Session, common
from mxr_cli.output import echo, print_json


@click.command
@click.argument("identity", metavar="ID")
@common
def promote(session: Session, identity: str) -> None:
    """Make artifact ID the first choice for its key: from now on, requests for the key get this artifact."""
    artifact = session.client().promote(identity)
    print_json(artifact_row(artifact)) if session.as_json else echo(artifact.id)
