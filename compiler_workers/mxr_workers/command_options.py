"""Shared by the commands of `mxr-worker`: the options of the settings, and printing an error."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from mxr.configuration.reading import ServiceValues, assignments, read_service
from mxr.display.streams import write_error
from mxr.errors import MxrError

from .settings import KINDS, SCHEMA

_kind = click.option(
    "--kind",
    "kinds",
    type=click.Choice(KINDS),
    multiple=True,
    help="Compile only for targets of this kind; repeatable [MXR_WORKER_KINDS]. Default: every kind that works here.",
)
_python = click.option(
    "--python",
    metavar="PATH",
    help="Python interpreter that has migraphx, and optionally onnxruntime-migraphx [MXR_WORKER_PYTHON].",
)
_registry = click.option("--registry", metavar="URL", help="URL of the registry [MXR_REGISTRY].")
_plaintext = click.option(
    "--plaintext",
    is_flag=True,
    default=None,
    help="Send the token also over plain http to another machine [MXR_PLAINTEXT].",
)
_config = click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The configuration file [MXR_WORKER_CONFIG]; see `mxr-worker config sample`.",
)
_set = click.option(
    "--set",
    "words",
    multiple=True,
    metavar="NAME=VALUE",
    help="Any other setting by its name, such as worker.seconds=2h; repeatable.",
)


def settings_options(function: Any) -> Any:
    """Add the options of the settings, which `read_values` takes."""
    for option in (_set, _config, _plaintext, _registry, _python, _kind):
        function = option(function)
    return function


def read_values(given: Mapping[str, Any]) -> ServiceValues:
    """Return the values of all settings, from the options of a command. Raises `UsageError`."""
    options: dict[str, Any] = dict(assignments(SCHEMA, given["words"]))
    options |= {f"worker.{name}": given[name] for name in ("kinds", "python") if given[name]}
    options |= {name: given[name] for name in ("registry", "plaintext") if given[name] is not None}
    return read_service(SCHEMA, os.environ, options, given["config"])


def print_error(error: MxrError) -> None:
    """Print the message and the hint of an error to standard error."""
    write_error("mxr-worker", error.message, error.hint)
