"""The folder of the cache: what only this user, root and the users in `cache_owners` can write, and nothing else.

Every access walks down from the cache folder with O_NOFOLLOW and checks the owner and the mode of each folder on the
way, so that no symbolic link is followed and nothing that another user put there is read or written.

In a folder that others can write, such as an emptyDir of Kubernetes, this user has a folder of its own, `mxr-<uid>`.
Others can rename it and put another in its place. So it must be this user's and closed to others at every access, and
files are read and written through its descriptor, which no rename changes.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mxr.configuration.config_file import NOWHERE
from mxr.display.text import shell_quoted
from mxr.errors import DiskFullError, MxrError, NotAllowedError, UsageError
from mxr.util import disk

OTHERS = stat.S_IWGRP | stat.S_IWOTH
"""The mode bits that let others write."""

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""O_NONBLOCK: opening a named pipe does not wait for a writer."""

ANCHOR = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
"""How a folder is opened that need not be readable."""

TEMPORARY = (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"))
"""Folders in which most users have a cache at once, for hints."""

MENDABLE = "Run `"
"""How a hint begins that says how to mend the folder itself."""

MAX_BYTES = 64 << 20
"""Bytes of the largest document that is read."""


class CacheFolder:
    """The folder `name` in `base`, and access to what is below it by names such as `answers/ab/x.json`.

    `owners`: the users, besides this one and root, whose folders are used. Folders of others are only read. Where
    others can write `base`, the folder is in one of this user's own in it.
    """

    optional = False
    """Whether a folder that cannot be trusted counts as empty, instead of an error, where it is read."""

    def __init__(self, base: Path, name: str, owners: tuple[int, ...] = ()) -> None:
        base = base.absolute()
        self._user = os.geteuid()
        self._open = base if _others_write(base) else None
        self.base = base if self._open is None else base / f"mxr-{self._user}"
        self.path = self.base / name
        self._trusted = {self._user, 0, *owners}
        self._checked = False
        self._anchors: dict[tuple[int, int], Path] = {}

    @property
    def writable(self) -> bool:
        """Whether the folder is this user's own, or can be created. Raises `NotAllowedError` like `read`."""
        with self._trusted_root() as root:
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

        The path is for this process. Raises `NotAllowedError` for a folder that belongs to someone else or that others
        can write, or a disk fault; the hint names a folder that would work.
        """
        try:
            return self._prepare(name)
        except MxrError as problem:
            raise self.explained(problem) from problem

    def explained(self, problem: MxrError) -> MxrError:
        """Return the error of a cache that cannot be written with a folder that would work, unless it can be mended."""
        if problem.hint.startswith(MENDABLE):
            return problem
        return type(problem)(
            problem.message, hint=_another_folder(self.path if isinstance(problem, DiskFullError) else None)
        )

    def _prepare(self, name: str) -> Path:
        if self.base == NOWHERE:
            raise NotAllowedError("This user has no home folder, in which a cache could be.")
        if not self.writable:
            raise NotAllowedError(f"{self.path} belongs to user {_owner(self.path)}, so this user only reads it.")
        with disk.faults(self.path):
            _make_folders(self.base if self._open is None else self._open)
            with suppress(FileExistsError):
                self.base.mkdir(mode=0o755 if self._open is None else 0o700)
            with suppress(FileExistsError):
                self.path.mkdir(mode=0o755)
        *folders, _ = name.split("/")
        with self._trusted_root() as root, disk.faults(self.path / name):
            if root is None:
                raise UsageError(f"The cache {self.path} cannot be read.")
            opened = [os.dup(root)]
            try:
                for at, part in enumerate(folders):
                    with suppress(FileExistsError):
                        os.mkdir(part, mode=0o755, dir_fd=opened[-1])
                    opened.append(self._down(opened[-1], part, self.path.joinpath(*folders[: at + 1])))
                # A folder that is there tells nothing about a mount that is read-only.
                if not os.access(".", os.W_OK | os.X_OK, dir_fd=opened[-1]):
                    raise OSError(errno.EROFS, "this user cannot write there")
            finally:
                _close(opened)
            return self._anchored(root) / name

    def access_path(self, name: str) -> Path:
        """Return the path of a file for this process: that of the folder that was checked, whatever its name is now."""
        if self._open is None:
            return self.path / name
        with self._root() as root:
            return (self.path if root is None else self._anchored(root)) / name

    def _anchored(self, root: int) -> Path:
        """Return a path of the open folder, by its descriptor where others can rename what is above it."""
        if self._open is None:
            return self.path
        status = os.fstat(root)
        place = (status.st_dev, status.st_ino)
        if place not in self._anchors:
            from weakref import finalize

            descriptor = os.dup(root)
            finalize(self, os.close, descriptor)
            by_descriptor = disk.DESCRIPTORS / str(descriptor)
            self._anchors[place] = by_descriptor if by_descriptor.exists() else self.path
        return self._anchors[place]

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
        """Open the folder for the block; None if there is none, or if it is `optional` and cannot be trusted."""
        with self._trusted_root(optional=self.optional) as root:
            yield root

    @contextmanager
    def _trusted_root(self, *, optional: bool = False) -> Iterator[int | None]:
        """Open the folder for the block; None if there is none. Raises `NotAllowedError` if it cannot be trusted."""
        try:
            descriptor = self._open_root()
        except NotAllowedError:
            if not optional:
                raise
            descriptor = None
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
        steps = [(self.base, FOLDER & ~os.O_NOFOLLOW), (self.path, FOLDER)]
        if self._open is not None:
            steps = [(self._open, ANCHOR), (self.base, FOLDER), (self.path, FOLDER)]
        try:
            for path, how in steps:
                above = opened[-1] if opened else None
                opened.append(os.open(path if above is None else path.name, how, dir_fd=above))
                status = os.fstat(opened[-1])
                if path != self._open and not self._is_trusted(status, stat.S_ISDIR, path):
                    raise self._refusal(path, status)
            return opened.pop()
        except OSError:
            for path, how in steps:
                with suppress(OSError):
                    status = path.lstat()
                    if how == FOLDER and stat.S_ISLNK(status.st_mode):
                        raise NotAllowedError(
                            f"{path} is a symbolic link, which is not followed.", hint=_another_folder()
                        ) from None
                    if self._open is not None and path == self.base and status.st_uid != self._user:
                        raise self._refusal(path, status) from None
            return None
        finally:
            _close(opened)

    def _is_trusted(self, status: os.stat_result, is_kind: object, path: Path | None = None) -> bool:
        assert callable(is_kind)
        if self._open is not None and path == self.base:
            return status.st_uid == self._user and not status.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
        return bool(is_kind(status.st_mode)) and status.st_uid in self._trusted and not status.st_mode & OTHERS

    def _refusal(self, path: Path, status: os.stat_result) -> NotAllowedError:
        own = self._open is not None and path == self.base
        if status.st_uid not in self._trusted or (own and status.st_uid != self._user):
            trust = f" To read from this one, add {status.st_uid} to the setting cache_owners."
            return NotAllowedError(
                f"{path} belongs to user {status.st_uid}, who can change what it holds. Nothing was read from it.",
                hint=_another_folder() + ("" if own else trust),
            )
        message = (
            f"Other users can write to {path} (mode {stat.S_IMODE(status.st_mode):04o}). Nothing was read from it."
        )
        fixed = (
            f"If the mode does not change, the file system of {disk.mount_point(path)} has fixed modes and cannot "
            f"hold a cache. {_another_folder()}"
        )
        if own:
            return NotAllowedError(
                f"{path} is open to other users (mode {stat.S_IMODE(status.st_mode):04o}). Nothing was read from it.",
                hint=f"{MENDABLE}rm -r {shell_quoted(path)}`. {fixed}",
            )
        if status.st_mode & stat.S_ISVTX or status.st_uid != self._user:
            return NotAllowedError(message, hint=_another_folder())
        return NotAllowedError(
            message,
            hint=f"{MENDABLE}chmod go-w {shell_quoted(path)}`. What others put there is not used afterwards. {fixed}",
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
                        hint=_another_folder(),
                    )
                continue
            open_to_all = status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX
            if path not in (self.base, self._open) and open_to_all and status.st_uid != 0:
                mend = (
                    f"run `chmod o-w {shell_quoted(path)}`"
                    if status.st_uid == self._user
                    else "ask its owner to close it"
                )
                raise NotAllowedError(
                    f"Every user can write to {path}, and so replace the cache {self.base}.",
                    hint=f"{_another_folder()} Or {mend}.",
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


def _others_write(folder: Path) -> bool:
    try:
        return bool(folder.stat().st_mode & OTHERS)
    except OSError:
        return False


def _another_folder(full: Path | None = None) -> str:
    """Return the hint for a cache that cannot be used: a folder that works; not on the disk of `full`."""
    found = "FOLDER, which you can write"
    with suppress(OSError):
        at = next((each for each in (full, *full.parents) if each.exists()), None) if full else None
        for folder in TEMPORARY:
            if os.access(folder, os.W_OK | os.X_OK) and not (at and at.stat().st_dev == folder.stat().st_dev):
                found = str(folder)
                break
    return f"Set MXR_CACHE_DIR={found}, or give --output FOLDER/ to fetch without a cache."


def _make_folders(path: Path) -> None:
    """Create a folder and those above it, whatever the umask is, so that others cannot write to them."""
    for folder in (*reversed(path.parents), path):
        with suppress(FileExistsError):
            folder.mkdir(mode=0o755)
