"""A store that keeps blobs as objects in an S3 bucket.

    s3://<bucket>/<prefix>/
    ├── blobs/ab/cd/abcd...(64)              one blob, named by its sha256; always complete and verified
    ├── damaged/abcd...(64).1700000000000    bytes that no longer matched their sha256, moved here
    ├── notes/0123...(32)                    the recall list of a namespace
    ├── revoked-tokens/0123456789ab          the id of a revoked token
    ├── ready                                written once by each registry at startup, to check that it may write
    └── registry                             the id of the registry whose store it is

The layout is that of the local store, so that either can be copied into the other. An upload is a single PUT, which
becomes an object only when it is complete and verified.

The process remembers verified objects by entity tag and size. It reads and hashes any other object
once before it sends a byte of it. A client that follows a signed URL verifies the bytes itself.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cachetools import FIFOCache

from mxr.artifact.packed import PackedHead, looks_packed, read_head
from mxr.errors import DamagedBlobError, MxrError, TemporaryError
from mxr.protocol.access import TOKEN_ID
from mxr.s3.bucket import Bucket, ObjectBody, ObjectVersion
from mxr.util.hashing import CHUNK, sha256_chunks

from .object_streams import HEAD, ObjectReader, ObjectUpload, VerifiedReader
from .store import (
    NOTE,
    OWNER,
    OWNER_SIZE,
    RECENT,
    STALE,
    FileDigests,
    PackedReader,
    Reader,
    StoredItem,
    StoreOwner,
    Upload,
    VerifiedBlobs,
    aside_item,
    aside_name,
    damaged_blob,
    no_such_blob,
    owner_of,
)

MAX_HELD = 32 << 20
"""Bytes of all heads together."""


class RecentHeads:
    """The heads of blobs, which were verified with them. Thread-safe."""

    def __init__(self, most: int = MAX_HELD) -> None:
        self._heads: FIFOCache[str, bytes] = FIFOCache(most, getsizeof=len)
        self._lock = threading.Lock()

    def add(self, sha256: str, head: bytes) -> None:
        """Keep the head of a blob, instead of those that arrived first where they become too many."""
        with self._lock, suppress(ValueError):  # It is larger than all may be together.
            self._heads[sha256] = head

    def forget(self, sha256: str) -> None:
        """Drop the head of a blob."""
        with self._lock:
            self._heads.pop(sha256, None)

    def read(self, sha256: str, offset: int, length: int) -> bytes | None:
        """Return a range of a blob, None if its head does not hold all of it."""
        with self._lock:
            head = self._heads.get(sha256, b"")
        return head[offset : offset + length] if offset + length <= len(head) else None


log = logging.getLogger("mxr_registry")

READ_ATTEMPTS = 2
"""How often bytes must be wrong before they are set aside: the error may be in transit instead of in the store."""

OWNER_PERIOD = 5.0
"""Seconds for which a bucket is believed to be this registry's. A blob that is missing is a reason to look again."""

LEAD = 10 << 10
"""Bytes that are read to see whether an object is packed: the head of one of up to 64 MiB."""

URL_LIFETIME = 900
"""Seconds for which a signed URL is valid. A client requests one right before it uses it."""

PARALLEL_STATS = 16
"""Number of requests that `stats` sends in parallel."""

NAME = re.compile(r"[0-9a-f]{64}")
REVOKED = b"revoked\n"


@dataclass(frozen=True, slots=True)
class CheckedVersion:
    """A version of an object that was verified, the `time.monotonic()` of that, and the number of its plain bytes."""

    version: ObjectVersion
    moment: float
    size: int
    packed: bool


