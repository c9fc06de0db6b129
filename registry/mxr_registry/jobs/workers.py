"""Workers and pools: registration, liveness, and which of them can compile a job."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable
from dataclasses import replace
from hashlib import sha256
from typing import Any

from sqlalchemy import bindparam, case, delete, exists, func, select, update

from mxr.artifact.limits import MAX_ALL_CAPABILITIES, MAX_WORKERS
from mxr.errors import ConflictError, Json, NotFoundError, TemporaryError
from mxr.protocol import jobs as job_protocol
from mxr.protocol.jobs import DeclaredPool, Pools
from mxr.util.codec import canonical, encode, time_text
from mxr_registry.config import lanes
from mxr_registry.config.job_rules import JobRules
from mxr_registry.database.job_tables import JobRow, WorkerRow
from mxr_registry.database.paging import MAX_ROWS, list_page, read_cursor
from mxr_registry.database.session import Row, Session, now, upsert
from mxr_registry.json_text import stored

from . import askers, failures
from .live_capabilities import REGISTERED

DELETE_AFTER = 7 * 86400.0
"""Seconds without contact after which a worker is deleted."""

BY_CREDENTIAL = select(*WorkerRow.__table__.c).where(
    WorkerRow.namespace == bindparam("namespace"), WorkerRow.credential == bindparam("of"), WorkerRow.left_at.is_(None)
)
BY_ID = select(*WorkerRow.__table__.c).where(
    WorkerRow.namespace == bindparam("namespace"), WorkerRow.id == bindparam("of")
)
MARK_SEEN = (
    update(WorkerRow)
    .where(WorkerRow.namespace == bindparam("of_namespace"), WorkerRow.id == bindparam("of"))
    .values(seen_at=bindparam("moment"))
)


def register_worker(
    session: Session, rules: JobRules, namespace: str, created_by: str, message: job_protocol.RegisterWorker
) -> tuple[Json, bool]:
    """Register a worker with its capabilities. Return it, and whether it is new. The same credential keeps its id.

    Raises `UsageError`, and `ConflictError` for the name of another worker that is live.
    """
    lanes.check_capabilities(message.can)
    can = message.can
    if can.trusts is not None:
        # Who runs a worker on the own host asks for jobs under the same name.
        can = replace(can, trusts=tuple(sorted({*can.trusts, created_by})))
    moment, credential, own = now(session), digest_of(message.credential), WorkerRow.namespace == namespace
    session.execute(delete(WorkerRow).where(own, WorkerRow.seen_at < moment - DELETE_AFTER))
    before = session.execute(select(*WorkerRow.__table__.c).where(own, WorkerRow.name == message.name)).one_or_none()
    if before is not None and before.credential != credential and before.left_at is None:
        left = before.seen_at + rules.lost_after - moment
        if left > 0 and before.credential is not None:
            raise ConflictError(
                f"Another worker is registered as {message.name[:200]!r}, and it is live.",
                hint=f"Give this one another name (MXR_WORKER_NAME), or wait {left:.0f} s until that one is lost.",
            )
    session.execute(delete(WorkerRow).where(own, WorkerRow.credential == credential, WorkerRow.name != message.name))
    toolchain = failures.toolchain_text(message.can.toolchain)
    values: dict[str, Any] = {
        "credential": credential,
        "can_json": canonical(encode(can)),
        "toolchain": failures.toolchain_hash(toolchain),
        "toolchain_json": toolchain,
        "seen_at": moment,
        "left_at": None,
        "created_by": created_by,
    }
    id = secrets.token_hex(16)
    new = values | {"id": id, "created_at": moment}
    # In the statement: the same registration can come twice at once.
    kept = case((WorkerRow.credential == credential, WorkerRow.id), else_=id)
    upsert(session, WorkerRow, {"namespace": namespace, "name": message.name}, new, values | {"id": kept})
    if session.execute(select(func.count()).where(WorkerRow.namespace == namespace)).scalar_one() > MAX_WORKERS:
        raise TemporaryError(
            f"{MAX_WORKERS} workers are registered, which is the limit.",
            hint="Give a worker the same name again when it restarts; names that are not used expire after 7 days.",
        )
    texts = select(WorkerRow.can_json).where(WorkerRow.namespace == namespace).distinct().subquery()
    if (session.execute(select(func.sum(func.length(texts.c.can_json)))).scalar() or 0) > MAX_ALL_CAPABILITIES:
        raise TemporaryError(
            f"The workers have more than {MAX_ALL_CAPABILITIES} bytes of different capabilities, which is the limit.",
            hint="Workers that are not used expire after 7 days. Equal workers count once.",
        )
    row = session.execute(_select(namespace).where(WorkerRow.name == message.name)).one()
    return _document(row, moment, rules), row.id == id


def _select(namespace: str) -> Any:
    holding = (
        select(JobRow.id)
        .where(JobRow.state == job_protocol.RUNNING, JobRow.worker == WorkerRow.id)
        .limit(1)
        .scalar_subquery()
    )
    return select(*WorkerRow.__table__.c, holding.label("job")).where(WorkerRow.namespace == namespace)


def _document(row: Row, moment: float, rules: JobRules) -> Json:
    lost = row.seen_at < moment - rules.lost_after
    state = "left" if row.left_at is not None else "lost" if lost else "busy" if row.job else "idle"
    can = stored(row.can_json)
    seen_at = time_text(row.seen_at)
    return {"id": row.id, "name": row.name, "state": state, "can": can, "seen_at": seen_at, "job": row.job}


def show_worker(session: Session, rules: JobRules, namespace: str, id: str) -> Json:
    """Return a worker by its full id, also of one that signed off. Raises `NotFoundError`."""
    row = session.execute(_select(namespace).where(WorkerRow.id == id)).first()
    if row is None:
        raise _no_worker(repr(id[:64]))
    return _document(row, now(session), rules)


def leave(session: Session, rules: JobRules, namespace: str, credential: str) -> Json:
    """Sign a worker off until it registers again, and return it. Raises `NotFoundError`.

    Its row stays, so that a job that failed on it last still prefers another worker.
    """
    moment = now(session)
    same = (WorkerRow.namespace == namespace, WorkerRow.id == authenticate(session, namespace, credential).id)
    session.execute(update(WorkerRow).where(*same).values(left_at=moment, seen_at=moment))
    return _document(session.execute(_select(namespace).where(*same)).one(), moment, rules)


def find_worker(session: Session, namespace: str, id: str) -> Row:
    """Return a registered worker by its full id. Raises `NotFoundError`, also for a worker that has signed off."""
    row = session.execute(BY_ID, {"namespace": namespace, "of": id}).first()
    if row is None or row.left_at is not None:
        raise _no_worker(repr(id[:64]))
    return row


def authenticate(session: Session, namespace: str, credential: str) -> Row:
    """Return the registered worker with this secret. Raises `NotFoundError`, also for a worker that has signed off."""
    row = session.execute(BY_CREDENTIAL, {"namespace": namespace, "of": digest_of(credential)}).first()
    if row is None:
        raise _no_worker("with this credential")
    return row


def digest_of(secret: str) -> str:
    """Return the sha256 under which the database knows a secret of a worker."""
    return sha256(secret.encode()).hexdigest()


def _no_worker(which: str) -> NotFoundError:
    return NotFoundError(f"There is no worker {which}.", hint="Register it (`POST /v1/workers`).")


def seen_update_due(row: Row, moment: float, rules: JobRules, waiting: bool) -> bool:
    """Whether `seen_at` of a worker needs an update. Updating it on every request would cost too many writes."""
    return bool(row.seen_at < moment - (rules.lost_after / 2 if waiting else min(15.0, rules.lost_after / 4)))


def mark_seen(session: Session, namespace: str, id: str | None, moment: float) -> None:
    """Record that a worker contacted the registry."""
    session.execute(MARK_SEEN, {"of_namespace": namespace, "of": id, "moment": moment})


def mark_all_seen(session: Session, waiting: Iterable[tuple[str, str]]) -> None:
    """Record that these workers (namespace and id) are waiting for a job."""
    moment = now(session)
    # Update rows in the same order everywhere, to avoid deadlocks between registries.
    for namespace, id in sorted(waiting):
        mark_seen(session, namespace, id, moment)


def seconds_since_contact(session: Session) -> float:
    """Return the seconds since the last request of any worker, or 0 if there are no workers."""
    latest = session.execute(select(func.max(WorkerRow.seen_at))).scalar_one()
    return 0.0 if latest is None else max(0.0, now(session) - float(latest))


def shift_last_seen(session: Session, rules: JobRules, downtime: float) -> None:
    """Add the registry's downtime to `seen_at` of every worker that was live before it, so that none counts as lost."""
    live_before = WorkerRow.seen_at >= now(session) - downtime - rules.lost_after
    session.execute(update(WorkerRow).where(REGISTERED, live_before).values(seen_at=WorkerRow.seen_at + downtime))


