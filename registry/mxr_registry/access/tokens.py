"""Tokens in the database: make, list and revoke them.

A token is `mxr_<id>_<secret>`. The secret has 256 random bits, so one sha256 of the token is all that is stored: no
password hash has anything to slow down. The row of a token that expired or was revoked stays for `token_days`, and
shows who had it.

The ids of revoked tokens are in the store too, so that an older database, from a backup, does not revive them: a start
of the registry compares both. The store keeps them until the token has expired.
"""

from __future__ import annotations

import logging
import math
import secrets
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

from sqlalchemy import delete, func, insert, select, update

from mxr.artifact.limits import MAX_TOKENS
from mxr.display.text import printable
from mxr.errors import ConflictError, Json, MxrError, NotFoundError
from mxr.protocol.access import TOKEN_ID, CreateToken, NewToken, Token, check_scopes
from mxr.util import codec
from mxr.util.codec import Timestamp, time_text
from mxr_registry.database import trail
from mxr_registry.database.paging import MAX_ROWS, list_page, read_cursor
from mxr_registry.database.session import Database, Now, Row, Session, now
from mxr_registry.database.tables import TokenRow
from mxr_registry.storage.store import Store

ROWS = select(
    TokenRow.seq,
    TokenRow.id,
    TokenRow.name,
    TokenRow.scopes,
    TokenRow.created_at,
    TokenRow.created_by,
    TokenRow.expires_at,
    TokenRow.used_at,
    TokenRow.used_with,
    TokenRow.revoked_at,
    Now().label("moment"),
)


def make_token() -> str:
    """Return a new token."""
    return f"mxr_{secrets.token_hex(6)}_{secrets.token_hex(32)}"


def digest_of(token: str) -> str:
    """Return what the registry keeps of a token: its sha256 in hex."""
    return sha256(token.encode()).hexdigest()


def create_token(session: Session, namespace: str, message: CreateToken, created_by: str) -> NewToken:
    """Make a token, and return it with its secret. Raises `ConflictError` where there are too many."""
    if session.execute(select(func.count()).select_from(TokenRow)).scalar_one() >= MAX_TOKENS:
        raise ConflictError(
            f"There are {MAX_TOKENS} tokens, which is the limit.",
            hint="Use one token for each service instead of one for each run.",
        )
    secret, moment = make_token(), now(session)
    id = secret.split("_")[1]
    values: Mapping[str, Any] = {
        "id": id,
        "namespace": namespace,
        "name": message.name,
        "scopes": " ".join(check_scopes(message.scopes)),
        "sha256": digest_of(secret),
        "created_at": moment,
        "created_by": created_by,
        "expires_at": None if message.expires is None else moment + message.expires,
    }
    session.execute(insert(TokenRow).values(values))
    detail = {"name": message.name, "scopes": values["scopes"], "expires": time_text(values["expires_at"])}
    trail.record(session, "token.create", id, detail, namespace=namespace)
    return NewToken(secret, find_token(session, id))


def find_token(session: Session, id: str) -> Token:
    """Return the token with this id. Raises `NotFoundError`."""
    found = session.execute(ROWS.where(TokenRow.id == id)).first() if TOKEN_ID.fullmatch(id) else None
    if found is None:
        raise NotFoundError(f"There is no token {id[:40]!r}.", hint="List the tokens (`GET /v1/tokens`).")
    return _token(found)


def tokens_of(session: Session, name: str) -> list[Token]:
    """Return the valid tokens of a principal."""
    rows = session.execute(ROWS.where(TokenRow.name == name, TokenRow.revoked_at.is_(None)).order_by(TokenRow.seq))
    return [found for row in rows if (found := _token(row)).state == "valid"]


def list_tokens(session: Session, after: str | None = None, limit: int = MAX_ROWS) -> Json:
    """Return one page of tokens, newest first. `after`: `next` of the previous page."""
    query = ROWS
    if after is not None:
        (seq,) = read_cursor("tokens", after, int)
        query = query.where(TokenRow.seq < seq)
    rows = query.order_by(TokenRow.seq.desc())
    return list_page(session, rows, lambda row: codec.encode(_token(row)), "tokens", lambda row: (row.seq,), limit)


def revoke_token(session: Session, id: str) -> Token:
    """Revoke a token for ever and return it. A token that is revoked already stays as it is. Raises `NotFoundError`."""
    revoke_tokens(session, [id])
    return find_token(session, id)


