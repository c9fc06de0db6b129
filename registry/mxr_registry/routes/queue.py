"""The route for queue statistics."""

from __future__ import annotations

from fastapi import Request, Response

from mxr.protocol.jobs import QueueStatistics
from mxr_registry.jobs import queue
from mxr_registry.openapi.operations import Success, operation, query

from .deps import CallerDep, JobRulesDep, ServicesDep, reply, scoped_router

router = scoped_router(tags=["jobs"])

FILTERS = (
    query("arch", "The GPU architecture."),
    query("num_cu", "Jobs that require so many CUs, or no number.", type="integer", minimum=1, maximum=queue.MAX_CU),
)


@router.get(
    "/v1/queue",
    summary="Queue statistics",
    **operation("get_queue", {200: Success("The statistics.", QueueStatistics)}, parameters=FILTERS),
)
def show_queue(request: Request, services: ServicesDep, caller: CallerDep, rules: JobRulesDep) -> Response:
    """`queued`, `running` and `oldest_seconds`: in total, for each declared pool and for each lane (`kinds`)."""
    with services.db.reading() as session:
        return reply(queue.show_queue(session, rules, caller.namespace, request.query_params))
