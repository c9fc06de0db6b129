"""What the commands of `mxr-registry` share: options, the database that they name, the two lines of an error."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mxr.errors import DiskFull, MxrError, NotFound, Usage
from mxr_registry.config.settings import RegistrySettings

if TYPE_CHECKING:
    from mxr_registry.database.session import Database

config_option = click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Pools, leases and retention, in TOML [MXR_REGISTRY_CONFIG].",
)
data_option = click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where database and files are. Default: mxr-registry in $XDG_DATA_HOME, or in ~/.local/share.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def tell(failed: MxrError) -> None:
    """Print what is wrong, and what to do."""
    click.echo(f"mxr-registry: {failed.message}\n{failed.hint}", err=True)


def database(settings: RegistrySettings) -> Database:
    """The database; the folder of an embedded one is made. Raises `Usage`, `DiskFull`."""
    from mxr_registry.database.session import Database

    if settings.embedded:
        _make_folder(settings.data)
    return Database(settings.database_url, settings.connections)


def existing(settings: RegistrySettings) -> Database:
    """The database of a registry that is there. Raises `NotFound`."""
    if settings.embedded and not settings.database.exists():
        raise NotFound(f"There is no registry in {settings.data}.", hint="Name its folder with --data.")
    return database(settings)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        full = problem.errno in (errno.ENOSPC, errno.EDQUOT)
        kind: type[MxrError] = DiskFull if full else Usage
        raise kind(f"{folder} cannot be made: {problem.strerror}.", hint="Name another with --data.") from None
