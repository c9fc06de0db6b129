"""Moving the blobs of a manifest: several at once, each checked while it moves, in any order, again when it failed."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from mxr.artifact.manifest import Blob, File
from mxr.errors import Damaged, DamagedBlob, MxrError, NoSuchBlob, Temporary, Unreachable
from mxr.util import disk
from mxr.util.frozen import dataclass

from .registry import CHUNK, Client

T = TypeVar("T")
Progress = Callable[[int], None]
Read = Callable[[Blob], Iterator[bytes]]
"""Gives the bytes of a blob, from the beginning each time it is called."""

AT_ONCE = 4

LARGE = 16 << 20
"""Bytes of a blob that is worth a question more."""

TRIES = 3
"""Of one blob: the first may meet a connection that the registry had closed, the second a registry that restarts."""


def ignore(done: int) -> None:
    """A progress that nobody watches."""


Places = Mapping[str, tuple[Path, int]]
"""Where blobs may lie on this host: path and offset by sha256."""


def settle(send: Callable[[], object], say: Callable[[], T]) -> T:
    """What `say` gives once everything that it names was sent: what a sweep takes in between is sent again.

    Raises `Temporary` where the registry sweeps faster than this host sends.
    """
    for _ in range(TRIES):
        send()
        try:
            return say()
        except NoSuchBlob as problem:
            swept = problem
    raise Temporary(
        "The registry removes the bytes faster than they can be published.",
        hint="Push again; if this stays so, give the sweep a longer grace_hours.",
    ) from swept


def download(client: Client, file: File, final: Path, progress: Progress = ignore, here: Places | None = None) -> None:
    """Fetches a file's blobs to `final`, which appears only when every blob and the whole file have their sha256.

    What lies `here` is copied, and checked as what comes from the registry is; what is wrong there is fetched.
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
            blob = file.blobs[index]
            bring_blob(
                client, blob, DownloadTarget(own, offsets[index], final), (here or {}).get(blob.sha256), progress
            )
            done[index].set()

        with TransferPool(fetch, range(len(file.blobs)), AT_ONCE, lambda: os.close(own)) as crew:
            if len(file.blobs) > 1:
                _check_whole(file, descriptor, offsets, done, crew)


def _offsets(file: File) -> list[int]:
    found, at = [], 0
    for blob in file.blobs:
        found.append(at)
        at += blob.size
    return found


def _check_whole(
    file: File, descriptor: int, offsets: Sequence[int], done: Sequence[threading.Event], crew: TransferPool[int]
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


@dataclass(frozen=True, slots=True)
class DownloadTarget:
    """Where the bytes of a blob go: an open file and the place in it; `final` is its name for an error."""

    descriptor: int
    offset: int
    final: Path


def bring_blob(
    client: Client, blob: Blob, landing: DownloadTarget, here: tuple[Path, int] | None, progress: Progress = ignore
) -> None:
    """Writes a blob to its place: copied from `here` where that is a place with its bytes, else from the registry.

    Either way it is checked while it is written. Raises `DamagedBlob`, `Unreachable`, or a disk fault.
    """
    if here is None or not _copy_blob(here, blob, landing, progress):
        _fetch_blob(client, blob, landing, progress)


def _copy_blob(here: tuple[Path, int], blob: Blob, landing: DownloadTarget, progress: Progress) -> bool:
    """Copies a blob that may lie on this host; whether it was there, and right."""
    at, digest = 0, sha256()
    with suppress(OSError), here[0].open("rb") as source:
        while at < blob.size and (data := os.pread(source.fileno(), min(CHUNK, blob.size - at), here[1] + at)):
            digest.update(data)
            with disk.faults(landing.final):
                disk.write_at(landing.descriptor, data, landing.offset + at)
            at += len(data)
            progress(len(data))
    if digest.hexdigest() == blob.sha256:
        return True
    progress(-at)
    return False


def _fetch_blob(client: Client, blob: Blob, landing: DownloadTarget, progress: Progress) -> None:
    for attempt in range(1, TRIES + 1):
        at, digest = 0, sha256()
        try:
            # What a signed URL gave wrong or not at all, the registry may still have right.
            with client.blob(blob.sha256, direct=attempt == 1) as chunks:
                for chunk in chunks:
                    if at + len(chunk) > blob.size:
                        break
                    digest.update(chunk)
                    with disk.faults(landing.final):
                        disk.write_at(landing.descriptor, chunk, landing.offset + at)
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
    places = dict(zip((blob.sha256 for blob in file.blobs), _offsets(file), strict=True))
    with disk.faults(path, "read"), path.open("rb") as source:

        def read(blob: Blob) -> Iterator[bytes]:
            return _slices(source.fileno(), places[blob.sha256], blob.size)

        return send(client, {blob.sha256: blob for blob in file.blobs}.values(), read, progress)


def send(client: Client, blobs: Collection[Blob], read: Read, progress: Progress = ignore) -> int:
    """Sends those of these blobs that the registry does not have yet, as `read` gives them; the bytes sent.

    In any order, and a large one only while nobody else has sent it: hosts that send one model at once share the work.
    """
    known = {blob.sha256: blob for blob in blobs}
    needed = [known[sha] for sha in client.missing(blobs).missing if sha in known]
    random.shuffle(needed)
    sent: list[int] = []

    def send_one(blob: Blob) -> None:
        if blob.size < LARGE or client.missing([blob]).missing:
            _send_blob(client, blob, read, progress)
            sent.append(blob.size)
        else:
            progress(blob.size)

    with TransferPool(send_one, needed, AT_ONCE):
        pass
    return sum(sent)


def _send_blob(client: Client, blob: Blob, read: Read, progress: Progress) -> None:
    for attempt in range(1, TRIES + 1):
        try:
            client.put_blob(blob, read(blob))
            progress(blob.size)
            return
        except (Unreachable, Temporary):
            if attempt == TRIES:
                raise


def _slices(descriptor: int, offset: int, size: int) -> Iterator[bytes]:
    for at in range(offset, offset + size, CHUNK):
        yield os.pread(descriptor, min(CHUNK, offset + size - at), at)


class TransferPool(Generic[T]):
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

    def __enter__(self) -> TransferPool[T]:
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
