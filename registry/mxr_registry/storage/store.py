"""The protocol of blob stores, and the base class of uploads, which rejects bytes with the wrong sha256.

A store identifies blobs by sha256 only; namespaces and names are in the database. It also keeps the ids of revoked
tokens (`mxr_registry.access.tokens`), and the recall lists (`mxr_registry.artifacts.recalls`). Every store passes the
same conformance tests.

Of files whose blobs arrived in order, `FileDigests` has the sha256: nothing is read back only to hash a whole file. A
client says after which blobs of its file a blob comes, by their chain (`mxr.artifact.manifest.next_chain`). A chain
stands for exactly these bytes, each blob of which was verified here when it arrived; it is no claim of the client.
Where the chain is unknown (other order, another registry, blobs that were there already, a restart), the file is read
from the store instead.
"""

from __future__ import annotations

import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from hashlib import sha256
from hashlib import sha256 as new_sha256
from itertools import accumulate
from pathlib import Path
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from cachetools import LRUCache

from mxr.artifact import packed
from mxr.artifact.manifest import NO_CHAIN, next_chain
from mxr.artifact.packed import SAMPLE, PackedHead, Packer
from mxr.errors import DamagedBlobError, DamagedError, NoSuchBlobError, TemporaryError
from mxr.util.hashing import CHUNK

T = TypeVar("T")

NOTE = re.compile(r"[0-9a-f]{32}")
"""The name of a note."""

MAX_CHAINS = 10_000
"""Chains that are remembered, about 700 bytes each: those of the blobs that arrived last."""


class FileDigests:
    """States of sha256 by chain. Thread-safe."""

    def __init__(self, most: int = MAX_CHAINS) -> None:
        self._states: LRUCache[str, Any] = LRUCache(most)
        self._lock = threading.Lock()

    def longest(self, names: Sequence[str], chain: str = NO_CHAIN) -> tuple[Any, int]:
        """Return a sha256 that has hashed as many of the blobs after a chain as possible, and their number.

        `names`: the sha256 of each blob. Returns None for the sha256 if not even the chain is known.
        """
        chains = list(accumulate(names, next_chain, initial=chain))
        with self._lock:
            for count in range(len(names), -1, -1):
                state = self._states.get(chains[count])
                if state is not None:
                    return state.copy(), count
        return (sha256() if chain == NO_CHAIN else None), 0

    def add(self, follows: Sequence[str], blob: str, state: Any) -> None:
        """Remember the sha256 that has hashed a blob, whose bytes were verified, and what is before it in its file."""
        chain = reduce(next_chain, [*follows, blob])
        with self._lock:
            self._states[chain] = state


MAX_CHECKED = 20_000
"""Verified blobs that are remembered, about 600 bytes each. A blob that is forgotten is verified once more."""


class VerifiedBlobs(Generic[T]):
    """The versions of the blobs that this process used last, as it verified them, by sha256. Thread-safe."""

    def __init__(self) -> None:
        self._versions: LRUCache[str, T] = LRUCache(MAX_CHECKED)
        self._lock = threading.Lock()
        self._turns = tuple(threading.Lock() for _ in range(64))

    def get(self, sha256: str) -> T | None:
        """Return the version of a blob that was verified, None if none was."""
        with self._lock:
            return self._versions.get(sha256)

    def add(self, sha256: str, version: T) -> None:
        """Remember a version, instead of the one that was not used for longest where there are too many."""
        with self._lock:
            self._versions[sha256] = version

    def forget(self, sha256: str) -> None:
        """Verify the blob again before the next read."""
        with self._lock:
            self._versions.pop(sha256, None)

    def turn(self, sha256: str) -> threading.Lock:
        """Return the lock of those who verify this blob: one of them reads it, and the others wait."""
        return self._turns[int(sha256[:2], 16) % len(self._turns)]


OWNER = "registry"
"""The name of the file, or the object, that has the id of the registry whose store it is."""

OWNER_SIZE = 100


