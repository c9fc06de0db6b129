"""Checks the token of each request.

What the database says of a token holds for `FRESH` seconds in this process, and while one request reads it again, for
others up to `STALE` seconds: after that, a token that another process has revoked is refused here too. One that is
revoked through this process is refused at once.
"""

from __future__ import annotations

import hmac
import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cachetools import FIFOCache
from sqlalchemy import bindparam, select
from sqlalchemy.exc import SQLAlchemyError

from mxr.display.logs import RepeatedLines
from mxr.display.text import printable
from mxr.errors import MxrError, NotAllowedError, UnauthenticatedError
from mxr.protocol.access import ADMIN, LOCAL, TOKEN, WORK
from mxr.util.codec import time_text
from mxr_registry.database.session import Database, Now, PreparedQuery, Row
from mxr_registry.database.tables import TokenRow

from .scopes import Caller
from .tokens import digest_of, record_uses

log = logging.getLogger("mxr_registry")

FRESH, STALE = 1.0, 1.7
"""Seconds."""

REMEMBERED = 10_000
"""Tokens in memory."""

USE_WRITTEN = 60.0
"""Seconds between two times of use of the same token that are written to the database."""

WRITE_DELAY = 5.0
"""Seconds after which a use is written, with others of that time."""

OWN_PEER = "mxr.own_peer"
"""The name under which the ASGI scope of a request says whether it came from the registry's own user or root."""

