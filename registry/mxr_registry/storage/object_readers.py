"""Readers for S3 objects: one resumes an interrupted body, the other verifies the sha256 before the last chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256 as new_sha256

from mxr.errors import TemporaryError

from .s3 import Bucket, ObjectBody, ObjectVersion
from .store import ChunkSize, damaged_blob, full_chunk, no_such_blob

RESUMES = 3
"""How often one reader requests the rest of an interrupted body."""


class ObjectReader:
    """Chunks of an object from `offset`: `length` bytes, or all of the rest. The constructor raises `NoSuchBlobError`.

    `version` identifies the content that is read. It is None if there was nothing to read.
    """

    def __init__(self, bucket: Bucket, key: str, sha256: str, offset: int, length: int | None) -> None:
        self._bucket, self._key, self._sha256 = bucket, key, sha256
        self._at, self._left = offset, length
        self.chunk: ChunkSize = full_chunk
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

    def __init__(self, reader: ObjectReader, sha256: str, on_mismatch: Callable[[str], None]) -> None:
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
