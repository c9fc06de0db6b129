"""Attempts of workers at jobs: when each began and ended, and its phases as heartbeats report them.

`transitions.record_event` ends an attempt, with the state that the job gets then.
"""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import bindparam, delete, func, insert, select, update

from mxr.errors import Json
from mxr.protocol.jobs import DONE, FAILED, RUNNING
from mxr.util.codec import canonical, time_text
from mxr_registry.database.job_tables import AttemptRow, JobRow
from mxr_registry.database.session import Row, Session, now
from mxr_registry.json_text import stored

from . import askers, tracking

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


DAY = 86_400.0


def _recent(session: Session, namespace: str, viewer: str | None, seconds: float) -> list[Any]:
    row = AttemptRow
    ended = (row.namespace == namespace, row.ended_at > now(session) - seconds)
    return [*ended, JobRow.seq == row.job, *askers.seen_by(viewer)]


def failed_lately(session: Session, namespace: str, viewer: str | None, limit: int = 3) -> list[Json]:
    """Return the jobs that failed within a day, the last one first, as far as the viewer sees them; None: all."""
    row = AttemptRow
    query = select(*tracking.COLUMNS, row.ended_at).where(*_recent(session, namespace, viewer, DAY))
    query = query.where(row.state == FAILED).order_by(row.ended_at.desc()).limit(limit)
    return [
        {
            **{"id": each.id, "model_name": each.model_name, "model": each.model, "arch": each.arch},
            **{"failure": stored(each.failure_json), "ended_at": time_text(each.ended_at)},
        }
        for each in session.execute(query)
    ]


MOST = 5_000
"""Attempts within a day that are looked at: of more, the latest."""


def ended_lately(session: Session, namespace: str, viewer: str | None) -> dict[str, int]:
    """Return how many attempts within a day ended a job as `done` and as `failed`, at most `MOST` of them together."""
    row = AttemptRow
    ended = select(row.state).where(*_recent(session, namespace, viewer, DAY), row.state.in_((DONE, FAILED)))
    some = ended.limit(MOST).subquery()
    counted = session.execute(select(some.c.state, func.count()).group_by(some.c.state))
    return {DONE: 0, FAILED: 0, **{state: count for state, count in counted}}


def of_job(session: Session, job: int) -> list[Json]:
    """Return the attempts at a job, given by its `seq`, the first one first, each with its phases."""
    row = AttemptRow
    found = session.execute(select(*row.__table__.c).where(row.job == job).order_by(row.seq))
    return [
        {
            **{"worker": each.worker, "state": each.state, "note": each.note},
            **{"started_at": time_text(each.started_at), "ended_at": time_text(each.ended_at)},
            "phases": [{"phase": name, "at": time_text(at)} for name, at in json.loads(each.phases_json)],
        }
        for each in found
    ]


def by_worker(session: Session, namespace: str) -> dict[str, list[Json]]:
    """Return what each worker did within a day, by its name: `[{"from","to","state"}]` in seconds before now."""
    row, moment = AttemptRow, now(session)
    columns = (row.worker, row.started_at, row.ended_at, row.state)
    recent = (
        select(*columns).where(row.namespace == namespace, row.ended_at > moment - DAY).order_by(row.ended_at.desc()),
        select(*columns).where(row.namespace == namespace, row.ended_at.is_(None)),
    )
    found: dict[str, list[Json]] = {}
    for query in recent:
        for each in session.execute(query.limit(MOST)):
            begun = min(DAY, moment - each.started_at)
            ended = 0.0 if each.ended_at is None else max(0.0, moment - each.ended_at)
            part = {"from": round(begun), "to": round(ended), "state": each.state or RUNNING}
            found.setdefault(each.worker, []).append(part)
    return found
