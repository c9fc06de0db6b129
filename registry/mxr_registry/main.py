"""The program `mxr-registry`: its commands, and the one place that prints errors."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

import click

from mxr.configuration.printing import sample_file, values_document, values_lines
from mxr.configuration.reading import ServiceValues
from mxr.display import logs, streams
from mxr.display.streams import write_json, write_line
from mxr.display.text import counted
from mxr.entry_point import run_program
from mxr.errors import MxrError, UsageError
from mxr_registry.config.settings import SCHEMA, RegistrySettings, check_served, effective
from mxr_registry.maintenance.namespace_commands import namespace
from mxr_registry.maintenance.token_commands import token

from . import request_id, serve_command
from .command_options import json_option, print_error, read_values, settings_options
from .maintenance import commands


@click.group()
def config() -> None:
    """Check and show the configuration, and write a sample file."""


@config.command()
@settings_options
def check(**given: Any) -> None:
    """Check file, environment and options, and name everything that is wrong. Connects to nothing."""
    values = read_values(**given)
    for line in values.notes:
        write_line(f"mxr-registry: {line}", err=True)
    problems = list(values.problems) or _contradictions(values)
    if problems:
        for problem in problems[:-1]:
            print_error(problem)
        raise problems[-1]
    write_line(f"The configuration is valid{f' ({values.file})' if values.file else ''}.")


def _contradictions(values: ServiceValues) -> list[UsageError]:
    try:
        check_served(values, RegistrySettings.of(values, os.environ))
    except UsageError as problem:
        return [problem]
    return []


@config.command()
@settings_options
@json_option
def show(as_json: bool, **given: Any) -> None:
    """Show each setting with its value and where it comes from. Passwords are not shown."""
    values = read_values(**given)
    document = values_document(values, effective(values, os.environ))
    if as_json:
        write_json(document)
    else:
        for line in values_lines(document):
            write_line(line)
    if values.problems:
        count = counted(len(values.problems), "problem")
        hint = "`mxr-registry config check` names all of them."
        raise UsageError(f"The configuration has {count}: {values.problems[0].message}", hint=hint)


@config.command()
def sample() -> None:
    """Write a configuration file with all settings as comments, each with its meaning and its default.

    \b
    mxr-registry config sample > registry.toml
    """
    for line in sample_file(SCHEMA).splitlines():
        write_line(line)


def main() -> None:
    """Run the program. Print an error as message and hint, and exit with its exit code."""
    run_program(
        "mxr-registry",
        lambda: program.main(standalone_mode=False),
        _report,
        usage=click.ClickException,
        abort=click.Abort,
        extra="registry",
    )


def _report(error: MxrError) -> None:
    if "--debug" in sys.argv:
        streams.write_traceback()
    if "--json" in sys.argv:
        streams.write_json({"error": error.to_json()})
    print_error(error)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(package_name="mxr-cache", prog_name="mxr-registry")
def program(debug: bool) -> None:
    """Serve and maintain a registry of compiled MIGraphX programs.

    By default, the registry keeps a SQLite database and its files in one data directory. Every setting is in one
    configuration file, and in an environment variable of the same name: see `mxr-registry config sample`.
    """
    logs.configure("mxr_registry", debug=debug, request=request_id.current)
    for library in ("alembic", "boto3", "botocore", "s3transfer", "urllib3"):
        logging.getLogger(library).setLevel(logging.WARNING)


for command in (
    serve_command.serve,
    commands.migrate,
    commands.move,
    commands.sweep,
    commands.fsck,
    namespace,
    token,
    config,
):
    program.add_command(command)


if __name__ == "__main__":
    main()
