"""Change jobs: every change has guards and a number, and every change of state is recorded as an event.

Each transaction draws a number from a counter row first. The lock on that row lets only one transaction at a time
change jobs, on every database, and makes changes visible in the order of their numbers. A reader that has seen all
changes up to a number therefore misses none by selecting larger numbers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, bindparam, delete, func, insert, or_, select, update

from mxr.protocol.jobs import RUNNING
from mxr.util.codec import canonical
from mxr_registry.database.job_tables import LATER, AttemptRow, CounterRow, JobEventRow, JobRow
from mxr_registry.database.session import Database, Row, Session, now, upsert

MAX_EVENTS = 100
"""Events kept per job: the latest."""

RETRY_HEAD_START = 3.0
"""Seconds after a retry becomes due during which the worker that failed it leaves it to other workers."""

MAX_NOTE_LENGTH = 1_000
MAX_CHANGES = 5_000

# Statements of every claim are built once: building them costs more than running them.
NEXT_NUMBER = (
    update(CounterRow).where(CounterRow.name == "jobs").values(value=CounterRow.value + 1).returning(CounterRow.value)
)
OLDEST = (
    select(JobEventRow.seq)
    .where(JobEventRow.job == bindparam("of"))
    .order_by(JobEventRow.seq.desc())
    .offset(MAX_EVENTS)
    .limit(1)
    .scalar_subquery()
)
INSERT_EVENT = insert(JobEventRow)
DELETE_OLD_EVENTS = delete(JobEventRow).where(JobEventRow.job == bindparam("of"), JobEventRow.seq <= OLDEST)
END_ATTEMPT = (
    update(AttemptRow)
    .where(AttemptRow.job == bindparam("of"), AttemptRow.ended_at.is_(None))
    .values(ended_at=bindparam("moment"), state=bindparam("became"), note=bindparam("told"))
)
CHANGES_SINCE = (
    select(JobRow.seq, JobRow.namespace, JobRow.id, JobRow.lane, JobRow.state, JobRow.version, JobRow.touched)
    .where(JobRow.touched > bindparam("number"))
    .order_by(JobRow.touched)
    .limit(MAX_CHANGES)
)


@dataclass(frozen=True, slots=True)
class JobChange:
    """A changed job, with the fields that the notifier needs."""

    seq: int
    namespace: str
    id: str
    lane: str
    state: str
    version: int
    touched: int


@contextlib.contextmanager
def job_transaction(db: Database) -> Iterator[Session]:
    """Open a transaction that may change jobs. Other such transactions wait for its end. Raises `TemporaryError`."""
    with db.writing() as session:
        next_number(session)
        yield session


def next_number(session: Session) -> int:
    """Increase the change counter and return it."""
    found = session.execute(NEXT_NUMBER).scalar()
    if found is None:
        upsert(session, CounterRow, {"name": "jobs"}, {"value": 0}, {"value": CounterRow.value})
        found = session.execute(NEXT_NUMBER).scalar_one()
    return int(found)


def change(session: Session, seq: int, *guards: Any, visible: bool = True, **values: Any) -> bool:
    """Change a job if the guards hold, and return whether they did. `visible`: give the job a new version."""
    number = next_number(session)
    values |= {"touched": number} | ({"version": number, "updated_at": now(session)} if visible else {})
    return session.execute(update(JobRow).where(JobRow.seq == seq, *guards).values(values)).rowcount == 1


def record_event(
    session: Session, seq: int, state: str, note: str, worker: str | None = None, detail: Any = None
) -> None:
    """Record an event of a job, and delete all but its latest `MAX_EVENTS` events. An attempt ends with its state."""
    detail_json, moment, note = canonical(detail) if detail else None, now(session), note[:MAX_NOTE_LENGTH]
    row = {"job": seq, "at": moment, "state": state, "worker": worker, "note": note}
    session.execute(INSERT_EVENT, row | {"detail_json": detail_json})
    session.execute(DELETE_OLD_EVENTS, {"of": seq})
    if state != RUNNING:
        session.execute(END_ATTEMPT, {"of": seq, "moment": moment, "became": state, "told": note})


def latest_number(session: Session) -> int:
    """Return the number of the last change."""
    return int(session.execute(select(func.coalesce(func.max(JobRow.touched), 0))).scalar_one())


def changes_since(session: Session, number: int) -> list[JobChange]:
    """Return the changes after this number in order, at most `MAX_CHANGES`. The next call returns the rest."""
    return [JobChange(*each) for each in session.execute(CHANGES_SINCE, {"number": number})]


def due(session: Session, after: float, until: float) -> list[tuple[str, str]]:
    """Return namespace and lane of retries that became due in this interval, for other workers or for every worker."""
    row = JobRow
    in_interval = or_(
        *(and_(row.next_at > after - delay, row.next_at <= until - delay) for delay in (0.0, RETRY_HEAD_START))
    )
    query = select(row.namespace, row.lane).where(row.state == "queued", LATER, in_interval)
    return [(each.namespace, each.lane) for each in session.execute(query.distinct())]


def events(session: Session, seq: int, after: int) -> list[Row]:
    """Return the events of a job after the event with this number."""
    row = JobEventRow
    query = select(row.seq, row.at, row.state, row.worker, row.note, row.detail_json)
    return list(session.execute(query.where(row.job == seq, row.seq > after).order_by(row.seq)))
