"""The upload of one object, a single PUT that is sent while its bytes arrive, and readers of objects.

    receiving thread  ── chunks, at most HELD ──>  ChunkPipe  ──>  sending thread  ── PUT ──>  S3 server

The signature of the request covers the sha256 that the client named, so the server itself refuses other bytes. The last
chunk is sent only when the bytes match this sha256: what does not match never becomes an object.

Of the readers, one resumes an interrupted body, the other verifies the sha256 before the last chunk.
"""

from __future__ import annotations

import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from hashlib import sha256 as new_sha256
from pathlib import Path
from typing import IO

from mxr.errors import MxrError, TemporaryError
from mxr.s3.bucket import Bucket, ObjectBody, ObjectVersion
from mxr.util import disk
from mxr.util.hashing import CHUNK, sha256_chunks
from mxr_registry.storage.store import (
    Chunk,
    ChunkSize,
    PackedReader,
    SequentialReader,
    Upload,
    damaged_blob,
    no_such_blob,
)

HEAD = 256 << 10
"""First bytes of a blob that `stored` gets."""

SPOOLED = 512 << 10
"""Packed bytes of an upload in memory; more are in a temporary file."""

HELD = 2
"""Chunks that wait in the pipe. One more is held back, and one is being sent."""


class ObjectUpload(Upload):
    """An upload that starts a thread with its second chunk. A blob of one chunk is sent by `commit` itself.

    `stored` is called with what was stored: its version, its plain bytes, whether it is packed, and its first bytes.
    """

    def __init__(
        self,
        bucket: Bucket,
        key: str,
        sha256: str,
        size: int,
        stored: Callable[[ObjectVersion, int, bool, bytes], None],
    ) -> None:
        super().__init__(sha256, size)
        self._bucket, self._key, self._stored = bucket, key, stored
        self._spool: IO[bytes] | None = None
        self._sent = (size, sha256)
        self._last: Chunk = b""
        self._pipe = ChunkPipe(HELD)
        self._sender: threading.Thread | None = None
        self._tag = ""
        self._head = b""

    def write(self, data: Chunk) -> None:
        """See `Upload.write`."""
        if missing := HEAD - len(self._head):
            self._head += bytes(memoryview(data)[:missing])
        super().write(data)

    def _put(self, data: Chunk) -> None:
        if self._last:
            if self._sender is None:
                self._sender = threading.Thread(target=self._send, name=f"put {self.sha256[:8]}", daemon=True)
                self._sender.start()
            self._pipe.put(self._last)
        self._last = data

    def _send(self) -> None:
        try:
            size, digest = self._sent
            self._tag = self._bucket.put_chunks(self._key, self._pipe.get, size, digest, **self._headers)
        except MxrError as problem:
            self._pipe.fail(problem)
        except BaseException as problem:
            self._pipe.fail(TemporaryError(f"Cannot send blob {self.sha256}: {type(problem).__name__}."))
            raise

    def _put_packed(self, data: bytes) -> None:
        """Keep packed bytes: a request says how many there are, and their sha256, before it sends them."""
        with _spooling():
            if self._spool is None:
                self._spool = tempfile.SpooledTemporaryFile(SPOOLED)  # noqa: SIM115 - closed by `discard`
            self._spool.write(data)

    def _complete_packed(self, head: bytes) -> None:
        assert self._spool is not None
        with _spooling():
            self._spool.seek(0)
            self._spool.write(head)
            self._spool.seek(0)
            digest = sha256_chunks(self._packed())
            self._sent = (self._spool.tell(), digest)
            self._spool.seek(0)
            for data in self._packed():
                self._put(data)

    @property
    def _headers(self) -> dict[str, str]:
        """What an HTTP client that follows a signed URL has to know."""
        return {} if self._spool is None else {"ContentEncoding": "zstd"}

    def _packed(self) -> Iterator[bytes]:
        assert self._spool is not None
        return iter(partial(self._spool.read, CHUNK), b"")

    def _store_bytes(self) -> None:
        if self._sender is None:
            self._tag = self._bucket.put(self._key, self._last, self._sent[1], **self._headers)
        else:
            self._pipe.put(self._last)
            self._pipe.close()
            self._sender.join()
            self._pipe.check()
        self._last = b""
        if self._spool is not None:
            self._spool.close()
        version = ObjectVersion(self._tag, self._sent[0])
        self._stored(version, self.received, self._spool is not None, self._head)

    def discard(self) -> None:
        """See `Upload.discard`. The request breaks off, and the server keeps nothing of it."""
        self._last = b""
        if self._spool is not None:
            self._spool.close()
        self._pipe.fail(TemporaryError(f"The upload of blob {self.sha256} was given up."))

    def __del__(self) -> None:
        if self._spool is not None:
            self._spool.close()


