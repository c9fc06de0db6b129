"""`mxr show`: the details of one artifact."""

from __future__ import annotations

import click

from mxr.artifact.key import show as format_value
from mxr.protocol.artifacts import document
from mxr_cli.options import Session, common
from mxr_cli.output import echo, format_size, format_time, print_json


@click.command
@click.argument("identity", metavar="ID")
@common
def show(session: Session, identity: str) -> None:
    """Show the key, qualities and provenance of artifact ID, and which of its labels cannot be verified from the
    file.
    """
    artifact = session.client().artifact(identity)
    if session.as_json:
        print_json(document(artifact))
        return
    echo(f"id         {artifact.id}")
    echo(f"digest     {artifact.digest}")
    echo(f"sha256     {artifact.sha256}  ({format_size(artifact.size)})")
    echo(f"published  {format_time(artifact.published_at)} UTC")
    echo(f"promoted   {format_time(artifact.promoted_at)} UTC" if artifact.promoted_at else "promoted   no")
    for title, rows in (("key", artifact.key.to_json()), ("qualities", artifact.qualities.to_json())):
        echo()
        echo(title)
        for name, value in rows.items():
            stated = "  (stated, not verifiable from the file)" if name in artifact.stated and value is not None else ""
            echo(f"  {name:<15} {format_value(value)}{stated}")
    warnings = (artifact.description or {}).get("warnings") or ()
    if warnings:
        echo()
        echo("warnings")
    for warning in warnings:
        echo(f"  {warning}")
    echo()
    echo("provenance")
    for name, value in artifact.provenance.items():
        echo(f"  {name:<15} {format_value(value)}")
