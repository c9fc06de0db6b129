"""Programs of one command that the cache cannot take, beside the place where the command writes them."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from mxr.errors import MxrError
from mxr.util import disk


class Staging:
    """A folder for the time of one command, in the nearest folder that exists: `output` itself, or one above it.

    It is created for the first program, closed to others, and used through its descriptor, which no rename changes.
    """

    def __init__(self, output: Path) -> None:
        self._output = output
        self._files: dict[str, Path] = {}
        self._folder: Path | None = None
        self._descriptor: int | None = None
        self._why: MxrError | None = None

    def find(self, sha: str) -> Path | None:
        """Return the path of a program that was staged, or None."""
        path = self._files.get(sha)
        return path if path is not None and path.exists() else None

    def prepare(self, sha: str, why: MxrError) -> Path:
        """Return the path for a program. `why`: the error of the cache. Raises a disk fault."""
        if self._descriptor is None:
            above = self._output.absolute()
            while not above.is_dir():
                above = above.parent
            with disk.faults(self._output):
                self._folder = disk.partial_name(above)
                self._folder.mkdir(mode=0o700)
                self._descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            self._why = why
        by_descriptor = disk.DESCRIPTORS / str(self._descriptor)
        assert self._folder is not None
        self._files[sha] = (by_descriptor if by_descriptor.exists() else self._folder) / sha
        return self._files[sha]

    def can_move(self, sha: str) -> bool:
        """Whether a staged program has only one name, so that a hard link moves it. It can be written from then on."""
        path = self.find(sha)
        with suppress(OSError):
            if path is not None and path.stat().st_nlink == 1:
                path.chmod(0o644)
                return True
        return False

    def warnings(self) -> tuple[str, ...]:
        """Return why the cache was not used, once."""
        why, self._why = self._why, None
        return () if why is None else (f"not cached: {why.message} {why.hint}".rstrip(),)

    def remove(self) -> None:
        """Remove the folder."""
        if self._descriptor is not None and self._folder is not None:
            import shutil

            os.close(self._descriptor)
            shutil.rmtree(self._folder, ignore_errors=True)
            self._files, self._descriptor = {}, None
