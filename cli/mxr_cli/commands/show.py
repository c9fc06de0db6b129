"""`mxr show`: the details of one artifact."""

from __future__ import annotations

import click

from mxr.artifact import serving
from mxr.artifact.compile_support import uncalibrated_warnings
from mxr.artifact.key import value_text as format_value
from mxr.protocol.artifacts import message_document
from mxr_cli.options import Session, common
from mxr_cli.output import echo, format_size, format_time, print_json


@click.command
@click.argument("identity", metavar="ID")
@common
def show(session: Session, identity: str) -> None:
    """Show artifact ID: what the registry knows of its publication, its key and attributes with who states each of them
    (reader: the registry read it from the file; worker; publisher: not verified), and the provenance, which nobody
    verified.
    """
    artifact = session.client().artifact(identity)
    if session.as_json:
        print_json(message_document(artifact))
        return
    echo(f"id         {artifact.id}")
    echo(f"digest     {artifact.digest}")
    echo(f"sha256     {artifact.sha256}  ({format_size(artifact.size)})")
    echo(f"published  {format_time(artifact.published_at)} UTC by {artifact.created_by}")
    built = f"built by worker {artifact.worker}, job {artifact.job}"
    echo(f"origin     {built if artifact.origin == serving.BUILT else artifact.origin}")
    if artifact.changed_at:
        echo(f"changed    {format_time(artifact.changed_at)} UTC")
    if artifact.restored_at:
        echo(f"restored   {format_time(artifact.restored_at)} UTC by {artifact.restored_by}, after a removal")
    echo(f"promoted   {format_time(artifact.promoted_at)} UTC" if artifact.promoted_at else "promoted   no")
    rule = serving.DESCRIPTIONS[artifact.serve]
    echo(f"answers    {'yes' if artifact.answers_requests else 'no'}: the namespace serves {rule}")
    compiled = "a worker compiled it from this model" if artifact.model == "verified" else "claimed by the publisher"
    echo(f"model      {artifact.key.model}  ({compiled})")
    if artifact.model_name:
        echo(f"name       {artifact.model_name}  (of the model; a label)")
    for title, rows in (("key", artifact.key.to_json()), ("attributes", artifact.attributes.to_json())):
        echo()
        echo(title)
        for name, value in rows.items():
            # Before the value, which a publisher may choose freely.
            source = artifact.sources.get(name, "-") if value is not None else "-"
            echo(f"  {name:<15} {source:<10} {format_value(value)}")
    warnings = [*((artifact.description or {}).get("warnings") or ()), *uncalibrated_warnings(artifact.key)]
    if warnings:
        echo()
        echo("warnings")
    for warning in warnings:
        echo(f"  {warning}")
    echo()
    echo(f"provenance  (stated by the {'worker' if artifact.origin == serving.BUILT else 'publisher'}, not verified)")
    for name, value in artifact.provenance.items():
        echo(f"  {name:<15} {format_value(value)}")
