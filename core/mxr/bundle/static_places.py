"""Where the static form of a registry is written: a folder, or the objects of a bucket under a prefix."""

from __future__ import annotations

import fcntl
import os
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Protocol

from mxr.configuration.file_urls import BUCKET
from mxr.errors import MxrError, TemporaryError, WouldOverwriteError
from mxr.protocol.static_form import FOLDERS, INDEXES, ROOT, is_immutable
from mxr.s3.user_bucket import UserBucket
from mxr.util import disk
from mxr.util.frozen import dataclass
from mxr.util.hashing import sha256_hex

LOCK = ".mxr-lock"
"""Lets one writer at a time write to a folder."""

WRITERS = ".mxr-writers/"
"""Below it, each writer of a bucket has an object while it writes, or waits for another one."""

BEAT, DEAD = 15.0, 90.0
"""Seconds after which a writer writes its object again, and after which one that did not do so is over."""

TIMEOUT = 60.0

FOREVER, SHORTLY = "public, max-age=31536000, immutable", "public, max-age=60"
"""How long caches keep files that never change, and others. Source: RFC 9111, 5.2.2, and RFC 8246."""


@dataclass(frozen=True, slots=True)
class PlacedFile:
    """A file that is there. `modified`: seconds since 1970."""

    name: str
    size: int
    modified: float


class StaticPlace(Protocol):
    """The files of a static registry, by name. Every method raises `MxrError` where the place cannot be used."""

    where: str

    def locked(self) -> AbstractContextManager[None]:
        """Wait until no other writer is there, and keep others away. Raises `WouldOverwriteError` for other files."""
        ...

    def size(self, name: str) -> int | None:
        """Bytes of a file, or None. What this writer wrote counts."""
        ...

    def read(self, name: str) -> bytes | None:
        """What a file has, or None."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """Write a file as a whole."""
        ...

    def blob(self, name: str) -> AbstractContextManager[tuple[int, Path]]:
        """Yield a descriptor to write to, and a path for errors; the file appears at the end, whole."""
        ...

    def files(self, folder: str) -> Iterator[PlacedFile]:
        """Yield the files below a folder."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file."""
        ...


def open_place(where: str) -> StaticPlace:
    """Return the place at a path or an `s3://` URL. Raises `UsageError`."""
    if where.startswith(BUCKET):
        return BucketPlace(where.rstrip("/"))
    return FolderPlace(Path(where.removeprefix("file://") if where.startswith("file:///") else where))


