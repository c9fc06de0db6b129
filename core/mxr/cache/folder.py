"""The folder of the cache: what only this user, root and the users in `cache_owners` can write, and nothing else.

Every access walks down from the cache folder with O_NOFOLLOW and checks the owner and the mode of each folder on the
way, so that no symbolic link is followed and nothing that another user put there is read or written.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mxr.display.text import shell_quoted
from mxr.errors import MxrError, NotAllowedError, UsageError
from mxr.util import disk

OTHERS = stat.S_IWGRP | stat.S_IWOTH
"""The mode bits that let others write."""

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""O_NONBLOCK: opening a named pipe does not wait for a writer."""

MAX_BYTES = 64 << 20
"""Bytes of the largest document that is read."""


class CacheFolder:
    """The folder `name` in `base`, and access to what is below it by names such as `answers/ab/x.json`.

    `owners`: the users, besides this one and root, whose folders are used. Folders of others are only read.
    """

    def __init__(self, base: Path, name: str, owners: tuple[int, ...] = ()) -> None:
        self.base = base.absolute()
        self.path = self.base / name
        self._user = os.geteuid()
        self._trusted = {self._user, 0, *owners}
        self._checked = False

    @property
    def writable(self) -> bool:
        """Whether the folder is this user's own, or can be created. Raises `NotAllowedError` like `read`."""
        with self._root() as root:
            return os.fstat(root).st_uid == self._user if root is not None else self._base_is_own()

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, None where there is no file that can be trusted.

        Raises `NotAllowedError` if others can write to the cache folder itself.
        """
        with self._file(name) as descriptor:
            if descriptor is None or os.fstat(descriptor).st_size > MAX_BYTES:
                return None
            with os.fdopen(descriptor, "rb", closefd=False) as file, suppress(OSError):
                return file.read(MAX_BYTES)
        return None

    def has_trusted_file(self, name: str) -> bool:
        """Whether there is a regular file of this name that only trusted users can write."""
        with self._file(name) as descriptor:
            return descriptor is not None

    def names(self, name: str) -> list[str]:
        """Return the names in a folder, sorted; empty where there is no folder that can be trusted."""
        with self._folder(name) as descriptor:
            if descriptor is None:
                return []
            with suppress(OSError), os.scandir(descriptor) as entries:
                return sorted(entry.name for entry in entries)
        return []

    def prepare_path(self, name: str) -> Path:
        """Create the folders above a file, check them, and return the path to write to.

        Raises `NotAllowedError` for a folder that belongs to someone else or that others can write, or a disk fault.
        """
        if not self.writable:
            raise NotAllowedError(
                f"{self.path} belongs to user {_owner(self.path)}, so this user only reads it.",
                hint="Give a cache folder of your own with --cache-dir or MXR_CACHE_DIR.",
            )
        with disk.faults(self.path):
            _make_folders(self.base)
            with suppress(FileExistsError):
                self.path.mkdir(mode=0o755)
        *folders, _ = name.split("/")
        with self._root() as root, disk.faults(self.path / name):
            if root is None:
                raise UsageError(
                    f"The cache {self.path} cannot be read.", hint="It must be a folder that you can read."
                )
            opened = [os.dup(root)]
            try:
                for at, part in enumerate(folders):
                    with suppress(FileExistsError):
                        os.mkdir(part, mode=0o755, dir_fd=opened[-1])
                    opened.append(self._down(opened[-1], part, self.path.joinpath(*folders[: at + 1])))
            finally:
                _close(opened)
        return self.path / name

    def write(self, name: str, data: bytes) -> None:
        """Write a small file atomically. Raises as `prepare_path` does."""
        disk.write_whole(self.prepare_path(name), data)

    def remove(self, name: str) -> None:
        """Remove a file or a symbolic link of this name. Does nothing where that is not possible."""
        above, _, last = name.rpartition("/")
        with self._folder(above) as descriptor, suppress(OSError):
            if descriptor is not None:
                os.unlink(last, dir_fd=descriptor)

    @contextmanager
    def open_to_write(self, name: str, flags: int) -> Iterator[int]:
        """Open this user's own file for the block; `flags` are added to O_CREAT, O_NOFOLLOW and O_CLOEXEC.

        Nothing is truncated. Raises `OSError` or `MxrError` if there is something else.
        """
        path = self.prepare_path(name)
        with self._folder(name.rpartition("/")[0]) as folder:
            if folder is None:
                raise OSError(errno.ENOENT, "no such folder", str(path))
            how = flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(path.name, how, 0o644, dir_fd=folder)
        try:
            status = os.fstat(descriptor)
            # A hard link would be a file of this user elsewhere.
            if not stat.S_ISREG(status.st_mode) or status.st_uid != self._user or status.st_nlink != 1:
                raise OSError(errno.EPERM, "not a plain file of this user", str(path))
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def _file(self, name: str) -> Iterator[int | None]:
        """Open a trusted regular file for the block; None if there is none."""
        above, _, last = name.rpartition("/")
        descriptor = None
        with self._folder(above) as folder:
            if folder is not None:
                with suppress(OSError):
                    descriptor = os.open(last, FILE, dir_fd=folder)
        try:
            trusted = descriptor is not None and self._is_trusted(os.fstat(descriptor), stat.S_ISREG)
            yield descriptor if trusted else None
        finally:
            if descriptor is not None:
                os.close(descriptor)

    @contextmanager
    def _folder(self, name: str) -> Iterator[int | None]:
        """Open a trusted folder for the block; None if there is none."""
        with self._root() as root:
            opened: list[int] = []
            try:
                yield root if root is None or not name else self._walk(root, name, opened)
            finally:
                _close(opened)

    def _walk(self, root: int, name: str, opened: list[int]) -> int | None:
        """Open the folders of a name one after the other, and return the last one; None if one is missing."""
        with suppress(OSError, MxrError):
            for part in name.split("/"):
                opened.append(self._down(opened[-1] if opened else root, part, self.path / part))
            return opened[-1]
        return None

    def _down(self, descriptor: int, part: str, path: Path) -> int:
        """Open a folder in an open folder. Raises `NotAllowedError` if it cannot be trusted."""
        try:
            below = os.open(part, FOLDER, dir_fd=descriptor)
        except OSError as problem:
            if problem.errno in (errno.ELOOP, errno.ENOTDIR):
                raise NotAllowedError(
                    f"{path} is a symbolic link or a file, and must be a folder of the cache.", hint="Remove it."
                ) from None
            raise
        status = os.fstat(below)
        if not self._is_trusted(status, stat.S_ISDIR):
            os.close(below)
            raise self._refusal(path, status)
        return below

    @contextmanager
    def _root(self) -> Iterator[int | None]:
        """Open the folder for the block; None if there is none. Raises `NotAllowedError` if it cannot be trusted."""
        descriptor = self._open_root()
        try:
            yield descriptor
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def _open_root(self) -> int | None:
        if not self._checked:
            self._check_path()
            self._checked = True
        opened: list[int] = []
        try:
            for path, how in ((self.base, FOLDER & ~os.O_NOFOLLOW), (self.path, FOLDER)):
                above = opened[-1] if opened else None
                opened.append(os.open(path if above is None else path.name, how, dir_fd=above))
                status = os.fstat(opened[-1])
                if not self._is_trusted(status, stat.S_ISDIR):
                    raise self._refusal(path, status)
            return opened.pop()
        except OSError:
            if self.path.is_symlink():
                raise NotAllowedError(
                    f"{self.path} is a symbolic link, which is not followed.",
                    hint="Remove it, or give another folder with --cache-dir.",
                ) from None
            return None
        finally:
            _close(opened)

    def _is_trusted(self, status: os.stat_result, is_kind: object) -> bool:
        assert callable(is_kind)
        return bool(is_kind(status.st_mode)) and status.st_uid in self._trusted and not status.st_mode & OTHERS

    def _refusal(self, path: Path, status: os.stat_result) -> NotAllowedError:
        if status.st_uid not in self._trusted:
            return NotAllowedError(
                f"{path} belongs to user {status.st_uid}, who can change what it holds. Nothing was read from it.",
                hint="Give a cache folder of your own with --cache-dir or MXR_CACHE_DIR. To read from this one, add "
                f"{status.st_uid} to the setting cache_owners.",
            )
        message = (
            f"Other users can write to {path} (mode {stat.S_IMODE(status.st_mode):04o}). Nothing was read from it."
        )
        if status.st_mode & stat.S_ISVTX or status.st_uid != self._user:
            return NotAllowedError(
                message, hint=f"Give a folder that only you can write: --cache-dir {shell_quoted(path / 'mxr')}."
            )
        return NotAllowedError(
            message, hint=f"Run `chmod go-w {shell_quoted(path)}`. What others put there is not used afterwards."
        )

    def _check_path(self) -> None:
        """Check what is above the cache folder. Raises `NotAllowedError`.

        Symbolic links there must belong to this user or another trusted one. A folder that everyone can write, without
        the sticky bit, lets everyone replace the cache folder; root's are accepted, because volumes in containers are
        such folders.
        """
        for path in (*reversed(self.base.parents), self.base):
            try:
                status = path.lstat()
            except OSError:
                return
            if stat.S_ISLNK(status.st_mode):
                if status.st_uid not in self._trusted:
                    raise NotAllowedError(
                        f"{path} is a symbolic link of user {status.st_uid}, which is not followed.",
                        hint="Give another cache folder with --cache-dir or MXR_CACHE_DIR.",
                    )
                continue
            open_to_all = status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX
            if path != self.base and open_to_all and status.st_uid != 0:
                mend = (
                    f"run `chmod o-w {shell_quoted(path)}`"
                    if status.st_uid == self._user
                    else "ask its owner to close it"
                )
                raise NotAllowedError(
                    f"Every user can write to {path}, and so replace the cache {self.base}.",
                    hint=f"Give another cache folder with --cache-dir, or {mend}.",
                )

    def _base_is_own(self) -> bool:
        try:
            return self.base.stat().st_uid == self._user
        except OSError:
            return True


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _owner(path: Path) -> int:
    try:
        return path.stat().st_uid
    except OSError:
        return path.parent.stat().st_uid


def _make_folders(path: Path) -> None:
    """Create a folder and those above it, whatever the umask is, so that others cannot write to them."""
    for folder in (*reversed(path.parents), path):
        with suppress(FileExistsError):
            folder.mkdir(mode=0o755)
