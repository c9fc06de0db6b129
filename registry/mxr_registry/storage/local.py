"""A store that keeps blobs as files in a local folder.

    <root>/
    ├── blobs/
    │   └── ab/cd/
    │       ├── abcd...(64)              one blob, read-only, named by its sha256; always complete and verified;
    │       │                           packed (`mxr.artifact.packed`) if its beginning shrinks
    │       └── .upload-abcd1234-x7f     an upload in progress; renamed once it is complete, verified and synced
    ├── damaged/
    │   └── abcd...(64).1700000000000    bytes that no longer matched their sha256, moved here
    ├── notes/
    │   └── 0123...(32)                  the recall list of a namespace
    ├── revoked-tokens/
    │   └── 0123456789ab                 the id of a revoked token; an empty file
    └── registry                         the id of the registry whose store it is

The process remembers verified files by device, inode, size, mtime and ctime. It reads and hashes any
other file once before it sends a byte of it.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mxr.artifact.packed import PackedHead, read_head
from mxr.errors import DamagedBlobError, DiskFullError, MxrError, TemporaryError
from mxr.protocol.access import TOKEN_ID
from mxr.util import disk
from mxr.util.hashing import FileStamp, read_chunks, sha256_chunks

from .store import (
    NOTE,
    OWNER,
    OWNER_SIZE,
    STALE,
    Chunk,
    FileDigests,
    PackedReader,
    Reader,
    SequentialReader,
    StoredItem,
    StoreOwner,
    Upload,
    VerifiedBlobs,
    aside_item,
    aside_name,
    damaged_blob,
    no_such_blob,
    owner_of,
)

log = logging.getLogger("mxr_registry")

TEMPORARY, REVOKED, NOTES = ".upload-", "revoked-tokens", "notes"
NAME = re.compile(r"[0-9a-f]{64}")


FULL = 4 << 20
"""Bytes below which a disk counts as full."""


class LocalStore:
    """A `Store` in a local folder."""

    page = 0

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self.folder: Path | None = self.root
        self.digests = FileDigests()
        self.owner = StoreOwner(self._read_owner, f"in {self.root}", 0.0)
        self._checked: VerifiedBlobs[CheckedFile] = VerifiedBlobs()

    def reach(self) -> None:
        """See `Store.reach`. A path is always one."""

    def adopt(self, id: str) -> None:
        """See `Store.adopt`."""
        disk.private_folder(self.root)
        with translate_errors():
            disk.write_whole(self.root / OWNER, f"{id}\n".encode(), mode=0o444)

    def is_empty(self) -> bool:
        """See `Store.is_empty`."""
        return next(self._walk(), None) is None

    def _read_owner(self) -> str | None:
        try:
            with (self.root / OWNER).open("rb") as file:
                return owner_of(file.read(OWNER_SIZE))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as problem:
            raise TemporaryError(f"The registry's store cannot be read: {problem.strerror}.") from problem

    def path(self, sha256: str) -> Path:
        """Return the path of a blob. No other code builds it."""
        return self.root / "blobs" / sha256[:2] / sha256[2:4] / sha256

    def begin(self, sha256: str, size: int) -> Upload:
        """See `Store.begin`."""
        self.owner.check()
        with translate_errors():
            return LocalUpload(self, sha256, size)

    def check(self, sha256: str) -> int:
        """See `Store.check`."""
        descriptor = self._open(sha256)
        try:
            return self._check(sha256, descriptor)
        finally:
            os.close(descriptor)

    def open(self, sha256: str, offset: int = 0, length: int | None = None) -> Reader:
        """See `Store.open`. It verifies and reads the same open file."""
        descriptor = self._open(sha256)
        try:
            self._check(sha256, descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return _reader(descriptor, sha256, offset, length)

    def read(self, sha256: str, offset: int = 0, length: int | None = None) -> Reader:
        """See `Store.read`."""
        return _reader(self._open(sha256), sha256, offset, length)

    def open_packed(self, sha256: str) -> tuple[int, Reader] | None:
        """See `Store.open_packed`."""
        descriptor = self._open(sha256)
        try:
            self._check(sha256, descriptor)
            head = _head(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        if head is None:
            os.close(descriptor)
            return None
        return head.stored, LocalReader(descriptor, 0, head.stored)

    def held(self, sha256: str, offset: int, length: int) -> bytes | None:  # noqa: ARG002
        """None: the kernel has them."""
        return None

    def url(self, sha256: str, local: bool = False) -> str | None:  # noqa: ARG002
        """None: only the registry can read these files."""
        return None

    def is_packed(self, sha256: str) -> bool:
        """See `Store.is_packed`."""
        try:
            with self.path(sha256).open("rb", buffering=0) as file:
                return _head(file.fileno()) is not None
        except FileNotFoundError:
            return False

    def stat(self, sha256: str) -> int | None:
        """See `Store.stat`."""
        try:
            with self.path(sha256).open("rb", buffering=0) as file:
                return _plain_size(file.fileno())
        except FileNotFoundError:
            return None

    def known(self, sha256: str) -> int | None:
        """See `Store.known`. The file itself shows whether it is the one that was verified."""
        try:
            found = FileStamp.of(self.path(sha256))
        except FileNotFoundError:
            return None
        checked = self._known(sha256, found)
        return None if checked is None else checked.size

    def stats(self, names: Iterable[str]) -> dict[str, int]:
        """See `Store.stats`."""
        return {name: size for name in names if (size := self.stat(name)) is not None}

    def delete(self, sha256: str) -> None:
        """See `Store.delete`."""
        self._checked.forget(sha256)
        self.path(sha256).unlink(missing_ok=True)

    def set_aside(self, sha256: str) -> None:
        """See `Store.set_aside`."""
        self._checked.forget(sha256)
        aside = self.root / "damaged"
        aside.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            self.path(sha256).rename(aside / aside_name(sha256))

    def damaged(self) -> Iterator[StoredItem]:
        """See `Store.damaged`."""
        for path in (self.root / "damaged").glob("*"):
            with contextlib.suppress(FileNotFoundError):
                if found := aside_item(str(path), path.lstat().st_size):
                    yield found

    def walk(self) -> Iterator[StoredItem]:
        """See `Store.walk`."""
        self.owner.check()
        return self._walk()

    def _walk(self) -> Iterator[StoredItem]:
        for folder, _, names in os.walk(self.root / "blobs"):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    found = Path(folder, name).stat()
                    known = NAME.fullmatch(name) and self.path(name).parent == Path(folder)
                    yield StoredItem(str(Path(folder, name)), name if known else None, found.st_size, found.st_mtime)

    def drop(self, kept: StoredItem) -> None:
        """See `Store.drop`. It removes unfinished uploads and what was set aside, and nothing else."""
        path = Path(kept.name)
        if path.name.startswith(TEMPORARY) or path.parent == self.root / "damaged":
            path.unlink(missing_ok=True)

    def drop_stale(self, age: float = STALE) -> int:
        """Remove uploads without a write for `age` seconds, and return their number."""
        stale = [each for each in self.walk() if each.sha256 is None and each.modified < time.time() - age]
        for each in stale:
            self.drop(each)
        return len(stale)

    def record_revoked_token(self, id: str) -> None:
        """See `Store.record_revoked_token`."""
        folder = self.root / REVOKED
        with translate_errors():
            _make_folders(folder)
            (folder / id).touch(0o444)
            _sync_folder(folder)

    def forget_revoked_token(self, id: str) -> None:
        """See `Store.forget_revoked_token`."""
        (self.root / REVOKED / id).unlink(missing_ok=True)

    def revoked_tokens(self) -> set[str]:
        """See `Store.revoked_tokens`."""
        try:
            names = [path.name for path in (self.root / REVOKED).iterdir()]
        except FileNotFoundError:
            return set()
        except OSError as problem:
            raise TemporaryError(f"The registry's store cannot be read: {problem.strerror}.") from problem
        return set(filter(TOKEN_ID.fullmatch, names))

    def keep_note(self, name: str, data: bytes) -> None:
        """See `Store.keep_note`."""
        folder = self.root / NOTES
        with translate_errors():
            _make_folders(folder)
        disk.write_whole(folder / name, data, 0o600)

    def notes(self) -> dict[str, bytes]:
        """See `Store.notes`."""
        try:
            found = [path for path in (self.root / NOTES).iterdir() if NOTE.fullmatch(path.name)]
            return {path.name: path.read_bytes() for path in found}
        except FileNotFoundError:
            return {}
        except OSError as problem:
            raise TemporaryError(f"The registry's store cannot be read: {problem.strerror}.") from problem

    def prepare(self) -> None:
        """See `Store.prepare`."""
        with translate_errors():
            for name in ("blobs", REVOKED):
                (self.root / name).mkdir(parents=True, exist_ok=True)
        disk.private_folder(self.root)
        self._check_writable()

    def ready(self) -> None:
        """See `Store.ready`. It makes nothing: what is not there may be a file system that is not mounted."""
        self.owner.check()
        self._check_writable()
        free = os.statvfs(self.root)
        if free.f_bavail * free.f_frsize < FULL:
            raise DiskFullError("The disk that holds the registry's store is full.")

    def _check_writable(self) -> None:
        if not os.access(self.root / "blobs", os.W_OK):
            raise TemporaryError(
                "The registry's store is read-only.", hint=f"Make {self.root} writable for the registry."
            )

    def remember(self, sha256: str, descriptor: int) -> None:
        """Remember that the bytes of this open file are verified."""
        self._checked.add(sha256, CheckedFile(FileStamp.of(descriptor), _plain_size(descriptor)))

    def _open(self, sha256: str) -> int:
        try:
            return os.open(self.path(sha256), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            self.owner.check()
            raise no_such_blob(sha256) from None

    def _check(self, sha256: str, descriptor: int) -> int:
        stamp = FileStamp.of(descriptor)
        if known := self._known(sha256, stamp):
            return known.size
        with self._checked.turn(sha256):
            if known := self._known(sha256, stamp):
                return known.size
            if _sha256_of(descriptor, sha256) != sha256:
                self._set_aside_if_unchanged(sha256, stamp)
                raise damaged_blob(sha256)
            checked = CheckedFile(stamp, _plain_size(descriptor))
            self._checked.add(sha256, checked)
            return checked.size

    def _known(self, sha256: str, stamp: FileStamp) -> CheckedFile | None:
        """What this process has verified of this file, None if it has not."""
        found = self._checked.get(sha256)
        return found if found is not None and found.stamp == stamp else None

    def _set_aside_if_unchanged(self, sha256: str, stamp: FileStamp) -> None:
        """Set a damaged file aside, unless a new upload has replaced it."""
        with contextlib.suppress(FileNotFoundError):
            found = self.path(sha256).stat()
            if (found.st_dev, found.st_ino) == stamp[:2]:
                log.error("blob %s is damaged: moved to %s", sha256, self.root / "damaged")
                self.set_aside(sha256)


class LocalUpload(Upload):
    """An upload into a temporary file in the folder of the final one."""

    def __init__(self, store: LocalStore, sha256: str, size: int) -> None:
        super().__init__(sha256, size)
        self._store = store
        self._final = store.path(sha256)
        _make_folders(self._final.parent)
        self._file, self._temporary = tempfile.mkstemp(prefix=f"{TEMPORARY}{sha256[:8]}-", dir=self._final.parent)
        self._open = True

    def _put(self, data: Chunk) -> None:
        with translate_errors():
            view = memoryview(data)
            while view:
                view = view[os.write(self._file, view) :]

    _put_packed = _put

    def _complete_packed(self, head: bytes) -> None:
        with translate_errors():
            disk.write_at(self._file, head, 0)

    def _store_bytes(self) -> None:
        try:
            with translate_errors():
                os.fchmod(self._file, 0o444)
                os.fsync(self._file)
                Path(self._temporary).rename(self._final)
                _sync_folder(self._final.parent)
            self._store.remember(self.sha256, self._file)
        except BaseException:
            self.discard()
            raise
        self._open = False
        os.close(self._file)

    def discard(self) -> None:
        """See `Upload.discard`."""
        if self._open:
            self._open = False
            os.close(self._file)
            with contextlib.suppress(FileNotFoundError):
                Path(self._temporary).unlink()


class LocalReader(SequentialReader):
    """Chunks of an open file, read with `pread`."""

    def __init__(self, descriptor: int, offset: int, length: int | None) -> None:
        super().__init__(offset, length)
        self.descriptor = descriptor

    def _read(self) -> bytes:
        size = self.chunk() if self._left is None else min(self.chunk(), self._left)
        return os.pread(self.descriptor, size, self._at) if size and self.descriptor >= 0 else b""

    def close(self) -> None:
        """Close the file."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __del__(self) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A file that was verified, and the number of its plain bytes."""

    stamp: FileStamp
    size: int


