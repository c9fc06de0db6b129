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
from contextlib import suppress
from pathlib import Path

from mxr import disk, transfer
from mxr.client import Client
from mxr.errors import MxrError, NoSuchBlob
from mxr.hashing import StatMemo, sha256_memoised
from mxr.manifest import File
from mxr.work import Lease

KEPT_MODELS = 16


class Spool:
    """The folder of one worker. Several processes may share it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._memo = StatMemo(folder / "memo")

    def slot(self, name: str) -> Path:
        """The folder of a slot."""
        return self.folder / "slots" / name.replace("/", "-")

    def model(self, client: Client, lease: Lease) -> Path:
        """The folder with the files of the lease's model. Raises `Damaged`, `Unreachable`, or a disk fault."""
        folder = self.folder / "models" / lease.key.model.removeprefix("xxh3:")
        with disk.faults(folder):
            folder.mkdir(parents=True, exist_ok=True)
            os.utime(folder)
        for file in lease.model.files:
            self._bring(client, file, folder / file.name)
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
                client.blob(sha) as chunks,
                os.fdopen(os.dup(descriptor), "wb") as out,
            ):
                for chunk in chunks:
                    out.write(chunk)
            if not self._has(final, sha):
                raise NoSuchBlob("The calibration data that came are not those of the key.", hint="Upload them again.")
        return final

    def _bring(self, client: Client, file: File, final: Path) -> None:
        if not self._has(final, file.sha256):
            transfer.download(client, file, final)

    def _has(self, path: Path, sha: str) -> bool:
        try:
            return sha256_memoised(path, self._memo) == sha
        except (MxrError, OSError):
            return False

    def _forget_old(self, used: Path) -> None:
        """Drops the models that were not used for longest. One in use is among the latest."""
        with suppress(OSError):
            found = sorted(used.parent.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
            for old in found[KEPT_MODELS:]:
                shutil.rmtree(old, ignore_errors=True)
