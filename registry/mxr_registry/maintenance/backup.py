"""Back up an embedded registry while it serves, and restore it.

    DIR/                   the layout of a data directory: `mxr-registry fsck --data DIR` checks a backup
    ├── registry.db        the rows, as they were when the backup began
    └── store/             the bytes that these rows need, and the ids of revoked tokens

The rows come first: bytes never change, and a sweep deletes them a day after their rows at the earliest. All bytes are
verified while they are copied. What the backup has already is not copied again.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

from mxr.errors import DamagedError, NotFoundError, TemporaryError, UsageError
from mxr.util import disk
from mxr_registry.database import schema
from mxr_registry.database.claim import id_of
from mxr_registry.database.session import Database
from mxr_registry.storage.local import LocalStore
from mxr_registry.storage.store import Store

from .move import PAGE, all_blobs, copy_blob, read_only_source

ROWS, STORE, STAGING = "registry.db", "store", ".restoring"
SIDE_FILES = (f"{ROWS}-wal", f"{ROWS}-shm", f"{ROWS}-journal")
"""What SQLite keeps beside a database. Source: sqlite.org, "Temporary Files Used By SQLite"."""

NEW = f"{ROWS}.new"
OWN = {ROWS, NEW, STORE, *SIDE_FILES}
NAMED = 5

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class CopiedBlobs:
    """The blobs that the rows need: copied ones and their bytes, those that were there, those damaged at the source."""

    copied: int
    bytes: int
    present: int
    damaged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BackupResult:
    """A finished backup. `dropped`: blobs of an earlier backup that no row needs any more."""

    folder: str
    blobs: CopiedBlobs
    dropped: int

    def to_json(self) -> dict[str, object]:
        """`{"folder","copied","bytes","present","damaged","dropped"}`."""
        return {"folder": self.folder, **asdict(self.blobs), "dropped": self.dropped}


def back_up(rows: Path, store: Store, folder: Path, report: Report) -> BackupResult:
    """Write a backup of the registry with these rows and this store to `folder`, or bring the one there up to date.

    Raises `UsageError` for a folder that is none of a backup, `TemporaryError` where a registry serves it, and disk
    errors. Damaged blobs are left out, and listed in the result.
    """
    source, final = rows.resolve().parent, folder.resolve()
    if source == final or source in final.parents or final in source.parents:
        raise UsageError(
            f"{folder} and the data directory contain each other.",
            hint="Give a folder outside of it, best on another disk.",
        )
    # Before its mode is changed: it could be any folder of this user.
    if others := sorted({path.name for path in folder.iterdir()} - OWN) if folder.is_dir() else []:
        raise UsageError(f"{folder} has other files than a backup: {others[0]}.", hint="Give a new or an empty folder.")
    disk.private_folder(folder)
    with _alone(folder):
        return _back_up(rows, store, folder, report)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other backups out of a folder. Raises `TemporaryError` while another one or a registry uses it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise TemporaryError(f"Another backup to {folder} runs.", hint="Wait until it is done.") from None
        if (folder / ROWS).exists():
            with read_only_source(_embedded(folder / ROWS)):
                pass
        yield
    finally:
        os.close(descriptor)


def _back_up(rows: Path, store: Store, folder: Path, report: Report) -> BackupResult:
    _copy_rows(rows, folder / NEW)
    for name in SIDE_FILES:
        (folder / name).unlink(missing_ok=True)
    (folder / NEW).replace(folder / ROWS)
    disk.sync_folder(folder)
    target = LocalStore(folder / STORE)
    target.adopt(_id_of(folder / ROWS))
    target.prepare()
    wanted = _blobs(folder / ROWS)
    done = _copy_blobs(store, target, wanted, report)
    for name in sorted(store.revoked_tokens() - target.revoked_tokens()):
        target.record_revoked_token(name)
    for name, data in store.notes().items():
        target.keep_note(name, data)
    needed = {sha256 for sha256, _ in wanted}
    dropped = [item.sha256 for item in target.walk() if item.sha256 and item.sha256 not in needed]
    for sha256 in dropped:
        target.delete(sha256)
    target.drop_stale(0.0)
    return BackupResult(str(folder), done, len(dropped))


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """A finished restore. `aside`: where the data is that was there before, None if there was none."""

    data: str
    blobs: CopiedBlobs
    aside: str | None

    def to_json(self) -> dict[str, object]:
        """`{"data","copied","bytes","present","damaged","aside"}`."""
        return {"data": self.data, **asdict(self.blobs), "aside": self.aside}


@dataclass(frozen=True, slots=True)
class Restore:
    """Restores a backup. `store`: the store of the registry, if it is not the one in its data directory.

    `force`: also without blobs that are damaged in the backup.
    """

    backup: Path
    data: Path
    store: Store | None
    report: Report
    force: bool = False

    moved: ClassVar[tuple[str, ...]] = (ROWS, *SIDE_FILES, STORE)

    def run(self) -> RestoreResult:
        """Copy and verify all of the backup, then put it in the place of what is there, which is kept.

        Does the rest of an interrupted restore when it is called again. Raises `NotFoundError` for a folder without a
        backup, `TemporaryError` while a registry uses the data directory, and `DamagedError` for a damaged backup:
        then nothing has changed.
        """
        rows, staging = self.backup / ROWS, self.data / STAGING
        if not rows.is_file():
            raise NotFoundError(f"{self.backup} has no {ROWS}.", hint="Give the folder of `mxr-registry backup`.")
        with _embedded(rows).reading() as session:
            schema.current(session)
        disk.private_folder(staging)
        with contextlib.ExitStack() as stack:
            if (self.data / ROWS).exists():
                stack.enter_context(read_only_source(_embedded(self.data / ROWS)))
            target, id = self.store or LocalStore(staging / STORE), _id_of(rows)
            found = target.owner.read()
            if self.store is not None and found not in (None, id):
                raise UsageError(
                    f"The store {target.owner.where} belongs to registry {found}; the backup is that of {id}.",
                    hint="Correct store.url. Where it is meant, restore the rows alone, then run "
                    "`mxr-registry adopt-store`.",
                )
            target.adopt(id)
            target.prepare()
            done = _copy_blobs(LocalStore(self.backup / STORE), target, _blobs(rows), self.report)
            if done.damaged and not self.force:
                named = ", ".join(done.damaged[:NAMED])
                raise DamagedError(
                    f"{len(done.damaged)} blobs of the backup are missing or damaged: {named}. Nothing was changed.",
                    hint="Take another backup, or restore the rest with --force: fsck then lists what to push again.",
                    context={"damaged": list(done.damaged)},
                )
            for old in (self.backup / STORE, self.data / STORE):
                for name in LocalStore(old).revoked_tokens():
                    target.record_revoked_token(name)
                # Those of the old store are later, and come second.
                for name, data in LocalStore(old).notes().items():
                    target.keep_note(name, data)
            disk.copy_whole(rows, staging / ROWS)
            (staging / ROWS).chmod(0o600)
            return RestoreResult(str(self.data), done, self._switch(staging))

    def _switch(self, staging: Path) -> str | None:
        """Move the old data aside, and the new one to its place."""
        old = [name for name in self.moved if (self.data / name).exists() and (staging / name).exists()]
        old += [name for name in SIDE_FILES if (self.data / name).exists()]
        stem = f"before-restore-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
        names = itertools.chain([stem], (f"{stem}-{number}" for number in itertools.count(2)))
        aside = next(path for path in map(self.data.joinpath, names) if not path.exists())
        if old:
            aside.mkdir(mode=0o700)
        for name in dict.fromkeys(old):
            (self.data / name).rename(aside / name)
        for name in self.moved:
            if (staging / name).exists():
                (staging / name).rename(self.data / name)
        staging.rmdir()
        for path in (*map(self.data.joinpath, self.moved), *([aside] if old else [])):
            _give(path, self.data)
        disk.sync_folder(self.data)
        return str(aside) if old else None


def _embedded(rows: Path) -> Database:
    return Database(f"sqlite:///{rows}")


def _copy_rows(rows: Path, final: Path) -> None:
    """Copy a database that may be in use, as it is at this moment."""
    final.unlink(missing_ok=True)
    with (
        disk.faults(final),
        contextlib.closing(sqlite3.connect(f"file:{quote(str(rows))}?mode=ro", uri=True)) as source,
    ):
        os.close(os.open(final, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        source.execute("VACUUM INTO ?", (str(final),))
        with final.open("rb") as written:
            os.fsync(written.fileno())


def _id_of(rows: Path) -> str:
    database = _embedded(rows)
    try:
        return id_of(database)
    finally:
        database.close()


def _blobs(rows: Path) -> list[tuple[str, int]]:
    database = _embedded(rows)
    try:
        with database.reading() as session:
            return all_blobs(session)
    finally:
        database.close()


def _copy_blobs(source: Store, target: Store, blobs: list[tuple[str, int]], report: Report) -> CopiedBlobs:
    copied = size = present = 0
    damaged: list[str] = []
    for number, (sha256, expected) in enumerate(blobs, 1):
        if target.stat(sha256) == expected:
            present += 1
            continue
        try:
            copy_blob(source, target, sha256, expected)
            copied, size = copied + 1, size + expected
        except DamagedError:
            damaged.append(sha256)
        if number % PAGE == 0:
            report(f"{number} of {len(blobs)} blobs")
    return CopiedBlobs(copied, size, present, tuple(damaged))


def _give(made: Path, data: Path) -> None:
    """Give what root made to the owner of the data directory."""
    if os.geteuid():
        return
    owner = data.stat()
    below = (Path(parent, name) for parent, folders, files in os.walk(made) for name in (*folders, *files))
    for path in (made, *below):
        with contextlib.suppress(FileNotFoundError):
            os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
