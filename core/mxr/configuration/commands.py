"""What the commands of the services share: the options of their settings, and `config`.

`config` checks and shows the configuration, and writes a sample file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from mxr.display.streams import write_error, write_json, write_line
from mxr.display.text import counted
from mxr.errors import MxrError, UsageError

from .printing import sample_file, values_document, values_lines
from .reading import ServiceValues
from .schema import ServiceSchema

Command = TypeVar("Command", bound=Callable[..., Any])

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def file_options(schema: ServiceSchema, example: str) -> Callable[[Command], Command]:
    """Return a decorator that adds `--config` (`config`) and `--set` (`words`). `example`: NAME=VALUE."""
    config = click.option(
        "--config",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help=f"The configuration file [{schema.file_variable}]; see `{schema.program} config sample`.",
    )
    words = click.option(
        "--set",
        "words",
        multiple=True,
        metavar="NAME=VALUE",
        help=f"Any other setting by its name, such as {example}; repeatable.",
    )
    return lambda function: config(words(function))


def print_error(schema: ServiceSchema, error: MxrError) -> None:
    """Print the message and the hint of an error to standard error."""
    write_error(schema.program, error.message, error.hint)


def config_commands(
    schema: ServiceSchema,
    options: Callable[[Any], Any],
    read: Callable[..., ServiceValues],
    construct: Callable[[ServiceValues], object],
    in_force: Callable[[ServiceValues], tuple[ServiceValues, Mapping[str, Any]]],
) -> click.Group:
    """Return the commands `config` of a service.

    `options`: adds the options of the settings. `read`: takes these options, and returns all values. `construct`:
    makes the settings; raises `UsageError` for values that are each valid and contradict each other. `in_force`: the
    values to show, and those that apply without one.
    """

    @click.group()
    def config() -> None:
        """Check and show the configuration, and write a sample file."""

    @config.command()
    @options
    def check(**given: Any) -> None:
        """Check file, environment and options, and name everything that is wrong. Connects to nothing."""
        values = read(**given)
        _check(values, construct)

    @config.command()
    @options
    @json_option
    def show(as_json: bool, **given: Any) -> None:
        """Show each setting with its value and where it comes from. Secrets are not shown."""
        values = read(**given)
        _show(values, values_document(*in_force(values)), as_json=as_json)

    def sample() -> None:
        for line in sample_file(schema).splitlines():
            write_line(line)

    about = "Write a configuration file with all settings as comments, each with its meaning and its default."
    name = schema.program.removeprefix("mxr-")
    config.command(help=f"{about}\n\n\b\n{schema.program} config sample > {name}.toml")(sample)
    return config


def _check(values: ServiceValues, construct: Callable[[ServiceValues], object]) -> None:
    for line in values.notes:
        write_line(f"{values.schema.program}: {line}", err=True)
    for problem in values.problems[:-1]:
        print_error(values.schema, problem)
    if values.problems:
        raise values.problems[-1]
    construct(values)
    write_line(f"The configuration is valid{f' ({values.file})' if values.file else ''}.")


def _show(values: ServiceValues, document: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        write_json(document)
    else:
        for line in values_lines(document):
            write_line(line)
    if values.problems:
        raise UsageError(
            f"The configuration has {counted(len(values.problems), 'problem')}: {values.problems[0].message}",
            hint=f"`{values.schema.program} config check` names all of them.",
        )
