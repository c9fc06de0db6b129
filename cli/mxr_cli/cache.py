"""`mxr cache`: where the local cache is, what is in it, and is it whole."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

import click

from mxr.errors import Damaged
from mxr.util import disk

from .options import Session, common
from .output import day, document, note, say, size, table


@click.group(short_help="Look after the local cache.")
def cache() -> None:
    """Look after the local cache. It is safe to remove at any time: what is needed is fetched again."""


@cache.command("dir")
@common
def dir_(session: Session) -> None:
    """Print where the cache is."""
    root = session.cache().root
    document({"dir": str(root)}) if session.as_json else say(str(root))


@cache.command("ls")
@common
def ls(session: Session) -> None:
    """List the programs in the cache."""
    held = [(path, path.stat(), artifact) for path, artifact in session.cache().entries()]
    if session.as_json:
        rows = [
            {
                "sha256": path.name,
                "size": status.st_size,
                "used_at": _used(status),
                "id": artifact.id if artifact else None,
                "key": artifact.key.to_json() if artifact else None,
            }
            for path, status, artifact in held
        ]
        document({"files": rows})
        return
    table(
        [
            (
                path.name[:12],
                artifact.id[:12] if artifact else "?",
                (artifact.key.arch or artifact.key.kind) if artifact else "?",
                size(status.st_size),
                day(_used(status)),
            )
            for path, status, artifact in held
        ],
        ("SHA256", "ARTIFACT", "TARGET", "SIZE", "USED"),
    )


def _used(status: os.stat_result) -> float:
    return max(status.st_atime, status.st_mtime)


@cache.command("verify")
@common
def verify(session: Session) -> None:
    """Read every program again and check its sha256; damaged ones are removed, to be fetched again. Exit 65 if any."""
    found = list(session.cache().verify())
    damaged = [path.name for path, good in found if not good]
    if damaged:
        raise Damaged(
            f"{len(damaged)} of {len(found)} programs in the cache were damaged, and are removed.",
            hint="They are fetched again when they are asked for; look at the disk.",
            detail={"damaged": damaged},
        )
    document({"verified": len(found), "damaged": []}) if session.as_json else say(f"{len(found)} programs, all whole")


@cache.command("prune")
@click.option(
    "--older-than",
    type=click.FloatRange(0),
    default=30.0,
    show_default=True,
    metavar="DAYS",
    help="Not used for so long.",
)
@common
def prune(session: Session, older_than: float) -> None:
    """Remove programs that were not used for some days, and what interrupted fetches left behind."""
    held = session.cache()
    limit = time.time() - older_than * 86400
    removed, freed = [], 0
    for path in [*(path for path, _ in held.entries()), *(held.root / "files").glob(f"*/{disk.PARTIAL}*")]:
        with suppress(OSError):
            status = path.stat()
            if _used(status) < limit:
                path.unlink()
                removed.append(path.name)
                freed += status.st_size
    document({"removed": removed, "freed": freed}) if session.as_json else say(
        f"removed {len(removed)} files, {size(freed)}"
    )


@cache.command("clear")
@common
def clear(session: Session) -> None:
    """Remove the whole cache."""
    root: Path = session.cache().root
    with disk.faults(root, "remove"):
        if root.exists():
            shutil.rmtree(root)
    document({"cleared": str(root)}) if session.as_json else note(f"mxr: removed {root}")
