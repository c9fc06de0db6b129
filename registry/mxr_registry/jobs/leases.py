"""Claiming a job, and keeping it: a lease that goes on with every heartbeat, under a number that only grows.

A claim that finds nothing only reads. What it finds is taken in a transaction of its own that looks once more, the
highest priority first, then the oldest. Nothing is compiled that was published meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, func, or_, select

from mxr.artifact.key import Key
from mxr.artifact.qualities import Request
from mxr.protocol import capabilities
from mxr.protocol import jobs as job_protocol
from mxr.util.codec import canonical, encode
from mxr_registry.config import lanes
from mxr_registry.config.job_rules import JobRules
from mxr_registry.database.job_tables import JobRow
from mxr_registry.database.session import Database, Row, Session, now
from mxr_registry.database.tables import ModelRow

from . import availability, failures, lease_endings, logs, tracking, transitions, workers

PAGES = (20, 200, 2_000)
"""Rows that are looked at first, next, and then at a time."""

WAITING = (
    select(JobRow.seq, JobRow.rank, JobRow.lane, JobRow.demands_json, JobRow.avoid, JobRow.next_at)
    .where(
        JobRow.namespace == bindparam("namespace"),
        JobRow.state == job_protocol.QUEUED,
        JobRow.lane == bindparam("lane"),
        JobRow.rank >= bindparam("rank"),
        or_(JobRow.rank > bindparam("rank"), JobRow.seq > bindparam("after")),
        JobRow.next_at <= bindparam("moment"),
        ~failures.stands_against(bindparam("toolchain"), bindparam("moment")),
    )
    .order_by(JobRow.rank, JobRow.seq)
    .limit(bindparam("size"))
)
NEXT_LANE = select(func.min(JobRow.lane)).where(
    JobRow.namespace == bindparam("namespace"), JobRow.state == job_protocol.QUEUED, JobRow.lane > bindparam("lane")
)
MODEL = select(ModelRow.onnx, ModelRow.manifest_json).where(
    ModelRow.namespace == bindparam("namespace"), ModelRow.model == bindparam("model"), ModelRow.complete
)


@dataclass(frozen=True, slots=True)
class ClaimFilter:
    """What one worker may look at, for as long as it waits. `job`: the only one that it wants, by its whole id.

    `wide`: the lanes of any arch that it may look at besides (see `lanes.wide_of`).
    """

    worker: str
    namespace: str
    lanes: tuple[str, ...]
    job: str | None = None
    wide: tuple[str, ...] = ()

    def topics(self) -> list[str]:
        """What news would be worth another look."""
        return [self.job] if self.job else [f"{self.namespace} {lane}" for lane in (*self.lanes, *self.wide)]


def wide_topic(topic: str) -> str | None:
    """What those listen to who may cross-compile a job that is news under this topic."""
    namespace, _, lane = topic.partition(" ")
    wide = lanes.widened(lane)
    return f"{namespace} {wide}" if wide else None


def begin(db: Database, namespace: str, wanted: job_protocol.Claim) -> ClaimFilter:
    """What a claim is about. Raises `NotFound` for an unknown worker or job, `NoWorker` for a job beyond the worker."""
    with db.reading() as session:
        worker = workers.find(session, namespace, wanted.worker)
        job = tracking.find(session, namespace, wanted.job) if wanted.job else None
    if job is not None and lanes.fitting(worker.can_json, job.lane, job.demands_json) is None:
        raise workers.refusal(_request(job))
    can = lanes.can_of(worker.can_json)
    return ClaimFilter(worker.id, namespace, lanes.lanes_of(can), job.id if job else None, lanes.wide_of(can))


def _request(row: Row) -> Request:
    return Request(Key.from_json(json.loads(row.key_json)), lanes.demands_of(row.demands_json))


def claim(db: Database, rules: JobRules, claims: ClaimFilter, *, waiting: bool = False) -> str | None:
    """The JSON of a lease, or None where there is nothing for this worker now.

    `waiting`: the worker waits here, where all who do are written down as alive together; one of them alone only where
    that is overdue.
    """
    lease_endings.expire(db, rules)
    with db.reading() as session:
        worker = workers.find(session, claims.namespace, claims.worker)
        quiet = workers.stale(worker, now(session), rules, waiting)
        found = _next(session, rules, worker, claims)
    if found is None and not quiet:
        return None
    with transitions.turn(db) as session:
        workers.seen(session, claims.namespace, worker.id, now(session))
        while found is not None and (found := _next(session, rules, worker, claims)) is not None:
            lease = _take(session, rules, worker, session.execute(tracking.BY_SEQ, {"of": found.seq}).one())
            if lease is not None:
                return lease
    return None


def over(db: Database, claims: ClaimFilter) -> bool:
    """Whether the one job that is wanted will never come: it is closed."""
    if claims.job is None:
        return False
    with db.reading() as session:
        return tracking.find(session, claims.namespace, claims.job).state not in job_protocol.OPEN


def _next(session: Session, rules: JobRules, worker: Row, claims: ClaimFilter) -> Row | None:
    if claims.job:
        # Named by a person or their program: neither back-off nor what failed before stands in the way.
        row = tracking.find(session, claims.namespace, claims.job)
        return row if row.state == job_protocol.QUEUED else None
    wanted = dict.fromkeys((*claims.lanes, *_widely(session, claims)))
    firsts = [next(_suited(session, rules, worker, lane), None) for lane in wanted]
    return min((row for row in firsts if row is not None), key=lambda row: (row.rank, row.seq), default=None)


def _widely(session: Session, claims: ClaimFilter) -> Iterator[str]:
    """The lanes of other archs in which jobs are queued, for one who may cross-compile."""
    lane = "gpu amd "
    while claims.wide and (found := session.execute(NEXT_LANE, {"namespace": claims.namespace, "lane": lane}).scalar()):
        lane = str(found)
        if lanes.widened(lane) in claims.wide:
            yield lane


def _suited(session: Session, rules: JobRules, worker: Row, lane: str) -> Iterator[Row]:
    """The jobs of a lane that this worker can do now, in order; across only what nobody can do on the GPU itself."""
    others: tuple[str, ...] | None = None
    for row in _waiting(session, worker, lane):
        way = lanes.fitting(worker.can_json, lane, row.demands_json)
        if way is None:
            continue
        if way.cross and others is None:
            others = workers.stated(session, rules, worker.namespace)
        if way.cross and lanes.directly(others or (), lane, row.demands_json):
            continue
        if row.avoid != worker.id or _passed_over(session, row) or not workers.another(session, rules, worker, row):
            yield row


def _passed_over(session: Session, row: Row) -> bool:
    """Whether others had their time to take a job that is tried again: one that waits hears of it at once."""
    return bool(row.next_at + transitions.YIELD <= now(session))


def _waiting(session: Session, worker: Row, lane: str) -> Iterator[Row]:
    """The jobs of a lane whose time has come and that did not fail on this toolchain, in order, by pages."""
    wanted = {"namespace": worker.namespace, "lane": lane, "toolchain": worker.toolchain, "moment": now(session)}
    rank, seq = -1_000_000, 0
    for size in _sizes():
        page = session.execute(WAITING, wanted | {"rank": rank, "after": seq, "size": size}).all()
        yield from page
        if len(page) < size:
            return
        rank, seq = page[-1].rank, page[-1].seq


def _sizes() -> Iterator[int]:
    yield from PAGES
    while True:
        yield PAGES[-1]


def _take(session: Session, rules: JobRules, worker: Row, row: Row) -> str | None:
    """Give a queued job to this worker; or close it where nothing is to be compiled."""
    request = _request(row)
    artifact = availability.artifact_for(session, row.namespace, request)
    if artifact is not None:
        done = lease_endings.CLOSED | {"state": job_protocol.DONE, "artifact": artifact}
        transitions.change(session, row.seq, JobRow.state == job_protocol.QUEUED, **done)
        transitions.note(session, row.seq, job_protocol.DONE, f"published meanwhile: {artifact}")
        return None
    model = session.execute(MODEL, {"namespace": row.namespace, "model": row.model}).first()
    if model is None:
        words = "The registry no longer has the bytes of this model."
        lease_endings.close_failed(
            session, row.seq, failures.text_of(job_protocol.JobFailure(job_protocol.TRANSIENT, words, "no_model"))
        )
        transitions.note(session, row.seq, job_protocol.FAILED, words)
        return None
    way = _lease(session, rules, worker, row)
    document = {
        "job": row.id,
        "fence": row.fence + 1,
        "seconds": rules.lease,
        "key": json.loads(row.key_json),
        "demands": json.loads(row.demands_json),
        "model": json.loads(model.manifest_json),
        "onnx": model.onnx,
        "target": way.target,
        "attempt": row.attempts + 1,
        "cross": way.cross,
        "file_name": row.file_name,
    }
    return canonical(document)


def _lease(session: Session, rules: JobRules, worker: Row, row: Row) -> capabilities.CompileMethod:
    can = lanes.can_of(worker.can_json)
    way = lanes.fitting(worker.can_json, row.lane, row.demands_json)
    assert way is not None
    moment = now(session)
    values: dict[str, Any] = {
        "state": job_protocol.RUNNING,
        "phase": "claimed",
        "worker": worker.id,
        "worker_name": worker.name,
        "toolchain_json": worker.toolchain_json,
        "pinned_json": canonical(encode(lanes.pinned(can, way, lanes.demands_of(row.demands_json)))),
        "fence": row.fence + 1,
        "attempts": row.attempts + 1,
        "lease_until": moment + rules.lease,
        "started_at": moment,
    }
    transitions.change(session, row.seq, JobRow.state == job_protocol.QUEUED, JobRow.version == row.version, **values)
    transitions.note(session, row.seq, job_protocol.RUNNING, f"attempt {row.attempts + 1}", worker.name)
    logs.append(session, row.seq, f"== attempt {row.attempts + 1} on {worker.name} ==\n")
    return way


def heartbeat(db: Database, rules: JobRules, namespace: str, id: str, beat: job_protocol.Heartbeat) -> str:
    """Keep a lease, with the phase and what came to the log; the JSON of a `work.Beat`. Raises `Conflict`."""
    with transitions.turn(db) as session:
        row = lease_endings.held(session, namespace, id, beat.fence)
        until = max(row.lease_until, now(session) + rules.lease)
        news = row.phase != beat.phase
        transitions.change(session, row.seq, *lease_endings.ours(row), seen=news, phase=beat.phase, lease_until=until)
        logs.append(session, row.seq, beat.log)
        workers.seen(session, namespace, row.worker, now(session))
        return canonical({"seconds": rules.lease, "cancelled": bool(row.cancelling)})
