"""What a store of blobs can do: one protocol of few verbs, and an upload that lets no wrong bytes through.

A store knows bytes by their sha256 and nothing else: no namespaces, no names. What is here and whose it is, the
database says. Every store passes the same conformance suite.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256 as new_sha256
from typing import Protocol

from mxr.errors import Damaged, DamagedBlob, NoSuchBlob

CHUNK = 1 << 20
"""Bytes that are read or written at once."""

STALE = 86_400.0
"""Seconds after which an upload that was never finished is removed at start."""


class Upload(ABC):
    """Bytes on their way in, hashed as they come. They have no name that anyone reads before `commit`."""

    def __init__(self, sha256: str, size: int | None) -> None:
        self.sha256 = sha256
        self.size = size
        self.received = 0
        self._hash = new_sha256()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Take the next bytes. Raises `Damaged` when they are more than were announced, `DiskFull`."""
        self.received += len(data)
        if self.size is not None and self.received > self.size:
            raise self._wrong(f"more than the {self.size} bytes that were announced")
        self._hash.update(data)
        self._put(data)

    def commit(self) -> int:
        """Keep the bytes, durably, under their sha256; how many there are. Raises `Damaged` when they are others.

        A second upload of the same bytes replaces the first: both are right.
        """
        if self.size is not None and self.received != self.size:
            raise self._wrong(f"{self.received} of {self.size} bytes")
        found = self._hash.hexdigest()
        if found != self.sha256:
            raise self._wrong(f"bytes with the sha256 {found}")
        self._keep()
        return self.received

    def _wrong(self, found: str) -> Damaged:
        self.discard()
        return Damaged(
            f"The bytes sent as blob {self.sha256} are not those: the registry received {found}.",
            hint="Send the file again. If this repeats, it changes while it is read, or is altered on the way.",
            detail={"sha256": self.sha256, "received": self.received},
        )

    @abstractmethod
    def _put(self, data: bytes | bytearray | memoryview) -> None: ...

    @abstractmethod
    def _keep(self) -> None: ...

    @abstractmethod
    def discard(self) -> None:
        """Forget the bytes. Does nothing after `commit`, or the second time."""


class Reader(Protocol):
    """Chunks of one blob. Close it when it is not read to its end."""

    def __iter__(self) -> Iterator[bytes]: ...

    def __next__(self) -> bytes: ...

    def close(self) -> None:
        """Give back what it holds."""


@dataclass(frozen=True, slots=True)
class StoredItem:
    """One thing that lies in a store. `sha256` is None for what an interrupted upload left behind."""

    name: str
    sha256: str | None
    size: int
    modified: float


class Store(Protocol):
    """Where the bytes are. `page`: bytes that take hardly longer to read than one; 0 where a few are cheap."""

    page: int

    def begin(self, sha256: str, size: int | None = None) -> Upload:
        """Begin to take the bytes of a blob; `size` where it was announced. Raises `DiskFull`."""

    def check(self, sha256: str) -> int:
        """The blob's size in bytes, after making sure that its bytes are right, or remembering that they were.

        Raises `NoSuchBlob`, and `DamagedBlob` after setting the wrong bytes aside.
        """

    def open(self, sha256: str, offset: int = 0, length: int | None = None) -> Reader:
        """Bytes that were checked as by `check`, from `offset`, all or `length` of them."""

    def read(self, sha256: str, offset: int = 0, length: int | None = None) -> Reader:
        """Bytes as they lie there, not checked: never to be handed out. Raises `NoSuchBlob`."""

    def url(self, sha256: str, near: bool = False) -> str | None:
        """An address that a client can read the blob from by itself, or None; `near`: it is on this machine.

        Nothing is looked at: there may be no such blob.
        """

    def stat(self, sha256: str) -> int | None:
        """The blob's size in bytes, or None where it is not here. Reads none of it."""

    def stats(self, names: Iterable[str]) -> dict[str, int]:
        """The sizes in bytes of those that are here."""

    def delete(self, sha256: str) -> None:
        """Remove a blob; nothing happens where there is none."""

    def set_aside(self, sha256: str) -> None:
        """Take damaged bytes out of the way, keeping them for who wants to look."""

    def walk(self) -> Iterator[StoredItem]:
        """Everything that lies here, in no order."""

    def drop(self, kept: StoredItem) -> None:
        """Remove what an interrupted upload left behind."""

    def drop_stale(self, age: float = STALE) -> int:
        """Remove uploads that nobody finished and that are older than `age` seconds; how many there were."""

    def ready(self) -> None:
        """Returns when the store can take bytes. Raises `Temporary`, and `Usage` for what has to be set right."""


def damaged(sha256: str) -> DamagedBlob:
    """The error for stored bytes that no longer give their sha256."""
    return DamagedBlob(f"Blob {sha256} is damaged in the registry's store.", detail={"sha256": sha256})


def absent(sha256: str) -> NoSuchBlob:
    """The error for bytes that are not here."""
    return NoSuchBlob(f"The registry does not have blob {sha256}.", detail={"missing": [sha256]})
