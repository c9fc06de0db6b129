"""Blobs: which are here, how one arrives, and reading the files that are made of them.

The database says which blobs a namespace brought; bytes are shared in the store by their sha256. Whoever names a blob
that another namespace brought is told that it is not here, and has to send the bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256 as new_sha256
from itertools import islice

from sqlalchemy import select, update

from mxr.artifact.manifest import Blob, File, Manifest
from mxr.errors import Damaged, DamagedBlob, NoSuchBlob, Temporary
from mxr_registry.database import tables
from mxr_registry.database.session import Database, Session, now, take_turns, upsert
from mxr_registry.storage.store import Store

SHOWN = 1_000
"""Missing blobs that an error lists."""


def sizes(session: Session, namespace: str, names: Iterable[str]) -> dict[str, int]:
    """The size in bytes of each of these blobs that the namespace has a row of."""
    row = tables.BlobRow
    found: dict[str, int] = {}
    for some in _batches(names):
        asked = select(row.sha256, row.size).where(row.namespace == namespace, row.sha256.in_(some))
        found |= {sha256: size for sha256, size in session.execute(asked)}
    return found


def missing(db: Database, store: Store, namespace: str, asked: Sequence[Blob]) -> tuple[str, ...]:
    """The sha256s of those blobs that are not here whole, each once; the others stay for the grace period."""
    with db.reading() as session:
        rows = sizes(session, namespace, {blob.sha256 for blob in asked})
    stored = store.stats(rows)
    here = {blob.sha256 for blob in asked if rows.get(blob.sha256) == blob.size == stored.get(blob.sha256)}
    if here:
        with db.writing() as session:
            here = _touch(session, namespace, here)
    return tuple(dict.fromkeys(blob.sha256 for blob in asked if blob.sha256 not in here))


def _touch(session: Session, namespace: str, names: set[str]) -> set[str]:
    """Mark blobs as said to be here; those whose row is still there."""
    row, moment = tables.BlobRow, now(session)
    for some in _batches(sorted(names)):
        wanted = (row.namespace == namespace, row.sha256.in_(some))
        # In one order for all, so that two who ask for the same blobs do not wait for each other.
        session.execute(select(row.sha256).where(*wanted).order_by(row.sha256).with_for_update(key_share=True))
        session.execute(update(row).where(*wanted).values(touched_at=moment))
    return set(sizes(session, namespace, names))


def arrived(db: Database, store: Store, namespace: str, sha256: str, size: int) -> None:
    """Write down that a blob is here, now that its bytes are. Raises `Temporary` when a sweep took them meanwhile."""
    with db.writing() as session:
        # Against a sweep: none may take the bytes between this look and the row.
        take_turns(session, turn_of(sha256))
        if store.stat(sha256) != size:
            raise Temporary(f"Blob {sha256} was swept while it arrived.", hint="Send it again.")
        moment = now(session)
        upsert(
            session,
            tables.BlobRow,
            {"namespace": namespace, "sha256": sha256},
            {"size": size, "created_at": moment, "touched_at": moment},
            {"size": size, "touched_at": moment},
        )


def turn_of(sha256: str) -> str:
    """The name under which whoever writes the first row of a blob, and whoever deletes its bytes, take turns."""
    return f"blob {sha256}"


def size_of(db: Database, namespace: str, sha256: str) -> int:
    """The size in bytes of a blob that the namespace has. Raises `NoSuchBlob`."""
    with db.reading() as session:
        found = sizes(session, namespace, [sha256])
    if sha256 not in found:
        raise NoSuchBlob(f"The registry does not have blob {sha256}.", detail={"missing": [sha256]})
    return found[sha256]


def demand(db: Database, store: Store, namespace: str, manifest: Manifest) -> None:
    """Returns when every blob of the manifest is here. Raises `NoSuchBlob` that names those that are not."""
    named = list(manifest.blobs())
    with db.reading() as session:
        rows = sizes(session, namespace, (blob.sha256 for blob in named))
    stored = store.stats(rows)
    absent = [blob.sha256 for blob in named if not rows.get(blob.sha256) == blob.size == stored.get(blob.sha256)]
    if absent:
        count = "One blob" if len(absent) == 1 else f"{len(absent)} blobs"
        raise NoSuchBlob(
            f"{count} of this manifest {'is' if len(absent) == 1 else 'are'} not here: {absent[0]}"
            f"{'' if len(absent) == 1 else ' and others'}.",
            detail={"missing": absent[:SHOWN]},
        )


def contents(store: Store, file: File) -> Iterator[bytes]:
    """The bytes of a file in order, its blobs and the whole checked in the one pass.

    Raises `DamagedBlob` for stored bytes that are wrong, and at the end `Damaged` when the file's sha256 is not theirs.
    """
    whole = new_sha256() if len(file.blobs) > 1 else None
    for blob in file.blobs:
        for data in present(store, blob):
            if whole is not None:
                whole.update(data)
            yield data
    if whole is not None and whole.hexdigest() != file.sha256:
        raise Damaged(
            f"{file.name}: its blobs together have the sha256 {whole.hexdigest()}, not {file.sha256}.",
            hint="Push the file again; it changed while it was read.",
            detail={"file": file.name, "sha256": whole.hexdigest()},
        )


def present(store: Store, blob: Blob, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
    """Checked bytes of a blob that has a row. Raises `DamagedBlob` where the store lost or changed them."""
    check(store, blob)
    reader = store.open(blob.sha256, offset, length)
    try:
        yield from reader
    finally:
        reader.close()


def check(store: Store, blob: Blob) -> None:
    """Returns when the store has the right bytes of a blob that has a row. Raises `DamagedBlob`."""
    try:
        if store.check(blob.sha256) == blob.size:
            return
    except NoSuchBlob:
        pass
    raise DamagedBlob(
        f"Blob {blob.sha256} is gone from the registry's store, or not whole.", detail={"sha256": blob.sha256}
    )


def _batches(names: Iterable[str], most: int = 500) -> Iterator[list[str]]:
    rest = iter(names)
    while some := list(islice(rest, most)):
        yield some


def stretch(store: Store, file: File, start: int, length: int) -> Iterator[bytes]:
    """`length` bytes of a file from `start`. Every blob in it is checked before the first byte is handed out.

    Raises `DamagedBlob`, at once and not at the first `next`.
    """
    parts: list[tuple[Blob, int, int]] = []
    begin = 0
    for blob in file.blobs:
        first, last = max(start, begin), min(start + length, begin + blob.size)
        if first < last:
            check(store, blob)
            parts.append((blob, first - begin, last - first))
        begin += blob.size
    return (data for blob, offset, size in parts for data in present(store, blob, offset, size))
