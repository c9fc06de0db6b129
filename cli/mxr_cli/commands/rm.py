"""`mxr rm`: remove an artifact from the registry."""

from __future__ import annotations

import sys

import click

from mxr.errors import UsageError
from mxr_cli.artifact_rows import artifact_cells
from mxr_cli.model_labels import model_cells
from mxr_cli.options import Session, common
from mxr_cli.output import confirm, echo, print_json


@click.command
@click.argument("identity", metavar="ID")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--force", is_flag=True, help="Remove it also if registered locks pin it; for administrators.")
@common
def rm(session: Session, identity: str, yes: bool, force: bool) -> None:
    """Remove artifact ID from the registry. Its data is deleted once no other artifact uses it.

    Locks that name it call it gone: `mxr lock --check` and `mxr fetch --locked` exit with 3.
    """
    client = session.client()
    artifact = client.artifact(identity)
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("Confirmation required, but standard input is not a terminal.", hint="Add --yes.")
        facts = [*model_cells([(artifact.model_name, artifact.key.model)]), *artifact_cells(artifact)[1:3]]
        confirm(f"Remove {artifact.id[:12]} ({' '.join(facts)})?")
    client.remove(artifact.id, force=force)
    print_json({"id": artifact.id, "removed": True}) if session.as_json else echo(artifact.id)
