"""The public keys of a registry: which one signs, which ones count, and who endorsed whom.

    active     signs
    retired    signs nothing new; what it signed before counts
    revoked    nothing that it signed counts, until `resign` signs it again

The first key of a database needs nobody's word. Each later one is endorsed by the key before it, so that hosts that
trust the first one can follow. Registries on one database see the keys of each other.

A key of a worker signs what this worker built, and nothing of the registry. A key of the registry endorses it.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import func, insert, select, update

from mxr.errors import ConflictError, Json, NotFoundError, TemporaryError, UsageError
from mxr.trust import endorsement
from mxr.trust.envelope import Envelope
from mxr.trust.keys import PublicKey, SigningKey
from mxr.trust.rules import ACTIVE, OF_REGISTRY, OF_WORKER, RETIRED, REVOKED, KnownKey
from mxr.util.codec import Timestamp, canonical, encode, time_text
from mxr_registry.database import trail
from mxr_registry.database.session import Row, Session, advisory_lock, now
from mxr_registry.database.tables import RegistryRow, SigningKeyRow
from mxr_registry.json_text import stored
from mxr_registry.signer import HINT

LOCK = "signing keys"


def registry_id(session: Session) -> str:
    """Return the UUID of the database."""
    query = select(RegistryRow.uuid).order_by(RegistryRow.number).limit(1)
    return str(session.execute(query).scalar_one())


def is_new(session: Session) -> bool:
    """Return whether the registry never had a key."""
    return _count(session) == 0


def require_active(session: Session, key: SigningKey) -> None:
    """Check that a key may sign for this registry; the first key of a database is made known.

    Raises `TemporaryError`, because an operator can mend it.
    """
    row = _find(session, key.public.id)
    if row is not None and (row.state, row.role) == (ACTIVE, OF_REGISTRY):
        return
    if row is None and _count(session) == 0:
        advisory_lock(session, LOCK)
        if _count(session) == 0:
            _add(session, key.public, None)
            return
    why = "was never made known to this registry" if row is None else f"is {row.state}"
    if row is not None and row.role != OF_REGISTRY:
        why = "is that of a worker"
    raise TemporaryError(
        f"The signing key {key.public.id[:12]} {why}, so the registry accepts no publication.",
        hint=f"Bring back the key that is active (`mxr-registry key ls`), or make a new one. {HINT}",
    )


def enroll(
    session: Session, key: PublicKey, by: SigningKey | None, role: str = OF_REGISTRY, name: str | None = None
) -> Json:
    """Make a key known and return it. `by`: the active key that endorses it; None: nothing does.

    `role`: what it signs; `name`: what to call the workers that have it. Raises `ConflictError` for a key that is
    known, and `TemporaryError` for a `by` that is not active.
    """
    advisory_lock(session, LOCK)
    if _find(session, key.id) is not None:
        raise ConflictError(f"The key {key.id[:12]} is known already.", hint="`mxr-registry key ls` lists the keys.")
    endorsed = None
    if by is not None:
        require_active(session, by)
        endorsed = endorsement.endorse(key, registry_id(session), now(session), by, role)
    _add(session, key, endorsed, role, name)
    return show(session, key.id)


def end(session: Session, id: str, state: str) -> Json:
    """Retire or revoke a key, by its id or the beginning of it, and return it. Raises `NotFoundError`, `UsageError`."""
    advisory_lock(session, LOCK)
    row = _found(session, id)
    if row.state == state:
        return _shown(row)
    if row.state == REVOKED:
        raise ConflictError(f"The key {row.id[:12]} is revoked already.", hint="A key that was revoked stays so.")
    own = (SigningKeyRow.state == ACTIVE, SigningKeyRow.role == OF_REGISTRY, SigningKeyRow.id != row.id)
    others = select(func.count()).where(*own)
    if (state, row.role) == (RETIRED, OF_REGISTRY) and session.execute(others).scalar_one() == 0:
        raise ConflictError(
            f"{row.id[:12]} is the only active key.", hint="Make another one first: `mxr-registry key rotate`."
        )
    change = update(SigningKeyRow).where(SigningKeyRow.id == row.id)
    session.execute(change.values(state=state, ended_at=now(session)))
    trail.record(session, "key.revoke" if state == REVOKED else "key.retire", row.id)
    return show(session, row.id)


def list_keys(session: Session) -> Json:
    """Return the JSON value of `RegistryKeys`."""
    rows = session.execute(_query().order_by(SigningKeyRow.created_at.desc(), SigningKeyRow.id)).all()
    return {"registry": registry_id(session), "items": [_shown(row) for row in rows]}


def show(session: Session, id: str) -> Json:
    """Return one key, by its id or the beginning of it. Raises `NotFoundError`, `UsageError`."""
    return _shown(_found(session, id))


def known_keys(session: Session) -> dict[str, KnownKey]:
    """Return all keys, by id."""
    return {
        row.id: KnownKey(row.public_key, row.state, None if row.ended_at is None else Timestamp(row.ended_at), row.role)
        for row in session.execute(_query().order_by(SigningKeyRow.id))
    }


def of_workers(session: Session) -> dict[str, PublicKey]:
    """Return the active keys of workers, by id."""
    found = known_keys(session).items()
    return {id: PublicKey(key.public_key) for id, key in found if (key.role, key.state) == (OF_WORKER, ACTIVE)}


def _query() -> Any:
    row = SigningKeyRow
    facts = (row.id, row.public_key, row.state, row.created_at, row.ended_at, row.endorsement_json, row.role, row.name)
    return select(*facts)


def _find(session: Session, id: str) -> Row | None:
    return session.execute(_query().where(SigningKeyRow.id == id)).first()


def _found(session: Session, id: str) -> Row:
    row = SigningKeyRow
    rows = session.execute(_query().where(row.id >= id, row.id < id + "g").limit(2)).all() if id else []
    if len(rows) > 1:
        raise UsageError(f"More than one key begins with {id[:64]}.", hint="Give more digits of the id.")
    if not rows:
        raise NotFoundError(f"There is no key {id[:64]!r}.", hint="`mxr-registry key ls` lists the keys.")
    return rows[0]


def _count(session: Session) -> int:
    return int(session.execute(select(func.count()).where(SigningKeyRow.role == OF_REGISTRY)).scalar_one())


def _add(
    session: Session,
    key: PublicKey,
    endorsed: Envelope | None,
    role: str = OF_REGISTRY,
    name: str | None = None,
) -> None:
    text = None if endorsed is None else canonical(encode(endorsed))
    values = {
        "id": key.id,
        "public_key": key.pem,
        "state": ACTIVE,
        "created_at": now(session),
        "endorsement_json": text,
        "role": role,
        "name": name,
    }
    session.execute(insert(SigningKeyRow).values(values))
    detail = {"endorsed_by": endorsed.signatures[0].keyid} if endorsed else {}
    detail |= {} if role == OF_REGISTRY else {"role": role, "name": name or ""}
    trail.record(session, "key.create", key.id, detail or None)


def _shown(row: Row) -> Json:
    return {
        "id": row.id,
        "public_key": row.public_key,
        "state": row.state,
        "created_at": time_text(row.created_at),
        "ended_at": time_text(row.ended_at),
        "endorsement": stored(row.endorsement_json),
        "role": row.role,
        "name": row.name,
    }
