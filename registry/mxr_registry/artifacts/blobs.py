"""Blobs: find missing ones, record uploads, and read the files that consist of them.

The database records who uploaded which blob. The store shares bytes between namespaces by sha256. A blob that only
others uploaded counts as missing, so that the client has to send its bytes: its sha256 is no secret.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from sqlalchemy import select, update

from mxr.artifact.manifest import Blob, File, Manifest
from mxr.errors import DamagedBlobError, DamagedError, MxrError, NoSuchBlobError, TemporaryError
from mxr.util.hashing import hash_chunks
from mxr_registry.database import tables, tallies
from mxr_registry.database.job_tables import JobRow
from mxr_registry.database.session import Database, Session, advisory_lock, now, upsert
from mxr_registry.storage.store import ChunkSize, Reader, Store, full_chunk

from . import lost

MAX_READ_BEFORE = 1 << 20
"""Bytes that an upload reads of the blobs before its own: those of the structure of a program, which many share."""

MAX_REPORTED = 1_000
"""Maximum number of missing blobs in the details of an error."""


def sizes(session: Session, namespace: str, names: Iterable[str], uploader: str | None = None) -> dict[str, int]:
    """Return the size in bytes of each of these blobs that has a row in the namespace, and whose bytes are not lost.

    `uploader`: the principal to whose uploads it is restricted; None for an administrator.
    """
    row, sent = tables.BlobRow, tables.UploadRow
    found: dict[str, int] = {}
    for batch in _batches(names):
        here = (row.namespace == namespace, row.sha256.in_(batch), row.lost_at.is_(None))
        query = select(row.sha256, row.size).where(*here)
        if uploader is not None:
            own = (sent.namespace == row.namespace, sent.sha256 == row.sha256, sent.principal == uploader)
            query = query.where(select(sent.sha256).where(*own).exists())
        found |= {sha256: size for sha256, size in session.execute(query)}
    return found


def missing(
    db: Database, store: Store, namespace: str, uploader: str | None, requested: Sequence[Blob]
) -> tuple[str, ...]:
    """Return the distinct sha256s of those blobs that are missing, incomplete, or not uploaded by `uploader`.

    Restarts the grace period of the others, so that no sweep removes them before the client uses them.
    """
    with db.reading() as session:
        rows = sizes(session, namespace, {blob.sha256 for blob in requested}, uploader)
    stored = store.stats(rows)
    present = {blob.sha256 for blob in requested if rows.get(blob.sha256) == blob.size == stored.get(blob.sha256)}
    if present:
        with db.writing() as session:
            present = _touch(session, namespace, present)
    return tuple(dict.fromkeys(blob.sha256 for blob in requested if blob.sha256 not in present))


def _touch(session: Session, namespace: str, names: set[str]) -> set[str]:
    """Restart the grace period of these blobs. Returns those that still have a row."""
    row, moment = tables.BlobRow, now(session)
    for batch in _batches(sorted(names)):
        conditions = (row.namespace == namespace, row.sha256.in_(batch))
        # Lock rows in the same order everywhere, to avoid deadlocks between requests for the same blobs.
        session.execute(select(row.sha256).where(*conditions).order_by(row.sha256).with_for_update(key_share=True))
        session.execute(update(row).where(*conditions).values(touched_at=moment))
    return set(sizes(session, namespace, names))


def has_row(db: Database, sha256: str) -> bool:
    """Whether any namespace has a row of this blob: only then a sweep can remove its bytes."""
    with db.reading() as session:
        row = tables.BlobRow
        return session.execute(select(row.sha256).where(row.sha256 == sha256).limit(1)).first() is not None


def record_upload(
    db: Database,
    store: Store,
    namespace: str,
    principal: str,
    sha256: str,
    size: int,
    xxh3: str,
    *,
    had_row: bool = True,
) -> None:
    """Write the row of a blob that a principal uploaded, with the XXH3-128 of its bytes in hex.

    `had_row`: whether there was a row before the upload (`has_row`). Raises `TemporaryError` if a sweep has removed its
    bytes since.
    """
    with db.writing() as session:
        # The lock keeps a sweep from removing the bytes between this check and the commit of the row.
        advisory_lock(session, lost.lock_name(sha256))
        if had_row and store.stat(sha256) != size:
            raise TemporaryError(f"Blob {sha256} was swept during its upload.", hint="Send it again.")
        lost.note_found(session, sha256)
        moment, row = now(session), tables.BlobRow
        known = select(row.size).where(row.namespace == namespace, row.sha256 == sha256)
        before = session.execute(known).scalar() or 0
        upsert(
            session,
            row,
            {"namespace": namespace, "sha256": sha256},
            {"size": size, "created_at": moment, "touched_at": moment, "xxh3": xxh3},
            {"size": size, "touched_at": moment, "xxh3": xxh3},
        )
        keys = {"namespace": namespace, "sha256": sha256, "principal": principal}
        upsert(session, tables.UploadRow, keys, {"uploaded_at": moment}, {"uploaded_at": moment})
        tallies.add(session, namespace, tallies.STORED_BYTES, size - before)


PROGRAMS, MODELS = "programs", "models"
"""What bytes are for: blobs of artifacts; blobs of models, and calibration data of jobs."""


def size_of(db: Database, namespace: str, sha256: str, purposes: Collection[str] | None = None) -> int:
    """Return the size in bytes of a blob of this namespace. Raises `NoSuchBlobError`.

    `purposes`: only a blob that serves one of these; None: any blob.
    """
    with db.reading() as session:
        found = sizes(session, namespace, [sha256])
        serves = purposes is None or any(_serves(session, namespace, sha256, purpose) for purpose in purposes)
    if sha256 not in found or not serves:
        raise NoSuchBlobError(f"The registry does not have blob {sha256}.", context={"missing": [sha256]})
    return found[sha256]


def _serves(session: Session, namespace: str, sha256: str, purpose: str) -> bool:
    sources = {
        PROGRAMS: ((tables.ArtifactBlobRow, tables.ArtifactBlobRow.sha256),),
        MODELS: ((tables.ModelBlobRow, tables.ModelBlobRow.sha256), (JobRow, JobRow.calibration)),
    }
    return any(
        session.execute(select(row.namespace).where(row.namespace == namespace, column == sha256).limit(1)).first()
        for row, column in sources[purpose]
    )


def require_all(db: Database, store: Store, namespace: str, uploader: str | None, manifest: Manifest) -> None:
    """Check that every blob of the manifest is present, and was uploaded by `uploader` (None: by anybody).

    Raises `NoSuchBlobError`, which lists the others.
    """
    blobs = list(manifest.blobs())
    with db.reading() as session:
        rows = sizes(session, namespace, (blob.sha256 for blob in blobs), uploader)
    stored = {name: size for name in rows if (size := store.known(name)) is not None}
    stored |= store.stats(name for name in rows if name not in stored)
    absent = [blob.sha256 for blob in blobs if not rows.get(blob.sha256) == blob.size == stored.get(blob.sha256)]
    if absent:
        count = "One blob" if len(absent) == 1 else f"{len(absent)} blobs"
        raise NoSuchBlobError(
            f"{count} of this manifest {'is' if len(absent) == 1 else 'are'} missing in the registry: {absent[0]}"
            f"{'' if len(absent) == 1 else ' and others'}.",
            hint="Upload its bytes (`PUT /v1/blobs/{sha256}`). Blobs that only others uploaded count as missing.",
            context={"missing": absent[:MAX_REPORTED]},
        )


def verify_file(store: Store, file: File) -> None:
    """Verify each blob of a file and the whole. Reads only what this process has not hashed when it arrived.

    Raises `NoSuchBlobError` for lost bytes, and `DamagedError` if the sha256 of the file is another.
    """
    digest, count = store.digests.longest([blob.sha256 for blob in file.blobs])
    # A file of one blob has its sha256, which the manifest was checked for.
    alone = len(file.blobs) == 1
    for blob in file.blobs if alone else file.blobs[:count]:
        if store.known(blob.sha256) != blob.size:
            check_blob(store, blob)
    if alone:
        return
    hash_chunks((data for blob in file.blobs[count:] for data in present(store, blob)), digest)
    found = digest.hexdigest()
    if found != file.sha256:
        raise DamagedError(
            f"{file.name}: its blobs together have the sha256 {found}, not {file.sha256}.",
            hint="Push the file again. It may have changed while it was read.",
            context={"file": file.name, "sha256": found},
        )


def hash_before(db: Database, store: Store, namespace: str, follows: Sequence[str]) -> Any:
    """Return a sha256 that has hashed what is before a blob in its file; None where that is unknown.

    `follows`: a chain and the sha256 of each blob after it (`FOLLOWS_HEADER`). Blobs after the longest chain that is
    known are read from the store, if they are small.
    """
    chain, *names = follows
    digest, count = store.digests.longest(names, chain)
    if digest is None or not names[count:]:
        return digest
    with db.reading() as session:
        known = sizes(session, namespace, names[count:])
    if not all(name in known for name in names[count:]) or sum(known.values()) > MAX_READ_BEFORE:
        return None
    try:
        for name in names[count:]:
            held = store.held(name, 0, known[name])
            hash_chunks(present(store, Blob(name, known[name])) if held is None else (held,), digest)
    except NoSuchBlobError:
        return None
    return digest


def present(
    store: Store, blob: Blob, offset: int = 0, length: int | None = None, chunk: ChunkSize = full_chunk
) -> Iterator[bytes]:
    """Yield verified bytes of a blob that has a row. Raises `NoSuchBlobError` if they are lost."""
    reader = open_blob(store, blob, offset, length)
    reader.chunk = chunk
    try:
        yield from reader
    finally:
        reader.close()


def open_blob(store: Store, blob: Blob, offset: int = 0, length: int | None = None) -> Reader:
    """Open a blob that has a row, after verifying it. Raises `NoSuchBlobError` if it is lost."""
    try:
        return store.open(blob.sha256, offset, length)
    except (NoSuchBlobError, DamagedBlobError) as problem:
        raise _lost(blob, problem) from None


def open_packed(store: Store, blob: Blob) -> tuple[int, Reader] | None:
    """Return the size and a reader of the packed bytes of a blob that has a row, None if it is stored plain.

    Raises `NoSuchBlobError` if it is lost.
    """
    try:
        return store.open_packed(blob.sha256)
    except (NoSuchBlobError, DamagedBlobError) as problem:
        raise _lost(blob, problem) from None


def check_blob(store: Store, blob: Blob) -> None:
    """Verify the stored bytes of a blob that has a row. Raises `NoSuchBlobError` if they are lost."""
    try:
        if store.check(blob.sha256) == blob.size:
            return
    except (NoSuchBlobError, DamagedBlobError) as problem:
        raise _lost(blob, problem) from None
    raise _lost(blob)


LOST = "lost"
"""In the context of a `NoSuchBlobError`: the registry has had the bytes, and its store has them no longer."""


def _lost(blob: Blob, problem: MxrError | None = None) -> NoSuchBlobError:
    how = "damaged" if isinstance(problem, DamagedBlobError) else "missing or incomplete"
    return NoSuchBlobError(
        f"The bytes of blob {blob.sha256} are lost: they are {how} in the registry's store.",
        hint="Resolve the request again: another artifact may serve. A push of the same file brings these bytes back.",
        context={"missing": [blob.sha256], LOST: True},
    )


def _batches(names: Iterable[str], size: int = 500) -> Iterator[list[str]]:
    rest = iter(names)
    while batch := list(islice(rest, size)):
        yield batch


def file_range(store: Store, file: File, start: int, length: int, chunk: ChunkSize) -> Iterator[bytes]:
    """Return an iterator over `length` bytes of a file from `start`, after verifying every blob in this range.

    Raises `NoSuchBlobError` when called, not at the first `next`.
    """
    parts = list(file.spans().ranges(start, length))
    for part in parts:
        check_blob(store, part.blob)
    return (data for part in parts for data in present(store, part.blob, part.offset, part.length, chunk))
