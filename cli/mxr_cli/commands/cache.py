"""`mxr cache`: list, verify and clean up the local cache."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

import click

from mxr.errors import Damaged
from mxr.util import disk
from mxr_cli.options import Session, common
from mxr_cli.output import echo, format_size, format_time, note, print_json, print_table


@click.group
def cache() -> None:
    """Manage the local cache. You can delete it at any time: what is needed is fetched again."""


@cache.command("dir")
@common
def dir_(session: Session) -> None:
    """Print the path of the cache."""
    root = session.cache().root
    print_json({"dir": str(root)}) if session.as_json else echo(str(root))


@cache.command("ls")
@common
def ls(session: Session) -> None:
    """List the programs in the cache."""
    entries = [(path, path.stat(), artifact) for path, artifact in session.cache().entries()]
    if session.as_json:
        rows = [
            {
                "sha256": path.name,
                "size": status.st_size,
                "used_at": _used_at(status),
                "id": artifact.id if artifact else None,
                "key": artifact.key.to_json() if artifact else None,
            }
            for path, status, artifact in entries
        ]
        print_json({"files": rows})
        return
    print_table(
        [
            (
                path.name[:12],
                artifact.id[:12] if artifact else "?",
                (artifact.key.arch or artifact.key.kind) if artifact else "?",
                format_size(status.st_size),
                format_time(_used_at(status)),
            )
            for path, status, artifact in entries
        ],
        ("SHA256", "ARTIFACT", "TARGET", "SIZE", "USED"),
    )


def _used_at(status: os.stat_result) -> float:
    """When a file was last used. File systems mounted with noatime do not update the access time."""
    return max(status.st_atime, status.st_mtime)


@cache.command("verify")
@click.option(
    "--quick",
    is_flag=True,
    help="Compare the XXH3-128 recorded when the sha256 was verified: much faster, and finds accidental damage only.",
)
@common
def verify(session: Session, quick: bool) -> None:
    """Read every program in the cache and verify its sha256.

    Remove damaged programs, so that they are fetched again, and exit with 65 if there were any.
    """
    found = list(session.cache().verify(quick=quick))
    damaged = [path.name for path, intact in found if not intact]
    if damaged:
        raise Damaged(
            f"{len(damaged)} of {len(found)} programs in the cache were damaged and have been removed.",
            hint="They are fetched again when they are needed. Check the disk for errors.",
            detail={"damaged": damaged},
        )
    if session.as_json:
        print_json({"verified": len(found), "damaged": []})
    else:
        echo(f"{len(found)} programs, none damaged")


@cache.command("prune")
@click.option(
    "--older-than",
    type=click.FloatRange(0),
    default=30.0,
    show_default=True,
    metavar="DAYS",
    help="Remove programs that were not used in the last DAYS days.",
)
@common
def prune(session: Session, older_than: float) -> None:
    """Remove programs that were not used recently, and the partial files of interrupted fetches."""
    store = session.cache()
    limit = time.time() - older_than * 86400
    removed, freed = [], 0
    for path in [*(path for path, _ in store.entries()), *(store.root / "files").glob(f"*/{disk.PARTIAL}*")]:
        with suppress(OSError):
            status = path.stat()
            if _used_at(status) < limit:
                path.unlink()
                removed.append(path.name)
                freed += status.st_size
    if session.as_json:
        print_json({"removed": removed, "freed": freed})
    else:
        echo(f"removed {len(removed)} files, {format_size(freed)}")


@cache.command("clear")
@common
def clear(session: Session) -> None:
    """Remove the whole cache."""
    root: Path = session.cache().root
    with disk.faults(root, "remove"):
        if root.exists():
            shutil.rmtree(root)
    print_json({"cleared": str(root)}) if session.as_json else note(f"mxr: removed {root}")