FORWARDED = frozenset(
    {b"forwarded", b"via", b"x-real-ip", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto"}
)
"""Headers that proxies add."""

OWN = Caller(LOCAL, "default", frozenset({ADMIN, WORK}), token="")
"""The user who runs the registry, and root of its host."""

BY_ID = PreparedQuery(
    select(
        TokenRow.name,
        TokenRow.namespace,
        TokenRow.scopes,
        TokenRow.sha256,
        TokenRow.expires_at,
        TokenRow.used_at,
        TokenRow.revoked_at,
        Now().label("moment"),
    ).where(TokenRow.id == bindparam("id"))
)


@dataclass(frozen=True, slots=True)
class KnownToken:
    """What the database said of a token at `read_at`, by the clock of this process.

    `ahead`: how far the clock of the database is ahead of that of this process. `used_at`: the last time of use that is
    written or waits to be.
    """

    caller: Caller
    sha256: str
    read_at: float
    ahead: float
    used_at: float
    revoked_at: float | None = None

    def moment(self) -> float:
        """Return the time by the clock of the database, in seconds since 1970."""
        return time.monotonic() + self.ahead


class Authenticator:
    """The tokens that this process has seen lately."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._known: FIFOCache[str, KnownToken] = FIFOCache(REMEMBERED)
        self._revoked: dict[str, float] = {}
        self._reading: set[str] = set()
        self._lock = threading.Lock()
        self._uses: dict[str, tuple[float, str]] = {}
        self._timer: threading.Timer | None = None
        self._closed = False
        self._refusals = RepeatedLines(log)

    def at_once(self, token: str) -> KnownToken | None:
        """Return what is known of a token without waiting for the database; None where `read` has to be called.

        Raises `UnauthenticatedError` for a token without the form of one.
        """
        id = _id_of(token)
        found = self._known.get(id)
        if found is not None:
            age = time.monotonic() - found.read_at
            # One of many requests at the same moment reads it again.
            if age < FRESH or (age < STALE and id in self._reading):
                return found
        rows = self._db.run_at_once(BY_ID, {"id": id})
        return None if rows is None else self._learn(id, rows)

    def read(self, token: str) -> KnownToken:
        """Return what the database says of a token. Raises `UnauthenticatedError`, `TemporaryError`."""
        id = _id_of(token)
        self._reading.add(id)
        try:
            return self._learn(id, self._db.run(BY_ID, {"id": id}))
        finally:
            self._reading.discard(id)

    def remembered(self, token: str) -> KnownToken | None:
        """Return what was known of a token last, however long ago: for what is told while the database is away."""
        return self._known.get(_id_of(token))

    def _learn(self, id: str, rows: Sequence[Row]) -> KnownToken:
        if not rows:
            raise not_valid()
        row, read_at = rows[0], time.monotonic()
        caller = Caller(row.name, row.namespace, frozenset(row.scopes.split()), id, expires_at=row.expires_at)
        ahead = float(row.moment) - read_at
        found = KnownToken(caller, row.sha256, read_at, ahead, row.used_at or 0.0, row.revoked_at)
        with self._lock:
            known = self._known.pop(id, None)
            # The database may not have the last use yet, and it was perhaps read before a token was revoked here.
            found = replace(
                found,
                used_at=max(found.used_at, known.used_at if known else 0.0),
                revoked_at=found.revoked_at or self._revoked.get(id),
            )
            self._known[id] = found
        return found

    def check(self, token: str, known: KnownToken, headers: Iterable[tuple[bytes, bytes]] = ()) -> Caller:
        """Return the caller whose token this is, in a request with these headers. Raises `UnauthenticatedError`.

        Only the holder of the whole token learns why it is not valid.
        """
        if not hmac.compare_digest(digest_of(token), known.sha256):
            raise not_valid()
        caller = known.caller
        moment = known.moment()
        if known.revoked_at is not None:
            raise _ended(caller, "was revoked", known.revoked_at)
        if caller.expires_at is not None and caller.expires_at <= moment:
            raise _ended(caller, "expired", caller.expires_at)
        if moment - known.used_at > USE_WRITTEN:
            agent = next((value.decode("latin-1") for name, value in headers if name == b"user-agent"), "")
            self._note_use(caller.token, known, moment, agent)
        return caller

    def revoke(self, id: str, moment: float) -> None:
        """Refuse a token from now on: this process has revoked it in the database."""
        with self._lock:
            self._revoked[id] = moment
            self._known.pop(id, None)

    def log_refusal(self, address: str, problem: MxrError) -> None:
        """Log a request whose token is not valid."""
        source = address or "an unknown address"
        self._refusals.warning("refused", f"a request from {source} was refused: {problem.message}")

    def _note_use(self, id: str, known: KnownToken, moment: float, agent: str) -> None:
        with self._lock:
            if id in self._known:
                self._known[id] = replace(known, used_at=moment)
            self._uses[id] = moment, agent
            if self._timer is None and not self._closed:
                self._timer = threading.Timer(WRITE_DELAY, self.write_uses)
                self._timer.daemon = True
                self._timer.start()

    def write_uses(self) -> None:
        """Write the last uses to the database. What cannot be written is left out."""
        with self._lock:
            uses, self._uses, self._timer = self._uses, {}, None
        try:
            if uses:
                with self._db.writing() as session:
                    record_uses(session, uses)
        except (MxrError, SQLAlchemyError) as problem:
            log.warning("the last uses of %d tokens are not recorded: %s", len(uses), problem)

    def close(self) -> None:
        """Write the remaining times of use. Later ones are not written."""
        with self._lock:
            self._closed, timer = True, self._timer
        if timer is not None:
            timer.cancel()
            self.write_uses()


def own_caller(scope: Mapping[str, Any]) -> Caller | None:
    """Return the caller of a request that came by the socket of the registry's own user, from this user or root.

    None for all others, for a request with a token, whose rights count, and for one that a proxy passes on: it is from
    somebody else.
    """
    if not scope.get(OWN_PEER) or any(name == b"authorization" or name in FORWARDED for name, _ in scope["headers"]):
        return None
    return OWN


def token_of(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the token in the headers of a request, whose names are in lower case. Raises `UnauthenticatedError`.

    Source: RFC 6750, section 2.1.
    """
    found = [value for name, value in headers if name == b"authorization"]
    if not any(found):
        raise UnauthenticatedError("This request needs a token.")
    scheme, _, token = found[0].partition(b" ")
    if len(found) != 1 or scheme.lower() != b"bearer":
        raise UnauthenticatedError("The header Authorization must be `Bearer TOKEN`, once.")
    return token.strip(b" ").decode("latin-1")


def require(caller: Caller, scopes: Sequence[str]) -> None:
    """Raise `NotAllowedError` for a caller that has none of these scopes."""
    if not caller.may(scopes):
        wanted = [scope for scope in scopes if scope != "admin"] or list(scopes)
        raise NotAllowedError(
            f"The token {caller.token} of {printable(caller.principal)} has the "
            f"{_listed('scope', sorted(caller.scopes), 'and')}; this needs {' or '.join(wanted)}.",
            hint="Ask the registry's operator for a token with this scope (`mxr-registry token create`).",
            context={"scopes": sorted(caller.scopes), "needed": wanted},
        )


def _ended(caller: Caller, what: str, moment: float) -> UnauthenticatedError:
    text = f"The token {caller.token} of {printable(caller.principal)} {what} at {time_text(moment)}."
    return UnauthenticatedError(text)


def not_valid() -> UnauthenticatedError:
    """Return the error for a token that this registry did not make; whoever guesses learns no more."""
    return UnauthenticatedError("The token is not valid here.")


def _listed(word: str, names: Sequence[str], last: str) -> str:
    return f"{word}{'s' if len(names) != 1 else ''} {f' {last} '.join(names)}"


def _id_of(token: str) -> str:
    found = TOKEN.fullmatch(token)
    if found is None:
        raise not_valid()
    return found[1]
