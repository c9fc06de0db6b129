"""Lost bytes: what the store should have, and does not have undamaged.

Artifacts and models with such a blob are not used. They come back with the bytes: with their next upload, whoever sends
them, or when a check finds them in the store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import exists, select, update

from mxr_registry import counters
from mxr_registry.database.session import Database, Session, advisory_lock, now
from mxr_registry.database.tables import ArtifactBlobRow, ArtifactRow, BlobRow, ModelBlobRow, ModelRow
from mxr_registry.storage.store import Store

USERS = ((ArtifactRow, ArtifactBlobRow, ArtifactBlobRow.artifact), (ModelRow, ModelBlobRow, ModelBlobRow.model))


def lock_name(sha256: str) -> str:
    """Return the name of the advisory lock that who writes the row of a blob and who deletes its bytes take."""
    return f"blob {sha256}"


def note_lost(db: Database, store: Store, sha256: str) -> None:
    """Note that the bytes of a blob are missing or damaged: no request is answered with what needs them."""
    unknown = select(BlobRow.size).where(BlobRow.sha256 == sha256, BlobRow.lost_at.is_(None)).limit(1)
    with db.reading() as session:
        size = session.execute(unknown).scalar()
    if size is None:
        # Anybody may ask for it again and again.
        return
    with db.writing() as session:
        advisory_lock(session, lock_name(sha256))
        if store.stat(sha256) == size:
            # It was uploaded in the meantime.
            return
        moment = now(session)
        counters.LOST_BLOBS.inc()
        _note(session, sha256, moment, {ArtifactRow: {"lost_at": moment}, ModelRow: {"complete": False}})


def note_found(session: Session, sha256: str) -> None:
    """Note that the bytes of a blob are there again, where they were lost."""
    lost = select(BlobRow.sha256).where(BlobRow.sha256 == sha256, BlobRow.lost_at.is_not(None)).limit(1)
    if session.execute(lost).first() is not None:
        _note(session, sha256, None, {ArtifactRow: {"lost_at": None}, ModelRow: {"complete": True}})


def _note(session: Session, sha256: str, lost_at: float | None, changes: Mapping[Any, Mapping[str, Any]]) -> None:
    """Write it into every namespace: they share the bytes in the store."""
    blob = BlobRow
    session.execute(update(blob).where(blob.sha256 == sha256).values(lost_at=lost_at))
    namespaces: Sequence[str] = session.execute(select(blob.namespace).where(blob.sha256 == sha256)).scalars().all()
    for row, bound, number in USERS:
        users = select(number).where(bound.namespace.in_(namespaces), bound.sha256 == sha256)
        more = exists().where(
            number == row.seq,
            blob.namespace == bound.namespace,
            blob.sha256 == bound.sha256,
            blob.lost_at.is_not(None),
        )
        # What still lacks another blob stays lost.
        whole = () if lost_at is not None else (~more,)
        session.execute(update(row).where(row.seq.in_(users), *whole).values(**changes[row]))
