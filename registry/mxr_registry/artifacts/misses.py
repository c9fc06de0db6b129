"""Misses: requests that found no artifact, with their count and the nearest artifacts."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.exc import SQLAlchemyError

from mxr.artifact.attributes import Request
from mxr.artifact.limits import MAX_MISS_BYTES, MAX_MISSES
from mxr.errors import Json, MxrError
from mxr.util.codec import canonical, time_text
from mxr_registry.database.paging import MAX_ROWS, list_page, read_cursor
from mxr_registry.database.session import Database, Row, Session, now, upsert
from mxr_registry.database.tables import MissRow
from mxr_registry.json_text import stored

log = logging.getLogger("mxr_registry")

LOCK_TIMEOUT = 0.25
"""Seconds to wait for a busy database before a miss is left unrecorded."""

WRITTEN = itertools.count(1)
"""Misses recorded by this process."""

TRIM_INTERVAL = 50
"""Number of recorded misses after which the oldest ones are removed, if there are more than `MAX_MISSES`."""


def record_miss(db: Database, namespace: str, request: Request, digest: str, nearest: list[Mapping[str, Any]]) -> None:
    """Count a miss. If the database is busy, full or read-only, this is logged and raises no error.

    A request of more than `MAX_MISS_BYTES` bytes is not recorded, and only the latest `MAX_MISSES` are kept.
    """
    text = canonical(request.to_json())
    if len(text.encode()) > MAX_MISS_BYTES:
        log.warning("the miss of %s was not recorded: its request has more than %d bytes", digest, MAX_MISS_BYTES)
        return
    try:
        with db.writing(lock_timeout=LOCK_TIMEOUT) as session:
            moment, nearest_json = now(session), canonical(nearest)
            if len(nearest_json) > MAX_MISS_BYTES:
                nearest_json = "[]"
            upsert(
                session,
                MissRow,
                {"namespace": namespace, "request": sha256(text.encode()).hexdigest()},
                {
                    "digest": digest,
                    "request_json": text,
                    "nearest_json": nearest_json,
                    "count": 1,
                    "first_at": moment,
                    "last_at": moment,
                },
                {"nearest_json": nearest_json, "count": MissRow.count + 1, "last_at": moment},
            )
            if next(WRITTEN) % TRIM_INTERVAL == 0:
                _trim(session, namespace)
    except (MxrError, SQLAlchemyError) as problem:
        log.warning("the miss of %s was not recorded: %s", digest, problem)


def _trim(session: Session, namespace: str) -> None:
    """Remove all but the latest `MAX_MISSES` misses."""
    row = MissRow
    latest = select(row.last_at).where(row.namespace == namespace).order_by(row.last_at.desc())
    oldest = session.execute(latest.offset(MAX_MISSES - 1).limit(1)).scalar()
    if oldest is not None:
        session.execute(delete(row).where(row.namespace == namespace, row.last_at < oldest))


def list_misses(session: Session, namespace: str, after: str | None = None, limit: int = MAX_ROWS) -> Json:
    """Return one page of misses, latest first. `after`: `next` of the previous page.

    Raises `UsageError`.
    """
    query = select(*MissRow.__table__.c).where(MissRow.namespace == namespace)
    if after is not None:
        last_at, request = read_cursor("misses", after, float, str)
        earlier = (MissRow.last_at == last_at) & (MissRow.request > request)
        query = query.where((MissRow.last_at < last_at) | earlier)
    rows = query.order_by(MissRow.last_at.desc(), MissRow.request)
    return list_page(session, rows, _listed, "misses", lambda row: (float(row.last_at), row.request), limit)


def _listed(row: Row) -> Json:
    return {
        "digest": row.digest,
        "request": stored(row.request_json),
        "count": row.count,
        "first_at": time_text(row.first_at),
        "last_at": time_text(row.last_at),
        "nearest": stored(row.nearest_json),
    }
