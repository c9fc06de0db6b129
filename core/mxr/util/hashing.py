"""Hashes of files, the loop that reads and hashes, and a memo of digests by file status.

The memo keeps one file per hashed file, in a folder that only this user can write. Each of them can be deleted at any
time; the digest is then computed again:

    <folder>/<16 hex of device and inode>.json
        {"v": 4, "boot": id of this boot, "file": stamp of the file, "digests": {kind: digest}, "settled": bool,
         "check": hash of the rest}
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import json
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import xxhash

from mxr.display import progress
from mxr.errors import TemporaryError

CHUNK = 1 << 20
"""Bytes that are read, written or sent at once."""

BLOCK = 4 << 20
"""Bytes read at once where a whole file is hashed. One buffer of this size is all the memory that hashing takes."""

CLOCK_REALTIME_COARSE = 5
"""The clock of time stamps. Source: Linux, include/uapi/linux/time.h."""

MAX_SETTLING = 0.1
"""Seconds to wait for time stamps that no later change can have."""

UNSETTLED_NS = 2_000_000_000
"""Nanoseconds for which a changed file can change again without a new time stamp (see `is_settled`)."""

STAMPING = (0xEF53, 0x58465342, 0x9123683E, 0xF2F52010)
"""The file systems where the kernel itself stamps every change: ext2 to ext4, xfs, btrfs, f2fs; as statfs(2) says them.

