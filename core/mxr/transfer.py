"""Moving the blobs of a manifest: several at once, each checked while it moves, in any order, again when it failed."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from . import disk
from .client import CHUNK, Client
from .errors import Damaged, DamagedBlob, MxrError, Temporary, Unreachable
from .manifest import Blob, File

T = TypeVar("T")
Progress = Callable[[int], None]

AT_ONCE = 4
TRIES = 3
"""Of one blob: the first may meet a connection that the registry had closed, the second a registry that restarts."""


def ignore(done: int) -> None:
    """A progress that nobody watches."""


def download(client: Client, file: File, final: Path, progress: Progress = ignore) -> None:
    """Fetches a file's blobs to `final`, which appears only when every blob and the whole file have their sha256.

    Raises `Damaged` when what the registry sends does not have them, `Unreachable`, or a disk fault.
    """
    with disk.landing(final, mode=0o444) as descriptor:
        with disk.faults(final):
            if file.size:
                os.posix_fallocate(descriptor, 0, file.size)
        done = [threading.Event() for _ in file.blobs]
        offsets = _offsets(file)
        # Threads can outlive an interrupted landing, and the number of its descriptor may be another file's by then.
        own = os.dup(descriptor)

        def fetch(index: int) -> None:
            _fetch_blob(client, file.blobs[index], own, offsets[index], final, progress)
            done[index].set()

        with Crew(fetch, range(len(file.blobs)), AT_ONCE, lambda: os.close(own)) as crew:
            if len(file.blobs) > 1:
                _check_whole(file, descriptor, offsets, done, crew)


def _offsets(file: File) -> list[int]:
    found, at = [], 0
    for blob in file.blobs:
        found.append(at)
        at += blob.size
    return found


def _check_whole(
    file: File, descriptor: int, offsets: Sequence[int], done: Sequence[threading.Event], crew: Crew[int]
) -> None:
    """Hashes the file in order, right behind the blobs that arrive, so that the check costs little time of its own."""
    digest = sha256()
    for blob, offset, arrived in zip(file.blobs, offsets, done, strict=True):
        while not arrived.wait(0.05):
            if crew.failure:
                return
        for at in range(offset, offset + blob.size, CHUNK):
            digest.update(os.pread(descriptor, min(CHUNK, offset + blob.size - at), at))
    if digest.hexdigest() != file.sha256:
        raise Damaged(
            f"{file.name}: every blob is right but the whole file is not: its manifest is wrong.",
            hint="Publish the program again from its source.",
        )


def _fetch_blob(client: Client, blob: Blob, descriptor: int, offset: int, final: Path, progress: Progress) -> None:
    for attempt in range(1, TRIES + 1):
        at, digest = 0, sha256()
        try:
            with client.blob(blob.sha256) as chunks:
                for chunk in chunks:
                    if at + len(chunk) > blob.size:
                        break
                    digest.update(chunk)
                    with disk.faults(final):
                        disk.write_at(descriptor, chunk, offset + at)
                    at += len(chunk)
                    progress(len(chunk))
            if digest.hexdigest() == blob.sha256:
                return
            problem: MxrError = DamagedBlob(
                f"What the registry sends for blob {blob.sha256} does not have that sha256.",
                hint="Push the file again to repair it; `mxr-registry fsck` there lists what else is damaged.",
            )
        except (Unreachable, Temporary) as again:
            problem = again
        progress(-at)
        if attempt == TRIES:
            raise problem


def upload(client: Client, path: Path, file: File, progress: Progress = ignore) -> int:
    """Sends the blobs of the file at `path` that the registry does not have yet; the bytes sent.

    Interrupted, it is simply called again. Raises `Unreachable`, `Damaged` when the file changed meanwhile.
    """
    places = {blob.sha256: (blob, offset) for blob, offset in zip(file.blobs, _offsets(file), strict=True)}
    blobs = [blob for blob, _ in places.values()]
    needed = [places[sha] for sha in client.missing(blobs).missing if sha in places]
    with disk.faults(path, "read"), path.open("rb") as source:

        def send(index: int) -> None:
            blob, offset = needed[index]
            _send_blob(client, blob, source.fileno(), offset, progress)

        with Crew(send, range(len(needed)), AT_ONCE):
            pass
    return sum(blob.size for blob, _ in needed)


def _send_blob(client: Client, blob: Blob, descriptor: int, offset: int, progress: Progress) -> None:
    for attempt in range(1, TRIES + 1):
        try:
            client.put_blob(blob, _slices(descriptor, offset, blob.size))
            progress(blob.size)
            return
        except (Unreachable, Temporary):
            if attempt == TRIES:
                raise


def _slices(descriptor: int, offset: int, size: int) -> Iterator[bytes]:
    for at in range(offset, offset + size, CHUNK):
        yield os.pread(descriptor, min(CHUNK, offset + size - at), at)


class Crew(Generic[T]):
    """A few threads that work through a list; the first failure stops them all and is raised when the block ends.

    An interrupted block ends at once, without those that wait for the network. `last` is called when no thread is left.
    """

    def __init__(
        self, work: Callable[[T], None], items: Sequence[T], most: int, last: Callable[[], None] | None = None
    ) -> None:
        self.failure: BaseException | None = None
        self._work = work
        self._last = last
        self._queue: SimpleQueue[T] = SimpleQueue()
        for item in items:
            self._queue.put(item)
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(min(most, len(items)))]
        self._running = len(self._threads)
        self._lock = threading.Lock()

    def __enter__(self) -> Crew[T]:
        for thread in self._threads:
            thread.start()
        if not self._threads and self._last is not None:
            self._last()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._drain()
        if kind is None or issubclass(kind, Exception):
            self._wait()
        if kind is None and self.failure is not None:
            raise self.failure

    def _wait(self) -> None:
        try:
            for thread in self._threads:
                thread.join()
        except BaseException:
            self._drain()
            raise

    def _run(self) -> None:
        try:
            while self.failure is None:
                self._work(self._queue.get_nowait())
        except Empty:
            pass
        except BaseException as problem:
            self.failure = self.failure or problem
            self._drain()
        with self._lock:
            self._running -= 1
            gone = self._running == 0
        if gone and self._last is not None:
            self._last()

    def _drain(self) -> None:
        with suppress(Empty):
            while True:
                self._queue.get_nowait()
