"""Atomic file writes (temporary name in the same folder, sync, rename), and disk errors as errors of mxr."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mxr.errors import DiskFull, MxrError, NotAllowed, Temporary, Usage, WouldOverwrite

PARTIAL = ".mxr-partial-"
"""Prefix of the names of incomplete files."""

FICLONE = 0x40049409
"""The ioctl that creates a reflink. Source: Linux, include/uapi/linux/fs.h."""


@contextmanager
def faults(path: Path, doing: str = "write") -> Iterator[None]:
    """Converts an `OSError` about `path` into an `MxrError`. Raises as `fault` returns."""
    try:
        yield
    except OSError as problem:
        raise fault(problem, path, doing) from problem


def fault(problem: OSError, path: Path, doing: str = "write") -> MxrError:
    """Returns the error for an `OSError`: `DiskFull`, `NotAllowed`, `Usage` or `Temporary`."""
    reason = problem.strerror or str(problem)
    if problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return DiskFull(f"Cannot {doing} {path}: {reason}.")
    if problem.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return NotAllowed(f"Cannot {doing} {path}: {reason}.", hint="Use another path, or grant the permission.")
    if problem.errno in (errno.ENOENT, errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ENAMETOOLONG):
        return Usage(f"Cannot {doing} {path}: {reason}.", hint="Check the path.")
    if problem.errno == errno.EXDEV:
        return Usage(f"Cannot {doing} {path}: {reason}.", hint="A hard link cannot cross file systems: omit --link.")
    return Temporary(f"Cannot {doing} {path}: {reason}.", hint="Check the disk, then try again.")


def partial_name(folder: Path, name: str = "") -> Path:
    """Returns a temporary path in `folder` that no other process uses."""
    return folder / f"{PARTIAL}{name[:40]}-{os.getpid()}-{os.urandom(6).hex()}"


@contextmanager
def landing(final: Path, mode: int = 0o644) -> Iterator[int]:
    """Yields a file descriptor to write to.

    On success, the complete file appears as `final`; on any error, nothing does. Raises as `faults` does.
    """
    with faults(final):
        final.parent.mkdir(parents=True, exist_ok=True)
        partial = partial_name(final.parent, final.name)
        descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        try:
            yield descriptor
            with faults(final):
                os.fchmod(descriptor, mode)
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        with faults(final):
            partial.replace(final)
            sync_folder(final.parent)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise


def sync_folder(folder: Path) -> None:
    """Makes a rename in `folder` survive a power failure. Does nothing where the file system does not support it."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_whole(final: Path, data: bytes, mode: int = 0o644) -> None:
    """Writes a small file atomically: it exists completely or not at all. Raises as `faults` does."""
    with landing(final, mode) as descriptor, faults(final):
        write_at(descriptor, data, 0)


def refuse_other(path: Path, what: str, recognize: Callable[[bytes], bool]) -> None:
    """Raises `WouldOverwrite` if something is at `path` that is not an earlier document of the same kind.

    `what` names the kind with its article. `recognize` gets the first 64 KiB of a file.
    """
    with faults(path, "read"):
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            return
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
                return
    raise WouldOverwrite(
        f"{path} exists and is {there}, not {what}. Nothing was written.", hint="Move it away, or give another path."
    )


def write_at(descriptor: int, data: bytes | bytearray | memoryview, offset: int) -> None:
    """Writes all of `data` at `offset`. A single `pwrite` can write less."""
    view = memoryview(data)
    while view:
        done = os.pwrite(descriptor, view, offset)
        view, offset = view[done:], offset + done


def copy_whole(source: Path, final: Path) -> None:
    """Creates `final` as a reflink or a copy of `source`, never as a hard link. Raises as `faults` does."""
    import fcntl

    with faults(source, "read"):
        origin = source.open("rb")
    with origin, landing(final) as descriptor, faults(final):
        try:
            fcntl.ioctl(descriptor, FICLONE, origin.fileno())
        except OSError:
            _copy(origin.fileno(), descriptor)


def _copy(source: int, target: int) -> None:
    left, at = os.fstat(source).st_size, 0
    while left:
        try:
            done = os.copy_file_range(source, target, left, at, at)
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
        left, at = left - done, at + done


def link_whole(source: Path, final: Path) -> None:
    """Creates `final` as a hard link to `source`, and replaces an existing file. Raises as `faults` does."""
    with faults(final, "link"):
        final.parent.mkdir(parents=True, exist_ok=True)
        partial = partial_name(final.parent, final.name)
        os.link(source, partial)
        try:
            partial.replace(final)
        finally:
            # Renaming a link over another link to the same inode does nothing and keeps both. Source: rename(2).
            with suppress(OSError):
                partial.unlink()
