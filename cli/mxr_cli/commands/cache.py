"""`mxr cache`: list, verify and clean up the local cache."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mxr.cache import contents, room
from mxr.cache.contents import CacheEntry
from mxr.cache.partition import CachedArtifact
from mxr.display.text import counted
from mxr.errors import DamagedError, NotAllowedError, NotFoundError, UsageError
from mxr.util import disk
from mxr.util.codec import time_text
from mxr_cli.help import HelpfulCommand
from mxr_cli.options import Session, cached
from mxr_cli.output import echo, format_size, format_time, note, print_json, print_table

if TYPE_CHECKING:
    from mxr.cache.store import Cache

MIN_DIGITS = 8


@click.group
def cache() -> None:
    """Manage the local cache. You can delete it at any time: what is needed is fetched again."""


@cache.command("dir", cls=HelpfulCommand)
@cached
def dir_(session: Session) -> None:
    """Print the path of the cache."""
    root = session.cache().root
    print_json({"dir": str(root)}) if session.as_json else echo(str(root))


@cache.command("ls", cls=HelpfulCommand)
@cached
def ls(session: Session) -> None:
    """List the cached programs, and which registry answered."""
    store = session.cache()
    rows = [(entry, entry.path.stat()) for entry in contents.entries(store)]
    used = {entry.path: room.used_at(store, entry.path.name, status) for entry, status in rows}
    if session.as_json:
        print_json({"files": [_document(each, status, used[each.path]) for each, status in rows]})
        return
    print_table(
        [
            (
                each.path.name[:12],
                artifact.id[:12] if artifact else "?",
                (artifact.key.arch or artifact.key.kind) if artifact else "?",
                format_size(status.st_size),
                format_time(used[each.path]),
                each.source or "?",
                _confirmed(each.record),
            )
            for each, status in rows
            for artifact in [each.record.artifact if each.record else None]
        ],
        ("SHA256", "ARTIFACT", "TARGET", "SIZE", "USED", "FROM", "CONFIRMED"),
    )


def _document(entry: CacheEntry, status: os.stat_result, used_at: float) -> dict[str, Any]:
    record = entry.record
    return {
        "sha256": entry.path.name,
        "size": status.st_size,
        "used_at": time_text(used_at),
        "id": record.artifact.id if record else None,
        "key": record.artifact.key.to_json() if record else None,
        "source": entry.source or None,
        "age": record.age if record else None,
        "gone": record.refused if record else None,
    }


def _confirmed(record: CachedArtifact | None) -> str:
    """When the registry confirmed an artifact last, or that it removed or recalled it."""
    if record is None:
        return "?"
    if word := record.refused or (record.artifact.recall and record.artifact.recall.word):
        return word
    return "-" if record.age is None else format_time(time.time() - record.age)


@cache.command("verify", cls=HelpfulCommand)
@click.option(
    "--quick",
    is_flag=True,
    help="Compare the XXH3-128 recorded when the sha256 was verified: much faster, and finds accidental damage only.",
)
@cached
def verify(session: Session, quick: bool) -> None:
    """Read every program and verify its sha256.

    Remove damaged programs, so that they are fetched again, and exit with 65 if there were any. Name what was yanked or
    quarantined, as far as this host has heard: a fetch refuses it.
    """
    recalled = {
        each.record.artifact.id: each.record.artifact.recall
        for each in contents.entries(session.cache())
        if each.record is not None and each.record.artifact.recall is not None
    }
    for id, recall in recalled.items():
        note(f"mxr: warning: {recall.sentence(id)}")
    found = list(contents.verify_programs(session.cache(), quick=quick))
    damaged = [path.name for path, intact in found if not intact]
    if damaged:
        raise DamagedError(
            f"{len(damaged)} of {len(found)} programs in the cache were damaged and have been removed.",
            hint="They are fetched again when they are needed. Check the disk for errors.",
            context={"damaged": damaged},
        )
    if session.as_json:
        print_json({"verified": len(found), "damaged": [], "recalled": sorted(recalled)})
    else:
        echo(f"{counted(len(found), 'program')}, none damaged")


@cache.command("prune", cls=HelpfulCommand)
@click.option(
    "--older-than",
    type=click.FloatRange(0),
    default=30.0,
    show_default=True,
    metavar="DAYS",
    help="Remove programs that were not used in the last DAYS days.",
)
@cached
def prune(session: Session, older_than: float) -> None:
    """Remove what was not used recently.

    That is programs, the partial files of interrupted fetches, and the answers of
    registries that no longer answer at their URL."""
    store = session.cache()
    limit = time.time() - older_than * 86400
    removed, freed = [], 0
    programs = [store.file_path(sha) for sha in store.programs()]
    for path in [*programs, *(store.root / "files").glob(f"*/{disk.PARTIAL}*")]:
        with suppress(OSError):
            status = path.stat()
            if room.used_at(store, path.name, status) < limit:
                path.unlink()
                room.forget(store, path.name)
                removed.append(path.name)
                freed += status.st_size
    superseded = contents.remove_superseded(store)
    if session.as_json:
        print_json({"removed": removed, "freed": freed, "registries": superseded})
    else:
        echo(f"removed {counted(len(removed), 'file')}, {format_size(freed)}")


@cache.command("rm", cls=HelpfulCommand)
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Remove the whole cache, and the memo of digests.")
@cached
def rm(session: Session, ids: tuple[str, ...], everything: bool) -> None:
    """Remove programs, by the first digits of their sha256 or of their artifact, or the whole cache.

    What is needed again is fetched again.
    """
    if bool(ids) == everything:
        raise UsageError("Name the programs to remove, or all.", hint="Run mxr cache rm ID..., or mxr cache rm --all.")
    store = session.cache()
    if store.root.exists() and not store.folder.writable:
        raise NotAllowedError(f"{store.root} belongs to someone else.", hint="Give your own cache with --cache-dir.")
    memo = session.settings.state_dir
    # Only what mxr made: both folders can be shared.
    paths = [store.root, *([memo / "memo"] if memo else [])] if everything else _named(store, ids)
    removed = [path for path in paths if path.exists()]
    for path in removed:
        with disk.faults(path, "remove"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    if everything:
        with suppress(OSError):
            # Empty, unless it holds more than the cache.
            store.root.parent.rmdir()
    names = [str(path) for path in removed]
    if session.as_json:
        print_json({"removed": names})
    else:
        for name in names:
            note(f"mxr: removed {name}")


def _named(store: Cache, ids: tuple[str, ...]) -> list[Path]:
    """The programs that these digits name. Raises `NotFoundError` for those that name none."""
    found: dict[Path, None] = {}
    rows = list(contents.entries(store))
    for given in ids:
        here = [
            each.path
            for each in rows
            if len(given) >= MIN_DIGITS
            and (each.path.name.startswith(given) or (each.record and each.record.artifact.id.startswith(given)))
        ]
        if not here:
            raise NotFoundError(
                f"No program in the cache has a sha256 or an artifact that begins with {given!r}.",
                hint=f"Give at least {MIN_DIGITS} digits. `mxr cache ls` lists both.",
            )
        found |= dict.fromkeys(here)
    return list(found)
