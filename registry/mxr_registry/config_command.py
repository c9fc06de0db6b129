"""The commands `mxr-registry config`: check and show the configuration, and write a sample file."""

from __future__ import annotations

import os
from typing import Any

import click

from mxr.configuration.printing import sample_file, values_document, values_lines
from mxr.configuration.reading import ServiceValues
from mxr.display.streams import write_json, write_line
from mxr.display.text import counted
from mxr.errors import UsageError

from .command_options import json_option, print_error, read_values, settings_options
from .config.settings import SCHEMA, RegistrySettings, check_served, effective


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
