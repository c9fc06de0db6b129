"""The commands `mxr-registry namespace`: list namespaces, and set which artifacts answer requests in one."""

from __future__ import annotations

import os
from pathlib import Path

import click

from mxr.artifact.serving import SERVE_RULES
from mxr.display.streams import write_json, write_line
from mxr_registry.command_options import data_option, existing_database, json_option
from mxr_registry.config.settings import RegistrySettings


@click.group()
def namespace() -> None:
    """List the namespaces of a registry, and set their rules. The registry may be running."""


@namespace.command("set")
@click.argument("name", metavar="NAME")
@click.option(
    "--serve",
    required=True,
    type=click.Choice([*SERVE_RULES, "auto"]),
    help="Which artifacts answer requests: any; built (by a worker) or promoted; only promoted; or auto: any on a "
    "loopback address without --trusted-proxies, otherwise built.",
)
@data_option
@json_option
def set_(name: str, serve: str, data: Path | None, as_json: bool) -> None:
    """Set which artifacts answer requests in the namespace NAME. It holds at once.

    Artifacts that a person or a lock names by id are served in any case.
    """
    from mxr_registry.artifacts import namespaces
    from mxr_registry.database import schema

    db = existing_database(RegistrySettings.read(os.environ, data))
    schema.check(db)
    with db.writing() as session:
        namespaces.set_serve(session, name, serve)
    write_json({"name": name, "serve": serve}) if as_json else write_line(f"{name}: serve {serve}")


@namespace.command()
@data_option
@json_option
def ls(data: Path | None, as_json: bool) -> None:
    """List the namespaces, each with its rule."""
    from mxr_registry.artifacts import namespaces
    from mxr_registry.database import schema

    db = existing_database(RegistrySettings.read(os.environ, data))
    schema.check(db)
    with db.reading() as session:
        rows = namespaces.listed(session)
    if as_json:
        write_json({"namespaces": [{"name": name, "serve": rule} for name, rule in rows.items()]})
    else:
        for name, rule in rows.items():
            write_line(f"{name}  {rule}")
