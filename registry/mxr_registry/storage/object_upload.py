"""The upload of one object: a single PUT that is sent while its bytes arrive.

    receiving thread  ── chunks, at most HELD ──>  ChunkPipe  ──>  sending thread  ── PUT ──>  S3 server

The signature of the request covers the sha256 that the client named, so the server itself refuses other bytes. The last
chunk is sent only when the bytes match this sha256: what does not match never becomes an object.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from mxr.errors import MxrError, TemporaryError

from .s3 import Bucket, ObjectVersion
from .store import Chunk, Upload

HEAD = 256 << 10
"""First bytes of a blob that `stored` gets."""

HELD = 2
"""Chunks that wait in the pipe. One more is held back, and one is being sent."""


class ObjectUpload(Upload):
    """An upload that starts a thread with its second chunk. A blob of one chunk is sent by `commit` itself.

    `stored` is called with what was stored: its version and its first bytes.
    """

    def __init__(
        self, bucket: Bucket, key: str, sha256: str, size: int, stored: Callable[[ObjectVersion, bytes], None]
    ) -> None:
        super().__init__(sha256, size)
        self._bucket, self._key, self._stored = bucket, key, stored
        self._last: Chunk = b""
        self._pipe = ChunkPipe(HELD)
        self._sender: threading.Thread | None = None
        self._tag = ""
        self._head = b""

    def _put(self, data: Chunk) -> None:
        if missing := HEAD - len(self._head):
            self._head += bytes(memoryview(data)[:missing])
        if self._last:
            if self._sender is None:
                self._sender = threading.Thread(target=self._send, name=f"put {self.sha256[:8]}", daemon=True)
                self._sender.start()
            self._pipe.put(self._last)
        self._last = data

    def _send(self) -> None:
        try:
            self._tag = self._bucket.put_chunks(self._key, self._pipe.get, self.size, self.sha256)
        except MxrError as problem:
            self._pipe.fail(problem)
        except BaseException as problem:
            self._pipe.fail(TemporaryError(f"Cannot send blob {self.sha256}: {type(problem).__name__}."))
            raise

    def _store_bytes(self) -> None:
        if self._sender is None:
            self._tag = self._bucket.put(self._key, self._last, self.sha256)
        else:
            self._pipe.put(self._last)
            self._pipe.close()
            self._sender.join()
            self._pipe.check()
        self._last = b""
        self._stored(ObjectVersion(self._tag, self.received), self._head)

    def discard(self) -> None:
        """See `Upload.discard`. The request breaks off, and the server keeps nothing of it."""
        self._last = b""
        self._pipe.fail(TemporaryError(f"The upload of blob {self.sha256} was given up."))


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
