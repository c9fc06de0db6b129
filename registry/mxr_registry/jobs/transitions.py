"""Every change of a job goes through here: guarded, numbered, and written down as an event where its state changes.

The number is drawn first in each transaction, which on any database lets one transaction at a time change jobs, and
makes changes visible in the order of their numbers: whoever has seen all up to one misses none by asking for larger.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, bindparam, delete, func, insert, or_, select, update

from mxr.util.codec import canonical
from mxr_registry.database.job_tables import LATER, CounterRow, JobEventRow, JobRow
from mxr_registry.database.session import Database, Row, Session, now, upsert

MOST_EVENTS = 100
"""Events kept per job: the latest."""

YIELD = 3.0
"""Seconds, once its time has come, for which a job that is tried again is left to others than who failed it last."""

MOST_NOTE = 1_000
LOOKED_AT = 5_000

# Statements that every claim runs are put together once: doing so costs more than running them.
STEP = (
    update(CounterRow).where(CounterRow.name == "jobs").values(value=CounterRow.value + 1).returning(CounterRow.value)
)
OLDEST = (
    select(JobEventRow.seq)
    .where(JobEventRow.job == bindparam("of"))
    .order_by(JobEventRow.seq.desc())
    .offset(MOST_EVENTS)
    .limit(1)
    .scalar_subquery()
)
WRITE = insert(JobEventRow)
FORGET = delete(JobEventRow).where(JobEventRow.job == bindparam("of"), JobEventRow.seq <= OLDEST)
SINCE = (
    select(JobRow.seq, JobRow.namespace, JobRow.id, JobRow.lane, JobRow.state, JobRow.version, JobRow.touched)
    .where(JobRow.touched > bindparam("number"))
    .order_by(JobRow.touched)
    .limit(LOOKED_AT)
)


@dataclass(frozen=True, slots=True)
class JobChange:
    """What a process learns of a job that changed."""

    seq: int
    namespace: str
    id: str
    lane: str
    state: str
    version: int
    touched: int


@contextlib.contextmanager
def turn(db: Database) -> Iterator[Session]:
    """A transaction that may change jobs; others that may wait for it to end. Raises `Temporary`."""
    with db.writing() as session:
        draw(session)
        yield session


def draw(session: Session) -> int:
    """The next number of the counter of changes."""
    found = session.execute(STEP).scalar()
    if found is None:
        upsert(session, CounterRow, {"name": "jobs"}, {"value": 0}, {"value": CounterRow.value})
        found = session.execute(STEP).scalar_one()
    return int(found)


def change(session: Session, seq: int, *guards: Any, seen: bool = True, **values: Any) -> bool:
    """Change a job where the guards still hold; whether they did. `seen`: askers can see the change."""
    number = draw(session)
    values |= {"touched": number} | ({"version": number, "updated_at": now(session)} if seen else {})
    return session.execute(update(JobRow).where(JobRow.seq == seq, *guards).values(values)).rowcount == 1


def note(session: Session, seq: int, state: str, words: str, worker: str | None = None, detail: Any = None) -> None:
    """Write an event of a job; only the latest are kept."""
    detail_json = canonical(detail) if detail else None
    row = {"job": seq, "at": now(session), "state": state, "worker": worker, "note": words[:MOST_NOTE]}
    session.execute(WRITE, row | {"detail_json": detail_json})
    session.execute(FORGET, {"of": seq})


def latest(session: Session) -> int:
    """The number of the last change."""
    return int(session.execute(select(func.coalesce(func.max(JobRow.touched), 0))).scalar_one())


def since(session: Session, number: int) -> list[JobChange]:
    """What changed after this number, in order; at most a good many, and the rest the next time."""
    return [JobChange(*each) for each in session.execute(SINCE, {"number": number})]


def due(session: Session, after: float, until: float) -> list[tuple[str, str]]:
    """Namespace and lane of jobs whose time to be tried again came between these times: by others, or by anybody."""
    row = JobRow
    came = or_(*(and_(row.next_at > after - late, row.next_at <= until - late) for late in (0.0, YIELD)))
    asked = select(row.namespace, row.lane).where(row.state == "queued", LATER, came)
    return [(each.namespace, each.lane) for each in session.execute(asked.distinct())]


def events(session: Session, seq: int, after: int) -> list[Row]:
    """The events of a job after the one of this number."""
    row = JobEventRow
    asked = select(row.seq, row.at, row.state, row.worker, row.note, row.detail_json)
    return list(session.execute(asked.where(row.job == seq, row.seq > after).order_by(row.seq)))
