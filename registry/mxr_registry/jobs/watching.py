"""Many jobs watched by one asker: which of them have changed since it last heard of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import select

from mxr.protocol import jobs as job_protocol
from mxr.protocol.surveys import MOST_TOLD
from mxr.util.codec import canonical
from mxr_registry.database.job_tables import JobRow
from mxr_registry.database.session import Row, Session

from . import estimates, tracking

AT_ONCE = 500
"""Ids in one statement: no database bears any number."""


@dataclass(frozen=True, slots=True)
class WatchResult:
    """The JSON of a `pipelines.Changes`, and whether there is anything in it."""

    text: str
    news: bool


def changed(session: Session, namespace: str, known: Mapping[str, int]) -> WatchResult:
    """Those whose version is larger than the known one, the earliest change first, and the ids that there are not."""
    ids = list(known)
    found: list[Row] = []
    for begin in range(0, len(ids), AT_ONCE):
        some = ids[begin : begin + AT_ONCE]
        asked = select(JobRow.id, JobRow.seq, JobRow.version).where(JobRow.namespace == namespace, JobRow.id.in_(some))
        found += session.execute(asked).all()
    there = {row.id for row in found}
    gone = [id for id in ids if id not in there]
    fresh = sorted((row for row in found if row.version > known[row.id]), key=lambda row: row.version)
    told = ",".join(_document(session, row.seq) for row in fresh[:MOST_TOLD])
    return WatchResult(f'{{"jobs":[{told}],"gone":{canonical(gone)}}}', bool(fresh or gone))


def _document(session: Session, seq: int) -> str:
    """A job without its place, which would be counted anew for each one in the queue."""
    row = session.execute(tracking.BY_SEQ, {"of": seq}).one()
    seconds, rests_on = None, None
    if row.state in job_protocol.OPEN:
        seconds, rests_on = estimates.estimate(session, row.namespace, row.model, row.arch)
    return canonical(tracking.document(row) | {"estimate": seconds, "estimate_from": rests_on})