class StoreOwner:
    """Whose store it is, by the id in it: an empty or a foreign one is not served as if it were this registry's.

    `read` returns the id that is there, `wanted` that of this registry, None while nobody knows it. `where`: the store
    in words. `period`: seconds for which a check is good.
    """

    def __init__(self, read: Callable[[], str | None], where: str, period: float) -> None:
        self.read, self.where = read, where
        self.wanted: Callable[[], str | None] = lambda: None
        self._period, self._good_until = period, 0.0

    def check(self, *, anew: bool = False) -> None:
        """Raise `TemporaryError` where the store is not this registry's. `anew`: whatever was known a moment ago."""
        wanted = self.wanted()
        if wanted is None or (not anew and time.monotonic() < self._good_until):
            return
        found = self.read()
        if found != wanted:
            self._good_until = 0.0
            is_whose = f"that of registry {found}" if found else "empty, or without the id of a registry"
            raise TemporaryError(
                f"The registry's store {self.where} is not its own any more: it is {is_whose}.",
                hint="Mount or name the right one (see `mxr-registry status`); after a restore by other means, run "
                "`mxr-registry adopt-store`.",
            )
        self._good_until = time.monotonic() + self._period


def owner_of(data: bytes) -> str | None:
    """Return the id in the bytes of `OWNER`, None where there is none."""
    return data.decode("ascii", "replace").strip() or None


RECENT = 600.0
"""Seconds after an upload for which the confirmation of a store on a server is trusted."""

STALE = 86_400.0
"""Age in seconds at which an unfinished upload is removed when the registry starts."""


Chunk: TypeAlias = bytes | bytearray | memoryview


class Upload(ABC):
    """An upload of `size` bytes in progress, hashed while it arrives. No reader sees the blob before `commit`.

    Bytes whose beginning shrinks are stored packed (`mxr.artifact.packed`), in frames as they arrive.
    """

    def __init__(self, sha256: str, size: int) -> None:
        self.sha256 = sha256
        self.size = size
        self.received = 0
        self._hash = new_sha256()
        self._begun: bytearray | None = bytearray()
        self._packer: Packer | None = None

    def write(self, data: Chunk) -> None:
        """Append bytes, which the caller does not change later.

        Raises `DamagedError` if the upload exceeds its announced size, `DiskFullError`, and `TemporaryError`.
        """
        self.received += len(data)
        if self.received > self.size:
            raise self._mismatch(f"more than the announced {self.size} bytes")
        self._hash.update(data)
        if self._begun is None:
            self._take(data)
            return
        self._begun += data
        if len(self._begun) >= min(SAMPLE, self.size):
            self._begin()

    def _begin(self) -> None:
        data, self._begun = self._begun, None
        assert data is not None
        if packed.pays(data, self.size):
            self._packer = Packer(self.size)
            self._put_packed(bytes(self._packer.head_size))
        self._take(data)

    def _take(self, data: Chunk) -> None:
        if self._packer is None:
            self._put(data)
            return
        for frame in self._packer.add(data):
            self._put_packed(frame)

    def commit(self) -> int:
        """Store the bytes durably under their sha256 and return their number. Raises `DamagedError` if they do not
        match.

        A second upload of the same blob replaces the first. Both have the same bytes.
        """
        if self.received != self.size:
            raise self._mismatch(f"{self.received} of {self.size} bytes")
        found = self._hash.hexdigest()
        if found != self.sha256:
            raise self._mismatch(f"bytes with the sha256 {found}")
        if self._packer is not None:
            for frame in self._packer.finish():
                self._put_packed(frame)
            self._complete_packed(self._packer.head)
        self._store_bytes()
        return self.received

    def hashed(self) -> Any:
        """Return a sha256 that has hashed the bytes so far."""
        return self._hash.copy()

    def _mismatch(self, found: str) -> DamagedError:
        self.discard()
        return DamagedError(
            f"The uploaded bytes do not match blob {self.sha256}: the registry received {found}.",
            hint="Send the file again. If this repeats, the file changes while it is read, or in transit.",
            context={"sha256": self.sha256, "received": self.received},
        )

    @abstractmethod
    def _put(self, data: Chunk) -> None: ...

    @abstractmethod
    def _put_packed(self, data: bytes) -> None:
        """Append packed bytes: as many zeros as the head has, then frames."""

    @abstractmethod
    def _complete_packed(self, head: bytes) -> None:
        """Put the head before the frames."""

    @abstractmethod
    def _store_bytes(self) -> None: ...

    @abstractmethod
    def discard(self) -> None:
        """Remove the bytes. Does nothing after `commit` or when called again."""


