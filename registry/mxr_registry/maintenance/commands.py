"""The commands that look after a registry: migrate, move, sweep, fsck."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mxr.errors import Damaged, Usage
from mxr.util.codec import canonical
from mxr_registry.command_options import config_option, data_option, database, existing, json_option, tell
from mxr_registry.config.settings import RegistrySettings

if TYPE_CHECKING:
    from .fsck import FsckFinding


@click.command()
@data_option
@json_option
def migrate(data: Path | None, as_json: bool) -> None:
    """Bring the database's schema up to date."""
    from mxr_registry.database import schema

    db = database(RegistrySettings.read(os.environ, data))
    revision = schema.upgrade(db)
    click.echo(canonical({"revision": revision}) if as_json else f"The schema is {revision}.")


@click.command()
@data_option
@config_option
@click.option("--dry-run", is_flag=True, help="Say what would go, and remove nothing.")
@click.option("--unused-days", type=float, metavar="DAYS", help="Artifacts that nobody used for so long go.")
@click.option("--keep-per-model", type=int, metavar="N", help="Of each model only the N artifacts used last stay.")
@click.option("--total-size", metavar="SIZE", help="What was used longest ago goes until the rest fits: 2TiB, say.")
@json_option
def sweep(data: Path | None, config: Path | None, dry_run: bool, as_json: bool, **rules: Any) -> None:
    """Remove what is not to be kept, and bytes that nothing is made of any more.

    The rules are those of [retention] in the configuration, and the flags, which win. Promoted artifacts and those of
    registered locks stay. Safe while registries serve; a removed artifact's bytes go with a sweep a day later.
    """
    from mxr_registry.database import schema
    from mxr_registry.storage import open_store

    from .sweep import Sweep, SweepReport, SweptItem

    settings = RegistrySettings.read(os.environ, data, config)
    given = {name: value for name, value in rules.items() if value is not None}
    assert settings.rules is not None and settings.retention is not None
    retention = replace(settings.retention, **given)
    db = existing(settings)
    schema.check(db)
    gone: list[dict[str, Any]] = []

    def say(swept: SweptItem) -> None:
        if as_json:
            gone.append(asdict(swept))
        else:
            click.echo(f"{swept.kind} {swept.name}: {swept.why}{_size(swept.size)}")

    store = open_store(settings.store_url, settings.s3)
    report = Sweep(db, store, retention, settings.rules, settings.grace, say, SweepReport(dry_run)).run()
    if as_json:
        click.echo(canonical(report.to_json() | {"gone": gone}))
    else:
        click.echo(
            f"{'Would go' if dry_run else 'Gone'}: {report.artifacts} artifacts, the bytes of {report.models} models, "
            f"{report.blobs} blobs{_size(report.bytes)}; {report.jobs} closed jobs, "
            f"{report.failures} expired failures, {report.misses} old misses."
        )


def _size(count: int) -> str:
    return f" ({count} bytes)" if count else ""


@click.command()
@data_option
@click.option("--to-database", required=True, metavar="URL", help="An empty database, prepared by `migrate`.")
@click.option("--to-store", metavar="URL", help="Where the bytes go. Default: they stay where they are.")
@json_option
def move(data: Path | None, to_database: str, to_store: str | None, as_json: bool) -> None:
    """Copy this registry, stopped, to another database and store. It is left as it was."""
    from mxr_registry.database.session import Database
    from mxr_registry.storage import open_store

    from .move import Move

    settings = RegistrySettings.read(os.environ, data)
    source = existing(settings)
    if to_store == settings.store_url:
        raise Usage("--to-store is where the bytes are already.", hint="Leave it out.")
    target = Database(to_database, settings.connections)
    stores = (open_store(settings.store_url, settings.s3), open_store(to_store, settings.s3)) if to_store else None
    if stores:
        stores[1].ready()
    moved = Move(source, target, stores, lambda words: click.echo(words, err=True)).run()
    words = f"Moved {moved.rows} rows and {moved.copied} blobs of {moved.bytes} bytes. Serve it from there now."
    click.echo(canonical(moved.to_json()) if as_json else words)


@click.command()
@data_option
@click.option("--repair", is_flag=True, help="Remove old leftovers, and set damaged bytes aside.")
@click.option("--quick", is_flag=True, help="Look at sizes only, without reading the bytes.")
@json_option
def fsck(data: Path | None, repair: bool, quick: bool, as_json: bool) -> None:
    """Has every row its bytes, and every byte its row? Ends with 65 where something is lost or wrong."""
    from mxr_registry.database import schema
    from mxr_registry.storage import open_store

    from . import fsck as room

    settings = RegistrySettings.read(os.environ, data)
    db = existing(settings)
    schema.check(db)

    def say(finding: FsckFinding) -> None:
        if not as_json:
            click.echo(str(finding))

    store = open_store(settings.store_url, settings.s3)
    report = room.Fsck(db, store, settings.grace, say, repair, quick).run()
    if as_json:
        click.echo(canonical(report.to_json()))
    else:
        damage = sum(each.damage for each in report.findings)
        click.echo(
            f"{report.artifacts} artifacts, {report.models} models, {report.blobs} blobs, {report.stored} files: "
            f"{damage} damaged or lost, {len(report.findings) - damage} leftovers."
        )
    if not report.ok:
        hint = "Push the artifacts named above again: only what is missing is uploaded."
        lost = Damaged("The registry has lost something.", hint=hint)
        if not as_json:
            raise lost
        # The report was the one document of this command.
        tell(lost)
        raise click.exceptions.Exit(lost.exit)
