"""The maintenance commands of `mxr-registry`: migrate, move, sweep, fsck."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mxr.configuration.commands import json_option, print_error
from mxr.display.streams import write_json, write_line
from mxr.display.text import counted
from mxr.errors import DamagedError, UsageError
from mxr_registry.command_options import (
    database,
    existing_database,
    no_registry,
    own_store,
    read_settings,
    settings_options,
)
from mxr_registry.config.settings import SCHEMA, RegistrySettings

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

    store = own_store(settings, db)
    work = Sweep(db, store, settings.retention, settings.rules, settings.grace, on_item, SweepReport(dry_run))
    report = settings.reserve.run(work.run)
    if as_json:
        write_json(report.to_json() | {"gone": removed})
    else:
        write_line(
            f"{'Would remove' if dry_run else 'Removed'} {counted(report.artifacts, 'artifact')}, the bytes of "
            f"{counted(report.models, 'model')}, {counted(report.blobs, 'blob')}{_size(report.bytes)}, "
            f"{counted(report.jobs, 'closed job')}, {counted(report.failures, 'expired failure')}, "
            f"{counted(report.misses, 'old miss', 'old misses')}, {counted(report.tokens, 'ended token')} and "
            f"{counted(report.damaged, 'damaged blob')} that {'was' if report.damaged == 1 else 'were'} set aside."
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
    from mxr_registry.database.claim import claim_store, id_of
    from mxr_registry.database.session import Database
    from mxr_registry.storage import open_store

    from .move import Move

    settings = read_settings(**given)
    source = existing_database(settings)
    if to_store == settings.store_url:
        raise UsageError("--to-store is the current store.", hint="Omit --to-store to keep the blobs where they are.")
    target = Database(to_database, settings.connections)
    stores = (own_store(settings, source), open_store(to_store, settings.s3)) if to_store else None
    if stores:
        if stores[1].owner.read() is None and stores[1].is_empty():
            stores[1].adopt(id_of(source))
        claim_store(source, stores[1])
        stores[1].prepare()
    moved = Move(source, target, stores, lambda message: write_line(message, err=True)).run()
    text = (
        f"Copied {moved.rows} rows and {moved.copied} blobs ({moved.bytes} bytes). "
        "Now serve the registry from the new database and store."
    )
    write_json(moved.to_json()) if as_json else write_line(text)


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@settings_options
@json_option
def backup(folder: Path, as_json: bool, **given: Any) -> None:
    """Back up rows and bytes to DIR, while the registry serves.

    Only what DIR lacks is copied, and verified. Bytes that no row needs any more are removed from DIR. Exits with
    status 65 if bytes are damaged; all others are backed up. Rows in PostgreSQL are backed up by pg_dump.
    """
    from mxr_registry.database import trail

    from .backup import NAMED, back_up

    settings = _embedded_settings("backed up with pg_dump", **given)
    if not settings.database.exists():
        raise no_registry(settings)
    db = existing_database(settings)
    done = back_up(settings.database, own_store(settings, db), folder, lambda message: write_line(message, err=True))
    blobs = done.blobs
    trail.note_run(db, "backup", done.to_json())
    text = (
        f"{folder}: {counted(blobs.copied + blobs.present, 'blob')}, {blobs.copied} of them copied now "
        f"({counted(blobs.bytes, 'byte')}), {done.dropped} dropped that no row needs."
    )
    write_json(done.to_json()) if as_json else write_line(text)
    if blobs.damaged:
        names = ", ".join(blobs.damaged[:NAMED])
        error = DamagedError(
            f"{counted(len(blobs.damaged), 'blob')} could not be backed up, missing or damaged: {names}.",
            hint="`mxr-registry fsck` lists what needs them. Push that again, then back up again.",
        )
        if not as_json:
            raise error
        print_error(SCHEMA, error)
        raise click.exceptions.Exit(error.exit)


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@settings_options
@click.option("--force", is_flag=True, help="Restore also if bytes in DIR are missing or damaged: all others.")
@json_option
def restore(folder: Path, force: bool, as_json: bool, **given: Any) -> None:
    """Restore the backup in DIR to the data directory of a stopped registry.

    All bytes are verified first. What is in the data directory is moved to a folder in it, not removed. Tokens that
    were revoked after the backup stay revoked, as long as the old data is there.
    """
    from mxr_registry.storage import open_store
    from mxr_registry.storage.local import LocalStore

    from .backup import Restore

    settings = _embedded_settings("restored with pg_restore", **given)
    database(settings)
    store = open_store(settings.store_url, settings.s3)
    inside = isinstance(store, LocalStore) and store.root.parent == settings.data
    done = Restore(
        folder, settings.data, None if inside else store, lambda message: write_line(message, err=True), force
    ).run()
    kept = f" What was there is in {done.aside}; remove it when all is well." if done.aside else ""
    if as_json:
        write_json(done.to_json())
        return
    write_line(f"Restored {counted(done.blobs.copied + done.blobs.present, 'blob')} to {settings.data}.{kept}")
    if not done.aside:
        write_line("Tokens that were revoked after the backup are valid again: see `token revoke --created-before`.")


def _embedded_settings(otherwise: str, **given: Any) -> RegistrySettings:
    settings = read_settings(**given)
    if not settings.embedded:
        raise UsageError(
            f"The rows are in PostgreSQL, and are {otherwise}.",
            hint="docs/operate.md has the commands, for the bytes too.",
        )
    return settings


@click.command()
@settings_options
@json_option
def status(as_json: bool, **given: Any) -> None:
    """Show the id of the registry, where its rows and bytes are, and whose store that is."""
    from mxr_registry.database import schema
    from mxr_registry.database.claim import id_of
    from mxr_registry.storage import open_store

    settings = read_settings(**given)
    db = existing_database(settings)
    with db.reading() as session:
        revision = schema.current(session)
    owner = open_store(settings.store_url, settings.s3).owner
    found = {"id": id_of(db), "where": settings.where, "schema": revision, "store": owner.read()}
    if as_json:
        write_json(found)
        return
    write_line(f"registry {found['id']}, {settings.where}, schema {revision}")
    whose = "its own" if found["store"] == found["id"] else f"of registry {found['store'] or 'none: it has no id'}"
    write_line(f"store {owner.where}: {whose}")


@click.command("adopt-store")
@settings_options
@click.option(
    "--force", is_flag=True, help="Adopt it also if it belongs to another registry, which can use it no more."
)
@json_option
def adopt_store(force: bool, as_json: bool, **given: Any) -> None:
    """Make the store the one of this registry, after a restore by other means than `restore`.

    Then run `mxr-registry fsck`: it lists what the store lacks.
    """
    from mxr_registry.database.claim import id_of
    from mxr_registry.storage import open_store

    settings = read_settings(**given)
    id, store = id_of(existing_database(settings)), open_store(settings.store_url, settings.s3)
    before = store.owner.read()
    if before not in (None, id) and not force:
        raise UsageError(
            f"The store {store.owner.where} belongs to registry {before}; this one is {id}.",
            hint="Correct store.url, or add --force: the other registry can use it no more then.",
        )
    store.adopt(id)
    if as_json:
        write_json({"id": id, "before": before})
    else:
        write_line(f"The store {store.owner.where} belongs to registry {id}. Run `mxr-registry fsck` now.")


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

    from .fsck import Fsck

    settings = read_settings(**given)
    db = existing_database(settings)
    schema.check_schema(db)

    def on_finding(finding: FsckFinding) -> None:
        if not as_json:
            write_line(str(finding))

    store = own_store(settings, db)
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
