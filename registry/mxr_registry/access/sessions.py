"""Sessions of browsers, and links that sign one in once: random secrets, of which the database has the sha256.

A session stands for the token that it began with, and ends with it. No key signs it, so every registry that shares the
database knows it.
"""

from __future__ import annotations

import re
import secrets
from hashlib import sha256

from sqlalchemy import bindparam, delete, insert, or_, select

from mxr_registry.database.session import Database, Now, PreparedQuery, Session, now
from mxr_registry.database.tables import SessionRow, TokenRow

from .authentication import OWN
from .scopes import Caller

SESSION_SECONDS = 12 * 3600.0
LINK_SECONDS = 60.0

MOST = 50
"""Sessions and links of one token, the latest. An earlier one ends: a program that signs in again and again fills no
table."""

SECRET = re.compile(r"[0-9A-Za-z_-]{43}")

KNOWN = PreparedQuery(
    select(
        SessionRow.token,
        SessionRow.link,
        SessionRow.expires_at,
        TokenRow.name,
        TokenRow.namespace,
        TokenRow.scopes,
        TokenRow.expires_at.label("token_expires_at"),
        TokenRow.revoked_at,
        Now().label("moment"),
    )
    .join(TokenRow, TokenRow.id == SessionRow.token, isouter=True)
    .where(SessionRow.sha256 == bindparam("sha256"))
)


def begin(session: Session, token: str, *, link: bool = False) -> str:
    """Begin a session of a token, or make a link; return its secret. `token`: the id; empty for the own user."""
    secret, moment, row = secrets.token_urlsafe(32), now(session), SessionRow
    seconds = LINK_SECONDS if link else SESSION_SECONDS
    values = {"sha256": digest_of(secret), "token": token, "link": link}
    session.execute(insert(row).values(**values, created_at=moment, expires_at=moment + seconds))
    oldest = select(row.created_at).where(row.token == token).order_by(row.created_at.desc()).offset(MOST).limit(1)
    before = session.execute(oldest).scalar()
    ended = row.expires_at < moment if before is None else or_(row.expires_at < moment, row.created_at <= before)
    session.execute(delete(row).where(row.token == token, ended))
    return secret


def begin_by_link(session: Session, secret: str) -> str | None:
    """Begin a session by a link, which works no second time. Return its secret; None if the link is not valid."""
    row = SessionRow
    used = delete(row).where(row.sha256 == digest_of(secret), row.link).returning(row.token, row.expires_at)
    found = session.execute(used).one_or_none()
    return begin(session, found.token) if found is not None and found.expires_at > now(session) else None


def end(session: Session, secret: str) -> None:
    """End a session; one that there is not is no error."""
    session.execute(delete(SessionRow).where(SessionRow.sha256 == digest_of(secret)))


def caller_of(db: Database, secret: str) -> Caller | None:
    """Return who a session belongs to; None if it ended, or its token did. Raises `TemporaryError`."""
    if SECRET.fullmatch(secret) is None:
        return None
    rows = db.run(KNOWN, {"sha256": digest_of(secret)})
    row = rows[0] if rows else None
    if row is None or row.link or row.expires_at <= row.moment:
        return None
    if not row.token:
        return OWN
    ended = row.name is None or row.revoked_at is not None
    if ended or (row.token_expires_at is not None and row.token_expires_at <= row.moment):
        return None
    return Caller(row.name, row.namespace, frozenset(row.scopes.split()), row.token, row.token_expires_at)


def digest_of(secret: str) -> str:
    """Return the sha256 under which the database knows a secret."""
    return sha256(secret.encode()).hexdigest()
