"""How a lease ends without a program: failed, handed back, or lost. Each asks first whether the lease still holds.

A lease holds for the worker that has its fencing number, until its time has passed by the database's clock. One whose
time has passed is lost, whether anybody noticed already or not: what its worker says of the job is refused.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from mxr.errors import Conflict
from mxr.protocol import jobs as job_protocol
from mxr_registry.config.job_rules import JobRules
from mxr_registry.database.job_tables import JobRow
from mxr_registry.database.session import Database, Now, Row, Session, now

from . import failures, logs, tracking, transitions, workers

NO_LEASE: dict[str, Any] = {"lease_until": None, "phase": None, "cancelling": False}
CLOSED: dict[str, Any] = NO_LEASE | {"calibration": None}
AGAIN: dict[str, Any] = NO_LEASE | {
    "state": job_protocol.QUEUED,
    "worker": None,
    "worker_name": None,
    "pinned_json": None,
    "toolchain_json": None,
}


EXPIRED = select(*JobRow.__table__.c).where(JobRow.state == job_protocol.RUNNING, JobRow.lease_until < Now())


def held(session: Session, namespace: str, id: str, fence: int) -> Row:
    """The row of a job whose lease still holds. Raises `Conflict`."""
    row = tracking.find(session, namespace, id)
    if row.state != job_protocol.RUNNING or row.fence != fence or row.lease_until < now(session):
        raise Conflict(
            f"Job {row.id[:12]}: this lease is lost.",
            hint="Stop working on it: the job was given to another worker, or is closed.",
            detail={"job": row.id, "fence": fence, "state": row.state, "current": row.fence},
        )
    return row


def ours(row: Row) -> tuple[Any, ...]:
    """The conditions under which a running job is still what this row says."""
    return (JobRow.state == job_protocol.RUNNING, JobRow.fence == row.fence)


def fail(db: Database, rules: JobRules, namespace: str, id: str, failed: job_protocol.FailJob) -> str:
    """A worker says that a job failed there; the job's JSON. Raises `Conflict` for a lost lease."""
    with transitions.turn(db) as session:
        row = held(session, namespace, id, failed.fence)
        logs.append(session, row.seq, failed.log)
        _settle(session, rules, row, failed.failure, lost=0, detail=dict(failed.provenance))
        workers.seen(session, namespace, row.worker, now(session))
        return tracking.at(session, rules, row.seq).text


def hand_back(db: Database, rules: JobRules, namespace: str, id: str, fence: int) -> str:
    """A worker that stops gives its job back, which counts as no attempt; the job's JSON. Raises `Conflict`."""
    with transitions.turn(db) as session:
        row = held(session, namespace, id, fence)
        if row.cancelling:
            _cancelled(session, row)
        else:
            attempts = max(0, row.attempts - 1)
            transitions.change(session, row.seq, *ours(row), **AGAIN, attempts=attempts, next_at=0.0)
            transitions.note(session, row.seq, job_protocol.QUEUED, "handed back", row.worker_name)
        workers.seen(session, namespace, row.worker, now(session))
        return tracking.at(session, rules, row.seq).text


def expire(db: Database, rules: JobRules) -> None:
    """Queue again what lost its worker, in all namespaces. Writes only where there is such a job."""
    with db.reading() as session:
        if not _expired(session):
            return
    with transitions.turn(db) as session:
        for row in _expired(session):
            lost = row.lost + 1
            kind = job_protocol.POISON if lost >= rules.poison_after else job_protocol.TRANSIENT
            times = f" {lost} times in a row" if lost > 1 else ""
            words = f"A worker was lost while it compiled this{times}, the last one {row.worker_name}."
            _settle(session, rules, row, job_protocol.JobFailure(kind, words, "lost_worker"), lost=lost)


def resume(db: Database, rules: JobRules) -> None:
    """A registry begins: the time in which none was there counts neither against leases nor against workers.

    That time is since any worker was last heard of. Whoever has a lease speaks three times in it: where somebody did,
    a registry is running already, and nothing is changed.
    """
    with db.reading() as session:
        if workers.silence(session) < rules.lease / 3:
            return
    with transitions.turn(db) as session:
        away = workers.silence(session)
        if away < rules.lease / 3:
            return
        until = now(session) + rules.lease
        held = (JobRow.state == job_protocol.RUNNING, JobRow.lease_until < until)
        for seq in session.execute(select(JobRow.seq).where(*held)).scalars().all():
            transitions.change(session, seq, *held, seen=False, lease_until=until)
        workers.excuse(session, rules, away)


def _expired(session: Session) -> list[Row]:
    return list(session.execute(EXPIRED))


def _settle(
    session: Session, rules: JobRules, row: Row, failure: job_protocol.JobFailure, *, lost: int, detail: Any = None
) -> None:
    """What follows from a failed attempt: closed, or queued again for later and rather for another worker."""
    if row.cancelling:
        _cancelled(session, row)
        return
    words = f"{failure.kind} {failure.name}: {failure.message}"
    if failure.kind != job_protocol.TRANSIENT or row.attempts >= rules.attempts:
        failures.remember(session, rules, row, failure)
        transitions.change(session, row.seq, *ours(row), lost=lost)
        close_failed(session, row.seq, failures.text_of(failure))
        transitions.note(session, row.seq, job_protocol.FAILED, words, row.worker_name, detail)
        return
    pause = min(rules.backoff_most, rules.backoff * 2 ** min(60, max(0, row.attempts - 1)))
    later = {"lost": lost, "avoid": row.worker, "next_at": now(session) + pause}
    transitions.change(session, row.seq, *ours(row), **AGAIN, **later)
    transitions.note(session, row.seq, job_protocol.QUEUED, f"{words} (again in {pause:g} s)", row.worker_name, detail)


def close_failed(session: Session, seq: int, failure: str) -> None:
    """Close an open job as failed."""
    transitions.change(
        session, seq, JobRow.state.in_(job_protocol.OPEN), **CLOSED, state=job_protocol.FAILED, failure_json=failure
    )


def _cancelled(session: Session, row: Row) -> None:
    transitions.change(session, row.seq, *ours(row), **CLOSED, state=job_protocol.CANCELLED)
    transitions.note(session, row.seq, job_protocol.CANCELLED, "its worker stopped", row.worker_name)