class FolderPlace:
    """A folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.where = str(folder)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """See `StaticPlace.locked`."""
        with disk.faults(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            _refuse_others(self.where, {each.name for each in self._folder.iterdir()})
            descriptor = os.open(self._folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            with disk.faults(self._folder):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def size(self, name: str) -> int | None:
        """See `StaticPlace.size`."""
        path = self._folder / name
        with disk.faults(path, "read"):
            return path.stat().st_size if path.is_file() else None

    def read(self, name: str) -> bytes | None:
        """See `StaticPlace.read`."""
        path = self._folder / name
        with disk.faults(path, "read"):
            return path.read_bytes() if path.exists() else None

    def write(self, name: str, data: bytes) -> None:
        """See `StaticPlace.write`."""
        disk.write_whole(self._folder / name, data)

    @contextmanager
    def blob(self, name: str) -> Iterator[tuple[int, Path]]:
        """See `StaticPlace.blob`."""
        final = self._folder / name
        with disk.atomic_file(final) as descriptor:
            yield descriptor, final

    def files(self, folder: str) -> Iterator[PlacedFile]:
        """See `StaticPlace.files`."""
        for path in sorted((self._folder / folder).rglob("*")):
            with disk.faults(path):
                if path.is_file():
                    found = path.stat()
                    yield PlacedFile(str(path.relative_to(self._folder)), found.st_size, found.st_mtime)

    def remove(self, name: str) -> None:
        """See `StaticPlace.remove`."""
        path = self._folder / name
        with disk.faults(path):
            path.unlink()


class BucketPlace:
    """The objects of a bucket under a prefix. One listing says what is there.

    Writers take turns without conditional requests, in which S3 servers differ: each writes an object of its own, and
    lists those of others. Who sees another one removes its own, and tries again later. So of two that begin at once,
    at most one goes on. The server's clock says whose object was not renewed for long.
    """

    def __init__(self, url: str) -> None:
        self.where = url
        self._at = UserBucket(url, TIMEOUT)
        self._bucket = self._at.bucket
        self._mine = f"{WRITERS}{os.urandom(8).hex()}"
        self._files: dict[str, PlacedFile] = {}
        self._beat = 0.0

    @contextmanager
    def locked(self) -> Iterator[None]:
        """See `StaticPlace.locked`."""
        # Before anything is written there.
        if self.read(ROOT) is None:
            _refuse_others(self.where, {each.name.split("/")[0] for each in self._walk("")})
        ended = threading.Event()
        beats = threading.Thread(target=self._keep, args=(ended,), daemon=True)
        try:
            while not self._enter():
                time.sleep(random.uniform(0.5, 3.0))
            beats.start()
            self._files = {each.name: each for each in self._walk("")}
            yield
        finally:
            ended.set()
            with suppress(MxrError):
                self._bucket.delete(self._at.key(self._mine))

    def _enter(self) -> bool:
        self._claim()
        others = list(self._walk(WRITERS))
        now = next((each.modified for each in others if each.name == self._mine), None)
        alive = False
        for each in others:
            if each.name == self._mine:
                continue
            if now is not None and each.modified < now - DEAD:
                self.remove(each.name)
            else:
                alive = True
        if now is None or alive:
            self.remove(self._mine)
            return False
        return True

    def _claim(self) -> None:
        began = time.monotonic()
        self._put(self._mine, b"")
        self._beat = began

    def _keep(self, ended: threading.Event) -> None:
        while not ended.wait(BEAT):
            with suppress(MxrError):
                self._claim()

    def _walk(self, folder: str) -> Iterator[PlacedFile]:
        for each in self._bucket.walk(self._at.key(folder)):
            yield PlacedFile(self._at.name(each.key), each.size, each.modified)

    def size(self, name: str) -> int | None:
        """See `StaticPlace.size`."""
        found = self._files.get(name)
        return None if found is None else found.size

    def read(self, name: str) -> bytes | None:
        """See `StaticPlace.read`."""
        body = self._bucket.get(self._at.key(name))
        if body is None:
            return None
        try:
            return b"".join(iter(lambda: body.read(1 << 20), b""))
        finally:
            body.close()

    def write(self, name: str, data: bytes) -> None:
        """See `StaticPlace.write`. Raises `TemporaryError` if another writer may have taken over."""
        if time.monotonic() - self._beat > DEAD - BEAT:
            raise TemporaryError(
                f"{self.where} did not answer for so long that another writer may have begun.",
                hint="Run the same command again.",
            )
        self._put(name, data)

    def _put(self, name: str, data: bytes) -> None:
        self._files[name] = PlacedFile(name, len(data), time.time())
        cache = FOREVER if is_immutable(name) else SHORTLY
        kind = "application/json" if name.endswith(".json") else "application/octet-stream"
        self._bucket.put(self._at.key(name), data, sha256_hex(data), CacheControl=cache, ContentType=kind)

    @contextmanager
    def blob(self, name: str) -> Iterator[tuple[int, Path]]:
        """See `StaticPlace.blob`."""
        with tempfile.TemporaryFile() as file:
            path = Path(tempfile.gettempdir())
            yield file.fileno(), path
            with disk.faults(path, "read"):
                data = os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)
        self.write(name, data)

    def files(self, folder: str) -> Iterator[PlacedFile]:
        """See `StaticPlace.files`."""
        return (each for name, each in sorted(self._files.items()) if name.startswith(f"{folder}/"))

    def remove(self, name: str) -> None:
        """See `StaticPlace.remove`."""
        self._bucket.delete(self._at.key(name))


def _refuse_others(where: str, names: set[str]) -> None:
    if ROOT not in names and names - {LOCK, WRITERS.strip("/"), INDEXES, *FOLDERS}:
        raise WouldOverwriteError(
            f"{where} has other files, and no {ROOT}.",
            hint="Choose an empty folder, or one that `mxr export --static` wrote.",
        )