def count_states(session: Session, rules: JobRules, namespace: str) -> dict[str, int]:
    """Return how many workers are registered, and how many of them are live."""
    since = now(session) - rules.lost_after
    count = select(func.count()).where(WorkerRow.namespace == namespace, REGISTERED)
    live = session.execute(count.where(WorkerRow.seen_at >= since)).scalar_one()
    return {"registered": int(session.execute(count).scalar_one()), "live": int(live)}


def list_workers(
    session: Session, rules: JobRules, namespace: str, after: str | None = None, limit: int = MAX_ROWS
) -> Json:
    """Return one page of workers by name.

    `after`: `next` of the previous page.
    """
    moment = now(session)
    query = _select(namespace).where(REGISTERED)
    if after is not None:
        (name,) = read_cursor("workers", after, str)
        query = query.where(WorkerRow.name > name)
    rows = query.order_by(WorkerRow.name)
    return list_page(
        session, rows, lambda row: _document(row, moment, rules), "workers", lambda row: (row.name,), limit
    )


def list_pools(session: Session, rules: JobRules, namespace: str) -> Pools:
    """Return the declared pools, with their queued and running jobs."""
    from . import queue

    counts = queue.by_pool(session, rules, namespace)
    return Pools(
        tuple(
            DeclaredPool(pool.name, pool.can, counts[pool.name].queued, counts[pool.name].running)
            for pool in rules.pools
        )
    )


