"""Queue statistics for autoscalers and for the list of pools."""

from __future__ import annotations

import json
from collections.abc import Iterable

from pydantic import BaseModel, Field
from sqlalchemy import func, select

from mxr.protocol import jobs as job_protocol
from mxr.protocol.jobs import QueueCounts, QueueStatistics
from mxr.util.codec import canonical, encode
from mxr_registry.config import lanes
from mxr_registry.config.job_rules import JobRules
from mxr_registry.database.job_tables import JobRow
from mxr_registry.database.session import Row, Session, now

MAX_CU = 65_536
"""The largest number of CUs that a request can name (`mxr.artifact.attributes`)."""


class QueueFilters(BaseModel, extra="forbid", frozen=True):
    """Filters of the queue; None matches all."""

    arch: str | None = Field(default=None, description="The GPU architecture.")
    num_cu: int | None = Field(
        default=None, description="Jobs that require so many CUs, or no number.", ge=1, le=MAX_CU
    )

    def match(self, row: Row) -> bool:
        """Whether a group of jobs matches the filters."""
        if self.arch is not None and (row.lane.split()[2:3] or [None])[0] != self.arch.partition(":")[0]:
            return False
        return self.num_cu is None or json.loads(row.constraints_json)["num_cu"] in (None, self.num_cu)


def show_queue(session: Session, rules: JobRules, namespace: str, filters: QueueFilters) -> QueueStatistics:
    """Return the queue statistics.

    The statistics are `queued`, `running` and `oldest_seconds` (the age of the oldest queued job, or 0): in total, for
    each declared pool over the jobs that it can compile (`pools`), and for each lane (`kinds`).
    """
    rows = [row for row in groups(session, namespace) if filters.match(row)]
    moment = now(session)
    by_lane: dict[str, list[Row]] = {}
    for row in rows:
        by_lane.setdefault(row.lane, []).append(row)
    total = _numbers(rows, moment)
    pools = {pool.name: _numbers(_compilable(pool, rows), moment) for pool in rules.pools}
    kinds = {lane: _numbers(lane_rows, moment) for lane, lane_rows in by_lane.items()}
    return QueueStatistics(total.queued, total.running, total.oldest_seconds, pools, kinds)


MARKED = 50
"""Jobs of a lane whose ages are told."""


def waiting_ages(session: Session, namespace: str, lane: str) -> list[int]:
    """Return for how many seconds the queued jobs of a lane wait, the next ones first."""
    row, moment = JobRow, now(session)
    query = select(row.created_at).where(row.namespace == namespace, row.state == job_protocol.QUEUED, row.lane == lane)
    found = session.execute(query.order_by(row.rank, row.seq).limit(MARKED)).scalars()
    return [max(0, round(moment - created_at)) for created_at in found]


def by_pool(session: Session, rules: JobRules, namespace: str) -> dict[str, QueueCounts]:
    """Return the statistics of each declared pool."""
    if not rules.pools:
        return {}
    rows, moment = groups(session, namespace), now(session)
    return {pool.name: _numbers(_compilable(pool, rows), moment) for pool in rules.pools}


def groups(session: Session, namespace: str) -> list[Row]:
    """Return the open jobs grouped by state, lane and constraints, each with count and time of its oldest job."""
    row = JobRow
    query = (
        select(
            row.state,
            row.lane,
            row.constraints_json,
            func.count().label("jobs"),
            func.min(row.created_at).label("oldest"),
        )
        .where(row.namespace == namespace, row.state.in_(job_protocol.OPEN))
        .group_by(row.state, row.lane, row.constraints_json)
        .order_by(row.lane)
    )
    return list(session.execute(query))


def _compilable(pool: job_protocol.DeclaredPool, rows: Iterable[Row]) -> list[Row]:
    """The groups of jobs that the workers of a pool can compile."""
    text = canonical(encode(pool.can))
    return [row for row in rows if lanes.compile_method(text, row.lane, row.constraints_json) is not None]


def _numbers(rows: Iterable[Row], moment: float) -> QueueCounts:
    queued = [row for row in rows if row.state == job_protocol.QUEUED]
    oldest = min((row.oldest for row in queued), default=moment)
    running = sum(row.jobs for row in rows if row.state == job_protocol.RUNNING)
    return QueueCounts(sum(row.jobs for row in queued), running, round(max(0.0, moment - oldest), 3))
