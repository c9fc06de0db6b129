"""Some of the disk that is kept free: where it is full, what makes room can still be written.

Removals need room themselves: a row that is deleted is a write in the log of SQLite, and a revoked token a file.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from mxr.errors import DiskFullError

T = TypeVar("T")
log = logging.getLogger("mxr_registry")


class DiskReserve:
    """A file of `size` bytes at `path`, which nobody reads. Without a path or a size there is none."""

    def __init__(self, path: Path | None, size: int) -> None:
        self._path, self._size = (path, size) if size else (None, 0)

    def hold(self) -> None:
        """Make the file, where there is room for twice its size."""
        if self._path is None or self._path.exists():
            return
        with contextlib.suppress(OSError):
            free = os.statvfs(self._path.parent)
            if free.f_bavail * free.f_frsize < 2 * self._size:
                return
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, self._size)
            except OSError:
                self._path.unlink()
            finally:
                os.close(descriptor)

    def run(self, call: Callable[[], T]) -> T:
        """Return what `call` returns. Where the disk is full, give the reserve up, and call it once more."""
        try:
            return call()
        except DiskFullError:
            if self._path is None or not self._path.exists():
                raise
            self._path.unlink(missing_ok=True)
            log.warning("the disk is full: the reserve of %d bytes is given up for a removal", self._size)
            return call()