def live(session: Session, rules: JobRules, namespace: str) -> list[Row]:
    """Return the live workers, each with the id of its current job (`job`)."""
    return list(
        session.execute(_select(namespace).where(REGISTERED, WorkerRow.seen_at >= now(session) - rules.lost_after))
    )


def another_could(session: Session, rules: JobRules, job: Row) -> bool:
    """Whether another live worker than the one that has refused a job, or has it now, could compile it."""
    moment, known = now(session), {job.refused_by, getattr(job, "worker", None)}
    hosts = {job.suspect, host_of(getattr(job, "worker_name", None))} if job.suspect else set()
    asked = askers.principals_of(session, job.seq)
    for other in live(session, rules, job.namespace):
        if other.id in known or host_of(other.name) in hosts or not _could(other, job, asked):
            continue
        if not _remembers(session, job, other, moment):
            return True
    return False


def host_of(name: str | None) -> str:
    """Return the host of a worker, which is what its slots have in common: `HOST/SLOT`."""
    return (name or "").rpartition("/")[0] or name or ""


def _could(worker: Row, job: Row, asked: Collection[str]) -> bool:
    method = lanes.compile_method(worker.can_json, job.lane, job.constraints_json)
    return method is not None and lanes.capabilities_of(worker.can_json).takes_from(asked)


def _remembers(session: Session, job: Row, worker: Row, moment: float) -> bool:
    """Whether a failure of a job is remembered for the toolchain of a worker."""
    blocked = exists().where(JobRow.seq == job.seq, failures.is_remembered(worker.toolchain, moment))
    return bool(session.execute(select(blocked)).scalar_one())


def another_can_take(session: Session, rules: JobRules, worker: Row, job: Row) -> bool:
    """Whether another live and idle worker can compile a job and has no remembered failure of it."""
    moment, asked = now(session), askers.principals_of(session, job.seq)
    for other in live(session, rules, worker.namespace):
        if other.id == worker.id or other.job or not _could(other, job, asked):
            continue
        if not _remembers(session, job, other, moment):
            return True
    return False
