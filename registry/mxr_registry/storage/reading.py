"""Reading objects: a body that breaks off is asked for again, and one that is wrong never comes to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256 as new_sha256

from mxr.errors import Temporary

from .s3 import Bucket, ObjectBody, ObjectVersion
from .store import CHUNK, absent, damaged

RESUMES = 3
"""Times that one reader asks again for the rest of a body that broke off."""


class ObjectReader:
    """Chunks of an object from `offset`, all or `length` bytes of it. Raises `NoSuchBlob` at once.

    `stamp` tells which content of the key is read, None where there was nothing to read.
    """

    def __init__(self, bucket: Bucket, key: str, sha256: str, offset: int, length: int | None) -> None:
        self._bucket, self._key, self._sha256 = bucket, key, sha256
        self._at, self._left = offset, length
        self._resumes = RESUMES
        self.stamp: ObjectVersion | None = None
        self._body = self._ask()

    def _ask(self) -> ObjectBody | None:
        if self._left == 0:
            return None
        body = self._bucket.get(self._key, self._at, self._left)
        if body is None:
            if self._bucket.stat(self._key) is None:
                raise absent(self._sha256)
            return None
        if self.stamp not in (None, body.stamp):
            body.close()
            raise Temporary(f"Blob {self._sha256} was replaced while it was read.")
        self.stamp = body.stamp
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
                return self._body.read(CHUNK)
            except Temporary:
                self.close()
                if not self._resumes:
                    raise
                self._resumes -= 1
                self._body = self._ask()
        return b""

    def close(self) -> None:
        """Give the connection back."""
        if self._body is not None:
            self._body.close()
            self._body = None


class VerifiedReader:
    """All of a blob, hashed as it passes: the last chunk comes only when the sha256 is right, else `DamagedBlob`."""

    def __init__(self, reader: ObjectReader, sha256: str, wrong: Callable[[str], None]) -> None:
        """`wrong` hears of a blob whose bytes were others."""
        self._reader, self._sha256, self._wrong = reader, sha256, wrong
        self._hash = new_sha256()
        self._held = next(reader, None)

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        data = self._held
        if data is None:
            raise StopIteration
        self._hash.update(data)
        self._held = next(self._reader, None)
        if self._held is None and self._hash.hexdigest() != self._sha256:
            self._wrong(self._sha256)
            raise damaged(self._sha256)
        return data

    def close(self) -> None:
        """Give the connection back."""
        self._held = None
        self._reader.close()
