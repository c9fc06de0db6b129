"""The trail: who changed what, from where and when, in rows that nobody changes later. Each is a line of the log, too.

A row is written in the transaction of the change that it tells.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple
from urllib.parse import unquote

from pydantic import Field
from sqlalchemy import func, insert, or_, select
from sqlalchemy.exc import SQLAlchemyError

from mxr.artifact.limits import MAX_NAME_LENGTH
from mxr.display.text import printable
from mxr.errors import Json, MxrError, TooManyRequestsError
from mxr.protocol.artifacts import HOST_HEADER, MODEL_NAME_HEADER
from mxr.protocol.events import RUNS, SHOWN_TO_ALL
from mxr.util.codec import canonical, time_text
from mxr_registry.json_text import stored

from .paging import ListFilters, begins_with, list_page, read_cursor
from .session import Database, Row, Session, now
from .tables import EventRow

log = logging.getLogger("mxr_registry")


class Actor(NamedTuple):
    """Who acts: the principal of a token, or this program itself; and the address of the client.

    `headers`: those of its request.
    """

    principal: str = "mxr-registry"
    address: str = ""
    headers: Iterable[tuple[bytes, bytes]] = ()

    @property
    def host(self) -> str:
        """What the host of the client calls itself; empty where it does not tell, or not a name."""
        found = self._header(HOST_HEADER)
        return found if HOST_NAME.fullmatch(found) else ""

    @property
    def model_name(self) -> str | None:
        """What the client calls the model of its request; None where it does not tell, or no name of a file."""
        found = unquote(self._header(MODEL_NAME_HEADER)).rpartition("/")[2]
        return found if found and len(found) <= MAX_NAME_LENGTH and "\0" not in found else None

    def _header(self, wanted: str) -> str:
        name = wanted.lower().encode()
        return next((value for each, value in self.headers if each == name), b"").decode("latin-1")


HOST_NAME = re.compile(r"[0-9A-Za-z._-]{1,253}")

OPERATOR = Actor()
ACTOR: ContextVar[Actor] = ContextVar("actor", default=OPERATOR)
"""Who acts in this task or thread; outside of requests the operator, who runs a command."""


def record(
    session: Session,
    kind: str,
    subject: str = "",
    detail: Mapping[str, Any] | None = None,
    *,
    namespace: str = "",
    model: str | None = None,
) -> None:
    """Record what is done in this transaction. `kind`: one of `KINDS`; `subject`: to what; `model`: of an artifact."""
    record_all(session, kind, [(subject, model, detail)], namespace=namespace)
    actor = ACTOR.get()
    words = f" {canonical(detail)}" if detail else ""
    if actor.address:
        who = f"{printable(actor.principal)} from {actor.address}"
        log.info("%s %s by %s%s", kind, printable(subject), who, words)


Subject = tuple[str, str | None, Mapping[str, Any] | None]
"""To what something was done, its model, and the detail."""


def record_all(session: Session, kind: str, subjects: Iterable[Subject], *, namespace: str) -> None:
    """Record what is done to many objects, without a line of the log for each."""
    actor, moment = ACTOR.get(), now(session)
    known = {"namespace": namespace, "at": moment, "kind": kind, "principal": actor.principal[:100]}
    rows = [
        known
        | {
            "address": actor.address[:100],
            "subject": subject[:200],
            "model": model,
            "detail_json": canonical(detail) if detail else None,
        }
        for subject, model, detail in subjects
    ]
    if rows:
        session.execute(insert(EventRow), rows)


def refuse_flood(session: Session, kind: str) -> None:
    """Raise `TooManyRequestsError` for who did too much of a kind in the last hour.

    Each change leaves a row for a year, and some take no more than a request. Rows are not dropped instead: whoever
    floods the trail would hide in it.
    """
    row, principal = EventRow, ACTOR.get().principal[:100]
    recent = (row.kind == kind, row.at > now(session) - 3600.0, row.principal == principal)
    if session.execute(select(func.count()).where(*recent)).scalar_one() >= MOST_IN_AN_HOUR:
        raise TooManyRequestsError(
            f"{principal} did {MOST_IN_AN_HOUR} times {kind} in an hour, which is the limit.", hint="Try again later."
        )


MOST_IN_AN_HOUR = 5_000
"""Changes of a kind by one principal, where each is only a request."""


def note_run(db: Database, kind: str, detail: Mapping[str, Any]) -> None:
    """Record a run of maintenance that has ended. What cannot be written is logged: the run itself is done."""
    try:
        with db.writing() as session:
            record(session, kind, detail=detail)
    except (MxrError, SQLAlchemyError) as problem:
        log.warning("the end of %s is not recorded: %s", kind, problem)


def last_runs(session: Session) -> dict[str, float]:
    """Return when each kind of maintenance ended last, in seconds since 1970."""
    row = EventRow
    query = select(row.kind, func.max(row.at)).where(row.kind.in_(RUNS)).group_by(row.kind)
    return {kind: float(at) for kind, at in session.execute(query)}


class EventFilters(ListFilters, frozen=True):
    """Filters of the trail."""

    subject: str | None = Field(
        default=None, description="How the id or the name begins of what it was done to.", min_length=1, max_length=200
    )
    model: str | None = Field(default=None, description="The identity of the model.")
    kind: str | None = Field(default=None, description="What was done, such as `artifact.promote`.")
    principal: str | None = Field(default=None, description="Who did it.")


def list_events(session: Session, namespace: str, filters: EventFilters, *, everything: bool) -> Json:
    """Return one page of events, newest first. `everything`: all kinds, and addresses."""
    row = EventRow
    query = select(*row.__table__.c).where(row.namespace.in_((namespace, "")))
    query = query.where(*filters.equal(row, "model", "kind", "principal"))
    if not everything:
        query = query.where(or_(*(begins_with(row.kind, each) for each in SHOWN_TO_ALL)))
    if filters.subject is not None:
        query = query.where(begins_with(row.subject, filters.subject))
    if filters.after is not None:
        (seq,) = read_cursor("events", filters.after, int)
        query = query.where(row.seq < seq)

    def shown(each: Row) -> Json:
        return {
            "at": time_text(each.at),
            "kind": each.kind,
            "principal": each.principal,
            "subject": each.subject,
            "address": (each.address or None) if everything else None,
            "model": each.model,
            "detail": stored(each.detail_json),
        }

    return list_page(session, query.order_by(row.seq.desc()), shown, "events", lambda each: (each.seq,), filters.limit)
