"""Attempts of workers at jobs: when each began and ended, and its phases as heartbeats report them.

`transitions.record_event` ends an attempt, with the state that the job gets then.
"""

from __future__ import annotations

import json

from sqlalchemy import bindparam, delete, insert, select, update

from mxr.util.codec import canonical
from mxr_registry.database.job_tables import AttemptRow
from mxr_registry.database.session import Row, Session, now

MAX_PHASES = 100
"""Phases of one attempt that are kept, the first ones: a worker names them."""

MAX_ATTEMPTS = 100
"""Attempts of one job that are kept, the latest: some are handed back and do not count."""

OLDEST = (
    select(AttemptRow.seq)
    .where(AttemptRow.job == bindparam("of"))
    .order_by(AttemptRow.seq.desc())
    .offset(MAX_ATTEMPTS)
    .limit(1)
    .scalar_subquery()
)
DELETE_OLD = delete(AttemptRow).where(AttemptRow.job == bindparam("of"), AttemptRow.seq <= OLDEST)
OPEN = select(AttemptRow.seq, AttemptRow.phases_json).where(
    AttemptRow.job == bindparam("of"), AttemptRow.ended_at.is_(None)
)


def begin(session: Session, job: Row, worker: str, moment: float) -> None:
    """Record that a worker, given by its name, claimed a job."""
    values = {"job": job.seq, "namespace": job.namespace, "worker": worker, "started_at": moment, "phases_json": "[]"}
    session.execute(insert(AttemptRow).values(values))
    session.execute(DELETE_OLD, {"of": job.seq})


def note_phase(session: Session, job: int, phase: str) -> None:
    """Record that the running attempt of a job, given by its `seq`, is in another phase now."""
    row = session.execute(OPEN, {"of": job}).first()
    if row is None:
        return
    phases = json.loads(row.phases_json)
    if len(phases) < MAX_PHASES:
        added = canonical([*phases, [phase, now(session)]])
        session.execute(update(AttemptRow).where(AttemptRow.seq == row.seq).values(phases_json=added))
