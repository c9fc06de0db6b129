"""The program `mxr-registry`: its commands, and the one place that prints errors."""

from __future__ import annotations

import logging
import os
import sys

import click

from mxr.configuration.commands import config_commands, print_error
from mxr.configuration.reading import ServiceValues
from mxr.display import logs, streams
from mxr.entry_point import run_program
from mxr.errors import MxrError
from mxr.version import __version__
from mxr_registry.config.settings import SCHEMA, RegistrySettings, check_served, effective
from mxr_registry.maintenance.key_commands import key
from mxr_registry.maintenance.namespace_commands import namespace
from mxr_registry.maintenance.token_commands import token

from . import serve_command
from .command_options import read_values, settings_options
from .maintenance import commands
from .server import request_id


def main() -> None:
    """Run the program. Print an error as message and hint, and exit with its exit code."""
    run_program(
        "mxr-registry",
        lambda: program.main(standalone_mode=False),
        _report,
        click,
        extra="registry",
    )


def _report(error: MxrError) -> None:
    if "--debug" in sys.argv:
        streams.write_traceback()
    if "--json" in sys.argv:
        streams.write_json({"error": error.to_json()})
    print_error(SCHEMA, error)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(__version__, prog_name="mxr-registry")
def program(debug: bool) -> None:
    """Serve and maintain a registry of compiled MIGraphX programs.

    By default, the registry keeps a SQLite database and its files in one data directory. Every setting is in one
    configuration file, and in an environment variable of the same name: see `mxr-registry config sample`.
    """
    logs.configure("mxr_registry", debug=debug, request=request_id.current)
    for library in ("alembic", "boto3", "botocore", "s3transfer", "urllib3"):
        logging.getLogger(library).setLevel(logging.WARNING)


def _construct(values: ServiceValues) -> None:
    check_served(values, RegistrySettings.of(values, os.environ))


for command in (
    serve_command.serve,
    commands.migrate,
    commands.backup,
    commands.restore,
    commands.move,
    commands.sweep,
    commands.fsck,
    commands.status,
    commands.adopt_store,
    namespace,
    token,
    key,
    config_commands(
        SCHEMA, settings_options, read_values, _construct, lambda values: (values, effective(values, os.environ))
    ),
):
    program.add_command(command)


if __name__ == "__main__":
    main()
