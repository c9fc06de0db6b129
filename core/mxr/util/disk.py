"""Atomic file writes (temporary name in the same folder, sync, rename), and disk errors as errors of mxr."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mxr.display import progress
from mxr.errors import DiskFullError, MxrError, NotAllowedError, TemporaryError, UsageError, WouldOverwriteError

from .frozen import dataclass
from .hashing import identity

PARTIAL = ".mxr-partial-"
"""Prefix of the names of incomplete files."""

FICLONE = 0x40049409
"""The ioctl that creates a reflink. Source: Linux, include/uapi/linux/fs.h."""

COPIED = 64 << 20
"""Bytes that are copied at once: a step of the progress."""

DESCRIPTORS = Path("/proc/self/fd")
"""Where this process has a path for each descriptor, which leads to its folder whatever the name of that becomes."""

TEMPORARY = frozenset(
    {errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOLCK, errno.ENOMEM}
    | {errno.ESTALE, errno.ETIMEDOUT, errno.ETXTBSY, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ECONNRESET}
    | {errno.ENETDOWN, errno.ENETUNREACH, errno.ENOTCONN, errno.EREMOTEIO}
)
"""The errors that the same call may not have later: a busy file, a lost share, many open files. Source: errno(3)."""

NO_MODES = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
"""The errors of mounts without modes of their own, such as those of object stores. Source: fchmod(2)."""

NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EACCES)
"""The errors of file systems that have no hard links. Source: link(2)."""


@contextmanager
def faults(path: Path, doing: str = "write") -> Iterator[None]:
    """Convert an `OSError` about `path` into an `MxrError`. Raises as `fault` returns."""
    try:
        yield
    except OSError as problem:
        raise fault(problem, path, doing) from problem


def fault(problem: OSError, path: Path, doing: str = "write") -> MxrError:
    """Return the error for an `OSError`: `DiskFullError`, `NotAllowedError`, `UsageError` or `TemporaryError`.

    Only what may pass is temporary: whoever repeats a command on exit 75 would repeat all others for ever.
    """
    reason = problem.strerror or str(problem)
    path = path.resolve() if path.is_relative_to(DESCRIPTORS) else path
    if problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return DiskFullError(f"Cannot {doing} {path}: {reason}.")
    if problem.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return NotAllowedError(f"Cannot {doing} {path}: {reason}.", hint="Use another path, or grant the permission.")
    if problem.errno in (errno.ENOENT, errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ENAMETOOLONG):
        return UsageError(f"Cannot {doing} {path}: {reason}.", hint="Check the path.")
    if problem.errno == errno.EXDEV:
        return UsageError(
            f"Cannot {doing} {path}: {reason}.", hint="A hard link cannot cross file systems: omit --link."
        )
    if problem.errno in TEMPORARY:
        return TemporaryError(f"Cannot {doing} {path}: {reason}.", hint="Check the disk, then try again.")
    return NotAllowedError(
        f"Cannot {doing} {path}: the file system of {mount_point(path)} refuses it ({reason}).",
        hint="Use a path on another file system; mounts of object stores lack what a complete file needs.",
    )


def private_folder(path: Path) -> None:
    """Make a folder that only this user can open, or close one of this user to others.

    Raises `NotAllowedError` for one of another user, and for one into which others could have put something; and as
    `faults` does.
    """
    hint = "Choose another folder, or one below it, which is made for this user."
    with faults(path):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.stat()
        if found.st_uid != os.geteuid():
            raise NotAllowedError(f"{path} belongs to user {found.st_uid}, who could change what is in it.", hint=hint)
        if found.st_mode & stat.S_IWOTH:
            raise NotAllowedError(f"Other users can write to {path}.", hint=hint)
        if found.st_mode & 0o077:
            with suppress(PermissionError):
                path.chmod(0o700)


def mount_point(path: Path) -> Path:
    """Return the folder where the file system of a path is mounted."""
    at = Path(os.path.abspath(path))  # noqa: PTH100 - links above it belong to the answer of os.path.ismount
    return next((folder for folder in (at, *at.parents) if folder.is_mount()), Path("/"))


def partial_name(folder: Path, name: str = "") -> Path:
    """Return a temporary path in `folder` that no other process uses."""
    return folder / f"{PARTIAL}{name[:40]}-{os.getpid()}-{os.urandom(6).hex()}"


@dataclass(frozen=True, slots=True)
class FileState:
    """What was at a path when somebody checked that it may be replaced: device, inode, size and mtime, or None.

    The ctime does not count: a new hard link to the file changes it. Writing a program takes seconds to minutes. A file
    that appears or changes meanwhile is not replaced.
    """

    path: Path
    identity: tuple[int, int, int, int] | None

    @classmethod
    def of(cls, path: Path) -> FileState:
        """Return the state of a path now. Does not follow a symbolic link. Raises as `faults` does."""
        with faults(path, "read"):
            try:
                return cls(path, identity(path.lstat())[:4])
            except FileNotFoundError:
                return cls(path, None)

    def check(self) -> None:
        """Raise `WouldOverwriteError` if something else is at the path now."""
        if FileState.of(self.path) != self:
            did = "appeared" if self.identity is None else "changed"
            raise WouldOverwriteError(
                f"{self.path} {did} while its replacement was being written. It was left as it is.",
                hint="Another program writes there. Move the file away, or give another path, and try again.",
            )

    def replace_by(self, partial: Path) -> None:
        """Give the file at `partial` this name.

        Raises `WouldOverwriteError` if something else is there now, or OSError.
        """
        if self.identity is None:
            # A link, unlike a rename, never replaces anything.
            try:
                os.link(partial, self.path, follow_symlinks=False)
            except FileExistsError:
                self.check()
            except OSError as problem:
                if problem.errno not in NO_LINKS:
                    raise
            else:
                partial.unlink()
                return
        self.check()
        partial.replace(self.path)


@contextmanager
def atomic_file(final: Path, mode: int = 0o644, before: FileState | None = None) -> Iterator[int]:
    """Yield a file descriptor to write to.

    On success, the complete file appears as `final`; on any error, nothing does. With `before`, it replaces only what
    was there then. Raises as `faults` does, and as `FileState.check` does.
    """
    with faults(final):
        final.parent.mkdir(parents=True, exist_ok=True)
        partial = partial_name(final.parent, final.name)
        descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        try:
            yield descriptor
            finish_file(descriptor, partial, final, mode, before)
        finally:
            os.close(descriptor)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise


def finish_file(descriptor: int, partial: Path, final: Path, mode: int, before: FileState | None = None) -> None:
    """Give a file that is written its mode and its name; both survive a power failure. Raises as `faults` does."""
    with faults(final):
        give_mode(descriptor, mode)
        os.fsync(descriptor)
        _give_name(partial, final, before)
        sync_folder(final.parent)


def give_mode(descriptor: int, mode: int) -> None:
    """Set the mode of an open file; does nothing where the file system has no modes of its own. OSError passes."""
    try:
        os.fchmod(descriptor, mode)
    except OSError as problem:
        if problem.errno not in NO_MODES:
            raise


def _give_name(partial: Path, final: Path, before: FileState | None) -> None:
    if before is None:
        partial.replace(final)
    else:
        before.replace_by(partial)


def sync_folder(folder: Path) -> None:
    """Make a rename in `folder` survive a power failure. Does nothing where the file system does not support it."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_whole(final: Path, data: bytes, mode: int = 0o644, before: FileState | None = None) -> None:
    """Write a small file atomically: it exists completely or not at all. Raises as `atomic_file` does."""
    with atomic_file(final, mode, before) as descriptor, faults(final):
        write_at(descriptor, data, 0)


