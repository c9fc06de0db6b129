"""Registered locks: a name and the artifacts that it pins. Pinned artifacts cannot be removed or swept.

Code that deletes an artifact checks its locks first (`pinning`). The foreign key of `lock_artifacts` enforces it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from sqlalchemy import delete, func, insert, select
from sqlalchemy.exc import IntegrityError

from mxr.artifact.limits import MAX_LOCKS, MAX_LOCKS_EACH
from mxr.artifact.matching import allows, describe_rule
from mxr.errors import ConflictError, Json, NoSuchArtifactError, NotAllowedError, NotFoundError, UsageError
from mxr.protocol.artifacts import RegisteredLock
from mxr.util.codec import Timestamp, encode
from mxr_registry.database import trail
from mxr_registry.database.paging import MAX_ROWS, list_page, read_cursor
from mxr_registry.database.session import Database, Row, Session, now, upsert
from mxr_registry.database.tables import ArtifactRow, LockArtifactRow, LockRow

from . import namespaces

TAG = "tag:"
"""How the names of the rows begin that pin the artifacts of tags (`tags`). No registered lock can be called so."""

NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,99}")
BATCH = 500
MAX_TOLD = 50
"""Artifacts that the trail names of those that a lock pins and releases."""

MAX_NAMED = 20


def register_lock(
    db: Database, namespace: str, name: str, ids: Sequence[str], created_by: str, owner: str | None = None
) -> tuple[RegisteredLock, bool]:
    """Register a lock, or replace the artifacts that it pins. Return it, and whether it is new.

    `created_by`: whose a new lock is. `owner`: the principal that may replace only its own. Runs in one transaction:
    the lock pins all of these artifacts, or nothing changes. Raises `NoSuchArtifactError`, which lists the missing
    ones, `NotAllowedError` for the lock of somebody else, and for artifacts that the namespace does not serve and that
    this lock did not pin before, and `UsageError` for an invalid name.
    """
    check_name(name)
    try:
        with db.writing() as session:
            trail.refuse_flood(session, "lock.put")
            rows = artifacts_of(session, namespace, ids)
            moment = now(session)
            keys = {"namespace": namespace, "name": name}
            new = {"created_at": moment, "created_by": created_by, "updated_at": moment}
            upsert(session, LockRow, keys, new, {"updated_at": moment})
            row = find_lock(session, namespace, name)
            if row.created_at == moment:
                refuse_too_many(session, namespace, created_by)
            _refuse_foreign(row, owner)
            before = set(ids_of(session, row.seq))
            refuse_unserved(session, namespace, rows, before)
            pin(session, row.seq, {each.seq for each in rows})
            after = {each.id for each in rows}
            detail = {"added": sorted(after - before)[:MAX_TOLD], "removed": sorted(before - after)[:MAX_TOLD]}
            trail.record(session, "lock.put", name, detail | {"artifacts": len(after)}, namespace=namespace)
            return show_lock(session, namespace, name), row.created_at == moment
    except IntegrityError:
        raise NoSuchArtifactError(
            "An artifact of this lock has just been removed.", hint="Create the lock again."
        ) from None


def pin(session: Session, lock: int, artifacts: Iterable[int]) -> None:
    """Let a lock, given by its `seq`, pin exactly these artifacts."""
    session.execute(delete(LockArtifactRow).where(LockArtifactRow.lock == lock))
    if rows := [{"lock": lock, "artifact": seq} for seq in sorted(artifacts)]:
        session.execute(insert(LockArtifactRow), rows)


def refuse_too_many(session: Session, namespace: str, created_by: str) -> None:
    """Raise `ConflictError` if there are more locks than allowed, in all or of this principal."""
    count = select(func.count()).where(LockRow.namespace == namespace)
    for who, found, most in (
        ("There are", count, MAX_LOCKS),
        (f"{created_by} has", count.where(LockRow.created_by == created_by), MAX_LOCKS_EACH),
    ):
        if session.execute(found).scalar_one() > most:
            raise ConflictError(
                f"{who} {most} registered locks, which is the limit.",
                hint="Remove locks that nobody needs (`DELETE /v1/locks/{name}`).",
                context={"limit": most},
            )


def check_name(name: str) -> str:
    """Return `name` if it is a valid name of a lock. Raises `UsageError`."""
    if not NAME.fullmatch(name):
        raise UsageError(
            f"{name[:120]!r} is not a valid lock name.",
            hint="Use up to 100 letters, digits, dots, dashes and underscores, such as prod or team-a.2026-11.",
        )
    return name


def artifacts_of(session: Session, namespace: str, ids: Sequence[str]) -> list[Row]:
    """Return the rows of artifacts by their full ids. Raises `NoSuchArtifactError` with those that are not there."""
    found: dict[str, Row] = {}
    wanted = list(dict.fromkeys(ids))
    row = ArtifactRow
    for at in range(0, len(wanted), BATCH):
        query = select(row.id, row.seq, row.origin, row.promoted, row.recall_json)
        query = query.where(row.namespace == namespace, row.id.in_(wanted[at : at + BATCH]))
        found |= {each.id: each for each in session.execute(query)}
    absent = [id for id in wanted if id not in found]
    if absent:
        raise NoSuchArtifactError(
            f"{len(absent)} of the lock's artifacts are not in the registry: "
            f"{absent[0]}{' and others' if absent[1:] else ''}.",
            hint="Publish them, or register a lock without them.",
            context={"ids": absent[:1000]},
        )
    return list(found.values())


def refuse_unserved(session: Session, namespace: str, rows: Iterable[Row], pinned: set[str]) -> None:
    """Raise `NotAllowedError` for artifacts that `serve` excludes, except those that the lock pins already."""
    rule = namespaces.rule_of(session, namespace)
    unserved = [row.id for row in rows if not allows(rule, row.origin, promoted=bool(row.promoted))]
    if fresh := [id for id in unserved if id not in pinned]:
        raise NotAllowedError(
            f"{len(fresh)} of the lock's artifacts do not answer requests, because the namespace {namespace} serves "
            f"{describe_rule(rule)}: {', '.join(id[:12] for id in fresh[:MAX_NAMED])}.",
            hint=f"Promote them (`POST /v1/artifacts/{{id}}/promote`), or {namespaces.change_command(namespace)}.",
            context={"serve": {"rule": rule, "namespace": namespace, "excluded": fresh[:1000]}},
        )


def _refuse_foreign(row: Row, owner: str | None) -> None:
    """Raise `NotAllowedError` for a lock of another principal than this one, which may change only its own."""
    if owner is not None and row.created_by != owner:
        raise NotAllowedError(
            f"The lock {row.name} belongs to {row.created_by}, and {owner} may change only its own.",
            hint="Use another name, or a token with the scope promote.",
        )


def find_lock(session: Session, namespace: str, name: str) -> Row:
    """Return the row of a lock. Raises `NotFoundError`."""
    row = LockRow
    query = select(row.seq, row.name, row.created_at, row.created_by, row.updated_at)
    found = session.execute(query.where(row.namespace == namespace, row.name == name)).first()
    if found is None:
        raise NotFoundError(
            f"There is no registered lock {name[:120]!r}.",
            hint="List the locks (`GET /v1/locks`).",
            context={"object": "lock"},
        )
    return found


def show_lock(session: Session, namespace: str, name: str) -> RegisteredLock:
    """Return one lock with the ids of its artifacts. Raises `NotFoundError`."""
    row = find_lock(session, namespace, name)
    return _lock(row, ids_of(session, row.seq))


def list_locks(session: Session, namespace: str, after: str | None = None, limit: int = MAX_ROWS) -> Json:
    """Return one page of locks, sorted by name. `after`: `next` of the previous page."""
    row = LockRow
    query = select(row.seq, row.name, row.created_at, row.created_by, row.updated_at).where(row.namespace == namespace)
    if after is not None:
        (name,) = read_cursor("locks", after, str)
        query = query.where(row.name > name)
    rows = query.order_by(row.name)
    return list_page(
        session,
        rows,
        lambda each: encode(_lock(each, ids_of(session, each.seq))),
        "locks",
        lambda each: (each.name,),
        limit,
    )


def ids_of(session: Session, lock: int) -> Sequence[str]:
    """Return the ids of the artifacts that a lock pins, given its `seq`."""
    joined = select(ArtifactRow.id).join(LockArtifactRow, ArtifactRow.seq == LockArtifactRow.artifact)
    return session.execute(joined.where(LockArtifactRow.lock == lock).order_by(ArtifactRow.id)).scalars().all()


def pinned_of(session: Session, lock: int, ids: Collection[str]) -> set[int]:
    """Return the `seq` of those artifacts that a lock pins and whose id is one of these."""
    query = select(ArtifactRow.seq, ArtifactRow.id).join(LockArtifactRow, ArtifactRow.seq == LockArtifactRow.artifact)
    return {row.seq for row in session.execute(query.where(LockArtifactRow.lock == lock)) if row.id in ids}


def _lock(row: Row, ids: Iterable[str]) -> RegisteredLock:
    return RegisteredLock(row.name, tuple(ids), row.created_by, Timestamp(row.created_at), Timestamp(row.updated_at))


def unregister_lock(session: Session, namespace: str, name: str, owner: str | None = None) -> RegisteredLock:
    """Unregister a lock and return it as it was. Its artifacts can be removed and swept again.

    `owner`: the principal that may remove only its own. Raises `NotFoundError`, `NotAllowedError`, `UsageError`.
    """
    check_name(name)
    _refuse_foreign(find_lock(session, namespace, name), owner)
    removed = show_lock(session, namespace, name)
    session.execute(delete(LockRow).where(LockRow.namespace == namespace, LockRow.name == name))
    trail.record(session, "lock.remove", name, {"artifacts": len(removed.artifacts)}, namespace=namespace)
    return removed


def pinning(session: Session, artifact: int) -> list[str]:
    """Return the names of the locks that pin an artifact, given its `seq`."""
    query = select(LockRow.name).join(LockArtifactRow, LockArtifactRow.lock == LockRow.seq)
    return list(session.execute(query.where(LockArtifactRow.artifact == artifact).order_by(LockRow.name)).scalars())


def refuse_pinned(session: Session, artifact: int, id: str) -> None:
    """Check that no lock pins an artifact. Raises `NotAllowedError`, which names the locks that do."""
    names = pinning(session, artifact)
    if names:
        raise NotAllowedError(
            f"Artifact {id[:12]} is pinned by {'a lock' if len(names) == 1 else f'{len(names)} locks'}: "
            f"{', '.join(names[:MAX_NAMED])}.",
            hint="Replace the lock with one without this artifact, or remove it (`DELETE /v1/locks/{name}`). An "
            "administrator can remove the artifact nevertheless (`force=yes`).",
            context={"id": id, "locks": names},
        )


def unpin(session: Session, artifact: int) -> None:
    """Take an artifact, given by its `seq`, out of all locks."""
    session.execute(delete(LockArtifactRow).where(LockArtifactRow.artifact == artifact))
