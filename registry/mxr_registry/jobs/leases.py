"""Claim a job, and keep its lease with heartbeats.

A claim brings the secret of the lease that it gets; the same claim again gets the same lease. A claim that finds no job
only reads. A job that it finds is claimed in a separate transaction, which checks again:
highest priority first, then oldest first. A job is closed instead if its artifact has been published since.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, exists, func, or_, select

from mxr.artifact.attributes import Request
from mxr.artifact.key import Key
from mxr.errors import Json, UsageError
from mxr.protocol import capabilities
from mxr.protocol import jobs as job_protocol
from mxr.protocol.jobs import HeartbeatReply
from mxr.util.codec import canonical, decode, encode
from mxr_registry.artifacts import resolution
from mxr_registry.config import lanes
from mxr_registry.config.job_rules import JobRules
from mxr_registry.database.job_tables import JobAskerRow, JobRow
from mxr_registry.database.session import Database, Now, Row, Session, now
from mxr_registry.database.tables import ModelRow
from mxr_registry.json_text import stored

from . import askers, attempts, failures, lease_endings, logs, needed, tracking, transitions, workers
from .live_capabilities import LiveCapabilities

WALLS = {True: ", behind walls", False: ", without whole walls", None: ""}

PAGES = (20, 200, 2_000)
"""Sizes of the first page of rows, the second, and all later ones."""

DUE_JOBS = (
    select(
        *(JobRow.seq, JobRow.rank, JobRow.namespace, JobRow.lane, JobRow.constraints_json, JobRow.next_at),
        *(JobRow.avoid, JobRow.refused_by, JobRow.suspect),
    )
    .where(
        JobRow.namespace == bindparam("namespace"),
        JobRow.state == job_protocol.QUEUED,
        JobRow.lane == bindparam("lane"),
        JobRow.rank >= bindparam("rank"),
        or_(JobRow.rank > bindparam("rank"), JobRow.seq > bindparam("after")),
        JobRow.next_at <= bindparam("moment"),
        ~failures.is_remembered(bindparam("toolchain"), bindparam("moment")),
    )
    .order_by(JobRow.rank, JobRow.seq)
    .limit(bindparam("size"))
)
TRUSTED_JOBS = DUE_JOBS.where(
    exists().where(
        JobAskerRow.job == JobRow.seq,
        JobAskerRow.withdrawn.is_(False),
        JobAskerRow.principal.in_(bindparam("trusts", expanding=True)),
    )
)
NEXT_LANE = select(func.min(JobRow.lane)).where(
    JobRow.namespace == bindparam("namespace"), JobRow.state == job_protocol.QUEUED, JobRow.lane > bindparam("lane")
)
HELD = select(*JobRow.__table__.c).where(
    JobRow.state == job_protocol.RUNNING,
    JobRow.worker == bindparam("worker"),
    JobRow.lease == bindparam("lease"),
    JobRow.lease_until >= Now(),
)
MODEL = select(ModelRow.onnx, ModelRow.manifest_json).where(
    ModelRow.namespace == bindparam("namespace"), ModelRow.model == bindparam("model"), ModelRow.complete
)


@dataclass(frozen=True, slots=True)
class ClaimFilter:
    """The jobs that one worker may claim. `job`: the full id of the only job that it wants.

    `lease`: the sha256 of the secret of the lease. `cross_lanes`: lane patterns for which it may cross-compile (see
    `lanes.cross_lanes_of`). `returned`: what a worker can that counted as lost until this claim; else None.
    """

    worker: str
    namespace: str
    lanes: tuple[str, ...]
    lease: str
    job: str | None = None
    cross_lanes: tuple[str, ...] = ()
    returned: job_protocol.WorkerCapabilities | None = None

    def topics(self) -> list[str]:
        """Return the topics whose events are a reason to try the claim again."""
        return [self.job] if self.job else [f"{self.namespace} {lane}" for lane in (*self.lanes, *self.cross_lanes)]


def cross_topic(topic: str) -> str | None:
    """Return the topic for workers that may cross-compile the jobs of a topic, or None if they cannot be."""
    namespace, _, lane = topic.partition(" ")
    cross_lane = lanes.cross_lane(lane)
    return f"{namespace} {cross_lane}" if cross_lane else None


def claim_filter(db: Database, rules: JobRules, namespace: str, message: job_protocol.Claim) -> ClaimFilter:
    """Return what a claim covers.

    Raises `NotFoundError` for an unknown worker or job, and `NoWorkerError` for a job that the worker cannot compile.
    """
    with db.reading() as session:
        worker = workers.authenticate(session, namespace, message.credential)
        lost = worker.seen_at < now(session) - rules.lost_after
        job = tracking.find_job(session, namespace, message.job) if message.job else None
    if job is not None and lanes.compile_method(worker.can_json, job.lane, job.constraints_json) is None:
        raise needed.no_worker_error(_request(job))
    can = lanes.capabilities_of(worker.can_json)
    lease, crossed = workers.digest_of(message.lease), lanes.cross_lanes_of(can)
    wanted = job.id if job else None
    return ClaimFilter(worker.id, namespace, lanes.lanes_of(can), lease, wanted, crossed, can if lost else None)


def _request(row: Row) -> Request:
    return Request(decode(Key, json.loads(row.key_json), "key"), lanes.constraints_of(row.constraints_json))


def claim(db: Database, rules: JobRules, claims: ClaimFilter, *, waiting: bool = False) -> Json | None:
    """Claim a job and return the lease, or None if there is no job for this worker.

    `waiting`: the worker waits for a job in this process, and the notifier updates `seen_at` for all waiting workers
    together. This function then updates it only if it is overdue.
    """
    lease_endings.expire(db, rules)
    with db.reading() as session:
        worker = workers.find_worker(session, claims.namespace, claims.worker)
        if known := _held(session, claims):
            return _document(session, rules, worker, known)
        update_due = workers.seen_update_due(worker, now(session), rules, waiting)
        found = _next(session, rules, worker, claims)
    if found is None and not update_due:
        return None
    with transitions.job_transaction(db) as session:
        # The same claim can come twice at once.
        if known := _held(session, claims):
            return _document(session, rules, worker, known)
        workers.mark_seen(session, claims.namespace, worker.id, now(session))
        while found is not None and (found := _next(session, rules, worker, claims)) is not None:
            lease = _take(session, rules, claims, worker, session.execute(tracking.BY_SEQ, {"of": found.seq}).one())
            if lease is not None:
                return lease
    return None


def _held(session: Session, claims: ClaimFilter) -> Row | None:
    """The job whose lease an earlier claim with the same secret got."""
    return session.execute(HELD, {"worker": claims.worker, "lease": claims.lease}).first()


def wanted_job_closed(db: Database, claims: ClaimFilter) -> bool:
    """Whether the claim names a single job and that job is closed, so that the claim cannot succeed."""
    if claims.job is None:
        return False
    with db.reading() as session:
        return tracking.find_job(session, claims.namespace, claims.job).state not in job_protocol.OPEN


def _next(session: Session, rules: JobRules, worker: Row, claims: ClaimFilter) -> Row | None:
    if claims.job:
        # The caller names this job, so back-off, remembered failures and who asked for it do not matter.
        row = tracking.find_job(session, claims.namespace, claims.job)
        return row if row.state == job_protocol.QUEUED and not _left_to_others(session, rules, worker, row) else None
    wanted = dict.fromkeys((*claims.lanes, *_queued_cross_lanes(session, claims)))
    firsts = [next(_suitable_jobs(session, rules, worker, lane), None) for lane in wanted]
    return min((row for row in firsts if row is not None), key=lambda row: (row.rank, row.seq), default=None)


def _queued_cross_lanes(session: Session, claims: ClaimFilter) -> Iterator[str]:
    """The lanes with queued jobs that the worker may cross-compile."""
    if not claims.cross_lanes:
        return
    lane = "gpu amd "
    while found := session.execute(NEXT_LANE, {"namespace": claims.namespace, "lane": lane}).scalar():
        lane = str(found)
        if lanes.cross_lane(lane) in claims.cross_lanes:
            yield lane


def _suitable_jobs(session: Session, rules: JobRules, worker: Row, lane: str) -> Iterator[Row]:
    """The jobs of a lane that this worker can compile now, in order.

    A job is cross-compiled only if no known worker can compile it on the GPU itself. A worker on which a job failed
    last gets it again only after the head start of other workers, or if no other worker can take it; one that said
    that it cannot be compiled, only if no other one is live that could.
    """
    live: LiveCapabilities | None = None
    for row in _due_jobs(session, worker, lane):
        method = lanes.compile_method(worker.can_json, lane, row.constraints_json)
        if method is None:
            continue
        if method.cross:
            live = live or LiveCapabilities(session, rules, worker.namespace)
            asked = askers.principals_of(session, row.seq) if live.chooses else None
            if live.any_natively(lane, row.constraints_json, asked):
                continue
        if _left_to_others(session, rules, worker, row):
            continue
        if (
            row.avoid != worker.id
            or _head_start_over(session, row)
            or not workers.another_can_take(session, rules, worker, row)
        ):
            yield row


def _left_to_others(session: Session, rules: JobRules, worker: Row, row: Row) -> bool:
    """Whether this worker said that the job cannot be compiled, and another one that is live has not tried.

    What crashed on a host is left to other hosts.
    """
    refused = row.refused_by == worker.id or row.suspect == workers.host_of(worker.name)
    return refused and workers.another_could(session, rules, row)


def _head_start_over(session: Session, row: Row) -> bool:
    """Whether other workers had enough time to take a retried job. A waiting worker is notified at once."""
    return bool(row.next_at + transitions.RETRY_HEAD_START <= now(session))


def _due_jobs(session: Session, worker: Row, lane: str) -> Iterator[Row]:
    """The jobs of a lane that are due and have no remembered failure on this worker's toolchain, in order."""
    values = {"namespace": worker.namespace, "lane": lane, "toolchain": worker.toolchain, "moment": now(session)}
    trusts = lanes.capabilities_of(worker.can_json).trusts
    query = DUE_JOBS if trusts is None else TRUSTED_JOBS
    if trusts is not None:
        values["trusts"] = trusts
    rank, seq = -1_000_000, 0
    for size in _page_sizes():
        page = session.execute(query, values | {"rank": rank, "after": seq, "size": size}).all()
        yield from page
        if len(page) < size:
            return
        rank, seq = page[-1].rank, page[-1].seq


