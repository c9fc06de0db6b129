"""Registered locks: a name and the artifacts that it pins. What a lock pins is neither removed nor swept.

Whoever deletes an artifact has to look here first (`pinning`); the foreign key of `lock_artifacts` has the last word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from sqlalchemy import delete, insert, select
from sqlalchemy.exc import IntegrityError

from mxr.errors import NoSuchArtifact, NotAllowed, NotFound, Usage
from mxr.util.codec import canonical
from mxr_registry.database.session import Database, Row, Session, now, upsert
from mxr_registry.database.tables import ArtifactRow, LockArtifactRow, LockRow

NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,99}")
MOST_LISTED = 1_000
AT_ONCE = 500
SHOWN = 20


def put(db: Database, namespace: str, name: str, ids: Sequence[str]) -> str:
    """Register a lock, or replace what the one of this name pins; its JSON.

    All in one transaction: pinned are all of these artifacts, or none. Raises `NoSuchArtifact` naming those that are
    not here, `Usage` for a bad name.
    """
    check_name(name)
    try:
        with db.writing() as session:
            wanted = _sequences(session, namespace, ids)
            moment = now(session)
            keys = {"namespace": namespace, "name": name}
            upsert(session, LockRow, keys, {"created_at": moment, "updated_at": moment}, {"updated_at": moment})
            row = find(session, namespace, name)
            session.execute(delete(LockArtifactRow).where(LockArtifactRow.lock == row.seq))
            if wanted:
                session.execute(insert(LockArtifactRow), [{"lock": row.seq, "artifact": seq} for seq in wanted])
            return show(session, namespace, name)
    except IntegrityError:
        raise NoSuchArtifact("An artifact of this lock was removed meanwhile.", hint="Lock anew.") from None


def check_name(name: str) -> str:
    """`name`, when a lock can have it. Raises `Usage`."""
    if not NAME.fullmatch(name):
        raise Usage(
            f"{name[:120]!r} is no name for a lock.",
            hint="Take letters, digits, dots, dashes and underscores, at most 100: prod, or team-a.2026-11.",
        )
    return name


def _sequences(session: Session, namespace: str, ids: Sequence[str]) -> list[int]:
    found: dict[str, int] = {}
    wanted = list(dict.fromkeys(ids))
    row = ArtifactRow
    for at in range(0, len(wanted), AT_ONCE):
        asked = select(row.id, row.seq).where(row.namespace == namespace, row.id.in_(wanted[at : at + AT_ONCE]))
        found |= {id: seq for id, seq in session.execute(asked)}
    absent = [id for id in wanted if id not in found]
    if absent:
        raise NoSuchArtifact(
            f"{len(absent)} of the lock's artifacts are not here: {absent[0]}{' and others' if absent[1:] else ''}.",
            hint="Publish them (a bundle of them: `mxr import --into registry`), or lock anew with `mxr lock`.",
            detail={"ids": absent[:1000]},
        )
    return sorted(found.values())


def find(session: Session, namespace: str, name: str) -> Row:
    """The row of a lock. Raises `NotFound`."""
    row = LockRow
    asked = select(row.seq, row.name, row.created_at, row.updated_at)
    found = session.execute(asked.where(row.namespace == namespace, row.name == name)).first()
    if found is None:
        raise NotFound(f"There is no registered lock {name[:120]!r}.", hint="`mxr lock --registered` lists them.")
    return found


def show(session: Session, namespace: str, name: str) -> str:
    """The JSON of one lock, with the ids of its artifacts. Raises `NotFound`."""
    row = find(session, namespace, name)
    return _written(row, _ids(session, [row.seq]).get(row.seq, []))


def listed(session: Session, namespace: str) -> str:
    """The JSON of all locks, by name."""
    row = LockRow
    asked = select(row.seq, row.name, row.created_at, row.updated_at).where(row.namespace == namespace)
    rows = session.execute(asked.order_by(row.name).limit(MOST_LISTED)).all()
    ids = _ids(session, [each.seq for each in rows])
    return '{"locks":[' + ",".join(_written(each, ids.get(each.seq, [])) for each in rows) + "]}"


def _ids(session: Session, locks: Sequence[int]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    joined = select(LockArtifactRow.lock, ArtifactRow.id).join(ArtifactRow, ArtifactRow.seq == LockArtifactRow.artifact)
    for at in range(0, len(locks), AT_ONCE):
        asked = joined.where(LockArtifactRow.lock.in_(locks[at : at + AT_ONCE])).order_by(ArtifactRow.id)
        for lock, id in session.execute(asked):
            found.setdefault(lock, []).append(id)
    return found


def _written(row: Row, ids: Iterable[str]) -> str:
    return canonical(
        {"name": row.name, "artifacts": list(ids), "created_at": row.created_at, "updated_at": row.updated_at}
    )


def remove(session: Session, namespace: str, name: str) -> str:
    """Forget a lock: its artifacts may be removed and swept again; its JSON as it was. Raises `NotFound`."""
    gone = show(session, namespace, name)
    session.execute(delete(LockRow).where(LockRow.namespace == namespace, LockRow.name == name))
    return gone


def pinning(session: Session, artifact: int) -> list[str]:
    """The names of the locks that pin an artifact, by its `seq`."""
    asked = select(LockRow.name).join(LockArtifactRow, LockArtifactRow.lock == LockRow.seq)
    return list(session.execute(asked.where(LockArtifactRow.artifact == artifact).order_by(LockRow.name)).scalars())


def refuse_pinned(session: Session, artifact: int, id: str) -> None:
    """Returns when no lock pins an artifact. Raises `NotAllowed` that names those that do."""
    names = pinning(session, artifact)
    if names:
        raise NotAllowed(
            f"Artifact {id[:12]} is pinned by {'a lock' if len(names) == 1 else f'{len(names)} locks'}: "
            f"{', '.join(names[:SHOWN])}.",
            hint="Lock anew without it, or forget the lock first: `mxr lock --unregister NAME`.",
            detail={"id": id, "locks": names},
        )
