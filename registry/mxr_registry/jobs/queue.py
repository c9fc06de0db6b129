"""The queue in numbers: for an autoscaler, and for the list of pools."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import func, select

from mxr.errors import Usage
from mxr.protocol import jobs as job_protocol
from mxr.util.codec import canonical, encode
from mxr_registry.config import lanes
from mxr_registry.config.job_rules import JobRules
from mxr_registry.database.job_tables import JobRow
from mxr_registry.database.session import Row, Session, now


def show(session: Session, rules: JobRules, namespace: str, query: Mapping[str, str]) -> str:
    """The JSON of the open jobs in numbers, narrowed by `arch` and `num_cu`. Raises `Usage`.

    `queued`, `running`, `oldest_seconds` (of the longest in the queue, 0 for an empty one) for all, for each declared
    pool the jobs that it could do, and for each lane.
    """
    rows = [row for row in groups(session, namespace) if _wanted(row, *_filters(query))]
    moment = now(session)
    kinds: dict[str, list[Row]] = {}
    for row in rows:
        kinds.setdefault(row.lane, []).append(row)
    return canonical(
        _numbers(rows, moment)
        | {"pools": {pool.name: _numbers(_of(pool, rows), moment) for pool in rules.pools}}
        | {"kinds": {lane: _numbers(some, moment) for lane, some in kinds.items()}}
    )


def by_pool(session: Session, rules: JobRules, namespace: str) -> dict[str, dict[str, Any]]:
    """The numbers of each declared pool."""
    if not rules.pools:
        return {}
    rows, moment = groups(session, namespace), now(session)
    return {pool.name: _numbers(_of(pool, rows), moment) for pool in rules.pools}


def groups(session: Session, namespace: str) -> list[Row]:
    """The open jobs, those of equal state, lane and demands in one row with their count and the oldest's time."""
    row = JobRow
    asked = (
        select(
            row.state, row.lane, row.demands_json, func.count().label("jobs"), func.min(row.created_at).label("oldest")
        )
        .where(row.namespace == namespace, row.state.in_(job_protocol.OPEN))
        .group_by(row.state, row.lane, row.demands_json)
        .order_by(row.lane)
    )
    return list(session.execute(asked))


def _of(pool: job_protocol.DeclaredPool, rows: Iterable[Row]) -> list[Row]:
    text = canonical(encode(pool.can))
    return [row for row in rows if lanes.fitting(text, row.lane, row.demands_json) is not None]


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
            raise Usage(f"{name}: there is no such filter.", hint="Filters: arch, num_cu.")
    count = query.get("num_cu")
    if count is not None and not re.fullmatch(r"[1-9][0-9]{0,4}", count, re.ASCII):
        raise Usage(f"num_cu: expected a count, found {count[:20]!r}.", hint="Correct it.")
    arch = query.get("arch")
    return (arch.partition(":")[0] if arch else None), (int(count) if count else None)


def _wanted(row: Row, arch: str | None, num_cu: int | None) -> bool:
    """A job with no demand on CUs is one for hardware of any count."""
    if arch is not None and (row.lane.split()[2:3] or [None])[0] != arch:
        return False
    return num_cu is None or json.loads(row.demands_json)["num_cu"] in (None, num_cu)
