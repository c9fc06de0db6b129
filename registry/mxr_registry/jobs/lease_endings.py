"""End a lease without a program: failed, handed back, or expired. Each operation first checks the lease.

A lease is valid for the worker with its fencing number until it expires by the database's clock. Requests of a worker
with an expired lease are rejected, even if the registry has not queued the job again yet.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

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


def require_lease(session: Session, namespace: str, id: str, fence: int) -> Row:
    """Return the row of a job if the lease with this fencing number is valid. Raises `ConflictError`."""
    row = tracking.find_job(session, namespace, id)
    if row.state != job_protocol.RUNNING or row.fence != fence or row.lease_until < now(session):
        raise ConflictError(
            f"Job {row.id[:12]}: the lease is lost.",
            hint="Stop working on this job. It was given to another worker, or is closed.",
            context={"job": row.id, "fence": fence, "state": row.state, "current": row.fence},
        )
    return row


def lease_guards(row: Row) -> tuple[Any, ...]:
    """SQL conditions: the job is still running under the lease in this row."""
    return (JobRow.state == job_protocol.RUNNING, JobRow.fence == row.fence)


def fail(db: Database, rules: JobRules, namespace: str, id: str, failed: job_protocol.FailJob) -> Json:
    """Record that a job failed on its worker, and return it. Raises `ConflictError` for a lost lease."""
    with transitions.job_transaction(db) as session:
        row = require_lease(session, namespace, id, failed.fence)
        logs.append(session, row.seq, failed.log)
        _end_attempt(session, rules, row, failed.failure, lost=0, detail=dict(failed.provenance))
        workers.mark_seen(session, namespace, row.worker, now(session))
        return tracking.at(session, rules, row.seq).job


def hand_back(db: Database, rules: JobRules, namespace: str, id: str, fence: int) -> Json:
    """Queue a job again without counting the attempt, and return it. Raises `ConflictError` for a lost lease."""
    with transitions.job_transaction(db) as session:
        row = require_lease(session, namespace, id, fence)
        if row.cancelling:
            _cancelled(session, row)
        else:
            attempts = max(0, row.attempts - 1)
            transitions.change(session, row.seq, *lease_guards(row), **REQUEUED, attempts=attempts, next_at=0.0)
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
            _end_attempt(session, rules, row, job_protocol.JobFailure(kind, message, "lost_worker"), lost=lost)


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
        until = now(session) + rules.lease
        guards = (JobRow.state == job_protocol.RUNNING, JobRow.lease_until < until)
        for seq in session.execute(select(JobRow.seq).where(*guards)).scalars().all():
            transitions.change(session, seq, *guards, visible=False, lease_until=until)
        workers.shift_last_seen(session, rules, downtime)


def _expired(session: Session) -> list[Row]:
    return list(session.execute(EXPIRED))


def _end_attempt(
    session: Session, rules: JobRules, row: Row, failure: job_protocol.JobFailure, *, lost: int, detail: Any = None
) -> None:
    """Close a job after a failed attempt, or queue it for a later retry, preferably on another worker."""
    if row.cancelling:
        _cancelled(session, row)
        return
    note = f"{failure.kind} {failure.name}: {failure.message}"
    counters.COMPILES.labels(row.arch or "ref", _outcome(rules, row, failure, lost)).inc()
    if failure.kind != job_protocol.TRANSIENT or row.attempts >= rules.attempts:
        failures.remember(session, rules, row, failure)
        transitions.change(session, row.seq, *lease_guards(row), lost=lost)
        close_failed(session, row.seq, failures.text_of(failure))
        transitions.record_event(session, row.seq, job_protocol.FAILED, note, row.worker_name, detail)
        return
    pause = min(rules.backoff_most, rules.backoff * 2 ** min(60, max(0, row.attempts - 1)))
    later = {"lost": lost, "avoid": row.worker, "next_at": now(session) + pause}
    transitions.change(session, row.seq, *lease_guards(row), **REQUEUED, **later)
    transitions.record_event(
        session, row.seq, job_protocol.QUEUED, f"{note} (retry in {pause:g} s)", row.worker_name, detail
    )


def _outcome(rules: JobRules, row: Row, failure: job_protocol.JobFailure, lost: int) -> str:
    """What the metrics call the end of an attempt."""
    if failure.kind == job_protocol.POISON:
        return "quarantined"
    if lost:
        return "lost"
    return "failed" if failure.kind != job_protocol.TRANSIENT or row.attempts >= rules.attempts else "retried"


def close_failed(session: Session, seq: int, failure: str) -> None:
    """Close an open job as failed."""
    transitions.change(
        session, seq, JobRow.state.in_(job_protocol.OPEN), **CLOSED, state=job_protocol.FAILED, failure_json=failure
    )


def _cancelled(session: Session, row: Row) -> None:
    counters.COMPILES.labels(row.arch or "ref", "cancelled").inc()
    transitions.change(session, row.seq, *lease_guards(row), **CLOSED, state=job_protocol.CANCELLED)
    transitions.record_event(session, row.seq, job_protocol.CANCELLED, "stopped by its worker", row.worker_name)