Not images whose stamps their maker chose (squashfs, erofs, iso9660), nor what another program stamps (NFS, FUSE, 9p),
nor overlayfs, whose lower layers can be any of these, nor tmpfs, where a write through a mapping leaves no stamp.
Source: Linux, include/uapi/linux/magic.h; file_update_time in the page_mkwrite of each.
"""

STATX_MNT_ID, STATX_MNT_ID_UNIQUE, AT_EMPTY_PATH = 0x1000, 0x4000, 0x1000
STATX_SIZE, STATX_MNT_ID_OFFSET = 256, 144
"""Source: Linux, include/uapi/linux/stat.h, struct statx; include/uapi/linux/fcntl.h."""

LOOP_MAJOR = 7
"""The major number of loop devices. Source: Linux, Documentation/admin-guide/devices.txt."""

MAX_DIGESTS = 16
"""Digests per file in the memo. Each set of external data that a model is hashed with takes one."""

Data: TypeAlias = bytes | bytearray | memoryview
D = TypeVar("D", bound=Data)
Sink: TypeAlias = Callable[[Data, int], object]
Identity: TypeAlias = tuple[int, int, int, int, int]


class FileStamp(NamedTuple):
    """What identifies a file in its current state, with the mount through which it was reached.

    Two images that are mounted one after the other at one path can agree in the first five; the mount differs. `mount`
    is an id that is given once in a boot (Linux 6.8 and later), an id that is given again after an unmount, or 0.
    `trusted`: the kernel stamps every change of the file, so that equal stamps mean equal bytes.
    """

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    mount: int
    trusted: bool

    @classmethod
    def of(cls, file: Path | int) -> FileStamp:
        """Return the stamp of a path (a link is followed) or of an open file. OSError passes through."""
        if not isinstance(file, int):
            descriptor = os.open(file, getattr(os, "O_PATH", os.O_NONBLOCK) | os.O_CLOEXEC)
            try:
                return cls.of(descriptor)
            finally:
                os.close(descriptor)
        status = os.fstat(file)
        try:
            mount, trusted = _mount(file, status)
        except (AttributeError, OSError):  # not Linux
            mount, trusted = 0, False
        return cls(*identity(status), mount, trusted)

    @property
    def changed_ns(self) -> int:
        """The time of the last change."""
        return max(self.mtime_ns, self.ctime_ns)


def _mount(descriptor: int, status: os.stat_result) -> tuple[int, bool]:
    """Return the id of the mount of an open file, and whether the stamps of its files can be trusted."""
    import ctypes

    libc, result = _libc(), ctypes.create_string_buffer(STATX_SIZE)
    mask = STATX_MNT_ID | STATX_MNT_ID_UNIQUE
    if libc.statx(descriptor, b"", AT_EMPTY_PATH, mask, result):
        return 0, False
    given = int.from_bytes(result.raw[:4], sys.byteorder)
    if not given & mask:
        return 0, False
    mount = int.from_bytes(result.raw[STATX_MNT_ID_OFFSET:][:8], sys.byteorder)
    if libc.fstatfs(descriptor, result):
        return mount, False
    trusted = int.from_bytes(result.raw[: ctypes.sizeof(ctypes.c_long)], sys.byteorder) in STAMPING
    if not given & STATX_MNT_ID_UNIQUE:
        # An id that is given again does not tell one image of such a file system from the next one.
        image = os.major(status.st_dev) == LOOP_MAJOR or os.fstatvfs(descriptor).f_flag & os.ST_RDONLY
        trusted = trusted and not image
    return mount, trusted


@functools.cache
def _libc() -> Any:
    import ctypes

    return ctypes.CDLL(None)


class Hasher(Protocol):
    """A hash object, such as `hashlib.sha256()` or `xxhash.xxh3_128()`."""

    def update(self, data: Data, /) -> None:
        """Add data to the hash."""


# --- the read-and-hash loop ---


def read_chunks(
    descriptor: int, offset: int = 0, size: int | None = None, *, buffer: memoryview | None = None
) -> Iterator[memoryview]:
    """Read an open file from `offset` in chunks: `size` bytes, or fewer where the file ends earlier.

    All chunks share one buffer (`CHUNK` bytes by default): a chunk is valid until the next one is read. The position of
    the descriptor does not change. OSError passes through.
    """
    view = memoryview(bytearray(CHUNK)) if buffer is None else buffer
    end = None if size is None else offset + size
    while end is None or offset < end:
        count = os.preadv(descriptor, [view if end is None else view[: end - offset]], offset)
        if not count:
            return
        yield view[:count]
        offset += count


def hash_through(chunks: Iterable[D], *hashers: Hasher) -> Iterator[D]:
    """Yield the chunks unchanged, after adding each to all hashers."""
    for chunk in chunks:
        for hasher in hashers:
            hasher.update(chunk)
        yield chunk


def hash_chunks(chunks: Iterable[Data], *hashers: Hasher, sink: Sink | None = None) -> int:
    """Add all chunks to all hashers and return the number of bytes.

    `sink` is called with each chunk and its offset from the first chunk, after the chunk is hashed.
    """
    size = 0
    for chunk in hash_through(chunks, *hashers):
        if sink is not None:
            sink(chunk, size)
        size += len(chunk)
    return size


def sha256_chunks(chunks: Iterable[Data]) -> str:
    """Return the sha256 of the chunks in lower-case hex."""
    digest = hashlib.sha256()
    hash_chunks(chunks, digest)
    return digest.hexdigest()


def xxh3_chunks(chunks: Iterable[Data]) -> str:
    """Return the XXH3-128 of the chunks in hex: a quick check for accidental damage, never an identity."""
    digest = xxhash.xxh3_128()
    hash_chunks(chunks, digest)
    return digest.hexdigest()


# --- files ---


def sha256_hex(data: bytes) -> str:
    """Return the sha256 of `data` in lower-case hex."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """Return the sha256 of a file in lower-case hex.

    Raises `TemporaryError` when the file changes during the reading. OSError passes through.
    """
    digest = hashlib.sha256()
    _hash_file(path, FileStamp.of(path), digest)
    return digest.hexdigest()


def _hash_file(path: Path, expected: FileStamp, *hashers: Hasher) -> None:
    with path.open("rb", buffering=0) as file:
        descriptor = file.fileno()
        if FileStamp.of(descriptor) != expected:
            raise file_changed(path)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        # One byte more than expected shows that the file grew, without reading a file that keeps growing to its end.
        buffer = memoryview(bytearray(BLOCK))
        step = progress.begin(f"hashing {path.name}", expected.size)
        chunks = read_chunks(descriptor, 0, expected.size + 1, buffer=buffer)
        size = hash_chunks(chunks, *hashers, sink=lambda data, _: step(len(data)))
        if size != expected.size or not expected == FileStamp.of(descriptor) == FileStamp.of(path):
            raise file_changed(path)


def file_changed(path: Path) -> TemporaryError:
    """Return the error for a file that changed while it was being read."""
    return TemporaryError(
        f"{path} changed while it was being read.", hint="Wait until the file is written, then try again."
    )


# --- the memo ---


def identity(status: os.stat_result) -> Identity:
    """Return what identifies a file in its current state: device, inode, size, mtime and ctime (ns)."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def is_settled(stamp: FileStamp, now_ns: int) -> bool:
    """Return whether the last change of the file is more than two seconds before `now_ns`; false for future times.

    Kernels stamp files with a clock that advances every few milliseconds (some file systems: every two seconds), so
    two changes in quick succession can leave the same stamps. Source: "racy git" in git's Documentation/technical.
    """
    return now_ns - stamp.changed_ns > UNSETTLED_NS