def refuse_other(path: Path, what: str, recognize: Callable[[bytes], bool]) -> FileState:
    """Return what is at `path`: nothing, or an earlier document of the same kind.

    `what` names the kind with its article. `recognize` gets the first 64 KiB of a file. Raises `WouldOverwriteError`
    for anything else.
    """
    before = FileState.of(path)
    with faults(path, "read"):
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            return before
        there = "something else"
        if stat.S_ISLNK(mode):
            there = f"a symbolic link to {path.readlink()}"
        elif stat.S_ISDIR(mode):
            there = "a folder"
        elif not stat.S_ISREG(mode):
            there = "a device or a pipe"
        else:
            with path.open("rb") as file:
                head = file.read(1 << 16)
            if not head or recognize(head):
                return before
    raise WouldOverwriteError(
        f"{path} exists and is {there}, not {what}. Nothing was written.", hint="Move it away, or give another path."
    )


def write_at(descriptor: int, data: bytes | bytearray | memoryview, offset: int) -> None:
    """Write all of `data` at `offset`. A single `pwrite` can write less."""
    view = memoryview(data)
    while view:
        done = os.pwrite(descriptor, view, offset)
        view, offset = view[done:], offset + done


def copy_whole(source: Path, final: Path, before: FileState | None = None) -> os.stat_result:
    """Create `final` as a reflink or a copy of `source`, never as a hard link. Raises as `atomic_file` does.

    Returns the status of the copy when its last byte was written.
    """
    import fcntl

    with faults(source, "read"):
        origin = source.open("rb")
    with origin, atomic_file(final, before=before) as descriptor, faults(final):
        try:
            fcntl.ioctl(descriptor, FICLONE, origin.fileno())
        except OSError:
            _copy(origin.fileno(), descriptor, final.name)
        return os.fstat(descriptor)


def _copy(source: int, target: int, name: str) -> None:
    left, at = os.fstat(source).st_size, 0
    step = progress.begin(f"writing {name}", left)
    while left:
        try:
            done = os.copy_file_range(source, target, min(left, COPIED), at, at)
        except OSError as problem:
            if problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            done = 0
        if not done:
            block = os.pread(source, 4 << 20, at)
            if not block:
                raise OSError(errno.EIO, "the file became shorter while it was being copied")
            write_at(target, block, at)
            done = len(block)
        step(done)
        left, at = left - done, at + done


def link_whole(source: Path, final: Path, before: FileState | None = None) -> None:
    """Create `final` as a hard link to `source`, and replace an existing file. Raises as `atomic_file` does."""
    with faults(final, "link"):
        final.parent.mkdir(parents=True, exist_ok=True)
        partial = partial_name(final.parent, final.name)
        os.link(source, partial)
        try:
            _give_name(partial, final, before)
        finally:
            # Renaming a link over another link to the same inode does nothing and keeps both. Source: rename(2).
            with suppress(OSError):
                partial.unlink()