def _page_sizes() -> Iterator[int]:
    yield from PAGES
    while True:
        yield PAGES[-1]


def _take(session: Session, rules: JobRules, claims: ClaimFilter, worker: Row, row: Row) -> Json | None:
    """Lease a queued job to this worker, or close the job if there is nothing to compile."""
    request = _request(row)
    artifact = None
    # Where artifacts differ in a feature that the job leaves open, none of them answers it.
    with suppress(UsageError):
        artifact = resolution.find_compiled_id(session, row.namespace, request)
    if artifact is not None:
        done = lease_endings.CLOSED | {"state": job_protocol.DONE, "artifact": artifact}
        transitions.change(session, row.seq, JobRow.state == job_protocol.QUEUED, **done)
        transitions.record_event(session, row.seq, job_protocol.DONE, f"already published: {artifact}")
        return None
    if session.execute(MODEL, {"namespace": row.namespace, "model": row.model}).first() is None:
        message = "The registry no longer has the bytes of this model."
        lease_endings.close_failed(
            session, row.seq, failures.text_of(job_protocol.JobFailure(job_protocol.TRANSIENT, message, "no_model"))
        )
        transitions.record_event(session, row.seq, job_protocol.FAILED, message)
        return None
    _start_lease(session, rules, claims, worker, row)
    return _document(session, rules, worker, session.execute(tracking.BY_SEQ, {"of": row.seq}).one())