def wait_until_settled(path: Path) -> FileStamp | None:
    """Wait until any later change of a file leaves another stamp than it has now, and return that.

    That is when the clock from which the kernel takes time stamps has passed them, a few milliseconds after a change.
    Returns None where that takes longer, as with stamps of whole seconds, and where stamps cannot be trusted. Source:
    Linux, fs/inode.c, current_time; clock_gettime(2), CLOCK_REALTIME_COARSE.
    """
    stamp = FileStamp.of(path)
    if not stamp.trusted:
        return None
    latest = stamp.changed_ns
    # A file system with coarse stamps cuts their last digits off.
    step = next((10**digits for digits in range(9, 0, -1) if latest % 10**digits == 0), 1)
    end = time.monotonic() + MAX_SETTLING
    while time.clock_gettime_ns(CLOCK_REALTIME_COARSE) <= latest + step:
        if time.monotonic() > end:
            return None
        time.sleep(0.001)
    return stamp if FileStamp.of(path) == stamp else None


def has_writer(path: Path, stamp: FileStamp) -> bool:
    """Return whether a process may change this file without a new time stamp: it has the file open or mapped to write.

    A page of a mapping gets its time stamp when it is first written to, and not at later writes. Ask before the file
    is read: whoever opens it later leaves a time stamp that differs from that of `stamp`, if the file was settled. True
    also if the file at `path` is not the one of `stamp`. False where the kernel gives no lease: for a file of another
    user (without CAP_LEASE). Source: fcntl(2), F_SETLEASE; the time stamps of mappings: mmap(2), MAP_SHARED.
    """
    import fcntl
    import signal

    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        if FileStamp.of(descriptor) != stamp:
            return True
        # Who opens the file in this moment has the kernel send a signal, which would end the process if it were SIGIO.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as problem:
        return problem.errno in (errno.EAGAIN, errno.EWOULDBLOCK)
    except AttributeError:  # not Linux
        return False
    finally:
        os.close(descriptor)
    return False


class StatMemo:
    """Digests of unchanged files, found by their stamp. Best effort: no method raises; a lost digest is recomputed.

    Where stamps cannot be trusted (`FileStamp`), nothing is stored or returned. The digest of a file that is not
    settled (see `is_settled`) is neither stored nor returned, unless who stored it waited until it was
    (`wait_until_settled`); that of a file that somebody has open for writing (see `has_writer`) is not stored. A
    digest is valid until the next boot, because the numbers of devices and mounts can change then. A folder or a
    record that another user owns or can write, and a symbolic link, count as empty: another user could claim that a
    file has a digest that it does not have.
    """

    def __init__(self, folder: Path | None) -> None:
        """`folder`: one that only this user can write, None for a memo that keeps nothing."""
        self.folder = folder

    def get(self, stamp: FileStamp, kind: str) -> str | None:
        """Return the digest of this kind stored for exactly this state of the file, or None."""
        if not stamp.trusted:
            return None
        with self._opened() as folder:
            digests, settled = self._record(folder, stamp)
        return digests.get(kind) if settled or is_settled(stamp, time.time_ns()) else None

    def put(self, stamp: FileStamp, digests: Mapping[str, str], *, started_ns: int | None) -> None:
        """Store digests by their kind.

        `started_ns` is `time.time_ns()` before the reading began, when `stamp` was taken; None if it comes from
        `wait_until_settled` after the bytes were written and hashed. The caller has checked that the file had no writer
        then (`has_writer`), and that the stamp was the same after the reading.
        """
        if self.folder is None or not stamp.trusted or not (started_ns is None or is_settled(stamp, started_ns)):
            return
        with contextlib.suppress(OSError):
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            self.folder.mkdir(mode=0o700, exist_ok=True)
        with self._opened() as folder:
            if folder is None:
                return
            found, settled = self._record(folder, stamp)
            kept = {name: each for name, each in found.items() if name not in digests}
            kept = dict([*kept.items(), *digests.items()][-MAX_DIGESTS:])
            body = {"v": 4, "boot": boot_id(), "file": list(stamp), "digests": kept}
            body["settled"] = settled or started_ns is None
            data = json.dumps(body | {"check": _check(body)}).encode()
            final = _record_name(stamp)
            temporary = f"{final}.{os.getpid()}.{time.monotonic_ns()}.tmp"
            try:
                _write_new(folder, temporary, data)
                os.rename(temporary, final, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int | None]:
        """Yield a descriptor of the folder, or None if it does not exist or another user owns it or can write it."""
        if self.folder is None:
            yield None
            return
        try:
            folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            yield None
            return
        try:
            yield folder if is_private(os.fstat(folder)) else None
        finally:
            os.close(folder)

    def _record(self, folder: int | None, stamp: FileStamp) -> tuple[dict[str, str], bool]:
        """The digests of a file, and whether any later change of it leaves other time stamps."""
        try:
            body = json.loads(_read_own(folder, _record_name(stamp)) if folder is not None else b"")
            check = body.pop("check")
            found = (body["v"], body["boot"], body["file"])
            if check == _check(body) and found == (4, boot_id(), list(stamp)):
                return dict(body["digests"]), bool(body["settled"])
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            pass  # an unreadable memo counts as empty
        return {}, False


