"""Watch many jobs in one request: return those that changed since the versions that the client knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import select

from mxr.protocol import jobs as job_protocol
from mxr.protocol.surveys import MAX_TOLD
from mxr.util.codec import canonical
from mxr_registry.database.job_tables import JobRow
from mxr_registry.database.session import Row, Session

from . import askers, estimates, tracking

BATCH = 500
"""Ids per statement. Databases limit the number of parameters."""


@dataclass(frozen=True, slots=True)
class WatchResult:
    """The JSON of the reply, whether it contains a change, and the ids of the jobs that can still change."""

    text: str
    has_changes: bool
    open: frozenset[str]


def changed(session: Session, namespace: str, known: Mapping[str, int], viewer: str | None = None) -> WatchResult:
    """Return the jobs with a newer version than the known one, earliest change first, and the ids that do not exist.

    `known` maps job ids to versions.
    """
    ids = list(known)
    found: list[Row] = []
    for begin in range(0, len(ids), BATCH):
        batch = ids[begin : begin + BATCH]
        query = select(JobRow.id, JobRow.seq, JobRow.version, JobRow.state).where(
            JobRow.namespace == namespace, JobRow.id.in_(batch), *askers.seen_by(viewer)
        )
        found += session.execute(query).all()
    existing = {row.id for row in found}
    gone = [id for id in ids if id not in existing]
    newer = sorted((row for row in found if row.version > known[row.id]), key=lambda row: row.version)
    documents = ",".join(_document(session, row.seq) for row in newer[:MAX_TOLD])
    still_open = frozenset(row.id for row in found if row.state in job_protocol.OPEN)
    return WatchResult(f'{{"jobs":[{documents}],"gone":{canonical(gone)}}}', bool(newer or gone), still_open)


def _document(session: Session, seq: int) -> str:
    """The JSON of a job without its queue position, which takes one more query per queued job."""
    row = session.execute(tracking.BY_SEQ, {"of": seq}).one()
    seconds, rests_on = None, None
    if row.state in job_protocol.OPEN:
        seconds, rests_on = estimates.estimate(session, row.namespace, row.model, row.arch)
    return canonical(tracking.job_document(row) | {"estimate": seconds, "estimate_from": rests_on})
