"""The worker's folder: models and calibration data, verified on download and kept for later jobs.

<spool>/models/<64 hex digits of the model's identity>/<file names of its manifest>
<spool>/calibration/<sha256>.npz
<spool>/memo/                    digests of these files, by their stat
<spool>/problems/                tuning caches, one for each device and toolchain build
<spool>/slots/<slot>/            the lock of the slot, its current compile, and a result that is not reported yet
<spool>/turns/                   the locks by which a compile that crashed before runs alone
<spool>/credentials/<slot>       the secret by which the registry knows the slot, readable by its user only
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from mxr.artifact.key import MODEL_PREFIX
from mxr.artifact.manifest import File
from mxr.client import transfer
from mxr.client.registry import Client
from mxr.errors import InterruptionError, MxrError, NoSuchBlobError, UsageError
from mxr.protocol.jobs import Lease, check_secret
from mxr.request.calibration import MAX_FILE_BYTES
from mxr.util import disk
from mxr.util.hashing import StatMemo, sha256_memoised

from .reading import RefusedInput

KEPT = 16
"""Models that are kept, those used last, and calibration data, those that came last, besides those in use."""

TURN_INTERVAL = 0.1
"""Seconds between two looks at whether it is the turn of a compile."""

READ_ONLY = 0o400
"""What is downloaded: where no wall holds, a program that changes it has to mean to."""


class Spool:
    """The folder of one worker. Several processes may share it. Models of others are in it: only its user can open it.

    Raises `NotAllowedError` for a folder of another user, and for one that others can write.
    """

    def __init__(self, folder: Path) -> None:
        disk.private_folder(folder)
        self.folder = folder
        self._memo = StatMemo(folder / "memo")
        self._users: Counter[str] = Counter()
        self._guard = threading.Lock()

    def slot(self, name: str) -> Path:
        """The folder of a slot."""
        return self.folder / "slots" / _file_name(name)

    def credential(self, slot: str) -> str:
        """The secret of a slot, which stays the same over restarts. Raises a disk error."""
        path = self.folder / "credentials" / _file_name(slot)
        with suppress(OSError, UsageError):
            known = path.read_text("ascii", "replace")
            check_secret(known, "credential")
            return known
        made = new_secret()
        disk.write_whole(path, made.encode(), mode=0o600)
        return made

    @contextmanager
    def in_use(self, lease: Lease) -> Iterator[None]:
        """Keep the lease's model and calibration data while the block runs, whatever other slots download."""
        names = (_folder_name(lease), f"{lease.key.calibration}.npz")
        with self._guard:
            self._users.update(names)
        try:
            yield
        finally:
            with self._guard:
                self._users.subtract(names)

    def fetch(self, client: Client, lease: Lease) -> tuple[Path, Path | None]:
        """The folder with the files of the lease's model, and the calibration data of its key, if any.

        Raises `DamagedError`, `UnreachableError`, a disk error, and what the `progress.Display` of the caller raises.
        """
        return self.model(client, lease), self.calibration(client, lease)

    def model(self, client: Client, lease: Lease) -> Path:
        """The folder with the files of the lease's model.

        Raises `DamagedError`, `UnreachableError`, or a disk error.
        """
        folder = self.folder / "models" / _folder_name(lease)
        with disk.faults(folder):
            folder.mkdir(parents=True, exist_ok=True)
            os.utime(folder)
        for file in lease.model.files:
            self._download(client, file, folder / file.name)
        self._evict(folder.parent)
        return folder

    def calibration(self, client: Client, lease: Lease) -> Path | None:
        """The calibration data of the key. Raises the errors of `model`, and `RefusedInput` for too many bytes."""
        sha = lease.key.calibration
        if sha is None:
            return None
        final = self.folder / "calibration" / f"{sha}.npz"
        if not self._has(final, sha):
            with (
                disk.atomic_file(final) as descriptor,
                client.blob(sha, direct=False) as chunks,
                os.fdopen(os.dup(descriptor), "wb") as out,
            ):
                for chunk in chunks:
                    # Only the registry knows the size: the disk must not depend on it.
                    if out.tell() + len(chunk) > MAX_FILE_BYTES:
                        raise RefusedInput(f"The calibration data has more than {MAX_FILE_BYTES} bytes.")
                    out.write(chunk)
            final.chmod(READ_ONLY)
            if not self._has(final, sha):
                raise NoSuchBlobError(
                    "The calibration data does not match the digest in the key.", hint="Upload it again."
                )
        self._evict(final.parent)
        return final

    @contextmanager
    def turn(self, stop: Callable[[], bool], *, alone: bool) -> Iterator[None]:
        """Run the block beside those of other slots, or `alone`, after those that run now and before all that come.

        Raises `InterruptionError` where it must stop before its turn.
        """
        folder = self.folder / "turns"
        with disk.faults(folder):
            folder.mkdir(exist_ok=True)
        with ExitStack() as kept:
            with _file_lock(folder / "next", fcntl.LOCK_EX, stop):
                kept.enter_context(_file_lock(folder / "running", fcntl.LOCK_EX if alone else fcntl.LOCK_SH, stop))
            yield

    def _download(self, client: Client, file: File, final: Path) -> None:
        if not self._has(final, file.sha256):
            transfer.download(client, file, final)
            final.chmod(READ_ONLY)

    def _has(self, path: Path, sha: str) -> bool:
        try:
            return sha256_memoised(path, self._memo) == sha
        except (MxrError, OSError):
            return False

    def _evict(self, folder: Path) -> None:
        """Remove the oldest models or calibration data in a folder, except those in use."""
        with suppress(OSError), self._guard:
            found = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
            for old in found[KEPT:]:
                if not self._users[old.name]:
                    shutil.rmtree(old, ignore_errors=True) if old.is_dir() else old.unlink(missing_ok=True)


def new_secret() -> str:
    """Return a random secret of 256 bits, as `check_secret` wants it."""
    return secrets.token_urlsafe(32)


def remove_tree(folder: Path) -> None:
    """Remove the folder of a compile, also what a hostile one closed to its own user. Raises no error."""
    for root, names, _ in os.walk(folder):
        for name in names:
            path = Path(root, name)
            with suppress(OSError):
                if not path.is_symlink():
                    path.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _file_lock(path: Path, kind: int, stop: Callable[[], bool]) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if stop():
                    raise InterruptionError("The worker stopped before the turn of this compile.") from None
                time.sleep(TURN_INTERVAL)
        yield
    finally:
        os.close(descriptor)


def _file_name(slot: str) -> str:
    return slot.replace("/", "-")


def _folder_name(lease: Lease) -> str:
    """The name of the folder of a lease's model."""
    return lease.key.model.removeprefix(MODEL_PREFIX)
