"""Transfers of the blobs of a manifest: several at once, each verified during the transfer and retried by itself."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial, reduce
from hashlib import sha256
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from mxr.artifact.manifest import NO_CHAIN, Blob, File, next_chain
from mxr.display import progress
from mxr.errors import DamagedBlobError, DamagedError, NoSuchBlobError, TemporaryError
from mxr.protocol.artifacts import MAX_FOLLOWED
from mxr.util import disk
from mxr.util.frozen import dataclass
from mxr.util.hashing import CHUNK, Data, hash_chunks, read_chunks

from .registry import Client
from .retry import DAMAGED, retry

T = TypeVar("T")
Read = Callable[[Blob], Iterator[bytes]]
"""Returns the bytes of a blob, from its beginning with each call."""

MAX_PUBLISH_ATTEMPTS = 3

AT_ONCE = 4
"""Blobs that are transferred at the same time."""

NOTICED = 0.2
"""Seconds after which a Ctrl-C is noticed in any case."""

LARGE = 16 << 20
"""Bytes from which an upload first asks whether another host has sent the blob in the meantime."""

Places = Mapping[str, tuple[Path, int]]
"""Where blobs may be found on this host: path and offset by sha256."""


def upload_and_publish(upload: Callable[[], object], publish: Callable[[], T]) -> T:
    """Call `upload`, then `publish`, and return the result of `publish`.

    Both are repeated when garbage collection removed uploaded blobs in between. Raises `TemporaryError` when that
    happens with each attempt.
    """

    for _ in range(MAX_PUBLISH_ATTEMPTS):
        upload()
        with suppress(NoSuchBlobError):
            return publish()
    raise TemporaryError(
        "The registry removes uploaded bytes before they can be published.",
        hint="Push again. If this repeats, set a longer grace_hours for the registry's sweep.",
    )


def download(
    client: Client,
    file: File,
    final: Path,
    here: Places | None = None,
    target: AbstractContextManager[int] | None = None,
    name: str | None = None,
) -> os.stat_result:
    """Download a file to `final`, which appears only when every blob and the whole file match their sha256.

    `name`: what the progress calls the file. Blobs in `here` are copied from there and verified in the same way; a blob
    that does not match is downloaded.
    `target` opens the file to write and gives it its name (`disk.atomic_file` by default); what an interrupted download
    left in it is hashed and not transferred again. Returns the status of the file when its last byte was written.
    Raises `DamagedError` when the registry sends bytes that do not match, `UnreachableError`, and a disk error as
    `disk.faults` does.
    """
    received, step = False, progress.begin(f"fetching {name or file.name}", file.size)

    def count(size: int) -> None:
        nonlocal received
        received = True
        step(size)

    with target or disk.atomic_file(final, mode=0o444) as descriptor:
        resumed = os.fstat(descriptor).st_size > 0
        try:
            with disk.faults(final):
                os.ftruncate(descriptor, min(file.size, os.fstat(descriptor).st_size))
                if file.size:
                    os.posix_fallocate(descriptor, 0, file.size)
            spans = list(file.spans())
            done = [threading.Event() for _ in spans]
            # Threads can outlive an interrupted download. By then, the descriptor can belong to another file.
            own = os.dup(descriptor)

            def fetch(index: int) -> None:
                offset, blob = spans[index]
                place = (here or {}).get(blob.sha256)
                obtain_blob(client, blob, DownloadTarget(own, offset, final, resumed), place, count)
                done[index].set()

            with TransferPool(fetch, range(len(spans)), AT_ONCE, lambda: os.close(own)) as pool:
                if len(spans) > 1:
                    _check_whole(file, descriptor, done, pool)
        except BaseException:
            if not received:
                with suppress(OSError):
                    os.ftruncate(descriptor, 0)
            raise
        return os.fstat(descriptor)


def _check_whole(file: File, descriptor: int, done: Sequence[threading.Event], pool: TransferPool[int]) -> None:
    """Hash the whole file in order while its blobs arrive, so that the check takes hardly any additional time."""
    digest = sha256()
    for (offset, blob), arrived in zip(file.spans(), done, strict=True):
        while not arrived.wait(0.05):
            if pool.failure:
                return
        hash_chunks(read_chunks(descriptor, offset, blob.size), digest)
    if digest.hexdigest() != file.sha256:
        raise DamagedError(
            f"{file.name}: every blob matches its sha256, but the whole file does not: the manifest is wrong.",
            hint="Publish the program again from its source.",
        )


@dataclass(frozen=True, slots=True)
class DownloadTarget:
    """Where the bytes of a blob are written: an open file and an offset in it.

    `final`: its name in errors. `resumed`: an earlier download may have written some of them.
    """

    descriptor: int
    offset: int
    final: Path
    resumed: bool = False

    def write(self, data: Data, at: int) -> None:
        """Write data at an offset within the blob. Raises as `disk.faults` does."""
        with disk.faults(self.final):
            disk.write_at(self.descriptor, data, self.offset + at)

    def read(self, size: int, at: int = 0) -> Iterator[memoryview]:
        """Return what is there from an offset within the blob, in chunks. Raises as `disk.faults` does."""
        with disk.faults(self.final, "read"):
            yield from read_chunks(self.descriptor, self.offset + at, size)


def obtain_blob(
    client: Client, blob: Blob, target: DownloadTarget, here: tuple[Path, int] | None, step: progress.Step
) -> None:
    """Write a blob to `target`: what is there already stays, the rest is copied from `here`, else downloaded.

    Verifies the sha256 during the writing. Raises `DamagedBlobError`, `UnreachableError`, or a disk error.
    """
    blob_download = _BlobDownload(client, blob, target, step)
    if target.resumed and blob_download.adopt():
        return
    if here is None or blob_download.done or not _copy_blob(here, blob, target, step):
        _persist(client, blob_download.attempt, lambda: blob_download.done)


def _persist(client: Client, attempt: Callable[[], None], moved: Callable[[], object] | None = None) -> None:
    """Repeat the transfer of one blob while the registry is away, and a few times where its bytes are wrong."""
    retry(DAMAGED, lambda: retry(client.transfers, attempt, moved=moved))


def _copy_blob(here: tuple[Path, int], blob: Blob, target: DownloadTarget, step: progress.Step) -> bool:
    """Copy a blob from another file on this host. Returns whether the bytes there match its sha256."""
    path, offset = here
    done, digest = 0, sha256()

    def sink(data: Data, at: int) -> None:
        nonlocal done
        target.write(data, at)
        done += len(data)
        step(len(data))

    with suppress(OSError), path.open("rb", buffering=0) as source:
        hash_chunks(read_chunks(source.fileno(), offset, blob.size), digest, sink=sink)
    if digest.hexdigest() == blob.sha256:
        return True
    step(-done)
    return False


class _BlobDownload:
    """A blob that arrives in a file, by several attempts if necessary. Each goes on where the last one stopped."""

    def __init__(self, client: Client, blob: Blob, target: DownloadTarget, step: progress.Step) -> None:
        self.done = 0
        """Bytes that are in the file and in the digest."""
        self._digest = sha256()
        self._client, self._blob, self._target, self._step = client, blob, target, step
        self._direct = True

    def adopt(self) -> bool:
        """Take what an earlier download has written in order, up to the zeros of what it did not write.

        Returns whether that is the whole blob. Nobody says that these bytes are right: the digest will.
        """
        size, filled = self._blob.size, 0
        for at in range((size - 1) // CHUNK * CHUNK, -1, -CHUNK):
            if kept := len(b"".join(self._target.read(min(CHUNK, size - at), at)).rstrip(b"\0")):
                filled = at + kept
                break
        hash_chunks(self._target.read(filled), self._digest)
        whole = self._digest.copy()
        hash_chunks(self._target.read(size - filled, filled), whole)
        complete = whole.hexdigest() == self._blob.sha256
        self.done = self._blob.size if complete else filled
        if self.done:
            self._step(self.done)
        return complete

    def attempt(self) -> None:
        """Download the rest. Raises `DamagedBlobError` for bytes that do not match; the next attempt takes all."""
        blob = self._blob
        # A signed URL can fail where the registry itself still has the right bytes.
        direct, self._direct = self._direct, False
        try:
            if self.done < blob.size:
                with self._client.blob(blob.sha256, blob.size, direct=direct, start=self.done) as chunks:
                    for chunk in chunks:
                        self._write(chunk)
            if self._digest.hexdigest() != blob.sha256:
                raise _damaged(blob)
        except DamagedBlobError:
            self._step(-self.done)
            self.done, self._digest = 0, sha256()
            raise

    def _write(self, chunk: Data) -> None:
        if self.done + len(chunk) > self._blob.size:
            raise _damaged(self._blob)
        self._target.write(chunk, self.done)
        self._digest.update(chunk)
        self.done += len(chunk)
        self._step(len(chunk))


def _damaged(blob: Blob) -> DamagedBlobError:
    return DamagedBlobError(
        f"The registry sent bytes for blob {blob.sha256} that do not match this sha256.",
        hint="Push the file again to repair the blob. `mxr-registry fsck` on the registry lists all damaged data.",
    )


def upload(client: Client, path: Path, file: File) -> int:
    """Upload the blobs of the file at `path` that the registry does not have. Returns the number of bytes sent.

    After an interruption, call it again. Raises `UnreachableError`, and `DamagedError` when the file changed in the
    meantime.
    """
    offsets = {blob.sha256: offset for offset, blob in file.spans()}
    with disk.faults(path, "read"), path.open("rb", buffering=0) as source:

        def read(blob: Blob) -> Iterator[bytes]:
            # As bytes: the connection can still hold a chunk when the next one is read into the same buffer.
            return map(bytes, read_chunks(source.fileno(), offsets[blob.sha256], blob.size))

        return send(client, [file], read, path.name)


def send(client: Client, files: Sequence[File], read: Read, name: str) -> int:
    """Upload those blobs of these files that the registry does not have. Returns the number of bytes sent.

    `name`: what the progress calls them.

    The blobs of one file are sent in order, over one connection: the registry hashes the whole file as they arrive.
    Before each large blob the registry is asked once more: hosts that upload the same model at the same time share the
    work.
    """
    blobs = {blob.sha256: blob for file in files for blob in file.blobs}
    needed = set(client.missing(blobs.values()).missing)
    sent: list[int] = []
    step = progress.begin(f"uploading {name}", sum(file.size for file in files))

    def send_file(part: tuple[File, set[str]]) -> None:
        file, needed = part
        before = [NO_CHAIN]
        for blob in file.blobs:
            if pool.failure:
                return
            if blob.sha256 not in needed:
                before.append(blob.sha256)
                step(blob.size)
                continue
            needed.discard(blob.sha256)
            if blob.size < LARGE or client.missing([blob]).missing:
                follows = before if len(file.blobs) > 1 and len(before) <= MAX_FOLLOWED else ()
                _persist(client, partial(_send_blob, client, blob, read, follows, step))
                sent.append(blob.size)
                before = [reduce(next_chain, [*before, blob.sha256])]
            else:
                before.append(blob.sha256)
                step(blob.size)

    pool = TransferPool(send_file, [(file, _take_needed(file, needed)) for file in files], AT_ONCE)
    with pool:
        pass
    return sum(sent)


def _take_needed(file: File, needed: set[str]) -> set[str]:
    """Take the blobs of a file out of `needed`: no two files send one blob."""
    found = needed & {blob.sha256 for blob in file.blobs}
    needed -= found
    return found


def _send_blob(client: Client, blob: Blob, read: Read, follows: Sequence[str], step: progress.Step) -> None:
    sent = 0

    def chunks() -> Iterator[bytes]:
        nonlocal sent
        for chunk in read(blob):
            yield chunk
            sent += len(chunk)
            step(len(chunk))

    try:
        client.put_blob(blob, chunks(), follows=follows)
    except BaseException:
        step(-sent)
        raise
    # The registry can answer before it has read all of it.
    step(blob.size - sent)


class TransferPool(Generic[T]):
    """A few threads that work through a list. The first failure stops them and is raised at the end of the block.

    An interrupted block ends at once and does not wait for threads that wait for the network. `last` is called when the
    last thread has ended.
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
                # A join without a time limit misses a Ctrl-C that arrives right before it waits, or in another thread.
                while thread.is_alive():
                    thread.join(NOTICED)
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
