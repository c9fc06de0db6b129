"""The worker's folder: models and calibration data, each checked as it comes, kept for the next job about them.

<spool>/models/<32 hex of the model>/<names of its manifest>
<spool>/calibration/<sha256>.npz
<spool>/memo/                    digests of these files by their stat
<spool>/problems/                tuning records, one for each device and toolchain build
<spool>/slots/<slot>/            the lock of the slot, and the folder of the compile that runs there
"""

from __future__ import annotations

import os
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mxr.artifact.manifest import File
from mxr.client import transfer
from mxr.client.registry import Client
from mxr.errors import MxrError, NoSuchBlob
from mxr.protocol.jobs import Lease
from mxr.util import disk
from mxr.util.hashing import StatMemo, sha256_memoised

KEPT_MODELS = 16
"""Beside those that a slot of this process has in use."""


class Spool:
    """The folder of one worker. Several processes may share it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._memo = StatMemo(folder / "memo")
        self._used: Counter[str] = Counter()
        self._guard = threading.Lock()

    def slot(self, name: str) -> Path:
        """The folder of a slot."""
        return self.folder / "slots" / name.replace("/", "-")

    @contextmanager
    def keeping(self, lease: Lease) -> Iterator[None]:
        """While the block runs the lease's model is not dropped, however many others come in other slots."""
        name = _name(lease)
        with self._guard:
            self._used[name] += 1
        try:
            yield
        finally:
            with self._guard:
                self._used[name] -= 1

    def bring(self, client: Client, lease: Lease, progress: transfer.Progress) -> tuple[Path, Path | None]:
        """The folder with the files of the lease's model, and the calibration data of its key.

        Raises `Damaged`, `Unreachable`, a disk fault, and what `progress` raises.
        """
        return self.model(client, lease, progress), self.calibration(client, lease)

    def model(self, client: Client, lease: Lease, progress: transfer.Progress = transfer.ignore) -> Path:
        """The folder with the files of the lease's model. Raises `Damaged`, `Unreachable`, or a disk fault."""
        folder = self.folder / "models" / _name(lease)
        with disk.faults(folder):
            folder.mkdir(parents=True, exist_ok=True)
            os.utime(folder)
        for file in lease.model.files:
            self._bring(client, file, folder / file.name, progress)
        self._forget_old(folder)
        return folder

    def calibration(self, client: Client, lease: Lease) -> Path | None:
        """The calibration data of the key. Raises as `model` does."""
        sha = lease.key.calibration
        if sha is None:
            return None
        final = self.folder / "calibration" / f"{sha}.npz"
        if not self._has(final, sha):
            with (
                disk.landing(final) as descriptor,
                client.blob(sha, direct=False) as chunks,
                os.fdopen(os.dup(descriptor), "wb") as out,
            ):
                for chunk in chunks:
                    out.write(chunk)
            if not self._has(final, sha):
                raise NoSuchBlob("The calibration data that came are not those of the key.", hint="Upload them again.")
        return final

    def _bring(self, client: Client, file: File, final: Path, progress: transfer.Progress) -> None:
        if not self._has(final, file.sha256):
            transfer.download(client, file, final, progress)

    def _has(self, path: Path, sha: str) -> bool:
        try:
            return sha256_memoised(path, self._memo) == sha
        except (MxrError, OSError):
            return False

    def _forget_old(self, used: Path) -> None:
        """Drops the models that were not used for longest, and are not in use."""
        with suppress(OSError), self._guard:
            found = sorted(used.parent.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
            for old in found[KEPT_MODELS:]:
                if not self._used[old.name]:
                    shutil.rmtree(old, ignore_errors=True)


def _name(lease: Lease) -> str:
    """The name of the folder of a lease's model."""
    return lease.key.model.removeprefix("xxh3:")
