"""The commands `mxr-worker config`: check and show the configuration, and write a sample file."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import click

from mxr.configuration.printing import sample_file, values_document, values_lines
from mxr.configuration.reading import DEFAULT, SetValue
from mxr.display.streams import write_json, write_line
from mxr.display.text import counted
from mxr.errors import UsageError

from .command_options import print_error, read_values, settings_options
from .settings import CLIENT_OPTIONS, SCHEMA, client_settings, effective, settings_of


@click.group()
def config() -> None:
    """Check and show the configuration, and write a sample file."""


@config.command()
@settings_options
def check(**given: Any) -> None:
    """Check file, environment and options, and name everything that is wrong. Connects to nothing."""
    values = read_values(given)
    for line in values.notes:
        write_line(f"mxr-worker: {line}", err=True)
    for problem in values.problems[:-1]:
        print_error(problem)
    settings_of(replace(values, problems=values.problems[-1:]), os.environ)
    write_line(f"The configuration is valid{f' ({values.file})' if values.file else ''}.")


@config.command()
@settings_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def show(as_json: bool, **given: Any) -> None:
    """Show each setting with its value and where it comes from. The token is not shown."""
    values = read_values(given)
    if values.problems:
        raise UsageError(
            f"The configuration has {counted(len(values.problems), 'problem')}: {values.problems[0].message}",
            hint="`mxr-worker config check` names all of them.",
        )
    client = client_settings(values, os.environ)
    found = {name: SetValue(getattr(client, name), client.sources.get(name, DEFAULT)) for name in CLIENT_OPTIONS}
    # What `mxr` is told by this program is not one of its own options.
    found |= {name: each for name, each in values.found.items() if each.source != DEFAULT or name not in found}
    values = replace(values, found={name: found[name] for name in values.found})
    document = values_document(values, effective(values, os.environ))
    if as_json:
        write_json(document)
        return
    for line in values_lines(document):
        write_line(line)


@config.command()
def sample() -> None:
    """Write a configuration file with all settings as comments, each with its meaning and its default.

    \b
    mxr-worker config sample > worker.toml
    """
    for line in sample_file(SCHEMA).splitlines():
        write_line(line)