def _head(descriptor: int) -> PackedHead | None:
    return read_head(lambda at, size: os.pread(descriptor, size, at))


def _plain_size(descriptor: int) -> int:
    head = _head(descriptor)
    return os.fstat(descriptor).st_size if head is None else head.size


def _reader(descriptor: int, sha256: str, offset: int = 0, length: int | None = None) -> Reader:
    head = _head(descriptor)
    if head is None:
        return LocalReader(descriptor, offset, length)
    stored = LocalReader(descriptor, *head.span(offset, length))
    return PackedReader(stored, sha256, head, offset, length)


def _sha256_of(descriptor: int, sha256: str) -> str:
    """The sha256 of the plain bytes; empty for packed bytes that cannot be read."""
    if _head(descriptor) is None:
        return sha256_chunks(read_chunks(descriptor))
    try:
        return sha256_chunks(_reader(os.dup(descriptor), sha256))
    except DamagedBlobError:
        return ""


def _make_folders(folder: Path) -> None:
    if folder.is_dir():
        return
    _make_folders(folder.parent)
    folder.mkdir(exist_ok=True)
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def translate_errors() -> Iterator[None]:
    """Turn errors of the file system into `DiskFullError` and `TemporaryError`."""
    try:
        yield
    except OSError as problem:
        raise _mxr_error(problem) from problem


def _mxr_error(problem: OSError) -> MxrError:
    if problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return DiskFullError("The disk that holds the registry's store is full.")
    if problem.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return TemporaryError("The registry's store is read-only.", hint="Make its folder writable for the registry.")
    return TemporaryError(f"Cannot write to the registry's store: {problem.strerror or problem}.")
