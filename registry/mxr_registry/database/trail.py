"""The trail: who changed what, from where and when, in rows that nobody changes later. Each is a line of the log, too.

A row is written in the transaction of the change that it tells.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple

from sqlalchemy import func, insert, select
from sqlalchemy.exc import SQLAlchemyError

from mxr.display.text import printable
from mxr.errors import MxrError
from mxr.util.codec import canonical

from .session import Database, Session, now
from .tables import EventRow

log = logging.getLogger("mxr_registry")

RUNS = ("sweep", "fsck", "backup")
"""Kinds of events that are runs of maintenance."""


class Actor(NamedTuple):
    """Who acts: the principal of a token, or this program itself; and the address of the client."""

    principal: str = "mxr-registry"
    address: str = ""


OPERATOR = Actor()
ACTOR: ContextVar[Actor] = ContextVar("actor", default=OPERATOR)
"""Who acts in this task or thread; outside of requests the operator, who runs a command."""


def record(
    session: Session, kind: str, subject: str = "", detail: Mapping[str, Any] | None = None, namespace: str = ""
) -> None:
    """Record what is done in this transaction. `kind`: such as `artifact.promote`; `subject`: to what."""
    actor = ACTOR.get()
    row = {
        "namespace": namespace,
        "at": now(session),
        "kind": kind,
        "principal": actor.principal,
        "address": actor.address[:100],
        "subject": subject[:200],
        "detail_json": canonical(detail) if detail else None,
    }
    session.execute(insert(EventRow).values(row))
    words = f" {canonical(detail)}" if detail else ""
    source = f" from {actor.address}" if actor.address else ""
    log.info("%s %s by %s%s%s", kind, printable(subject), printable(actor.principal), source, words)


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
