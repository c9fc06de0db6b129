"""Queue statistics for autoscalers and for the list of pools."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import func, select

from mxr.errors import UsageError
from mxr.protocol import jobs as job_protocol
from mxr.util.codec import canonical, encode
from mxr_registry.config import lanes
from mxr_registry.config.job_rules import JobRules
from mxr_registry.database.job_tables import JobRow
from mxr_registry.database.session import Row, Session, now

MAX_CU = 65_536
"""The largest number of CUs that a request can name (`mxr.artifact.attributes`)."""


def show_queue(session: Session, rules: JobRules, namespace: str, query: Mapping[str, str]) -> str:
    """Return the JSON of the queue statistics, filtered by `arch` and `num_cu`. Raises `UsageError`.

    The statistics are `queued`, `running` and `oldest_seconds` (the age of the oldest queued job, or 0): in total, for
    each declared pool over the jobs that it can compile (`pools`), and for each lane (`kinds`).
    """
    arch, num_cu = _filters(query)
    rows = [row for row in groups(session, namespace) if _matches(row, arch, num_cu)]
    moment = now(session)
    by_lane: dict[str, list[Row]] = {}
    for row in rows:
        by_lane.setdefault(row.lane, []).append(row)
    return canonical(
        _numbers(rows, moment)
        | {"pools": {pool.name: _numbers(_compilable(pool, rows), moment) for pool in rules.pools}}
        | {"kinds": {lane: _numbers(lane_rows, moment) for lane, lane_rows in by_lane.items()}}
    )


def by_pool(session: Session, rules: JobRules, namespace: str) -> dict[str, dict[str, Any]]:
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


def _numbers(rows: Iterable[Row], moment: float) -> dict[str, Any]:
    queued = [row for row in rows if row.state == job_protocol.QUEUED]
    oldest = min((row.oldest for row in queued), default=moment)
    return {
        "queued": sum(row.jobs for row in queued),
        "running": sum(row.jobs for row in rows if row.state == job_protocol.RUNNING),
        "oldest_seconds": round(max(0.0, moment - oldest), 3),
    }


def _filters(query: Mapping[str, str]) -> tuple[str | None, int | None]:
    for name in query:
        if name not in ("arch", "num_cu"):
            raise UsageError(f"{name}: unknown filter.", hint="Use one of these filters: arch, num_cu.")
    count = query.get("num_cu")
    if count is not None and (not re.fullmatch(r"[1-9][0-9]{0,4}", count, re.ASCII) or int(count) > MAX_CU):
        raise UsageError(f"num_cu: expected 1 to {MAX_CU}, found {count[:20]!r}.", hint="Correct the filter num_cu.")
    arch = query.get("arch")
    return (arch.partition(":")[0] if arch else None), (int(count) if count else None)


def _matches(row: Row, arch: str | None, num_cu: int | None) -> bool:
    """Whether a group matches the filters. A job that requires no number of CUs matches every `num_cu`."""
    if arch is not None and (row.lane.split()[2:3] or [None])[0] != arch:
        return False
    return num_cu is None or json.loads(row.constraints_json)["num_cu"] in (None, num_cu)