def _document(session: Session, rules: JobRules, worker: Row, row: Row) -> Json:
    """The lease of a running job for its worker."""
    method = lanes.compile_method(worker.can_json, row.lane, row.constraints_json)
    assert method is not None
    model = session.execute(MODEL, {"namespace": row.namespace, "model": row.model}).one()
    constraints = lanes.constraints_of(row.constraints_json)
    if method.cross:
        constraints = capabilities.whole_gpu(lanes.key_of(row.lane), constraints)
    return {
        "job": row.id,
        "seconds": rules.lease,
        "key": stored(row.key_json),
        "constraints": encode(constraints),
        "model": stored(model.manifest_json),
        "onnx": model.onnx,
        "target": method.target,
        "attempt": row.attempts,
        "cross": method.cross,
        "file_name": row.file_name,
        "alone": row.suspect is not None,
    }


def _start_lease(session: Session, rules: JobRules, claims: ClaimFilter, worker: Row, row: Row) -> None:
    can = lanes.capabilities_of(worker.can_json)
    method = lanes.compile_method(worker.can_json, row.lane, row.constraints_json)
    assert method is not None
    moment = now(session)
    values: dict[str, Any] = {
        "state": job_protocol.RUNNING,
        "phase": "claimed",
        "worker": worker.id,
        "worker_name": worker.name,
        "toolchain_json": worker.toolchain_json,
        "pinned_json": canonical(
            encode(
                lanes.expected_attributes(
                    can, method, lanes.key_of(row.lane), lanes.constraints_of(row.constraints_json)
                )
            )
        ),
        "fence": row.fence + 1,
        "lease": claims.lease,
        "attempts": row.attempts + 1,
        "lease_until": Now() + rules.lease,
        "started_at": moment,
    }
    transitions.change(session, row.seq, JobRow.state == job_protocol.QUEUED, JobRow.version == row.version, **values)
    transitions.record_event(session, row.seq, job_protocol.RUNNING, f"attempt {row.attempts + 1}", worker.name)
    how = WALLS[can.walls] + (", alone after a crash" if row.suspect else "")
    logs.append(session, row.seq, f"== attempt {row.attempts + 1} on {worker.name}{how} ==\n")
    attempts.begin(session, row, worker.name, moment)


def heartbeat(db: Database, rules: JobRules, namespace: str, id: str, beat: job_protocol.Heartbeat) -> HeartbeatReply:
    """Renew a lease, record the phase and new log text, and return the reply. Raises `ConflictError`."""
    with transitions.job_transaction(db) as session:
        row = lease_endings.require_lease(session, namespace, id, beat.lease)
        new_phase, until = row.phase != beat.phase, lease_endings.end_after(rules.lease)
        lease_endings.change_held(session, row, visible=new_phase, phase=beat.phase, lease_until=until)
        logs.append(session, row.seq, beat.log)
        if new_phase:
            attempts.note_phase(session, row.seq, beat.phase)
        workers.mark_seen(session, namespace, row.worker, now(session))
        return HeartbeatReply(rules.lease, bool(row.cancelling))