def _spooling() -> AbstractContextManager[None]:
    return disk.faults(Path(tempfile.gettempdir()))


class ChunkPipe:
    """Passes chunks from one thread to another, at most `most` at a time."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._chunks: deque[Chunk] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._failure: MxrError | None = None

    def put(self, chunk: Chunk) -> None:
        """Append a chunk, and wait while there are too many. Raises the failure of the other side."""
        with self._changed:
            self._changed.wait_for(lambda: self._failure or len(self._chunks) < self._most)
            self.check()
            self._chunks.append(chunk)
            self._changed.notify_all()

    def close(self) -> None:
        """End the chunks."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def fail(self, problem: MxrError) -> None:
        """Have both sides raise this, unless one has failed before."""
        with self._changed:
            self._failure = self._failure or problem
            self._chunks.clear()
            self._changed.notify_all()

    def get(self) -> Chunk:
        """Return the next chunk, empty at the end. Raises the failure of the other side."""
        with self._changed:
            self._changed.wait_for(lambda: self._failure or self._chunks or self._closed)
            self.check()
            chunk = self._chunks.popleft() if self._chunks else b""
            self._changed.notify_all()
            return chunk

    def check(self) -> None:
        """Raise the failure, if there is one."""
        if self._failure is not None:
            raise self._failure


RESUMES = 3
"""How often one reader requests the rest of an interrupted body."""


class ObjectReader(SequentialReader):
    """Chunks of an object from `offset`: `length` bytes, or all of the rest. The constructor raises `NoSuchBlobError`.

    `version` identifies the content that is read. It is None if there was nothing to read.
    """

    def __init__(self, bucket: Bucket, key: str, sha256: str, offset: int, length: int | None) -> None:
        super().__init__(offset, length)
        self._bucket, self._key, self._sha256 = bucket, key, sha256
        self._resumes = RESUMES
        self.version: ObjectVersion | None = None
        self._body = self._request()

    def _request(self) -> ObjectBody | None:
        if self._left == 0:
            return None
        body = self._bucket.get(self._key, self._at, self._left)
        if body is None:
            if self._bucket.stat(self._key) is None:
                raise no_such_blob(self._sha256)
            return None
        if self.version not in (None, body.version):
            body.close()
            raise TemporaryError(f"Blob {self._sha256} was replaced while it was read.")
        self.version = body.version
        return body

    def _read(self) -> bytes:
        while self._body is not None:
            try:
                return self._body.read(self.chunk())
            except TemporaryError:
                self.close()
                if not self._resumes:
                    raise
                self._resumes -= 1
                self._body = self._request()
        return b""

    def close(self) -> None:
        """Return the connection to the pool."""
        if self._body is not None:
            self._body.close()
            self._body = None


class VerifiedReader:
    """A whole blob, hashed while it is read.

    Yields the last chunk only if the sha256 matches, else `DamagedBlobError`.
    """

    def __init__(self, reader: ObjectReader | PackedReader, sha256: str, on_mismatch: Callable[[str], None]) -> None:
        """`on_mismatch` is called with the sha256 of a blob whose bytes do not match it."""
        self._reader, self._sha256, self._on_mismatch = reader, sha256, on_mismatch
        self._hash = new_sha256()
        self._next_chunk: bytes | None = None
        self._begun = False

    @property
    def chunk(self) -> ChunkSize:
        """See `Reader`."""
        return self._reader.chunk

    @chunk.setter
    def chunk(self, size: ChunkSize) -> None:
        self._reader.chunk = size

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if not self._begun:
            self._begun, self._next_chunk = True, next(self._reader, None)
        data = self._next_chunk
        if data is None:
            raise StopIteration
        self._hash.update(data)
        self._next_chunk = next(self._reader, None)
        if self._next_chunk is None and self._hash.hexdigest() != self._sha256:
            self._on_mismatch(self._sha256)
            raise damaged_blob(self._sha256)
        return data

    def close(self) -> None:
        """Return the connection to the pool."""
        self._next_chunk = None
        self._reader.close()