def revoke_tokens(session: Session, ids: Iterable[str]) -> int:
    """Revoke those of these tokens that exist and are not revoked yet. Return how many these were."""
    row, moment, count = TokenRow, now(session), 0
    for id in ids:
        found = update(row).where(row.id == id, row.revoked_at.is_(None)).values(revoked_at=moment)
        if session.execute(found.returning(row.name)).first() is not None:
            trail.record(session, "token.revoke", id)
            count += 1
    return count


def created_before(session: Session, moment: float) -> list[str]:
    """Return the ids of all tokens that were made before a time, and are not revoked."""
    found = select(TokenRow.id).where(TokenRow.created_at < moment, TokenRow.revoked_at.is_(None))
    return list(session.execute(found.order_by(TokenRow.seq)).scalars())


def revoked(session: Session) -> list[str]:
    """Return the ids of all revoked tokens."""
    return list(session.execute(select(TokenRow.id).where(TokenRow.revoked_at.is_not(None))).scalars())


def record_uses(session: Session, uses: Mapping[str, tuple[float, str]]) -> None:
    """Write the last use of each token, by its id: the time, and the `User-Agent`."""
    for id, (moment, agent) in sorted(uses.items()):
        later = (TokenRow.used_at.is_(None)) | (TokenRow.used_at < moment)
        values = {"used_at": moment, "used_with": printable(agent)[:100] or None}
        session.execute(update(TokenRow).where(TokenRow.id == id, later).values(values))


def _token(row: Row) -> Token:
    state = "valid"
    if row.expires_at is not None and row.expires_at <= float(row.moment):
        state = "expired"
    if row.revoked_at is not None:
        state = "revoked"
    return Token(
        id=row.id,
        name=row.name,
        scopes=tuple(row.scopes.split()),
        state=state,
        created_at=Timestamp(row.created_at),
        created_by=row.created_by,
        expires_at=_time(row.expires_at),
        used_at=_time(row.used_at),
        used_with=row.used_with,
        revoked_at=_time(row.revoked_at),
    )


def _time(seconds: float | None) -> Timestamp | None:
    return None if seconds is None else Timestamp(seconds)


log = logging.getLogger("mxr_registry")


def revoke(db: Database, store: Store, id: str) -> Token:
    """Revoke a token in the database, and then in the store, and return it. Raises `NotFoundError`, `TemporaryError`.

    Where the store does not take it, the token is revoked all the same, and `reconcile` writes it later.
    """
    with db.writing() as session:
        found = revoke_token(session, id)
    _record(store, id)
    return found


def reconcile(db: Database, store: Store) -> int:
    """Revoke in the database what is revoked in the store, and the other way round. Return how many revived tokens.

    Raises `TemporaryError`.
    """
    in_store = store.revoked_tokens()
    with db.reading() as session:
        in_database = set(revoked(session))
        revived = in_store.intersection(created_before(session, math.inf))
    count = 0
    if revived:
        with db.writing() as session:
            count = revoke_tokens(session, sorted(revived))
    if count:
        log.warning("revoked %d tokens again that this database had as valid: it comes from an older backup", count)
    for id in sorted(in_database - in_store):
        if not _record(store, id):
            break
    return count


def remove_ended(db: Database, store: Store, before: float, *, dry: bool) -> int:
    """Remove the rows of tokens that expired before a time, or were revoked then and never expire. Return their number.

    One that is revoked loses its row only while the store has its id, and its id only once it has expired: until then,
    a backup of the database has it as valid. Raises `TemporaryError`.
    """
    row = TokenRow
    ended = (row.expires_at < before) | (row.expires_at.is_(None) & (row.revoked_at < before))
    with db.reading() as session:
        found = session.execute(select(row.id, row.expires_at).where(ended).order_by(row.seq)).all()
    if dry or not found:
        return len(found)
    in_store = store.revoked_tokens()
    for id, expires_at in found:
        if expires_at is not None and id in in_store:
            store.forget_revoked_token(id)
    removable = [each.id for each in found if each.expires_at is not None or each.id in in_store]
    with db.writing() as session:
        return session.execute(delete(row).where(row.id.in_(removable), ended)).rowcount


def _record(store: Store, id: str) -> bool:
    try:
        store.record_revoked_token(id)
    except MxrError as problem:
        log.warning("the store does not know yet that token %s is revoked: %s", id, problem)
        return False
    return True