class ObjectStore:
    """A `Store` under one prefix of a bucket."""

    page = HEAD
    folder: Path | None = None

    def __init__(self, bucket: Bucket, prefix: str, *, signs_for_remote: bool, signs_for_local: bool) -> None:
        """`signs_for_remote`, `signs_for_local`: whether clients elsewhere and on this machine get signed URLs."""
        self.bucket = bucket
        self.prefix = prefix
        self._signs_for_remote, self._signs_for_local = signs_for_remote, signs_for_local
        self.digests = FileDigests()
        self.owner = StoreOwner(self._read_owner, f"in s3://{bucket.name}/{prefix}", OWNER_PERIOD)
        self._heads = RecentHeads()
        self._checked: VerifiedBlobs[CheckedVersion] = VerifiedBlobs()

    def reach(self) -> None:
        """See `Store.reach`."""
        self.bucket.check_access(f"{self.prefix}ready")

    def adopt(self, id: str) -> None:
        """See `Store.adopt`."""
        data = f"{id}\n".encode()
        self.bucket.put(self.prefix + OWNER, data, sha256_chunks([data]))

    def is_empty(self) -> bool:
        """See `Store.is_empty`."""
        return next(self._walk(), None) is None

    def _read_owner(self) -> str | None:
        found = self.bucket.get(self.prefix + OWNER)
        if found is None:
            return None
        try:
            return owner_of(found.read(OWNER_SIZE))
        finally:
            found.close()

    def key(self, sha256: str) -> str:
        """Return the key of a blob. No other code builds it."""
        return f"{self.prefix}blobs/{sha256[:2]}/{sha256[2:4]}/{sha256}"

    def begin(self, sha256: str, size: int) -> Upload:
        """See `Store.begin`. Of the upload itself, it sends no request before the second chunk."""
        self.owner.check()
        return ObjectUpload(self.bucket, self.key(sha256), sha256, size, partial(self.remember, sha256))

    def check(self, sha256: str) -> int:
        """See `Store.check`."""
        return self._check(sha256).size

    def open(self, sha256: str, offset: int = 0, length: int | None = None) -> Reader:
        """See `Store.open`. A read of the whole blob is hashed again, and its last chunk held back until it matches."""
        checked = self._checked.get(sha256)
        for _ in range(READ_ATTEMPTS):
            checked = checked or self._check(sha256)
            reader = self.read(sha256, offset, length)
            if _version(reader) in (None, checked.version):
                whole = offset == 0 and (length is None or length >= checked.size)
                return VerifiedReader(reader, sha256, self.forget) if whole else reader
            reader.close()
            checked = None
        raise TemporaryError(f"Blob {sha256} was replaced while it was read.")

    def read(self, sha256: str, offset: int = 0, length: int | None = None) -> ObjectReader | PackedReader:
        """See `Store.read`. It first reads the head of an object that may be packed."""
        checked, head = self._checked.get(sha256), None
        if checked is None or checked.packed:
            found = self._look(sha256)
            if found is None:
                raise no_such_blob(sha256)
            head = found[1]
        if head is None:
            return self._reader(sha256, offset, length)
        return PackedReader(self._reader(sha256, *head.span(offset, length)), sha256, head, offset, length)

    def open_packed(self, sha256: str) -> tuple[int, Reader] | None:
        """See `Store.open_packed`."""
        checked = self._checked.get(sha256) or self._check(sha256)
        if not checked.packed:
            return None
        reader = self._reader(sha256)
        if reader.version == checked.version:
            return checked.version.size, reader
        reader.close()
        self.forget(sha256)
        raise TemporaryError(f"Blob {sha256} was replaced while it was read.")

    def is_packed(self, sha256: str) -> bool:
        """See `Store.is_packed`."""
        checked = self._checked.get(sha256)
        if checked is not None:
            return checked.packed
        found = self._look(sha256)
        return found is not None and found[1] is not None

    def _reader(self, sha256: str, offset: int = 0, length: int | None = None) -> ObjectReader:
        return ObjectReader(self.bucket, self.key(sha256), sha256, offset, length)

    def _look(self, sha256: str) -> tuple[ObjectVersion, PackedHead | None] | None:
        """The version of an object and its head, if it is packed, by one request for all but the largest blobs."""
        body = self.bucket.get(self.key(sha256), 0, LEAD)
        if body is None:
            return None
        start = _whole(body)

        def read_at(offset: int, size: int) -> bytes:
            if offset + size <= len(start):
                return start[offset : offset + size]
            more = self.bucket.get(self.key(sha256), offset, size) if looks_packed(start) else None
            return b"" if more is None else _whole(more)

        return body.version, read_head(read_at)

    def held(self, sha256: str, offset: int, length: int) -> bytes | None:
        """See `Store.held`. It holds the first page of each blob that arrived lately."""
        return self._heads.read(sha256, offset, length)

    def url(self, sha256: str, local: bool = False) -> str | None:
        """See `Store.url`."""
        signs = self._signs_for_local if local else self._signs_for_remote
        return self.bucket.sign(self.key(sha256), URL_LIFETIME) if signs else None

    def stat(self, sha256: str) -> int | None:
        """See `Store.stat`."""
        checked = self._checked.get(sha256)
        if checked is not None and self.bucket.stat(self.key(sha256)) == checked.version:
            return checked.size
        found = self._look(sha256)
        if found is None:
            return None
        version, head = found
        return version.size if head is None else head.size

    def known(self, sha256: str) -> int | None:
        """See `Store.known`."""
        found = self._checked.get(sha256)
        return found.size if found is not None and time.monotonic() - found.moment < RECENT else None

    def stats(self, names: Iterable[str]) -> dict[str, int]:
        """See `Store.stats`. It sends requests in parallel, since each takes a round trip to the server."""
        from concurrent.futures import ThreadPoolExecutor

        unique = list(dict.fromkeys(names))
        if not unique:
            return {}
        with ThreadPoolExecutor(min(PARALLEL_STATS, len(unique))) as pool:
            sizes = zip(unique, pool.map(self.stat, unique), strict=True)
            return {name: size for name, size in sizes if size is not None}

    def delete(self, sha256: str) -> None:
        """See `Store.delete`."""
        self.forget(sha256)
        self.bucket.delete(self.key(sha256))

    def set_aside(self, sha256: str) -> None:
        """See `Store.set_aside`."""
        self.forget(sha256)
        key = self.key(sha256)
        if self.bucket.stat(key) is not None:
            self.bucket.copy(key, f"{self.prefix}damaged/{aside_name(sha256)}")
            self.bucket.delete(key)

    def damaged(self) -> Iterator[StoredItem]:
        """See `Store.damaged`."""
        found = (aside_item(row.key, row.size) for row in self.bucket.walk(f"{self.prefix}damaged/"))
        return filter(None, found)

    def walk(self) -> Iterator[StoredItem]:
        """See `Store.walk`."""
        self.owner.check()
        return self._walk()

    def _walk(self) -> Iterator[StoredItem]:
        for row in self.bucket.walk(f"{self.prefix}blobs/"):
            name = row.key.rpartition("/")[2]
            known = NAME.fullmatch(name) and row.key == self.key(name)
            yield StoredItem(row.key, name if known else None, row.size, row.modified)

    def drop(self, kept: StoredItem) -> None:
        """See `Store.drop`. An interrupted upload leaves nothing, and other objects belong to others."""
        if kept.name.startswith(f"{self.prefix}damaged/"):
            self.bucket.delete(kept.name)

    def drop_stale(self, age: float = STALE) -> int:  # noqa: ARG002
        """See `Store.drop_stale`. There are none."""
        return 0

    def record_revoked_token(self, id: str) -> None:
        """See `Store.record_revoked_token`."""
        self.bucket.put(f"{self.prefix}revoked-tokens/{id}", REVOKED, sha256_chunks([REVOKED]))

    def forget_revoked_token(self, id: str) -> None:
        """See `Store.forget_revoked_token`."""
        self.bucket.delete(f"{self.prefix}revoked-tokens/{id}")

    def revoked_tokens(self) -> set[str]:
        """See `Store.revoked_tokens`."""
        names = (row.key.rpartition("/")[2] for row in self.bucket.walk(f"{self.prefix}revoked-tokens/"))
        return set(filter(TOKEN_ID.fullmatch, names))

    def keep_note(self, name: str, data: bytes) -> None:
        """See `Store.keep_note`."""
        self.bucket.put(f"{self.prefix}notes/{name}", data, sha256_chunks([data]))

    def notes(self) -> dict[str, bytes]:
        """See `Store.notes`."""
        found = {}
        for row in list(self.bucket.walk(f"{self.prefix}notes/")):
            name = row.key.rpartition("/")[2]
            body = self.bucket.get(row.key) if NOTE.fullmatch(name) else None
            if body is not None:
                found[name] = _whole(body)
        return found

    def prepare(self) -> None:
        """See `Store.prepare`. Raises `UsageError` if the bucket or the credentials are wrong."""
        self.reach()
        self.owner.check()

    def ready(self) -> None:
        """See `Store.ready`, and `prepare`."""
        self.bucket.check_access(f"{self.prefix}ready", once=True)
        self.owner.check()

    def remember(self, sha256: str, version: ObjectVersion, size: int, packed: bool, head: bytes = b"") -> None:
        """Remember that this version of the object is verified, its plain bytes, its form, and its first bytes."""
        if head:
            self._heads.add(sha256, head)
        self._checked.add(sha256, CheckedVersion(version, time.monotonic(), size, packed))

    def forget(self, sha256: str) -> None:
        """Verify the bytes again before the next read."""
        self._checked.forget(sha256)
        self._heads.forget(sha256)

    def _known(self, sha256: str, version: ObjectVersion) -> CheckedVersion | None:
        """What this process has verified of this version of an object, None if it has not."""
        found = self._checked.get(sha256)
        return found if found is not None and found.version == version else None

    def _check(self, sha256: str) -> CheckedVersion:
        version = self.bucket.stat(self.key(sha256))
        if version is None:
            self.owner.check(anew=True)
            raise no_such_blob(sha256)
        if known := self._known(sha256, version):
            return known
        with self._checked.turn(sha256):
            if known := self._known(sha256, version):
                return known
            # Another registry may have stored the same bytes in the other form.
            self.forget(sha256)
            for _ in range(READ_ATTEMPTS):
                found, checked = self._hash(sha256)
                if found == sha256:
                    self._checked.add(sha256, checked)
                    return checked
            self._set_aside_if_unchanged(sha256, checked.version)
            raise damaged_blob(sha256)

    def _hash(self, sha256: str) -> tuple[str, CheckedVersion]:
        """The sha256 of the plain bytes, and the version that was read."""
        reader = self.read(sha256)
        try:
            digest = sha256_chunks(reader)
        except DamagedBlobError:
            digest = ""
        version, packed = _version(reader) or ObjectVersion("", 0), isinstance(reader, PackedReader)
        return digest, CheckedVersion(
            version, time.monotonic(), reader.size if isinstance(reader, PackedReader) else version.size, packed
        )

    def _set_aside_if_unchanged(self, sha256: str, version: ObjectVersion) -> None:
        """Set a damaged object aside, unless a new upload has replaced it. If that fails, it is still not sent."""
        log.error("blob %s is damaged: moving it to %sdamaged/", sha256, self.prefix)
        try:
            if self.bucket.stat(self.key(sha256)) == version:
                self.set_aside(sha256)
        except MxrError as problem:
            log.error("cannot move damaged blob %s: %s", sha256, problem.message)


def _version(reader: ObjectReader | PackedReader) -> ObjectVersion | None:
    found = reader.stored if isinstance(reader, PackedReader) else reader
    assert isinstance(found, ObjectReader)
    return found.version


def _whole(body: ObjectBody) -> bytes:
    parts = []
    try:
        while part := body.read(CHUNK):
            parts.append(part)
    finally:
        body.close()
    return b"".join(parts)
