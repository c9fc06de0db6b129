"""Blobs as objects of a bucket.

    s3://<bucket>/<prefix>/
    ├── blobs/ab/cd/abcd...(64)              one blob, named by its sha256: whole and checked, or not there
    ├── damaged/abcd...(64).1700000000000    bytes that no longer gave their sha256, set aside
    └── ready                                written once by each registry that starts, to see that it may

The tree is that of the file store, so that either can be copied into the other. An upload is no object before it is
whole and checked: a small one is one PUT, a large one goes up in parts that nobody can read until they are joined.

That bytes were checked is remembered by entity tag and size for the life of the process. What is not remembered so is
read and hashed once before anyone gets a byte of it from here; whoever follows a signed URL checks for himself.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Iterable, Iterator
from hashlib import sha256 as new_sha256

from mxr.errors import DamagedBlob, MxrError, NoSuchBlob, Temporary

from .reading import ObjectReader, VerifiedReader
from .s3 import Bucket, ObjectVersion
from .store import STALE, Reader, StoredItem, Upload, absent, damaged

log = logging.getLogger("mxr_registry")

PART = 16 << 20
MOST_PARTS = 1_000
"""AWS allows ten thousand. Source: OpenStack Swift, s3api.py, max_upload_part_num: a thousand by default."""
LARGEST = 64 << 30

LOOKS = 2
"""Times that bytes must be wrong before they are set aside: the way can be bad for once as well as the store."""

SIGNED = 900
"""Seconds that a signed URL works: a client asks for one right before it uses it."""

AT_ONCE = 16
"""Questions that `stats` has under way."""

NAME = re.compile(r"[0-9a-f]{64}")
UPLOAD = "?uploadId="


class ObjectStore:
    """A `Store` under one prefix of a bucket."""

    page = 256 << 10

    def __init__(self, bucket: Bucket, prefix: str, signs_for: tuple[bool, bool]) -> None:
        """`signs_for`: whether a client far and one near (on this machine) gets signed URLs."""
        self.bucket = bucket
        self.prefix = prefix
        self._signs_for = signs_for
        self._checked: dict[str, ObjectVersion] = {}
        self._locks = tuple(threading.Lock() for _ in range(64))

    def key(self, sha256: str) -> str:
        """Where a blob lies: the only place that spells it."""
        return f"{self.prefix}blobs/{sha256[:2]}/{sha256[2:4]}/{sha256}"

    def begin(self, sha256: str, size: int | None = None) -> Upload:
        """See `Store.begin`. Nothing is said to the server before a part is full."""
        return ObjectUpload(self, sha256, size)

    def check(self, sha256: str) -> int:
        """See `Store.check`."""
        return self._check(sha256).size

    def open(self, sha256: str, offset: int = 0, length: int | None = None) -> Reader:
        """See `Store.open`. All of a blob is hashed again as it passes: its end is held back until it is right."""
        for _ in range(LOOKS):
            stamp = self._check(sha256)
            reader = self.read(sha256, offset, length)
            if reader.stamp in (None, stamp):
                whole = offset == 0 and (length is None or length >= stamp.size)
                return VerifiedReader(reader, sha256, self.forget) if whole else reader
            reader.close()
        raise Temporary(f"Blob {sha256} was replaced while it was read.")

    def read(self, sha256: str, offset: int = 0, length: int | None = None) -> ObjectReader:
        """See `Store.read`."""
        return ObjectReader(self.bucket, self.key(sha256), sha256, offset, length)

    def url(self, sha256: str, near: bool = False) -> str | None:
        """See `Store.url`."""
        return self.bucket.sign(self.key(sha256), SIGNED) if self._signs_for[near] else None

    def stat(self, sha256: str) -> int | None:
        """See `Store.stat`."""
        found = self.bucket.stat(self.key(sha256))
        return None if found is None else found.size

    def stats(self, names: Iterable[str]) -> dict[str, int]:
        """See `Store.stats`: a question takes as long as the way to the server, so that many are asked at once."""
        from concurrent.futures import ThreadPoolExecutor

        asked = list(dict.fromkeys(names))
        if not asked:
            return {}
        with ThreadPoolExecutor(min(AT_ONCE, len(asked))) as pool:
            found = zip(asked, pool.map(self.stat, asked), strict=True)
            return {name: size for name, size in found if size is not None}

    def delete(self, sha256: str) -> None:
        """See `Store.delete`."""
        self.forget(sha256)
        self.bucket.delete(self.key(sha256))

    def set_aside(self, sha256: str) -> None:
        """See `Store.set_aside`."""
        self.forget(sha256)
        key = self.key(sha256)
        if self.bucket.stat(key) is not None:
            self.bucket.copy(key, f"{self.prefix}damaged/{sha256}.{time.time_ns() // 1_000_000}")
            self.bucket.delete(key)

    def walk(self) -> Iterator[StoredItem]:
        """See `Store.walk`."""
        for row in self.bucket.walk(f"{self.prefix}blobs/"):
            name = row.key.rpartition("/")[2]
            known = NAME.fullmatch(name) and row.key == self.key(name)
            yield StoredItem(row.key, name if known else None, row.size, row.modified)
        yield from self._unfinished()

    def drop(self, kept: StoredItem) -> None:
        """See `Store.drop`: ends uploads that were never finished, and removes nothing else."""
        key, mark, upload = kept.name.rpartition(UPLOAD)
        if mark:
            self.bucket.abort(key, upload)

    def drop_stale(self, age: float = STALE) -> int:
        """See `Store.drop_stale`."""
        stale = [each for each in self._unfinished() if each.modified < time.time() - age]
        for each in stale:
            self.drop(each)
        return len(stale)

    def ready(self) -> None:
        """See `Store.ready`. Raises `Usage` where bucket or credentials are wrong."""
        self.bucket.prove(f"{self.prefix}ready")

    def remember(self, sha256: str, stamp: ObjectVersion) -> None:
        """Remember that the bytes with this stamp are right."""
        self._checked[sha256] = stamp

    def forget(self, sha256: str) -> None:
        """Read the bytes again before anyone gets them."""
        self._checked.pop(sha256, None)

    def _unfinished(self) -> Iterator[StoredItem]:
        for row in self.bucket.uploads(f"{self.prefix}blobs/"):
            yield StoredItem(f"{row.key}{UPLOAD}{row.upload}", None, row.size, row.modified)

    def _check(self, sha256: str) -> ObjectVersion:
        stamp = self.bucket.stat(self.key(sha256))
        if stamp is None:
            raise absent(sha256)
        if self._checked.get(sha256) == stamp:
            return stamp
        with self._locks[int(sha256[:2], 16) % len(self._locks)]:
            if self._checked.get(sha256) == stamp:
                return stamp
            for _ in range(LOOKS):
                found, read = self._sum(sha256)
                if found == sha256:
                    self.remember(sha256, read)
                    return read
            self._set_aside_this(sha256, read)
            raise damaged(sha256)

    def _sum(self, sha256: str) -> tuple[str, ObjectVersion]:
        reader, found = self.read(sha256), new_sha256()
        for data in reader:
            found.update(data)
        return found.hexdigest(), reader.stamp or ObjectVersion("", 0)

    def _set_aside_this(self, sha256: str, stamp: ObjectVersion) -> None:
        """Not what someone has put in its place meanwhile. Where it cannot be moved it is still not handed out."""
        log.error("blob %s is damaged: set aside in %sdamaged/", sha256, self.prefix)
        try:
            if self.bucket.stat(self.key(sha256)) == stamp:
                self.set_aside(sha256)
        except MxrError as problem:
            log.error("blob %s could not be set aside: %s", sha256, problem.message)


class ObjectUpload(Upload):
    """An upload that holds one part in memory, and is one PUT where there is no second."""

    def __init__(self, store: ObjectStore, sha256: str, size: int | None) -> None:
        super().__init__(sha256, size)
        self._store = store
        self._key = store.key(sha256)
        self._part = max(PART, -(-(LARGEST if size is None else size) // MOST_PARTS))
        self._held = bytearray()
        self._upload: str | None = None
        self._tags: list[str] = []

    def _put(self, data: bytes | bytearray | memoryview) -> None:
        self._held += data
        while len(self._held) > self._part:
            self._send(self._part)

    def _send(self, count: int) -> None:
        bucket = self._store.bucket
        if self._upload is None:
            self._upload = bucket.begin(self._key)
        # All but the last are of one size: some servers demand it.
        data = bytes(memoryview(self._held)[:count])
        self._tags.append(bucket.part(self._key, self._upload, len(self._tags) + 1, data))
        del self._held[:count]

    def _keep(self) -> None:
        bucket = self._store.bucket
        if self._upload is None:
            self._store.remember(self.sha256, ObjectVersion(bucket.put(self._key, self._held), self.received))
            return
        self._send(len(self._held))
        tag = bucket.complete(self._key, self._upload, self._tags)
        if tag is not None:
            self._store.remember(self.sha256, ObjectVersion(tag, self.received))
        else:
            self._look()
        self._upload = None

    def _look(self) -> None:
        """The answer to a first try was lost on the way: what lies there now says whether it was heard."""
        try:
            self._store.check(self.sha256)
        except (NoSuchBlob, DamagedBlob):
            raise Temporary(f"The upload of blob {self.sha256} was lost in the S3 store.") from None

    def discard(self) -> None:
        """See `Upload.discard`. What cannot be forgotten now goes with the next sweep."""
        self._held = bytearray()
        upload, self._upload = self._upload, None
        if upload is not None:
            try:
                self._store.bucket.abort(self._key, upload)
            except MxrError as problem:
                log.warning("an upload of blob %s stays until the next sweep: %s", self.sha256, problem.message)
