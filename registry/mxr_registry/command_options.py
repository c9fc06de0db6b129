"""Shared by the commands of `mxr-registry`: options, and opening the database."""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mxr.configuration.commands import Command, file_options
from mxr.configuration.reading import ServiceValues, assignments, read_service
from mxr.errors import DiskFullError, MxrError, NotFoundError, UsageError
from mxr_registry.config.settings import SCHEMA, RegistrySettings

if TYPE_CHECKING:
    from mxr_registry.database.session import Database
    from mxr_registry.storage import Store

log = logging.getLogger("mxr_registry")

PRIVATE = 0o700
"""Mode of the data directory: it holds everybody's models, and the database says who may do what."""

_data = click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Data directory for database and files [MXR_SERVE_DATA]. Default: mxr-registry in $XDG_DATA_HOME or "
    "~/.local/share.",
)
_files = file_options(SCHEMA, "limits.body=16MiB")


def settings_options(function: Command) -> Command:
    """Add the options that every command has; `read_values` takes them."""
    return _data(_files(function))


def read_values(
    *, data: Path | None, config: Path | None, words: tuple[str, ...], more: Mapping[str, Any] | None = None
) -> ServiceValues:
    """Return the values of all settings. `more`: further options, by the path of their setting. Raises `UsageError`."""
    options = {**assignments(SCHEMA, words), "serve.data": str(data) if data else None, **(more or {})}
    return read_service(SCHEMA, os.environ, options, config)


def read_settings(**given: Any) -> RegistrySettings:
    """Return the settings of a command with these options. Raises `UsageError`."""
    return RegistrySettings.of(read_values(**given), os.environ)


def database(settings: RegistrySettings) -> Database:
    """Open the database. Creates the data directory of an embedded one. Raises `UsageError`, `DiskFullError`."""
    from mxr_registry.database.session import Database

    if settings.embedded:
        _make_folder(settings.data)
    return Database(settings.database_url, settings.connections)


def existing_database(settings: RegistrySettings) -> Database:
    """Open the database of an existing registry. Raises `NotFoundError`."""
    if settings.embedded and not settings.database.exists():
        raise no_registry(settings)
    return database(settings)


def own_store(settings: RegistrySettings, db: Database) -> Store:
    """Open the store of a registry. Raises `UsageError` for one that is not its own."""
    from mxr_registry.database.claim import claim_store
    from mxr_registry.storage import open_store

    store = open_store(settings.store_url, settings.s3)
    claim_store(db, store)
    return store


def no_registry(settings: RegistrySettings) -> NotFoundError:
    """Return the error for a data directory without a registry."""
    return NotFoundError(
        f"There is no registry in {settings.data}.",
        hint="Name its data directory with --data, or its settings with --config.",
    )


def _make_folder(folder: Path) -> None:
    """Create the data directory, or make an existing one private, where it belongs to this user."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=PRIVATE, exist_ok=True)
        found = folder.stat()
        if found.st_uid == os.geteuid():
            folder.chmod(PRIVATE)
        elif found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            log.warning("other users can write to the data directory %s", folder)
    except OSError as problem:
        full = problem.errno in (errno.ENOSPC, errno.EDQUOT)
        kind: type[MxrError] = DiskFullError if full else UsageError
        hint = "Choose another data directory with --data."
        raise kind(f"Cannot create {folder}: {problem.strerror}.", hint=hint) from None