def remember_written(path: Path, written: os.stat_result, digests: Mapping[str, str], memo: StatMemo) -> None:
    """Remember the digests of a file that this process wrote and hashed meanwhile, and that nobody changed since.

    `written`: its status when the last byte was written. Best effort: a lost digest is recomputed.
    """
    with contextlib.suppress(OSError):
        stamp = wait_until_settled(path)
        # Giving the file its name changes the ctime only.
        if stamp is not None and stamp[:4] == identity(written)[:4] and not has_writer(path, stamp):
            memo.put(stamp, digests, started_ns=None)


def is_private(status: os.stat_result) -> bool:
    """Return whether this user owns the file or folder, and no other user can write it."""
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


@functools.cache
def boot_id() -> str:
    """Return the id that the kernel chose at this boot; empty if it tells none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_bytes().decode("ascii").strip()
    except (OSError, ValueError):
        return ""


def _record_name(stamp: FileStamp) -> str:
    return f"{xxhash.xxh3_64_hexdigest(f'{stamp.device}:{stamp.inode}'.encode())}.json"


def _read_own(folder: int, name: str) -> bytes:
    """Return the content of a record. Raises OSError for a link, and for a record of another user."""
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or not is_private(status):
            raise PermissionError(name)
        return file.read()


def _write_new(folder: int, name: str, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o600, dir_fd=folder)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


def _check(body: object) -> str:
    return xxhash.xxh3_64_hexdigest(json.dumps(body, sort_keys=True).encode())


def sha256_memoised(path: Path, memo: StatMemo) -> str:
    """Work as `sha256_file`, without reading the file where the memo has its digest."""
    known = memo.get(FileStamp.of(path), "sha256")
    return known if known is not None else _hash_and_remember(path, memo)


def is_intact(path: Path, sha256: str, memo: StatMemo) -> bool:
    """Read a file and return whether it still has the bytes whose sha256 was checked before: a quick check.

    The XXH3-128 that the memo recorded then is compared, which finds accidental damage only. A file without such a
    record is compared by its sha256. Raises as `sha256_file` does.
    """
    stamp = FileStamp.of(path)
    if memo.get(stamp, "sha256") != sha256 or (recorded := memo.get(stamp, "xxh3")) is None:
        return _hash_and_remember(path, memo) == sha256
    digest = xxhash.xxh3_128()
    _hash_file(path, stamp, digest)
    return digest.hexdigest() == recorded


def _hash_and_remember(path: Path, memo: StatMemo) -> str:
    started, stamp = time.time_ns(), FileStamp.of(path)
    unwritten = not has_writer(path, stamp)
    digest, quick = hashlib.sha256(), xxhash.xxh3_128()
    _hash_file(path, stamp, digest, quick)
    if unwritten:
        memo.put(stamp, {"sha256": digest.hexdigest(), "xxh3": quick.hexdigest()}, started_ns=started)
    return digest.hexdigest()
