"""The maintenance commands of `mxr-registry`: migrate, move, sweep, fsck."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from mxr.configuration.commands import json_option, print_error
from mxr.display.streams import write_json, write_line
from mxr.display.text import counted
from mxr.errors import DamagedError, UsageError
from mxr_registry.command_options import (
    database,
    existing_database,
    read_settings,
    settings_options,
)
from mxr_registry.config.settings import SCHEMA

if TYPE_CHECKING:
    from .fsck import FsckFinding


@click.command()
@settings_options
@json_option
def migrate(as_json: bool, **given: Any) -> None:
    """Migrate the database schema to the newest revision."""
    from mxr_registry.database import schema

    db = database(read_settings(**given))
    revision = schema.upgrade(db)
    if as_json:
        write_json({"revision": revision})
    else:
        write_line(f"The database schema has revision {revision}.")


@click.command()
@settings_options
@click.option("--dry-run", is_flag=True, help="Report what would be removed, and remove nothing.")
@click.option("--unused-days", metavar="DAYS", help="Remove artifacts that were not used for DAYS days.")
@click.option("--keep-per-model", metavar="N", help="Keep only the N most recently used artifacts per model.")
@click.option(
    "--total-size",
    metavar="SIZE",
    help="Remove the least recently used artifacts until the rest fits into SIZE, such as 2TiB.",
)
@json_option
def sweep(
    dry_run: bool,
    as_json: bool,
    unused_days: str | None,
    keep_per_model: str | None,
    total_size: str | None,
    **given: Any,
) -> None:
    """Remove artifacts by the retention rules, and blobs that are no longer needed.

    The rules are in the section [retention] of the configuration file; options override them. A sweep never removes
    promoted artifacts or artifacts pinned by a registered lock. You can sweep while registries are running. A later
    sweep, after the grace period (default: one day), removes the bytes of removed artifacts.
    """
    from mxr_registry.database import schema
    from mxr_registry.storage import open_store

    from .sweep import Sweep, SweepReport, SweptItem

    rules = {"unused_days": unused_days, "keep_per_model": keep_per_model, "total_size": total_size}
    settings = read_settings(**given, more={f"retention.{name}": value for name, value in rules.items()})
    db = existing_database(settings)
    schema.check_schema(db)
    removed: list[dict[str, Any]] = []

    def on_item(item: SweptItem) -> None:
        if as_json:
            removed.append(asdict(item))
        else:
            write_line(f"{item.kind} {item.name}: {item.why}{_size(item.size)}")

    store = open_store(settings.store_url, settings.s3)
    report = Sweep(db, store, settings.retention, settings.rules, settings.grace, on_item, SweepReport(dry_run)).run()
    if as_json:
        write_json(report.to_json() | {"gone": removed})
    else:
        write_line(
            f"{'Would remove' if dry_run else 'Removed'} {counted(report.artifacts, 'artifact')}, the bytes of "
            f"{counted(report.models, 'model')}, {counted(report.blobs, 'blob')}{_size(report.bytes)}, "
            f"{counted(report.jobs, 'closed job')}, {counted(report.failures, 'expired failure')} and "
            f"{counted(report.misses, 'old miss', 'old misses')}."
        )


def _size(count: int) -> str:
    return f" ({counted(count, 'byte')})" if count else ""


@click.command()
@settings_options
@click.option(
    "--to-database", required=True, metavar="URL", help="The target: an empty database, prepared with `migrate`."
)
@click.option("--to-store", metavar="URL", help="The target store. Default: the blobs stay in the current store.")
@json_option
def move(to_database: str, to_store: str | None, as_json: bool, **given: Any) -> None:
    """Copy a stopped registry to another database and store.

    The source does not change.
    """
    from mxr_registry.database.session import Database
    from mxr_registry.storage import open_store

    from .move import Move

    settings = read_settings(**given)
    source = existing_database(settings)
    if to_store == settings.store_url:
        raise UsageError("--to-store is the current store.", hint="Omit --to-store to keep the blobs where they are.")
    target = Database(to_database, settings.connections)
    stores = (open_store(settings.store_url, settings.s3), open_store(to_store, settings.s3)) if to_store else None
    if stores:
        stores[1].ready()
    moved = Move(source, target, stores, lambda message: write_line(message, err=True)).run()
    text = (
        f"Copied {moved.rows} rows and {moved.copied} blobs ({moved.bytes} bytes). "
        "Now serve the registry from the new database and store."
    )
    write_json(moved.to_json()) if as_json else write_line(text)


@click.command()
@settings_options
@click.option("--repair", is_flag=True, help="Remove old leftovers, and move damaged blobs out of the way.")
@click.option(
    "--quick",
    is_flag=True,
    help="Compare the XXH3-128 recorded at the upload, not the sha256: faster, and finds accidental damage only.",
)
@json_option
def fsck(repair: bool, quick: bool, as_json: bool, **given: Any) -> None:
    """Check that database and store are consistent and that no blob is damaged.

    Exits with status 65 if something is lost or damaged.
    """
    from mxr_registry.database import schema
    from mxr_registry.storage import open_store

    from .fsck import Fsck

    settings = read_settings(**given)
    db = existing_database(settings)
    schema.check_schema(db)

    def on_finding(finding: FsckFinding) -> None:
        if not as_json:
            write_line(str(finding))

    store = open_store(settings.store_url, settings.s3)
    report = Fsck(db, store, settings.grace, on_finding, repair, quick).run()
    if as_json:
        write_json(report.to_json())
    else:
        damage = sum(finding.damage for finding in report.findings)
        write_line(
            f"Checked {counted(report.artifacts, 'artifact')}, {counted(report.models, 'model')}, "
            f"{counted(report.blobs, 'blob')} and {counted(report.stored, 'file')}: {damage} damaged or lost, "
            f"{counted(len(report.findings) - damage, 'leftover')}."
        )
    if not report.ok:
        hint = "Push the artifacts named above again: only missing blobs are uploaded."
        error = DamagedError("Data of the registry is lost or damaged.", hint=hint)
        if not as_json:
            raise error
        # The report is already the only JSON document of this command.
        print_error(SCHEMA, error)
        raise click.exceptions.Exit(error.exit)
