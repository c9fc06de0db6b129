"""The commands `mxr-registry namespace`: list namespaces, and set their rules and request defaults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mxr.artifact.matching import SERVE_RULES
from mxr.configuration.commands import json_option
from mxr.display.streams import write_json, write_line
from mxr.errors import UsageError
from mxr.facts import BY_NAME
from mxr_registry.command_options import existing_database, read_settings, settings_options

if TYPE_CHECKING:
    from mxr_registry.artifacts.namespaces import NamespaceSettings

NO_DEFAULT = "none"
"""Removes a request default."""

MAX_DIGITS = 12


def _default(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The option of a request default."""
    fact = BY_NAME[name]
    about = f"Request default: {fact.about[0].lower()}{fact.about[1:]} none: no default."
    return click.option(fact.flag, name, metavar=fact.metavar, help=about)


@click.group()
def namespace() -> None:
    """List the namespaces of a registry, and set their rules. The registry may be running."""


@namespace.command("set")
@click.argument("name", metavar="NAME")
@click.option(
    "--serve",
    type=click.Choice([*SERVE_RULES, "auto"]),
    help="Which artifacts answer requests: any; built (by a worker) or promoted; only promoted; or auto: any on a "
    "loopback address without --trusted-proxies, otherwise built.",
)
@_default("rocm")
@_default("migraphx")
@_default("consumer")
@_default("batch")
@click.option(
    "--allow",
    type=click.Choice(["rocm", "none"]),
    help="Request default: accept programs of another minor release of the same ROCm, from 10 on. none: no default.",
)
@settings_options
@json_option
def set_(
    name: str, data: Path | None, config: Path | None, words: tuple[str, ...], as_json: bool, **given: str | None
) -> None:
    """Set which artifacts answer requests in the namespace NAME, and its request defaults. What you omit stays.

    Artifacts that a person or a lock names by id are served in any case. Clients use a default where neither their
    options, their host nor their own configuration tell a fact. They ask for the defaults once an hour (`max_age`).

    \b
    mxr-registry namespace set default --serve built
    mxr-registry namespace set default --rocm 7.2 --migraphx 2.15 --for triton
    mxr-registry namespace set default --batch none
    """
    from mxr_registry.artifacts import namespaces
    from mxr_registry.database import schema

    changes = {option: _value(option, value) for option, value in given.items() if value is not None}
    if not changes:
        raise UsageError("Nothing to set is given.", hint="Give --serve, or a request default such as --rocm 7.2.")
    db = existing_database(read_settings(data=data, config=config, words=words))
    schema.check_schema(db)
    with db.writing() as session:
        settings = namespaces.change_namespace(session, name, changes)
    write_json(settings.to_json()) if as_json else write_line(_line(settings))


def _value(option: str, value: str) -> object:
    if option == "serve":
        return value
    if value == NO_DEFAULT:
        return None
    if option == "batch":
        return int(value) if value.isascii() and value.isdigit() and len(value) < MAX_DIGITS else value
    return value


@namespace.command()
@settings_options
@json_option
def ls(data: Path | None, config: Path | None, words: tuple[str, ...], as_json: bool) -> None:
    """List the namespaces, each with its rule and its request defaults."""
    from mxr_registry.artifacts import namespaces
    from mxr_registry.database import schema

    db = existing_database(read_settings(data=data, config=config, words=words))
    schema.check_schema(db)
    with db.reading() as session:
        rows = namespaces.list_namespaces(session)
    if as_json:
        write_json({"namespaces": [row.to_json() for row in rows]})
    else:
        for row in rows:
            write_line(_line(row))


def _line(settings: NamespaceSettings) -> str:
    """One namespace with its rule and its request defaults."""
    defaults = settings.to_json()["defaults"]
    words = "".join(f", {name} {value}" for name, value in defaults.items() if value is not None)
    return f"{settings.name}: serve {settings.serve}{words}"
