"""Jobs as clients see them: show one, list many, cancel one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field
from sqlalchemy import and_, bindparam, func, or_, select

from mxr.errors import Json, NotFoundError, UsageError
from mxr.protocol import jobs as job_protocol
from mxr.util.codec import time_text
from mxr_registry.config.job_rules import JobRules
from mxr_registry.database.job_tables import JobRow
from mxr_registry.database.paging import ListFilters, begins_with, list_page, read_cursor
from mxr_registry.database.session import Row, Session
from mxr_registry.database.tables import ModelRow
from mxr_registry.json_text import stored

from . import askers, estimates, needed, transitions

COLUMNS = (
    *JobRow.__table__.c,
    select(ModelRow.name)
    .where(ModelRow.namespace == JobRow.namespace, ModelRow.model == JobRow.model)
    .scalar_subquery()
    .label("model_name"),
)
"""Columns of a job, with the name of its model."""

BY_ID = (
    select(*COLUMNS)
    .where(JobRow.namespace == bindparam("namespace"), JobRow.id >= bindparam("low"), JobRow.id < bindparam("high"))
    .limit(2)
)
BY_SEQ = select(*COLUMNS).where(JobRow.seq == bindparam("of"))
AHEAD = select(func.count()).where(
    JobRow.namespace == bindparam("namespace"),
    JobRow.state == job_protocol.QUEUED,
    JobRow.lane == bindparam("lane"),
    or_(JobRow.rank < bindparam("rank"), and_(JobRow.rank == bindparam("rank"), JobRow.seq < bindparam("of"))),
)


@dataclass(frozen=True, slots=True)
class JobDocument:
    """A job as a JSON value (`job`), with the fields that waiting requests check."""

    seq: int
    id: str
    version: int
    state: str
    log_size: int
    job: Json

    @property
    def closed(self) -> bool:
        """Whether the job is closed, so that it no longer changes."""
        return self.state not in job_protocol.OPEN


class JobFilters(ListFilters, frozen=True):
    """Filters of a list of jobs."""

    state: Literal["queued", "running", "done", "failed", "cancelled", "open"] | None = Field(
        default=None, description="The state; `open` for queued and running jobs."
    )
    model: str | None = Field(default=None, description="The identity of the model.")
    name: str | None = Field(default=None, description="How the name of the model begins.")
    digest: str | None = Field(default=None, description="The digest of the key.")
    arch: str | None = Field(default=None, description="The GPU architecture.")


def select_jobs(namespace: str) -> Any:
    """Return a SELECT of full job rows, with the name of the model, in a namespace."""
    return select(*COLUMNS).where(JobRow.namespace == namespace)


def find_job(session: Session, namespace: str, id: str, viewer: str | None = None) -> Row:
    """Return the job with this id or unique id prefix (8 digits or more). Raises `NotFoundError`, `UsageError`."""
    job_protocol.check_job(id)
    query = BY_ID if viewer is None else BY_ID.where(*askers.seen_by(viewer))
    found = session.execute(query, {"namespace": namespace, "low": id, "high": id + "g"}).all()
    if not found:
        raise NotFoundError(f"There is no job {id}.", hint="List the jobs (`GET /v1/jobs`).", context={"object": "job"})
    if len(found) > 1:
        hint = "Give more digits of the id."
        raise UsageError(f"More than one job id begins with {id}.", hint=hint, context={"object": "job"})
    return found[0]


def show_job(session: Session, rules: JobRules, namespace: str, id: str, viewer: str | None = None) -> JobDocument:
    """Return the document of one job. Raises `NotFoundError`, `UsageError`."""
    return shown(session, rules, find_job(session, namespace, id, viewer))


def at(session: Session, rules: JobRules, seq: int) -> JobDocument:
    """Return the document of the job with this `seq`."""
    return shown(session, rules, session.execute(BY_SEQ, {"of": seq}).one())


def shown(session: Session, rules: JobRules, row: Row) -> JobDocument:
    """Return the document of a job row. For an open job it includes queue position, estimate and missing worker."""
    place = place_of(session, row) if row.state == job_protocol.QUEUED else None
    missing = needed.needed_worker(session, rules, row) if row.state == job_protocol.QUEUED else None
    seconds, rests_on = None, None
    if row.state in job_protocol.OPEN:
        seconds, rests_on = estimates.estimate(session, row.namespace, row.model, row.arch)
    more = {"place": place, "estimate": seconds, "estimate_from": rests_on, "waiting_for": missing}
    return JobDocument(row.seq, row.id, row.version, row.state, row.log_size, job_document(row) | more)


def place_of(session: Session, row: Row) -> int:
    """Return the position of a queued job in its lane; 1 is the next job."""
    values = {"namespace": row.namespace, "lane": row.lane, "rank": row.rank, "of": row.seq}
    return int(session.execute(AHEAD, values).scalar_one()) + 1


def job_document(row: Row) -> Json:
    """Return the JSON fields of a job row, with queue position, estimate and missing worker left null."""
    return {
        "id": row.id,
        "state": row.state,
        "digest": row.digest,
        "request": {"key": stored(row.key_json), "constraints": stored(row.constraints_json)},
        "attempts": row.attempts,
        "version": row.version,
        "created_at": time_text(row.created_at),
        "updated_at": time_text(row.updated_at),
        "priority": -row.rank,
        "started_at": time_text(row.started_at),
        "phase": row.phase,
        "worker": row.worker_name,
        "place": None,
        "estimate": None,
        "estimate_from": None,
        "waiting_for": None,
        "artifact": row.artifact,
        "failure": stored(row.failure_json),
        "model_name": row.model_name,
    }


def list_jobs(session: Session, namespace: str, filters: JobFilters, viewer: str | None = None) -> Json:
    """Return one page of jobs, newest first, without queue positions, estimates and missing workers."""
    query = select_jobs(namespace).where(*askers.seen_by(viewer))
    if filters.state is not None:
        query = query.where(JobRow.state.in_(job_protocol.OPEN if filters.state == "open" else (filters.state,)))
    query = query.where(*filters.equal(JobRow, "model", "digest", "arch"))
    if filters.name is not None:
        named = select(ModelRow.model).where(ModelRow.namespace == namespace, begins_with(ModelRow.name, filters.name))
        query = query.where(JobRow.model.in_(named))
    if filters.after is not None:
        (seq,) = read_cursor("jobs", filters.after, int)
        query = query.where(JobRow.seq < seq)
    rows = query.order_by(JobRow.seq.desc())
    return list_page(session, rows, job_document, "jobs", lambda row: (row.seq,), filters.limit)


MOST_OF_MODELS = 500


def latest_of_models(session: Session, namespace: str, models: Sequence[str], viewer: str | None = None) -> list[Json]:
    """Return the jobs of these models that are open or failed: `[{"id","state","model","key"}]`, the latest first."""
    row, states = JobRow, (*job_protocol.OPEN, job_protocol.FAILED)
    query = select(row.id, row.state, row.model, row.key_json).where(
        row.namespace == namespace, row.model.in_(models), row.state.in_(states), *askers.seen_by(viewer)
    )
    rows = session.execute(query.order_by(row.seq.desc()).limit(MOST_OF_MODELS)) if models else ()
    return [{"id": each.id, "state": each.state, "model": each.model, "key": stored(each.key_json)} for each in rows]


def cancel(session: Session, rules: JobRules, namespace: str, id: str, viewer: str | None = None) -> JobDocument:
    """Cancel a queued job at once, and request a running one to stop. A closed job does not change.

    A `viewer` withdraws from the job, which ends only if nobody else asked for it.
    """
    row = find_job(session, namespace, id, viewer)
    if viewer is not None and not askers.withdraw(session, row.seq, viewer):
        return at(session, rules, row.seq)
    if row.state == job_protocol.QUEUED:
        closing: dict[str, Any] = {"state": job_protocol.CANCELLED, "calibration": None, "phase": None}
        transitions.change(session, row.seq, JobRow.state == job_protocol.QUEUED, **closing)
        transitions.record_event(session, row.seq, job_protocol.CANCELLED, "cancelled in the queue")
    elif row.state == job_protocol.RUNNING and not row.cancelling:
        transitions.change(session, row.seq, JobRow.state == job_protocol.RUNNING, cancelling=True)
        transitions.record_event(session, row.seq, job_protocol.RUNNING, "cancellation requested", row.worker_name)
    return at(session, rules, row.seq)