ChunkSize: TypeAlias = Callable[[], int]
"""Returns the bytes of the next chunk."""


def full_chunk() -> int:
    """The size of a chunk where nothing else bounds it."""
    return CHUNK


class Reader(Protocol):
    """Chunks of one blob. Close the reader unless it was read to its end. `chunk` can be replaced before reading."""

    chunk: ChunkSize

    def __iter__(self) -> Iterator[bytes]: ...

    def __next__(self) -> bytes: ...

    def close(self) -> None:
        """Release the file or the connection."""


class SequentialReader(ABC):
    """A reader from a position: `left` bytes, or all of the rest."""

    def __init__(self, at: int, left: int | None) -> None:
        self.chunk: ChunkSize = full_chunk
        self._at, self._left = at, left

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        data = self._read()
        if not data:
            self.close()
            raise StopIteration
        self._at += len(data)
        if self._left is not None:
            self._left -= len(data)
        return data

    @abstractmethod
    def _read(self) -> bytes:
        """Return the next chunk, empty at the end."""

    @abstractmethod
    def close(self) -> None:
        """Release the file or the connection."""


class PackedReader(SequentialReader):
    """The plain bytes of a packed blob, by a reader of its packed bytes from the frame of `offset` on."""

    def __init__(self, stored: Reader, sha256: str, head: PackedHead, offset: int, length: int | None) -> None:
        super().__init__(offset, length)
        self.stored = stored
        self.size = head.size
        stored.chunk = lambda: min(self.chunk(), packed.FRAME // 2)
        self._sha256, self._data = sha256, b""
        self._plain = head.plain(iter(stored), offset, length)

    def _read(self) -> bytes:
        if not self._data:
            try:
                self._data = next(self._plain, b"")
            except DamagedError:
                raise damaged_blob(self._sha256) from None
        size = self.chunk()
        data, self._data = self._data[:size], self._data[size:]
        return data

    def close(self) -> None:
        """Close the reader of the packed bytes."""
        self._data = b""
        self._plain.close()
        self.stored.close()


@dataclass(frozen=True, slots=True)
class StoredItem:
    """One item in a store. `sha256` is None for the remains of an interrupted upload."""

    name: str
    sha256: str | None
    size: int
    modified: float


class Store(Protocol):
    """A blob store. `page`: number of bytes for which one read costs about as much as reading 1 byte, or 0.

    `digests`: the sha256 of files whose blobs this process received in order. `folder`: on whose disk the bytes are;
    None on a server.
    """

    page: int
    digests: FileDigests
    owner: StoreOwner
    folder: Path | None

    def reach(self) -> None:
        """Check that the store can be reached as it is configured. Raises `UsageError`, `TemporaryError`."""

    def adopt(self, id: str) -> None:
        """Write the id of the registry whose store it is from now on. Raises `DiskFullError`, `TemporaryError`."""

    def is_empty(self) -> bool:
        """Whether there is no blob. Raises `TemporaryError`."""

    def begin(self, sha256: str, size: int) -> Upload:
        """Start the upload of a blob. `size`: its announced size in bytes. Raises `DiskFullError`."""

    def check(self, sha256: str) -> int:
        """Verify the bytes of a blob, unless this process has verified them before, and return their number.

        Raises `NoSuchBlobError`, and `DamagedBlobError` after moving damaged bytes out of the way.
        """

    def open(self, sha256: str, offset: int = 0, length: int | None = None) -> Reader:
        """Read a blob from `offset` (`length` bytes, or all of the rest) after verifying it as `check` does."""

    def read(self, sha256: str, offset: int = 0, length: int | None = None) -> Reader:
        """Read a blob without verifying it. Never send these bytes to a client. Raises `NoSuchBlobError`."""

    def open_packed(self, sha256: str) -> tuple[int, Reader] | None:
        """Return the size of the packed bytes of a blob, and a reader of them; None if it is not stored packed.

        Verifies it as `check` does, and raises the same.
        """

    def held(self, sha256: str, offset: int, length: int) -> bytes | None:
        """Return a range of a blob that this process still has in memory since it received it, else None."""

    def url(self, sha256: str, local: bool = False) -> str | None:
        """Return a URL from which a client can download the blob directly, or None.

        `local`: the client runs on this machine. The blob may not exist, or may be stored packed: this sends no request
        to the store.
        """

    def is_packed(self, sha256: str) -> bool:
        """Whether a blob is stored packed. False if it does not exist."""

    def stat(self, sha256: str) -> int | None:
        """Return the size of a blob in bytes without reading it, or None if it does not exist."""

    def known(self, sha256: str) -> int | None:
        """Return the size of a blob that this process wrote or verified within `RECENT` seconds, or None.

        This sends no request to a server.
        """

    def stats(self, names: Iterable[str]) -> dict[str, int]:
        """Return the sizes in bytes of those blobs that exist."""

    def delete(self, sha256: str) -> None:
        """Remove a blob. Does nothing if it does not exist."""

    def set_aside(self, sha256: str) -> None:
        """Move damaged bytes out of the way, and keep them for analysis."""

    def walk(self) -> Iterator[StoredItem]:
        """Yield every item in the store, in no particular order."""

    def damaged(self) -> Iterator[StoredItem]:
        """Yield the damaged blobs that were set aside; `modified` is when. Raises `TemporaryError`."""

    def drop(self, kept: StoredItem) -> None:
        """Remove the remains of an interrupted upload, or a damaged blob that was set aside."""

    def drop_stale(self, age: float = STALE) -> int:
        """Remove unfinished uploads older than `age` seconds, and return their number."""

    def record_revoked_token(self, id: str) -> None:
        """Keep the id of a revoked token durably. Raises `DiskFullError`, `TemporaryError`."""

    def forget_revoked_token(self, id: str) -> None:
        """Remove the id of a revoked token that no backup can revive. Raises `TemporaryError`."""

    def revoked_tokens(self) -> set[str]:
        """Return the ids of revoked tokens. Raises `TemporaryError`."""

    def keep_note(self, name: str, data: bytes) -> None:
        """Keep a small document durably, in place of an earlier one of this name: 32 hex digits.

        It is what a database that is restored must not have forgotten. Raises `DiskFullError`, `TemporaryError`.
        """

    def notes(self) -> dict[str, bytes]:
        """Return what `keep_note` keeps, by name. Raises `TemporaryError`."""

    def prepare(self) -> None:
        """Make what the store needs, and check that it accepts writes. Raises as `ready`."""

    def ready(self) -> None:
        """Check that the store is this registry's and accepts writes.

        Raises `TemporaryError`, and `UsageError` for a wrong configuration.
        """


ASIDE = re.compile(r"([0-9a-f]{64})\.([0-9]{1,15})")


def aside_name(sha256: str) -> str:
    """Return the name of a damaged blob that is set aside now: with the milliseconds since 1970."""
    return f"{sha256}.{time.time_ns() // 1_000_000}"


def aside_item(path: str, size: int) -> StoredItem | None:
    """Return a damaged blob that was set aside, by its path; None for anything else."""
    found = ASIDE.fullmatch(path.rpartition("/")[2])
    return StoredItem(path, found[1], size, int(found[2]) / 1000) if found else None


def damaged_blob(sha256: str) -> DamagedBlobError:
    """Return the error for stored bytes that do not match their sha256."""
    return DamagedBlobError(f"Blob {sha256} is damaged in the registry's store.", context={"sha256": sha256})


def no_such_blob(sha256: str) -> NoSuchBlobError:
    """Return the error for a blob that does not exist."""
    return NoSuchBlobError(f"The registry does not have blob {sha256}.", context={"missing": [sha256]})
