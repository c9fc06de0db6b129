"""Misses: who asked for what in vain, how often, and what came nearest; what a fleet still needs compiled."""

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

PATIENCE = 0.25
"""Seconds that a miss may wait for a busy database before it goes unrecorded."""

MOST_LISTED = 1_000


def record(db: Database, namespace: str, request: Request, digest: str, nearest: list[Mapping[str, Any]]) -> None:
    """Count a miss. A database that is busy, full or read-only is logged and fails nobody."""
    text = canonical(request.to_json())
    try:
        with db.writing(patience=PATIENCE) as session:
            moment, found = now(session), canonical(nearest)
            upsert(
                session,
                MissRow,
                {"namespace": namespace, "request": sha256(text.encode()).hexdigest()},
                {
                    "digest": digest,
                    "request_json": text,
                    "nearest_json": found,
                    "count": 1,
                    "first_at": moment,
                    "last_at": moment,
                },
                {"nearest_json": found, "count": MissRow.count + 1, "last_at": moment},
            )
    except (MxrError, SQLAlchemyError) as problem:
        log.warning("a miss of %s was not recorded: %s", digest, problem)


def listed(session: Session, namespace: str) -> str:
    """The JSON of the latest misses."""
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
