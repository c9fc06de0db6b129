"""End a lease without a program: failed, handed back, or expired. Each operation first checks the lease.

A lease is valid for who has its secret until it expires by the database's clock, which the statement that writes looks
at. Requests with an expired lease are rejected, even if the registry has not queued the job again yet.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import case, select

from mxr.errors import ConflictError, Json
from mxr.protocol import jobs as job_protocol
from mxr_registry import counters
from mxr_registry.config.job_rules import JobRules
from mxr_registry.database.job_tables import JobRow
from mxr_registry.database.session import Database, Now, Row, Session, now

from . import failures, logs, tracking, transitions, workers

NO_LEASE: dict[str, Any] = {"lease_until": None, "phase": None, "cancelling": False}
CLOSED: dict[str, Any] = NO_LEASE | {"calibration": None}
REQUEUED: dict[str, Any] = NO_LEASE | {
    "state": job_protocol.QUEUED,
    "worker": None,
    "worker_name": None,
    "pinned_json": None,
    "toolchain_json": None,
}

EXPIRED = select(*JobRow.__table__.c).where(JobRow.state == job_protocol.RUNNING, JobRow.lease_until < Now())


def require_lease(session: Session, namespace: str, id: str, secret: str) -> Row:
    """Return the row of a job if the lease with this secret is valid. Raises `ConflictError`."""
    row = tracking.find_job(session, namespace, id)
    known = row.state == job_protocol.RUNNING and row.lease == workers.digest_of(secret)
    if not known or row.lease_until < now(session):
        raise _lost(row)
    return row


def _lost(row: Row) -> ConflictError:
    return ConflictError(
        f"Job {row.id[:12]}: the lease is lost.",
        hint="Stop working on this job. It was given to another worker, or is closed.",
        context={"job": row.id, "state": row.state},
    )


def end_after(seconds: float) -> Any:
    """An expression: the end of a lease of so many seconds, no earlier than it was."""
    until = Now() + seconds
    return case((JobRow.lease_until > until, JobRow.lease_until), else_=until)


def same_lease(row: Row) -> tuple[Any, ...]:
    """SQL conditions: the job is still running under the lease in this row."""
    return (JobRow.state == job_protocol.RUNNING, JobRow.fence == row.fence)


def held(row: Row) -> tuple[Any, ...]:
    """SQL conditions: the lease in this row has its secret and time left."""
    return (*same_lease(row), JobRow.lease == row.lease, JobRow.lease_until >= Now())


def change_held(session: Session, row: Row, *, visible: bool = True, **values: Any) -> None:
    """Change the job of a lease that is held. Raises `ConflictError` where it is lost by now."""
    if not transitions.change(session, row.seq, *held(row), visible=visible, **values):
        raise _lost(row)


def fail(db: Database, rules: JobRules, namespace: str, id: str, failed: job_protocol.FailJob) -> Json:
    """Record that a job failed on its worker, and return it. Raises `ConflictError` for a lost lease."""
    with transitions.job_transaction(db) as session:
        row = require_lease(session, namespace, id, failed.lease)
        logs.append(session, row.seq, failed.log)
        change_held(session, row, lost=0)
        _end_attempt(session, rules, row, failed.failure, detail=dict(failed.provenance))
        workers.mark_seen(session, namespace, row.worker, now(session))
        return tracking.at(session, rules, row.seq).job


def hand_back(db: Database, rules: JobRules, namespace: str, id: str, secret: str) -> Json:
    """Queue a job again without counting the attempt, and return it. Raises `ConflictError` for a lost lease."""
    with transitions.job_transaction(db) as session:
        row = require_lease(session, namespace, id, secret)
        if row.cancelling:
            _cancelled(session, row)
        else:
            attempts = max(0, row.attempts - 1)
            change_held(session, row, **REQUEUED, attempts=attempts, next_at=0.0)
            transitions.record_event(session, row.seq, job_protocol.QUEUED, "handed back", row.worker_name)
        workers.mark_seen(session, namespace, row.worker, now(session))
        return tracking.at(session, rules, row.seq).job


def expire(db: Database, rules: JobRules) -> None:
    """End the attempts of jobs with an expired lease, in all namespaces. Only reads if there is no such job."""
    with db.reading() as session:
        if not _expired(session):
            return
    with transitions.job_transaction(db) as session:
        for row in _expired(session):
            lost = row.lost + 1
            kind = job_protocol.POISON if lost >= rules.poison_after else job_protocol.TRANSIENT
            times = f" {lost} times in a row" if lost > 1 else ""
            message = f"Lost the worker of this job{times}. The last worker was {row.worker_name}."
            transitions.change(session, row.seq, *same_lease(row), visible=False, lost=lost)
            _end_attempt(session, rules, row, job_protocol.JobFailure(kind, message, "lost_worker"), lost=True)


def extend_after_downtime(db: Database, rules: JobRules) -> None:
    """Extend leases and worker timeouts when a registry starts, so that its downtime does not count against them.

    The downtime is the time since the last request of any worker. A worker with a lease sends three requests per lease
    time. If one arrived within a third of it, another registry is running, and nothing is changed.
    """
    with db.reading() as session:
        if workers.seconds_since_contact(session) < rules.lease / 3:
            return
    with transitions.job_transaction(db) as session:
        downtime = workers.seconds_since_contact(session)
        if downtime < rules.lease / 3:
            return
        running = (JobRow.state == job_protocol.RUNNING, JobRow.lease_until < Now() + rules.lease)
        for seq in session.execute(select(JobRow.seq).where(*running)).scalars().all():
            transitions.change(session, seq, running[0], visible=False, lease_until=end_after(rules.lease))
        workers.shift_last_seen(session, rules, downtime)


def _expired(session: Session) -> list[Row]:
    return list(session.execute(EXPIRED))


def _end_attempt(
    session: Session,
    rules: JobRules,
    row: Row,
    failure: job_protocol.JobFailure,
    *,
    lost: bool = False,
    detail: Any = None,
) -> None:
    """Close a job after a failed attempt, or queue it for a later retry, preferably on another worker.

    What one worker calls permanent or poison, another one that is live tries, too: one alone cannot fail a request for
    all. The first crash may be the host's fault, and is tried again in any case. `lost`: the lease expired.
    """
    if row.cancelling:
        _cancelled(session, row)
        return
    note = f"{failure.kind} {failure.name}: {failure.message}"
    refused = failure.kind != job_protocol.TRANSIENT and not lost
    crashed = refused and failure.kind == job_protocol.POISON
    contested = refused and row.refused_by in (None, row.worker) and workers.another_could(session, rules, row)
    again = contested or (crashed and row.suspect is None)
    final = not again and (failure.kind != job_protocol.TRANSIENT or row.attempts >= rules.attempts)
    poison = failure.kind == job_protocol.POISON and not again
    outcome = "quarantined" if poison else "lost" if lost else "failed" if final else "retried"
    counters.COMPILES.labels(row.arch or "ref", outcome).inc()
    if final:
        failures.remember(session, rules, row, failure)
        close_failed(session, row.seq, failures.text_of(failure))
        transitions.record_event(session, row.seq, job_protocol.FAILED, note, row.worker_name, detail)
        return
    pause = min(rules.backoff_most, rules.backoff * 2 ** min(60, max(0, row.attempts - 1)))
    later = {"avoid": row.worker, "next_at": Now() + pause}
    if refused:
        later["refused_by"] = row.worker
    if crashed:
        later["suspect"] = workers.host_of(row.worker_name)
    transitions.change(session, row.seq, *same_lease(row), **REQUEUED, **later)
    transitions.record_event(
        session, row.seq, job_protocol.QUEUED, f"{note} (retry in {pause:g} s)", row.worker_name, detail
    )


def close_failed(session: Session, seq: int, failure: str) -> None:
    """Close an open job as failed."""
    transitions.change(
        session, seq, JobRow.state.in_(job_protocol.OPEN), **CLOSED, state=job_protocol.FAILED, failure_json=failure
    )


def _cancelled(session: Session, row: Row) -> None:
    counters.COMPILES.labels(row.arch or "ref", "cancelled").inc()
    transitions.change(session, row.seq, *same_lease(row), **CLOSED, state=job_protocol.CANCELLED)
    transitions.record_event(session, row.seq, job_protocol.CANCELLED, "stopped by its worker", row.worker_name)
