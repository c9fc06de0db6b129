"""Jobs as askers see them: one, many, and cancelling one. Asking is in `asking`, working in `leases` and `endings`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, bindparam, func, or_, select

from mxr.errors import NotFound, Usage
from mxr.protocol import jobs as job_protocol
from mxr.util.codec import canonical
from mxr_registry.config.job_rules import JobRules
from mxr_registry.database.job_tables import JobRow
from mxr_registry.database.session import Row, Session

from . import estimates, transitions, workers

MOST_LISTED = 1_000

BY_ID = (
    select(*JobRow.__table__.c)
    .where(JobRow.namespace == bindparam("namespace"), JobRow.id >= bindparam("low"), JobRow.id < bindparam("high"))
    .limit(2)
)
BY_SEQ = select(*JobRow.__table__.c).where(JobRow.seq == bindparam("of"))
AHEAD = select(func.count()).where(
    JobRow.namespace == bindparam("namespace"),
    JobRow.state == job_protocol.QUEUED,
    JobRow.lane == bindparam("lane"),
    or_(JobRow.rank < bindparam("rank"), and_(JobRow.rank == bindparam("rank"), JobRow.seq < bindparam("of"))),
)


@dataclass(frozen=True, slots=True)
class JobDocument:
    """A job's document, with what decides whether a waiter wants it."""

    seq: int
    id: str
    version: int
    state: str
    log_size: int
    text: str

    @property
    def closed(self) -> bool:
        """Whether nothing more will come."""
        return self.state not in job_protocol.OPEN


@dataclass(frozen=True, slots=True)
class JobFilters:
    """What a list of jobs is narrowed to; None is all. `state` may also be `open`. `after`: a page's `next`."""

    state: str | None = None
    model: str | None = None
    digest: str | None = None
    arch: str | None = None
    limit: int = 100
    after: str | None = None

    @classmethod
    def read(cls, query: Mapping[str, str]) -> JobFilters:
        """The filters of a query string. Raises `Usage` for one that there is not."""
        for name in query:
            if name not in cls.__dataclass_fields__:
                raise Usage(
                    f"{name}: there is no such filter.", hint=f"Filters: {', '.join(cls.__dataclass_fields__)}."
                )
        limit, after = query.get("limit", "100"), query.get("after")
        if not re.fullmatch(r"[1-9][0-9]{0,3}", limit, re.ASCII) or int(limit) > MOST_LISTED:
            raise Usage(f"limit: expected 1 to {MOST_LISTED}, found {limit[:20]!r}.", hint="Correct it.")
        if after is not None and not re.fullmatch(r"[0-9]{1,18}", after, re.ASCII):
            raise Usage(f"after: {after[:40]!r} is not where a page ended.", hint="Use `next` of the page before.")
        if query.get("state", "open") not in (*job_protocol.STATES, "open"):
            raise Usage(
                f"state: {query['state'][:40]!r} is no state.", hint=f"States: {', '.join(job_protocol.STATES)}, open."
            )
        return cls(**{**query, "limit": int(limit)})  # type: ignore[arg-type]


def select_jobs(namespace: str) -> Any:
    """The statement for rows of jobs."""
    return select(*JobRow.__table__.c).where(JobRow.namespace == namespace)


def find(session: Session, namespace: str, id: str) -> Row:
    """The one job whose id begins so (8 digits or more). Raises `NotFound`, and `Usage` where several do."""
    job_protocol.check_job(id)
    found = session.execute(BY_ID, {"namespace": namespace, "low": id, "high": id + "g"}).all()
    if not found:
        raise NotFound(f"There is no job {id}.", hint="`mxr jobs` lists them.")
    if len(found) > 1:
        raise Usage(f"More than one job begins with {id}.", hint="Give more digits of the id; `mxr jobs` shows them.")
    return found[0]


def show(session: Session, rules: JobRules, namespace: str, id: str) -> JobDocument:
    """One job. Raises `NotFound`, `Usage`."""
    return shown(session, rules, find(session, namespace, id))


def at(session: Session, rules: JobRules, seq: int) -> JobDocument:
    """The job of this row."""
    return shown(session, rules, session.execute(BY_SEQ, {"of": seq}).one())


def shown(session: Session, rules: JobRules, row: Row) -> JobDocument:
    """A row with its document: place, estimate and who is missing are worked out for an open job."""
    place = place_of(session, row) if row.state == job_protocol.QUEUED else None
    missing = workers.missing(session, rules, row) if row.state == job_protocol.QUEUED else None
    seconds, rests_on = None, None
    if row.state in job_protocol.OPEN:
        seconds, rests_on = estimates.estimate(session, row.namespace, row.model, row.arch)
    more = {"place": place, "estimate": seconds, "estimate_from": rests_on, "waiting_for": missing}
    return JobDocument(row.seq, row.id, row.version, row.state, row.log_size, canonical(document(row) | more))


def place_of(session: Session, row: Row) -> int:
    """1 for the job that comes next among those for the same kind of worker."""
    wanted = {"namespace": row.namespace, "lane": row.lane, "rank": row.rank, "of": row.seq}
    return int(session.execute(AHEAD, wanted).scalar_one()) + 1


def document(row: Row) -> dict[str, Any]:
    """A row as JSON, without place and estimate."""
    return {
        "id": row.id,
        "state": row.state,
        "digest": row.digest,
        "request": {"key": json.loads(row.key_json), "demands": json.loads(row.demands_json)},
        "attempts": row.attempts,
        "version": row.version,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
        "priority": -row.rank,
        "started_at": row.started_at,
        "phase": row.phase,
        "worker": row.worker_name,
        "place": None,
        "estimate": None,
        "estimate_from": None,
        "waiting_for": None,
        "artifact": row.artifact,
        "failure": json.loads(row.failure_json) if row.failure_json else None,
    }


def listed(session: Session, namespace: str, filters: JobFilters) -> str:
    """The JSON of a page of jobs, the latest first, without what is worked out for one of them."""
    asked = select_jobs(namespace)
    if filters.state is not None:
        asked = asked.where(JobRow.state.in_(job_protocol.OPEN if filters.state == "open" else (filters.state,)))
    for name in ("model", "digest", "arch"):
        value = getattr(filters, name)
        if value is not None:
            asked = asked.where(getattr(JobRow, name) == (value.partition(":")[0] if name == "arch" else value))
    if filters.after is not None:
        asked = asked.where(JobRow.seq < int(filters.after))
    rows = session.execute(asked.order_by(JobRow.seq.desc()).limit(filters.limit + 1)).all()
    page = rows[: filters.limit]
    following = str(page[-1].seq) if len(rows) > len(page) else None
    return canonical({"jobs": [document(row) for row in page], "next": following})


def cancel(session: Session, rules: JobRules, namespace: str, id: str) -> JobDocument:
    """Cancel a job: at once where it is queued; where it runs, its worker is told. A closed one stays as it is."""
    row = find(session, namespace, id)
    if row.state == job_protocol.QUEUED:
        closing: dict[str, Any] = {"state": job_protocol.CANCELLED, "calibration": None, "phase": None}
        transitions.change(session, row.seq, JobRow.state == job_protocol.QUEUED, **closing)
        transitions.note(session, row.seq, job_protocol.CANCELLED, "cancelled in the queue")
    elif row.state == job_protocol.RUNNING and not row.cancelling:
        transitions.change(session, row.seq, JobRow.state == job_protocol.RUNNING, cancelling=True)
        transitions.note(session, row.seq, job_protocol.RUNNING, "its worker is told to stop", row.worker_name)
    return at(session, rules, row.seq)
