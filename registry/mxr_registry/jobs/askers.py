"""Who asked for a job. One job serves all who ask for the same program; each of them sees it, and may withdraw.

Functions that take a `viewer` restrict what they find to the jobs of that principal; None is everything.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import exists, insert, select, update

from mxr_registry.database.job_tables import JobAskerRow, JobRow
from mxr_registry.database.session import Session


def waits(session: Session, job: int, principal: str) -> bool:
    """Whether a principal asked for a job, given by its `seq`, and did not withdraw."""
    row = JobAskerRow
    query = select(row.job).where(row.job == job, row.principal == principal, row.withdrawn.is_(False))
    return session.execute(query).first() is not None


def add(session: Session, job: int, principal: str) -> None:
    """Record that a principal asks for a job. Raises `IntegrityError` where another transaction does so, too."""
    row = JobAskerRow
    again = update(row).where(row.job == job, row.principal == principal).values(withdrawn=False)
    if session.execute(again).rowcount == 0:
        session.execute(insert(row).values(job=job, principal=principal, withdrawn=False))


def withdraw(session: Session, job: int, principal: str) -> bool:
    """Record that a principal does not need a job any more. Return whether nobody else does."""
    row = JobAskerRow
    session.execute(update(row).where(row.job == job, row.principal == principal).values(withdrawn=True))
    return session.execute(select(row.job).where(row.job == job, row.withdrawn.is_(False))).first() is None


def principals_of(session: Session, job: int) -> frozenset[str]:
    """Return who waits for a job."""
    row = JobAskerRow
    return frozenset(session.execute(select(row.principal).where(row.job == job, row.withdrawn.is_(False))).scalars())


def seen_by(viewer: str | None) -> tuple[Any, ...]:
    """SQL conditions: the viewer asked for the job, be it once."""
    if viewer is None:
        return ()
    return (exists().where(JobAskerRow.job == JobRow.seq, JobAskerRow.principal == viewer),)


def asked(session: Session, job: int, viewer: str | None) -> bool:
    """Whether the viewer asked for this job."""
    if viewer is None:
        return True
    row = JobAskerRow
    return session.execute(select(row.job).where(row.job == job, row.principal == viewer)).first() is not None
