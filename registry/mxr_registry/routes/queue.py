"""The route for queue statistics."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from mxr.protocol.jobs import QueueStatistics
from mxr_registry.jobs import queue

from .deps import CallerDep, ServicesDep, scoped_router

router = scoped_router(tags=["jobs"])


@router.get("/v1/queue")
def get_queue(
    services: ServicesDep, caller: CallerDep, filters: Annotated[queue.QueueFilters, Query()]
) -> QueueStatistics:
    """Queue statistics.

    `queued`, `running` and `oldest_seconds`: in total, for each declared pool and for each lane (`kinds`).
    """
    with services.db.reading() as session:
        return queue.show_queue(session, services.rules, caller.namespace, filters)
