"""Misses: requests that found no artifact, with their count and the nearest artifacts."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from mxr.artifact.qualities import Request
from mxr.errors import MxrError
from mxr.util.codec import canonical
from mxr_registry.database.session import Database, Session, now, upsert
from mxr_registry.database.tables import MissRow

log = logging.getLogger("mxr_registry")

LOCK_TIMEOUT = 0.25
"""Seconds to wait for a busy database before a miss is left unrecorded."""

MOST_LISTED = 1_000


def record(db: Database, namespace: str, request: Request, digest: str, nearest: list[Mapping[str, Any]]) -> None:
    """Count a miss. If the database is busy, full or read-only, this is logged and raises no error."""
    text = canonical(request.to_json())
    try:
        with db.writing(lock_timeout=LOCK_TIMEOUT) as session:
            moment, nearest_json = now(session), canonical(nearest)
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
    except (MxrError, SQLAlchemyError) as problem:
        log.warning("the miss of %s was not recorded: %s", digest, problem)


def listed(session: Session, namespace: str) -> str:
    """Return the JSON of the latest misses."""
    rows = session.execute(
        select(*MissRow.__table__.c)
        .where(MissRow.namespace == namespace)
        .order_by(MissRow.last_at.desc())
        .limit(MOST_LISTED)
    )
    parts = (
        f'{{"digest":"{row.digest}","request":{row.request_json},"count":{row.count},"first_at":{row.first_at},'
        f'"last_at":{row.last_at},"nearest":{row.nearest_json}}}'
        for row in rows
    )
    return '{"misses":[' + ",".join(parts) + "]}"
