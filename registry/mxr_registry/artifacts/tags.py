"""Tags: a name for a lock, which moves, with the locks that it named before.

A tag pins the artifacts of all its revisions that are kept, so that each of them can be gone back to: by a row of
`locks` with the name `tag:NAME`, which no registered lock can have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import delete, func, insert, select
from sqlalchemy.exc import IntegrityError

from mxr.artifact.limits import MAX_PINNED
from mxr.artifact.manifest import check_sha256
from mxr.errors import Json, MxrError, NoSuchArtifactError, NotFoundError
from mxr.protocol.tags import MAX_REVISIONS, TAG_NAME, MoveTag, Tag, TagRevision, check_tag
from mxr.util import codec
from mxr.util.codec import Timestamp, encode
from mxr.util.hashing import sha256_hex
from mxr_registry.database import trail
from mxr_registry.database.paging import MAX_ROWS, list_page, read_cursor
from mxr_registry.database.session import Database, Row, Session, now, upsert
from mxr_registry.database.tables import LockRevisionRow, LockRow

from . import locks, recalls
from .locks import TAG

MAX_NUMBER = 2**31 - 1
"""The largest number of a revision that a column can hold."""


def move_tag(db: Database, namespace: str, name: str, move: MoveTag, by: str) -> tuple[TagRevision, bool]:
    """Move a tag, and return its revision now, and whether it is new. What it names already is no new revision.

    Runs in one transaction: the tag pins all artifacts of the lock, or nothing changes. Raises `NoSuchArtifactError`,
    which lists the missing ones, `NotAllowedError` for those that the namespace does not serve, `RecalledError` for one
    that was quarantined, `NotFoundError` for a revision that is not kept, and `UsageError`.
    """
    check_tag(name)
    ids = None if move.lock is None else _ids(move.lock)
    try:
        with db.writing() as session:
            trail.refuse_flood(session, "tag.move")
            return _move(session, namespace, name, move, ids, by)
    except IntegrityError:
        raise NoSuchArtifactError(
            "An artifact of this lock has just been removed.", hint="Write the lock again: `mxr lock`."
        ) from None


def _move(
    session: Session, namespace: str, name: str, move: MoveTag, ids: Sequence[str] | None, by: str
) -> tuple[TagRevision, bool]:
    text, repeats = move.lock, move.revision
    if text is None or ids is None:
        text = show_tag(session, namespace, name, repeats).lock
        ids = _ids(text)
    moment = now(session)
    new = {"created_at": moment, "created_by": by, "updated_at": moment}
    # Before the revisions are read: another one who moves the tag waits here.
    upsert(session, LockRow, {"namespace": namespace, "name": TAG + name}, new, {"updated_at": moment})
    lock = locks.find_lock(session, namespace, TAG + name)
    before = session.execute(_query(namespace, name).limit(1)).first()
    digest = sha256_hex(text.encode())
    if before is None:
        locks.refuse_too_many(session, namespace, by)
    elif before.sha256 == digest:
        return _revision(before), False
    rows = locks.artifacts_of(session, namespace, ids)
    # A rollback must not wait until what served yesterday may serve again by another rule.
    kept = set(locks.ids_of(session, lock.seq))
    locks.refuse_unserved(session, namespace, rows, kept)
    for each in rows:
        recalls.refuse_quarantined(each)
    number, row = 1 if before is None else before.number + 1, LockRevisionRow
    made = {"lock": lock.seq, "number": number, "sha256": digest, "text": text, "artifacts": len(rows)}
    session.execute(insert(row).values(**made, created_at=moment, created_by=by, repeats=repeats))
    if number > MAX_REVISIONS:
        session.execute(delete(row).where(row.lock == lock.seq, row.number <= number - MAX_REVISIONS))
        texts = session.execute(select(row.text).where(row.lock == lock.seq)).scalars()
        kept = {id for each in texts for id in _ids(each)}
    locks.pin(session, lock.seq, {each.seq for each in rows} | locks.pinned_of(session, lock.seq, kept))
    detail = {"revision": number, "artifacts": len(rows)} | ({"repeats": repeats} if repeats else {})
    trail.record(session, "tag.move", name, detail, namespace=namespace)
    return TagRevision(name, number, digest, len(rows), by, Timestamp(moment), repeats), True


def show_tag(session: Session, namespace: str, name: str, revision: int | None = None) -> Tag:
    """Return what a tag names, or what it named in a revision. Raises `NotFoundError`."""
    if TAG_NAME.fullmatch(name) is None:
        raise _unknown(name)
    query = _query(namespace, name, LockRevisionRow.text)
    if revision is not None:
        query = query.where(LockRevisionRow.number == min(max(revision, 0), MAX_NUMBER))
    row = session.execute(query.limit(1)).first()
    if row is None:
        raise _no_tag(session, namespace, name, revision)
    return Tag(_revision(row), row.text)


def list_revisions(session: Session, namespace: str, name: str) -> Json:
    """Return the JSON value of `Tags` with the revisions of one tag, the latest first. Raises `NotFoundError`."""
    rows = session.execute(_query(namespace, name)).all() if TAG_NAME.fullmatch(name) else []
    if not rows:
        raise _unknown(name)
    return {"items": [encode(_revision(row)) for row in rows], "next": None}


def list_tags(session: Session, namespace: str, after: str | None = None, limit: int = MAX_ROWS) -> Json:
    """Return one page of tags with what they name now, sorted by name. `after`: `next` of the previous page."""
    row = LockRevisionRow
    latest = select(row.lock, func.max(row.number).label("number")).group_by(row.lock).subquery()
    query = _select().join(latest, (latest.c.lock == row.lock) & (latest.c.number == row.number))
    query = query.where(LockRow.namespace == namespace)
    if after is not None:
        (name,) = read_cursor("tags", after, str)
        query = query.where(LockRow.name > TAG + name)
    return list_page(
        session,
        query.order_by(LockRow.name),
        lambda each: encode(_revision(each)),
        "tags",
        lambda each: (each.name.removeprefix(TAG),),
        limit,
    )


def remove_tag(session: Session, namespace: str, name: str) -> TagRevision:
    """Remove a tag with its revisions, and return what it named. Raises `NotFoundError`."""
    found = show_tag(session, namespace, name).revision
    session.execute(delete(LockRow).where(LockRow.namespace == namespace, LockRow.name == TAG + name))
    trail.record(session, "tag.remove", name, {"revision": found.revision}, namespace=namespace)
    return found


def _ids(text: str) -> list[str]:
    """The ids of the artifacts in the text of a lock. Clients read the rest of it. Raises `UsageError`."""
    try:
        document = codec.parse(text, "The lock")
    except MxrError as problem:
        raise codec.refuse("lock", "the text of a lock file", problem.message) from None
    rows = document.get("entries") if isinstance(document, dict) else None
    if not isinstance(rows, list) or not 1 <= len(rows) <= MAX_PINNED:
        raise codec.refuse("lock", f"the text of a lock file with 1 to {MAX_PINNED} entries", type(rows).__name__)
    ids = [row.get("id") if isinstance(row, dict) else None for row in rows]
    return list(dict.fromkeys(check_sha256(id if isinstance(id, str) else "", "lock") for id in ids))


def _select(*more: Any) -> Any:
    row = LockRevisionRow
    facts = (row.number, row.sha256, row.artifacts, row.created_at, row.created_by, row.repeats)
    return select(LockRow.name, *facts, *more).join(LockRow, LockRow.seq == row.lock)


def _query(namespace: str, name: str, *more: Any) -> Any:
    found = _select(*more).where(LockRow.namespace == namespace, LockRow.name == TAG + name)
    return found.order_by(LockRevisionRow.number.desc())


def _revision(row: Row) -> TagRevision:
    name, moment = row.name.removeprefix(TAG), Timestamp(row.created_at)
    return TagRevision(name, row.number, row.sha256, row.artifacts, row.created_by, moment, row.repeats)


def _unknown(name: str) -> NotFoundError:
    return NotFoundError(
        f"There is no tag {name[:120]!r}.", hint="`mxr tag` lists the tags.", context={"object": "tag"}
    )


def _no_tag(session: Session, namespace: str, name: str, revision: int | None) -> NotFoundError:
    if revision is not None and session.execute(_query(namespace, name).limit(1)).first() is not None:
        hint = f"`mxr tag {name}` lists the revisions that are kept."
        return NotFoundError(f"The tag {name} has no revision {revision}.", hint=hint, context={"object": "tag"})
    return _unknown(name)
